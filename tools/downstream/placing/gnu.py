"""Where GNU patch would put a hunk: the rules for a tree whose ancestor nobody knows.

The order of the search, what anchors a hunk to the file's start or end, and
what fuzz takes away follow GNU patch 2.7's documented behaviour ("Inexact
Matching" in its manual) and are held against the program itself in tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from downstream.patches.text import Hunk

DEFAULT_FUZZ = 2  # GNU patch's own; only ever a hint here


@dataclass(slots=True)
class Cursor:
    """What one hunk of a file patch leaves to the next."""

    drift: int = 0  # lines by which earlier hunks were found off
    sure: bool = False  # whether the drift is that of a hunk that could stand nowhere else
    frozen: int = 0  # last input line (1-based) that an earlier hunk has consumed


def old_first_line(hunk: Hunk) -> int:
    """The 1-based line where the hunk says its first old line is; an empty old side means "after this line"."""
    return hunk.old_start if hunk.old_count else hunk.old_start + 1


def locate(lines: Sequence[bytes], hunk: Hunk, cursor: Cursor, *, fuzz: int = 0) -> int | None:
    """Return the 1-based input line where *hunk* matches with exactly *fuzz*, or None.

    Nearest to the expected line first, below before above; never on lines that an earlier hunk consumed.
    """
    old = hunk.old
    expected = old_first_line(hunk) + cursor.drift
    if not old:
        return expected
    before, after = hunk.context
    longer = max(before, after)
    cut_before, cut_after = fuzz + before - longer, fuzz + after - longer
    last = len(lines) - (len(old) - cut_after) + 1  # last line a match may begin at
    first = cursor.frozen + 1
    if cut_before < 0 and old_first_line(hunk) <= 1:
        # Less context above than below: the hunk claims to begin the file.
        if cut_after < 0 and (len(old) != len(lines) or before < cursor.frozen):
            return None
        fits = cursor.frozen <= before and last >= 1 and _matches(lines, old, 1, 0, max(cut_after, 0))
        return 1 if fits else None
    cut_before = max(cut_before, 0)
    if cut_after < 0:
        # Less context below than above: the hunk claims to end the file.
        at = len(lines) - len(old) + 1
        return at if at >= max(first, 1) and _matches(lines, old, at, cut_before, 0) else None
    lowest = max(first, 1)
    for distance in range(max(0, expected - last, lowest - expected), max(last - expected, expected - lowest) + 1):
        for at in (expected + distance, expected - distance) if distance else (expected,):
            if lowest <= at <= last and _matches(lines, old, at, cut_before, cut_after):
                return at
    return None


def advance(cursor: Cursor, hunk: Hunk, at: int, *, sure: bool = True) -> None:
    """Record that *hunk* was found at the 1-based line *at*: the next one is looked for from there on."""
    cursor.drift, cursor.sure = at - old_first_line(hunk), sure
    # Context below the last change is not consumed: the next hunk may share it.
    cursor.frozen = at - 1 + len(hunk.old) - hunk.context[1]


def claims_an_end(hunk: Hunk) -> bool:
    """Whether less context on one side says that the hunk begins or ends the file, where alone it then may stand."""
    above, below = hunk.context
    return below < above or (above < below and old_first_line(hunk) <= 1)


def edges_hold(hunk: Hunk, at: int, old_length: int, first: int, new_length: int) -> bool:
    """Whether a hunk that began or ended the old file still does so in the new one.

    *at* and *first* are its 0-based lines there. GNU patch takes less context on
    one side for such a claim, git no context below: elsewhere neither finds it.
    """
    above, below = hunk.context
    size = len(hunk.old)
    began = at == 0 and above < below
    ended = at + size == old_length and (below < above or below == 0)
    return not (began and first != 0) and not (ended and first + size != new_length)


def hint_fuzz(lines: Sequence[bytes], hunk: Hunk, cursor: Cursor) -> int | None:
    """Return the fuzz, at most GNU patch's default, at which it would take a hunk that does not match."""
    if not hunk.old:
        return None
    for fuzz in range(1, min(DEFAULT_FUZZ, max(hunk.context)) + 1):
        if locate(lines, hunk, cursor, fuzz=fuzz) is not None:
            return fuzz
    return None


def _matches(lines: Sequence[bytes], old: Sequence[bytes], at: int, cut_before: int, cut_after: int) -> bool:
    first = at - 1 + cut_before
    wanted = old[cut_before : len(old) - cut_after]
    if first < 0 or first + len(wanted) > len(lines):
        return False
    # The first comparison decides nearly always; slicing both sides each time would cost more than it finds.
    return not wanted or (lines[first] == wanted[0] and list(lines[first : first + len(wanted)]) == list(wanted))
