"""Results for a person: a line per patch, compiler-style lines for what needs eyes, then counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from downstream.placing.verdict import HunkStatus, PatchResult, PatchStatus
from downstream.report.context import Located, ReportContext, decoded, located, printable
from downstream.report.wording import ADVICE, counted, hunk_counts, meaning, since, size, to_review, totals, whereabouts

_Paint = Callable[[str], str]

SHOWN = 12  # upstream lines in the way, per hunk

_GREEN, _YELLOW, _RED, _BLUE = "32", "33", "1;31", "36"
_COLOURS = {
    PatchStatus.UNMODIFIED.value: _GREEN,
    PatchStatus.REFRESHED.value: _GREEN,
    PatchStatus.UPSTREAMED.value: _BLUE,
    PatchStatus.PARTLY_UPSTREAMED.value: _BLUE,
    HunkStatus.CLEAN.value: _GREEN,
    HunkStatus.OFFSET.value: _GREEN,
    HunkStatus.MERGED.value: _GREEN,
    "review": _YELLOW,
}


def render(
    results: Sequence[PatchResult],
    *,
    context: ReportContext,
    colour: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> str:
    """Return the report, ended by a newline; empty when *quiet* and nothing needs a person.

    *verbose* adds a line for every hunk that is fine. Colour only repeats the
    verdict's word.
    """
    paint = _paint if colour else _plain
    places = list(located(results, context))
    lines: list[str] = []
    if not quiet:
        lines.append(printable(context.title))
        lines += _patches(results, paint)
    for place in places:
        lines += _hunk(place, paint, quiet=quiet, verbose=verbose)
    lines += [
        f"{printable(context.patch_path(result.patch))}:1: {paint(result.status.value)}: {printable(result.reason)}"
        for result in results
        if not result.fine and not result.files
    ]
    if not quiet or lines:
        lines.append(_counts(results, context))
    if not quiet:
        lines += [f"changed {printable(path)}" for path in context.written]
        lines += [f"next: {printable(step)}" for step in context.next_steps]
    return "".join(f"{line}\n" for line in lines if line)


def _paint(word: str) -> str:
    return f"\033[{_COLOURS.get(word, _RED)}m{word}\033[0m"


def _plain(word: str) -> str:
    return word


def _patches(results: Sequence[PatchResult], paint: _Paint) -> Iterator[str]:
    width = max((len(result.status.value) for result in results), default=0)
    names = max((len(printable(result.patch)) for result in results), default=0)
    for result in results:
        word = paint(result.status.value) + " " * (width - len(result.status.value))
        yield f"  {word}  {printable(result.patch):{names}}  {_summary(result)}".rstrip()


def _summary(result: PatchResult) -> str:
    """``13 hunks: 3 clean, 10 upstreamed (since 0.6.17)``."""
    if not result.hunks:
        return counted(len(result.files), "file") if result.files else printable(result.reason)
    return f"{counted(len(result.hunks), 'hunk')}: {hunk_counts(result.hunks)}"


def _hunk(place: Located, paint: _Paint, *, quiet: bool, verbose: bool) -> Iterator[str]:
    hunk = place.hunk
    if place.status.fine:
        mixed = place.patch.status is PatchStatus.PARTLY_UPSTREAMED and place.status is HunkStatus.UPSTREAMED
        if verbose or (mixed and not quiet):
            yield f"{_where(place)}: {paint(place.status.value)}: {_why(place)}"
        if review := to_review(place):
            yield f"{_where(place)}: {paint('review')}: {place.subject}: {printable(review)}"
        return
    yield f"{_where(place)}: {paint(place.status.value)}: {_why(place)}"
    if hunk is None:
        yield f"    next: {ADVICE[place.status]}"
        return
    if hunk.found:
        yield "    in the way:"
        yield from (f"    {line:>7} | {printable(decoded(text))}" for line, text in hunk.found[:SHOWN])
        if len(hunk.found) > SHOWN:
            yield f"            … {counted(len(hunk.found) - SHOWN, 'more line')}"
    yield from (f"    {printable(sentence)}" for sentence in whereabouts(hunk))
    if hunk.hint_fuzz is not None:
        yield f"    GNU patch would take it with fuzz {hunk.hint_fuzz}; we never do"
    if hunk.tentative:
        yield "    tentative: an earlier patch failed on this file"
    yield f"    next: {ADVICE[place.status]}"


def _where(place: Located) -> str:
    """``patches/stable/x/y.patch:31: include/f.cuh:417→431``: a place to click, then where upstream."""
    numbers = (place.old_line, place.new_line)
    lines = "→".join(str(line) for line in dict.fromkeys(numbers) if line is not None)
    where = f"{printable(place.path)}:{place.at}"
    if place.file.path:  # a file patch whose path was refused has none
        where += f": {printable(place.file.path)}"
    return f"{where}:{lines}" if lines else where


def _why(place: Located) -> str:
    return " ".join(
        part
        for part in (f"{place.subject}:", printable(meaning(place)), f"({since(place)})" if place.since else "")
        if part
    )


def _counts(results: Sequence[PatchResult], context: ReportContext) -> str:
    text = totals(results)
    return text if context.fetched is None else f"{text}; {size(context.fetched)} fetched"
