"""Results as Markdown for a pull request or an issue: a table, then details to unfold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from downstream.placing.verdict import PatchResult
from downstream.report.context import Located, ReportContext, decoded, located, printable
from downstream.report.wording import ADVICE, hunk_counts, level, meaning, since, size, to_review, totals, whereabouts

MARKS = {True: "✅", False: "❌"}
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~"})


def render(results: Sequence[PatchResult], *, context: ReportContext) -> str:
    """Return a section with a heading, a table of patches, and details per patch that needs a person."""
    lines = [f"### {escaped(context.title)}", ""]
    lines += ["| | patch | verdict | hunks |", "| --- | --- | --- | --- |"]
    lines += [_row(result) for result in results]
    lines += ["", totals(results) + (f"; {size(context.fetched)} fetched" if context.fetched is not None else "")]
    places = list(located(results, context))
    for result in results:
        mine = [place for place in places if place.patch is result and level(place)]
        if mine or not result.fine:
            lines += _details(result, mine)
    if context.next_steps:
        lines += ["", "Next:", "", *(f"- {escaped(step)}" for step in context.next_steps)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return *text* as Markdown shows it literally, in a table's cell too."""
    return printable(text).translate(_SPECIAL)


def fenced(text: str, language: str = "") -> list[str]:
    """Return *text* as a code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in _runs(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", text, fence]


def code(text: str) -> str:
    """Return *text* as inline code that no backtick in it can end (in a table, escape its bars too)."""
    shown = printable(text)
    if "`" not in shown:
        return f"`{shown}`"
    fence = "`" * (max(len(run) for run in _runs(shown)) + 1)
    return f"{fence} {shown} {fence}"


def _runs(text: str) -> Iterator[str]:
    run = ""
    for character in text + " ":
        if character == "`":
            run += character
        elif run:
            yield run
            run = ""


def _row(result: PatchResult) -> str:
    counts = hunk_counts(result.hunks) or escaped(result.reason)
    name = code(result.patch).replace("|", "\\|")
    return f"| {MARKS[result.fine]} | {name} | {result.status.value} | {counts} |"


def _details(result: PatchResult, places: Sequence[Located]) -> list[str]:
    lines = ["", "<details>", f"<summary>{_html(result.patch)}: {result.status.value}</summary>", ""]
    if result.reason:
        lines += [escaped(result.reason), ""]
    for place in places:
        lines += _place(place)
    return [*lines, "</details>"]


def _place(place: Located) -> list[str]:
    numbers = "→".join(str(line) for line in dict.fromkeys((place.old_line, place.new_line)) if line is not None)
    where = f"{place.file.path}:{numbers}" if numbers else place.file.path
    text = [f"- {code(where)} ({place.subject}, {code(f'{place.path}:{place.at}')}): **{place.status.value}**"]
    text.append(f": {escaped(meaning(place))}" + (f" ({since(place)})" if place.since else ""))
    lines = ["".join(text)]
    hunk = place.hunk
    if review := to_review(place):
        lines.append(f"  - **review**: {escaped(review)}")
    lines += [f"  - {escaped(sentence)}" for sentence in whereabouts(hunk)] if hunk else []
    if hunk and hunk.tentative:
        lines.append("  - tentative: an earlier patch failed on this file")
    if place.status in ADVICE:
        lines.append(f"  - next: {ADVICE[place.status]}")
    if hunk and hunk.found:
        block = "\n".join(f"{line:>6} | {printable(decoded(found))}" for line, found in hunk.found)
        lines += ["", *(f"  {line}" for line in "\n".join(fenced(block)).split("\n"))]
    return [*lines, ""]


def _html(text: str) -> str:
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
