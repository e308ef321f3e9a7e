"""Guards as Markdown, for a pull request or an issue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from downstream.guards.difference import Difference
from downstream.guards.ledger import Covered
from downstream.guards.model import Guard
from downstream.report.audit_text import MEANING, ORDER, cited, device_text, not_proved
from downstream.report.markdown import code, escaped
from downstream.report.wording import counted


def render(reports: Sequence[tuple[str, Covered]]) -> str:
    """A section per upstream: counts, a table of what nobody has looked at, the rest to unfold."""
    return "\n".join("\n".join(_section(covered)) + "\n" for _, covered in reports)


def _section(covered: Covered) -> Iterator[str]:
    audit, reading = covered.audit, covered.reading
    mark = "✅" if covered.fine else "❌"
    yield f"### {mark} guards of {escaped(audit.tree)}"
    yield ""
    classes = Counter(guard.verdict_class for guard in audit.guards)
    yield "| class | guards | meaning |"
    yield "| --- | ---: | --- |"
    for each in ORDER:
        if classes[each]:
            yield f"| {each.value} | {classes[each]} | {MEANING[each]} |"
    yield ""
    if reading.unreviewed:
        yield f"**{counted(len(reading.unreviewed), 'guard')} unreviewed:**"
        yield ""
        yield from _table(reading.unreviewed)
    else:
        yield "Every guard that has to be looked at is in the ledger."
    yield ""
    for entry, count in reading.miscounted:
        yield f"- {code(entry.name)} says it covers {entry.covers}, it matches {count}"
    for entry in reading.gone:
        yield f"- the guard of {code(entry.name)} is gone"
    if covered.patched:
        yield f"<details><summary>{counted(len(covered.patched), 'guard')} taken away by the series</summary>"
        yield ""
        yield from _table(covered.patched)
        yield ""
        yield from _cited(covered)
        yield "</details>"
    for problem in audit.coverage.problems:
        yield f"- not understood: {code(problem)}"
    if covered.proof:
        yield ""
        yield f"{'❌ ' if covered.proof.fails else ''}{escaped(device_text(covered.proof))}"
        yield ""
        faults = (f"{path}: {file.words}" for path, file in covered.proof.files.items() if file.holds is False)
        yield from (f"- {escaped(text)}" for text in (*faults, *not_proved(covered.proof)))


def _cited(covered: Covered) -> Iterator[str]:
    found = list(cited(covered.patched, covered.proof))
    if found:
        yield from (f"- {escaped(text)}" for text in found)
        yield ""


def _table(guards: Iterable[Guard]) -> Iterator[str]:
    yield "| place | class | effect | function | condition | why |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for guard in guards:
        cells = (
            code(f"{guard.path}:{guard.line}"),
            guard.verdict_class.value if guard.verdict_class else "",
            guard.effect.value if guard.effect else "",
            code(guard.function) if guard.function else "",
            code(guard.condition),
            escaped(guard.covered_by or guard.evidence),
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") if cell.startswith("`") else cell for cell in cells) + " |"


def render_difference(difference: Difference) -> str:
    """What the new release does to the guards, as release notes."""
    lines = [f"### guards: {escaped(difference.old)} → {escaped(difference.new)}", ""]
    lines.append(
        f"{len(difference.appeared)} new, {len(difference.gone)} gone, {len(difference.moved)} moved, "
        f"{difference.kept} where they were."
    )
    for word, guards in (("New", difference.appeared), ("Gone", difference.gone)):
        if guards:
            lines += ["", f"#### {word}", "", *_table(guards)]
    if difference.moved:
        lines += ["", "#### Moved", ""]
        lines += [f"- {code(f'{a.path}:{a.line}')} → {code(f'{b.path}:{b.line}')}" for a, b in difference.moved]
    return "\n".join(lines) + "\n"
