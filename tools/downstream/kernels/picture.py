"""A page that shows every kernel as a square: what the release has on each target, and what the series makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from downstream.arches import Target
from downstream.kernels.machine import Kernel
from downstream.kernels.proof import Proof

COLUMNS = 48
CELL = 11  # pixels a square takes, its gap included

STYLE = """\
:root { color-scheme: light dark; --fine: #2f8f5b; --bare: #d49a1f; --dead: #b3261e; --none: #9aa3ad; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.pair { display: flex; flex-wrap: wrap; gap: 2rem; }
figure { margin: 0; } figcaption { margin-bottom: .4rem; }
.fine { fill: var(--fine); } .bare { fill: var(--bare); } .dead { fill: var(--dead); } .none { fill: var(--none); }
.key svg { vertical-align: -1px; margin: 0 .3rem 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
td:first-child, th:first-child { text-align: left; }
"""

_STATES = {
    "fine": "does its work, waits and triggers",
    "bare": "does its work without the wait it needs",
    "dead": "empty: does nothing, and says nothing",
    "none": "has nothing to wait for",
}

Listings = Mapping[tuple[str, Target], Mapping[str, Kernel]]


def page(units: Mapping[str, Listings], proof: Proof, *, title: str, reference: Target) -> str:
    """Return the page. *units* maps a unit's name to its listings by tree ("unpatched", "patched") and target."""
    body = [f"<h1>{escape(title)}</h1>", f"<p>{_verdict(proof)}</p>", f'<p class="key">{_key()}</p>']
    for unit, listings in units.items():
        names = sorted({name for kernels in listings.values() for name in kernels}, key=_order)
        body.append(f"<h2>{escape(unit)}: {len(names)} kernels</h2>")
        targets = list(dict.fromkeys(target for _, target in listings))
        for target in targets:
            body.append('<div class="pair">')
            for tree in ("unpatched", "patched"):
                model = listings["unpatched", reference]
                body.append(_figure(listings[tree, target], model, names, f"{target}, {tree}"))
            body.append("</div>")
    body.append(_table(proof))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    text = "\n".join(body)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{text}\n</body>\n</html>\n'


def _order(name: str) -> tuple[str, str]:
    return Kernel(name=name, instructions=0, body=0, waits=0, triggers=0, digest="").family, name


def _verdict(proof: Proof) -> str:
    if proof.holds:
        return "The proof holds."
    return "The proof fails: " + escape("; ".join(map(str, proof.findings)))


def _key() -> str:
    squares = (
        f'<svg width="10" height="10"><rect class="{state}" width="10" height="10"/></svg>{text}'
        for state, text in _STATES.items()
    )
    return "".join(squares)


def _state(kernel: Kernel | None, model: Kernel | None) -> str:
    if kernel is None or (kernel.empty and not (model and model.empty)):
        return "dead"
    if model is not None and model.waits and not kernel.waits:
        return "bare"
    return "fine" if kernel.waits else "none"


def _figure(kernels: Mapping[str, Kernel], model: Mapping[str, Kernel], names: Sequence[str], caption: str) -> str:
    squares, counts = [], dict.fromkeys(_STATES, 0)
    for index, name in enumerate(names):
        kernel = kernels.get(name)
        state = _state(kernel, model.get(name))
        counts[state] += 1
        x, y = index % COLUMNS * CELL, index // COLUMNS * CELL
        told = f"{kernel.family}: {kernel.instructions} instructions" if kernel else "absent"
        squares.append(
            f'<rect class="{state}" x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}">'
            f"<title>{escape(told)}</title></rect>"
        )
    width, height = COLUMNS * CELL, -(-len(names) // COLUMNS) * CELL
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    words = said.replace("fine", "alive").replace("bare", "without their wait").replace("dead", "dead")
    words = words.replace("none", "with nothing to wait for")
    return (
        f"<figure><figcaption><b>{escape(caption)}</b>: {words}</figcaption>"
        f'<svg role="img" aria-label="{escape(caption)}: {words}" width="{width}" height="{height}">'
        + "".join(squares)
        + "</svg></figure>"
    )


def _table(proof: Proof) -> str:
    heads = ("family", "unit", "target", "tree", "kernels", "empty", "instructions", "with a wait", "with a trigger")
    rows = [
        f"<tr><td>{escape(row.family)}</td><td>{escape(row.unit)}</td><td>{row.target}</td><td>{row.tree}</td>"
        f"<td>{row.kernels}</td><td>{row.empty}</td><td>{row.least} to {row.most}</td>"
        f"<td>{row.waits}</td><td>{row.triggers}</td></tr>"
        for row in proof.rows
    ]
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<h2>By family</h2>\n<table><tr>{head}</tr>\n" + "\n".join(rows) + "\n</table>"
