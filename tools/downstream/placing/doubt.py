"""Reasons not to trust a text that fits: another copy fits as well, or it is another function's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from downstream.patches.text import Hunk
from downstream.placing.enclosing import Span, enclosing, functions
from downstream.placing.linemap import LineMap
from downstream.placing.lines import occurrences
from downstream.placing.merge import Change, apply

REACH = 100  # lines above a change in which one is looked for that stands nowhere else
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


def seat(change: Change, first: int, *, made: bool = False) -> tuple[int, int]:
    """Return an old line that tells where *change* belongs, and its new one, both 0-based; -1 above the file.

    *first* is the new line of the change, which upstream has *made* or not. What stands on one side only has none on
    the other: there it is the line above.
    """
    before = change.first if change.end > change.first else change.first - 1
    if made:
        return (before, first) if change.added else (change.first - 1, first - 1)
    return before, first + before - change.first


def stranger(path: str, seats: Sequence[tuple[int, int]], through: LineMap) -> str | None:
    """Say so when a change would come to stand in another function than the one that it was written for.

    Under a new name that is a renamed function, unless the old name is still there. Where no function is known,
    the nearest line above that stands only once says the same.
    """
    for (ours, theirs), place in zip(_around(path, seats, through), seats, strict=False):
        if (not ours or not theirs) and (moved := _crossed(*place, through)):
            return moved
        if not ours or not theirs or ours.name == theirs.name:
            continue
        if _has(path, through.old, theirs.name):
            return f"its lines are now in {theirs.name}, but it was written for {ours.name}"
        if _has(path, through.new, ours.name):
            return f"its lines are now in {theirs.name}, a new one, but it was written for {ours.name}"
    return None


def _crossed(old_line: int, new_line: int, through: LineMap) -> str | None:
    """Say so when the nearest line above that stands once in both files is not the same in both."""
    ours, theirs = _telling(through.old, old_line, through), _telling(through.new, new_line, through)
    if ours is None or theirs is None or ours == theirs:
        return None
    was, now = (text.strip().decode("utf-8", "replace") for text in (ours, theirs))
    return f"its lines are now below '{now}', but it was written for those below '{was}'"


def _telling(lines: Sequence[bytes], line: int, through: LineMap) -> bytes | None:
    reach = range(min(line, len(lines) - 1), max(line - REACH, -1), -1)
    return next((lines[above] for above in reach if lines[above] in through.anchors), None)


def review(path: str, seats: Sequence[tuple[int, int]], through: LineMap) -> str | None:
    """Name the function around a change when upstream changed it: text that still fits may no longer be right."""
    for ours, theirs in _around(path, seats, through):
        if ours is None or theirs is None:
            continue
        if ours.name != theirs.name:
            return f"{ours.name} (now {theirs.name})"
        if list(through.old[ours.first : ours.end]) != list(through.new[theirs.first : theirs.end]):
            return ours.name
    return None


def defined_twice(path: str, changes: Sequence[Change], through: LineMap) -> Span | None:
    """Return upstream's own definition of a function that *changes*, lines of the new file, would define once more.

    It took the function and went on with it, or gave the name to something else: either way two of them are too many.
    """
    if through.old is through.new:
        return None
    known = {span.name for span in functions(path, tuple(through.old))}
    arrived = [span for span in functions(path, tuple(through.new)) if span.name not in known]
    added = b"".join(line for change in changes for line in change.added)
    if not any(re.split(r"\W", span.name)[-1].encode("utf-8", "surrogateescape") in added for span in arrived):
        return None
    before = Counter(span.name for span in arrived)
    after = Counter(span.name for span in functions(path, tuple(apply(through.new, changes))))
    return next((span for span in arrived if after[span.name] > before[span.name]), None)


def renamed(path: str, seats: Sequence[tuple[int, int]], through: LineMap) -> str:
    """Say so, for the end of a sentence, when the function around a change now has another name; else nothing."""
    for ours, theirs in _around(path, seats, through):
        if ours and theirs and ours.name != theirs.name:
            return f", in {theirs.name}; {ours.name} is gone"
    return ""


def _around(path: str, seats: Sequence[tuple[int, int]], through: LineMap) -> Iterator[tuple[Span | None, Span | None]]:
    if through.old is through.new:
        return
    for old_line, new_line in seats:
        yield enclosing(path, through.old, old_line), enclosing(path, through.new, new_line)


def _has(path: str, lines: Sequence[bytes], name: str) -> bool:
    return any(span.name == name for span in functions(path, tuple(lines)))
