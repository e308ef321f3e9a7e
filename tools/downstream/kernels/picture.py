"""A page that shows every kernel as a square: what the release has on each target, and what the series makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from downstream.arches import Target
from downstream.kernels.machine import Kernel
from downstream.kernels.proof import Proof

COLUMNS = 40
CELL = 10  # pixels a square takes, its gap included

STYLE = """\
:root { color-scheme: light dark; --fine: #23865a; --bare: #d9951a; --dead: #c4281c; --none: #98a1ab; --line: #8883; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 74rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem; }
.answer { display: flex; flex-wrap: wrap; gap: 1rem; margin: 0 0 1.2rem; padding: 0; list-style: none; }
.answer li { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1.1rem; }
.answer b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.answer small { opacity: .8; } section { overflow-x: auto; } td:first-child { min-width: 14rem; }
.fine { fill: var(--fine); } .bare { fill: var(--bare); } .none { fill: var(--none); }
.dead { fill: none; stroke: var(--dead); stroke-width: 1.6; }
.key span { white-space: nowrap; margin-right: 1.4rem; } .key svg { vertical-align: -1px; margin-right: .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; padding-bottom: .3rem; }
td { padding: .55rem 1.6rem .55rem 0; vertical-align: top; }
tr + tr td { border-top: 1px solid var(--line); }
td p { margin: .15rem 0 0; font-size: .85rem; opacity: .8; } td svg { display: block; }
.fault { color: var(--dead); } ul { padding-left: 1.2rem; } details { margin-top: 2rem; }
code { font-size: .92em; overflow-wrap: anywhere; }
"""

_STATES = {
    "fine": "does its work and waits for what it needs",
    "bare": "does its work without the wait it needs",
    "dead": "empty: does nothing, and says nothing",
    "none": "does its work without a wait, and no reference has one",
}
_SHORT = {"fine": "alive", "bare": "without their wait", "dead": "empty", "none": "without a wait"}
_TREES = {"unpatched": "the release", "patched": "with the series"}

Listings = Mapping[tuple[str, Target], Mapping[str, Kernel]]


def page(
    units: Mapping[str, Listings],
    proof: Proof,
    *,
    title: str,
    references: Sequence[Target],
    targets: Sequence[Target],
) -> str:
    """Return the page. *units* maps a unit's name to its listings by tree ("unpatched", "patched") and target."""
    body = [f"<h1>{escape(title)}</h1>", _answer(proof, targets), f'<p class="key">{_key()}</p>']
    for target in (*targets, *references):
        role = "" if target in targets else ", which the release is made for"
        for unit, listings in units.items():
            if not any(kernels for (_, to), kernels in listings.items() if to == target):
                continue  # a module built for another family, or nothing of it is left
            body.append(f"<h2>{target}{role}: {escape(unit)}</h2>")
            body.append(_table(listings, target, references[0]))
    body.append(_rest(proof))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    text = "\n".join(body)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{text}\n</body>\n</html>\n'


def _answer(proof: Proof, targets: Sequence[Target]) -> str:
    cards = [
        f"<li>empty kernels on {target}<b>{proof.empty('unpatched', str(target))} →"
        f" {proof.empty('patched', str(target))}</b></li>"
        for target in targets
    ]
    for name in map(str, targets):
        before, after = (proof.totals(tree, name) for tree in _TREES)
        told = f"<small>of {after.kernels}</small>"
        cards.append(f"<li>kernels that wait on {name}<b>{before.waits} → {after.waits}</b>{told}</li>")
    for target in dict.fromkeys(target for _, target, _ in proof.equal):
        same = sum(count for _, to, count in proof.equal if to == target)
        declared = sum(each.count for each in proof.moved if each.target == target)
        told = f"<small>{declared} changed as declared</small>" if declared else ""
        cards.append(f"<li>the same code on {target}<b>{same} kernels</b>{told}</li>")
    verdict = "holds" if proof.holds else "fails"
    faults = "".join(f"<li>{escape(str(finding))}</li>" for finding in proof.findings)
    told = f'<ul class="fault">{faults}</ul>' if faults else ""
    return f'<ul class="answer"><li>the proof<b>{verdict}</b></li>{"".join(cards)}</ul>{told}'


def _key() -> str:
    return "".join(f"<span>{_square(state)}{text}</span>" for state, text in _STATES.items())


def _square(state: str) -> str:
    return f'<svg width="{CELL}" height="{CELL}">{_path(state, [0])}</svg>'


def _state(kernel: Kernel | None, model: Kernel | None) -> str:
    if kernel is None or (kernel.empty and not (model and model.empty)):
        return "dead"
    if model is not None and model.waits and not kernel.waits:
        return "bare"
    return "fine" if kernel.waits else "none"


def _table(listings: Listings, target: Target, reference: Target) -> str:
    families: dict[str, list[str]] = {}
    for (_, to), kernels in listings.items():
        if to == target:
            for name, kernel in kernels.items():
                families.setdefault(kernel.family, []).append(name)
    model = listings["unpatched", reference]
    heads = "".join(f"<th>{words}</th>" for words in ("kernels", *_TREES.values()))
    rows = [f"<tr>{heads}</tr>"]
    for family, found in sorted(families.items(), key=lambda item: (-len(item[1]), item[0])):
        names = sorted(set(found))
        cells = "".join(f"<td>{_block(listings[tree, target], model, names, family)}</td>" for tree in _TREES)
        rows.append(f"<tr><td><code>{_broken(family)}</code><p>{len(names)}</p></td>{cells}</tr>")
    return "<section><table>" + "\n".join(rows) + "</table></section>"


def _block(kernels: Mapping[str, Kernel], model: Mapping[str, Kernel], names: Sequence[str], family: str) -> str:
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(_state(kernels.get(name), model.get(name)), []).append(index)
    lengths = [kernels[name].instructions for name in names if name in kernels]
    span = "absent"
    if lengths:
        span = f"{min(lengths)}{f' to {max(lengths)}' if max(lengths) > min(lengths) else ''} instructions"
    told = ", ".join(f"{len(found)} {_SHORT[state]}" for state, found in places.items())
    width, height = COLUMNS * CELL, -(-len(names) // COLUMNS) * CELL
    drawn = "".join(_path(state, found) for state, found in places.items())
    return (
        f'<svg role="img" aria-label="{escape(family)}: {told}" width="{width}" height="{height}">{drawn}</svg>'
        f"<p>{told}; {span}</p>"
    )


def _broken(name: str) -> str:
    return escape(name).replace("_", "_<wbr>")


def _path(state: str, places: Sequence[int]) -> str:
    # A dead kernel is hollow: it is told from a living one without colours, too.
    inset, side = (0.8, CELL - 2.6) if state == "dead" else (0.0, CELL - 1.0)
    moves = "".join(
        f"M{index % COLUMNS * CELL + inset:g} {index // COLUMNS * CELL + inset:g}h{side:g}v{side:g}h-{side:g}z"
        for index in places
    )
    return f'<path class="{state}" d="{moves}"/>'


def _rest(proof: Proof) -> str:
    """What moved as declared, and what was not compiled."""
    moved = [f"{each.unit}, {each.target}: {each.count} {each.family}, {each.patch}" for each in proof.moved]
    parts = (("Changed for the references, as a patch declares", moved), ("Not proved", list(proof.unproved)))
    return "\n".join(
        f"<details open><summary>{words}</summary><ul>"
        + "".join(f"<li><code>{escape(text)}</code></li>" for text in found)
        + "</ul></details>"
        for words, found in parts
        if found
    )
