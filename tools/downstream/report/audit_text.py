"""Guards for a person: what needs eyes first, compiler-style lines, then counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from downstream.guards.citation import Citation
from downstream.guards.difference import Difference
from downstream.guards.ledger import Covered
from downstream.guards.model import Audit, Class, Guard
from downstream.report.context import printable
from downstream.report.wording import counted

ORDER = (Class.SUSPECT, Class.UNKNOWN, Class.OVER_INCLUSIVE, Class.HARDWARE, Class.SERVED)
MEANING = {
    Class.SUSPECT: "shuts the target out, and nothing found speaks for it",
    Class.UNKNOWN: "depends on names that nothing in the tree defines",
    Class.OVER_INCLUSIVE: "lets the target into code made for another family",
    Class.HARDWARE: "shuts the target out because the code needs what it lacks",
    Class.SERVED: "shuts the target out, and another branch serves it",
}
_COLOUR = {
    Class.SUSPECT: "1;31",
    Class.UNKNOWN: "33",
    Class.OVER_INCLUSIVE: "35",
    Class.HARDWARE: "32",
    Class.SERVED: "32",
}
WIDTH = 150  # of a condition
MANY = 4  # guards of a file that say the same: told together in a difference
AREA = 3  # folders that name one
MOST_AREAS = 6
# What tools/kernels.py prove --fast says of a file, by whether it holds.
PROOF: Mapping[bool | None, str] = {True: "prove --fast holds", False: "PROVE --FAST FAILS", None: "not proved"}
_STATES: Mapping[bool | None, str] = {True: "proved", False: "FAILED", None: "not proved"}


def render(
    covered: Covered, *, colour: bool = False, quiet: bool = False, verbose: bool = False, everything: bool = False
) -> str:
    """The report, ended by a newline; empty when *quiet* and all is reviewed.

    *verbose* lists what is sorted as right, too, with its evidence; *everything*
    also guards that do not tell the target from the references.
    """
    writer = _Writer(colour=colour)
    unreviewed = {guard.fingerprint for guard in covered.reading.unreviewed}
    lines: list[str] = []
    if not quiet:
        lines += [_title(covered.audit), ""]
    for each in ORDER:
        if each in (Class.HARDWARE, Class.SERVED) and not (verbose or everything):
            continue
        group = [guard for guard in covered.audit.guards if guard.verdict_class is each]
        shown = [guard for guard in group if verbose or everything or guard.fingerprint in unreviewed]
        if shown:
            lines += [f"{writer.paint(each, each.value)}: {MEANING[each]} ({len(shown)})"]
            lines += [
                line for guard in shown for line in writer.guard(guard, unreviewed=guard.fingerprint in unreviewed)
            ]
            lines.append("")
    if everything:
        plain = [guard for guard in covered.audit.guards if guard.verdict_class is None]
        lines += [f"the target is treated like the references ({len(plain)})"]
        lines += [f"  {_place(guard)}: {_short(guard.condition)}" for guard in plain]
        lines.append("")
    if not quiet:
        lines += _patched(covered, verbose=verbose)
    lines += _ledger(covered)
    lines += _proof(covered.proof)
    lines += [f"not understood: {printable(problem)}" for problem in covered.audit.coverage.problems]
    if not quiet or lines:
        lines += _counts(covered)
    return "".join(f"{line}\n" for line in lines)


class _Writer:
    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def paint(self, verdict_class: Class, text: str) -> str:
        return f"\033[{_COLOUR[verdict_class]}m{text}\033[0m" if self._colour else text

    def guard(self, guard: Guard, *, unreviewed: bool) -> Iterator[str]:
        assert guard.verdict_class is not None
        word = self.paint(guard.verdict_class, guard.verdict_class.value)
        effect = f", {guard.effect.value}" if guard.effect else ""
        yield f"  {_place(guard)}: {word}{effect}: {_short(guard.condition)}"
        where = f"in {'kernel ' if guard.whole_kernel else ''}{guard.function}" if guard.function else ""
        state = "UNREVIEWED" if unreviewed else guard.covered_by or ""
        told = [part for part in (where, guard.evidence, verdicts(guard), state) if part]
        yield f"      {printable('; '.join(told))}"
        if guard.because:
            yield f"      because {printable(guard.because[0])}"


def verdicts(guard: Guard) -> str:
    """``active on sm_90 sm_100, not on sm_120``"""
    by_verdict: dict[str, list[str]] = {}
    for arch, verdict in guard.arches.items():
        by_verdict.setdefault(verdict.value, []).append(arch)
    words = {"active": "active on", "inactive": "not on", "unknown": "unknown on"}
    return ", ".join(f"{word} {' '.join(by_verdict[key])}" for key, word in words.items() if key in by_verdict)


def _title(audit: Audit) -> str:
    targets = " ".join(map(str, audit.question.targets))
    references = " ".join(map(str, audit.question.references))
    return printable(f"{audit.tree}: {targets} against {references}")


def _place(guard: Guard) -> str:
    return printable(f"{guard.path}:{guard.line}")


def _short(condition: str) -> str:
    text = printable(condition)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _patched(covered: Covered, *, verbose: bool) -> Iterator[str]:
    if not covered.patched:
        return
    by_patch = Counter(guard.covered_by or "several patches" for guard in covered.patched)
    yield f"taken away by the series ({len(covered.patched)})"
    for patch, count in by_patch.items():
        guards = [guard for guard in covered.patched if (guard.covered_by or "several patches") == patch]
        yield f"  {printable(patch)}: {counted(count, 'guard')}"
        yield from (f"    {printable(text)}" for text in cited(guards, covered.proof))
        if verbose:
            yield from (f"    {_place(guard)}: {_short(guard.condition)}" for guard in guards)
    yield ""


def cited(guards: Iterable[Guard], proof: Citation | None) -> Iterator[str]:
    """What the proof says of the files of *guards*, a line for each; nothing for files without device code."""
    if proof is None:
        return
    for path in dict.fromkeys(guard.path for guard in guards):
        if (file := proof.about(path)) is not None:
            yield f"{PROOF[file.holds]}: {path} ({proof.problem or file.words})"


def _proof(proof: Citation | None) -> Iterator[str]:
    """The proof's faults: they count even where no guard is concerned."""
    for path, file in proof.files.items() if proof else ():
        if file.holds is False:
            yield printable(f"proof: {path}: {file.words}")


