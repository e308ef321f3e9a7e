"""Reasons not to trust a text that fits: another copy fits as well, or it is another function's."""

from __future__ import annotations

from downstream.patches.text import Hunk
from downstream.placing.enclosing import Span, enclosing, functions
from downstream.placing.linemap import LineMap
from downstream.placing.lines import occurrences

NEIGHBOURHOOD = 10  # lines compared on each side of a hunk that no function encloses


def rivals(path: str, hunk: Hunk, at: int, first: int, through: LineMap) -> list[int]:
    """New copies of the old text whose surroundings fit as well as those of the mapped place.

    A copy that the old release had too is no rival: the map has its own image for it.
    """
    if not hunk.old or through.old == through.new:
        return []
    others = [line for line in occurrences(through.new, hunk.old) if line != first]
    if not others:
        return []
    known = {through.image(line) for line in occurrences(through.old, hunk.old)}
    others = [line for line in others if line not in known]
    if not others:
        return []
    span = enclosing(path, through.old, at)
    size = len(hunk.old)
    above = at - span.first if span else NEIGHBOURHOOD
    below = span.end - (at + size) if span else NEIGHBOURHOOD
    above, below = max(above, 1), max(below, 1)
    own = _agreement(through, at, first, size, above, below)
    return [line for line in others if _agreement(through, at, line, size, above, below) >= own]


def _agreement(through: LineMap, at: int, place: int, size: int, above: int, below: int) -> int:
    """How many lines next to the hunk agree with the old file's, up to *above* and *below*."""
    old, new = through.old, through.new
    up = 0
    while up < above and at - 1 - up >= 0 and place - 1 - up >= 0 and old[at - 1 - up] == new[place - 1 - up]:
        up += 1
    down, old_end, new_end = 0, at + size, place + size
    while (
        down < below
        and old_end + down < len(old)
        and new_end + down < len(new)
        and old[old_end + down] == new[new_end + down]
    ):
        down += 1
    return up + down


def stranger(path: str, at: int, first: int, through: LineMap) -> str | None:
    """Say so when the mapped place lies in another function that the old release had as well."""
    if through.old is through.new:
        return None
    ours, theirs = _around(path, at, first, through)
    if not ours or not theirs or ours.name == theirs.name:
        return None
    if any(span.name == theirs.name for span in functions(path, tuple(through.old))):
        return f"its lines are now in {theirs.name}, but it was written for {ours.name}"
    return None


def review(path: str, at: int, first: int, through: LineMap) -> str | None:
    """Name the function around the hunk when upstream changed it: text that still fits may no longer be right."""
    if through.old is through.new:
        return None
    ours, theirs = _around(path, at, first, through)
    if ours is None or theirs is None:
        return None
    if ours.name != theirs.name:
        return f"{ours.name} (now {theirs.name})"
    same = list(through.old[ours.first : ours.end]) == list(through.new[theirs.first : theirs.end])
    return None if same else ours.name


def _around(path: str, at: int, first: int, through: LineMap) -> tuple[Span | None, Span | None]:
    return enclosing(path, through.old, at), enclosing(path, through.new, first)