def _ledger(covered: Covered) -> Iterator[str]:
    for entry, count in covered.reading.miscounted:
        name = printable(entry.name)
        yield f"ledger: {name} says it covers {entry.covers}, it matches {count}: look at them again"
    for entry in covered.reading.gone:
        where = f" ({printable(entry.where)})" if entry.where else ""
        yield f"ledger: the guard of {printable(entry.name)} is gone{where}: tools/audit.py review --prune"


def _counts(covered: Covered) -> Iterator[str]:
    audit, reading = covered.audit, covered.reading
    classes = Counter(guard.verdict_class for guard in audit.guards)
    parts = [f"{classes[each]} {each.value}" for each in ORDER if classes[each]]
    parts.append(f"{classes[None]} that treat the target alike")
    yield f"{counted(len(audit.guards), 'guard')} in {audit.coverage.files} files: {', '.join(parts)}"
    concerns = len(audit.concerns)
    if reading.unreviewed:
        known = f"{len(reading.covered)} in the ledger"
        yield f"{concerns} to have been looked at: {known}, {len(reading.unreviewed)} UNREVIEWED"
    else:
        yield f"{concerns} to have been looked at: all in the ledger" if concerns else "nothing to look at"
    if audit.coverage.problems:
        yield f"{counted(len(audit.coverage.problems), 'place')} not understood"
    if covered.proof:
        yield device_text(covered.proof)
        yield from (f"  {line}" for line in not_proved(covered.proof))


def device_text(proof: Citation) -> str:
    """One sentence about the whole proof."""
    if proof.problem:
        return printable(f"device text: not proved here: {proof.problem}")
    states = Counter(file.holds for file in proof.files.values())
    parts = [f"{states[holds]} {words}" for holds, words in _STATES.items() if states[holds]]
    without = f"; without the series {counted(proof.dead, 'fault')} on the targets" if proof.dead else ""
    return f"device text of {counted(len(proof.files), 'changed file')}: {', '.join(parts)}{without}"


def not_proved(proof: Citation) -> Iterator[str]:
    """The files that the proof says nothing about, with the reason, where it is not the same for all."""
    for path, file in proof.files.items():
        if file.holds is None and not proof.problem:
            yield printable(f"{PROOF[None]}: {path} ({file.words})")


def render_difference(difference: Difference, *, colour: bool = False, verbose: bool = False) -> str:
    """What the new release does to the guards."""
    writer = _Writer(colour=colour)
    counts = (
        f"{len(difference.appeared)} new, {len(difference.gone)} gone, {len(difference.moved)} moved, "
        f"{difference.kept} where they were"
    )
    lines = [printable(f"{difference.old} -> {difference.new}: {counts}"), ""]
    for word, guards in (("gone", difference.gone), ("new", difference.appeared)):
        if guards:
            lines.append(f"{word} ({len(guards)}){_areas(guards)}")
            for alike in _by_file(guards, apart=verbose):
                lines += _several(writer, alike) if len(alike) > 1 else writer.guard(alike[0], unreviewed=False)
            lines.append("")
    if difference.changed:
        lines.append(f"judged otherwise ({len(difference.changed)})")
        lines += [f"  {_place(b)}: {_word(a)} -> {_word(b)}: {_short(b.condition)}" for a, b in difference.changed]
        lines.append("")
    if difference.moved and verbose:
        lines.append(f"moved ({len(difference.moved)})")
        lines += [f"  {_place(a)} -> {_place(b)}: {_short(b.condition)}" for a, b in difference.moved]
        lines.append("")
    return "".join(f"{line}\n" for line in lines[: -1 if lines[-1] == "" else None])


def _word(guard: Guard) -> str:
    return guard.verdict_class.value if guard.verdict_class else "no finding"


def _areas(guards: Sequence[Guard]) -> str:
    """``: 31 in flashinfer/jit, 13 in include/flashinfer``, where there is more than one"""
    count = Counter("/".join(guard.path.split("/")[:-1][:AREA]) or "." for guard in guards)
    most = [f"{number} in {area}" for area, number in count.most_common(MOST_AREAS)]
    more = f", {len(count) - MOST_AREAS} more" if len(count) > MOST_AREAS else ""
    return printable(f": {', '.join(most)}{more}") if len(count) > 1 else ""


def _by_file(guards: Sequence[Guard], *, apart: bool) -> Iterator[list[Guard]]:
    """The guards of a file that say the same of the architectures, together where they are many."""
    groups: dict[tuple[object, ...], list[Guard]] = {}
    for guard in guards:
        groups.setdefault((guard.path, guard.verdict_class, guard.effect, verdicts(guard)), []).append(guard)
    for alike in groups.values():
        if apart or len(alike) < MANY:
            yield from ([guard] for guard in alike)
        else:
            yield alike


def _several(writer: _Writer, guards: Sequence[Guard]) -> Iterator[str]:
    first = guards[0]
    assert first.verdict_class is not None
    effect = f", {first.effect.value}" if first.effect else ""
    word = writer.paint(first.verdict_class, first.verdict_class.value)
    yield f"  {printable(first.path)}: {word}{effect}: {len(guards)} guards, lines {first.line} to {guards[-1].line}"
    yield f"      {_short(first.condition)} and the like; {verdicts(first)}"
