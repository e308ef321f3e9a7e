"""Which of several equal edit scripts to write: the one that git writes (xdiff/xdiffi.c, "indent heuristic").

An added or removed run of lines can often stand a few lines higher or lower.
git slides it to where it meets a change of the other side, or to where the
indentation says that a unit of the text begins and ends; patches read better
so, and a patch that came from git comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# The weights were fitted by git's authors on a corpus of hand-made diffs.
_START_OF_FILE, _END_OF_FILE = 1, 21
_ALL_BLANKS, _BLANKS_AFTER = -30, 6
_DEEPER, _DEEPER_AFTER_BLANK = -4, 10
_ELSE, _ELSE_AFTER_BLANK = 24, 17  # less indented than before, and the next line is deeper again
_SHALLOWER, _SHALLOWER_AFTER_BLANK = 23, 17
_INDENT = 60
_FURTHEST_SLIDE = 100
_MOST_INDENT = 200
_MOST_BLANKS = 20
_BLANK = -1


class _Group:
    """A run of changed lines, perhaps empty, between two unchanged ones; it walks over one side's flags."""

    def __init__(self, changed: list[bool], keys: Sequence[int]) -> None:
        self.changed, self.keys = changed, keys
        self.start = self.end = 0
        self._grow_down()

    @property
    def empty(self) -> bool:
        return self.start == self.end

    def following(self) -> bool:
        if self.end == len(self.changed):
            return False
        self.start = self.end = self.end + 1
        self._grow_down()
        return True

    def preceding(self) -> None:
        self.start = self.end = self.start - 1
        self._grow_up()

    def slide_down(self) -> bool:
        if self.end == len(self.changed) or self.keys[self.start] != self.keys[self.end]:
            return False
        self.changed[self.start], self.changed[self.end] = False, True
        self.start, self.end = self.start + 1, self.end + 1
        self._grow_down()
        return True

    def slide_up(self) -> bool:
        if self.start == 0 or self.keys[self.start - 1] != self.keys[self.end - 1]:
            return False
        self.start, self.end = self.start - 1, self.end - 1
        self.changed[self.start], self.changed[self.end] = True, False
        self._grow_up()
        return True

    def _grow_down(self) -> None:
        while self.end < len(self.changed) and self.changed[self.end]:
            self.end += 1

    def _grow_up(self) -> None:
        while self.start > 0 and self.changed[self.start - 1]:
            self.start -= 1


def compact(lines: Sequence[bytes], keys: Sequence[int], changed: list[bool], other: list[bool]) -> None:
    """Slide the runs of *changed* (flags of one side's *lines*, equal where *keys* are) to their best place.

    *other* holds the other side's flags, which do not change.
    """
    ours, theirs = _Group(changed, keys), _Group(other, ())
    while True:
        if not ours.empty:
            _settle(ours, theirs, lines)
        if not ours.following():
            return
        theirs.following()


def _settle(ours: _Group, theirs: _Group, lines: Sequence[bytes]) -> None:
    while True:
        size = ours.end - ours.start
        while ours.slide_up():
            theirs.preceding()
        earliest = ours.end
        meets = not theirs.empty
        while ours.slide_down():
            theirs.following()
            meets = meets or not theirs.empty
        if size == ours.end - ours.start:  # it has not swallowed a neighbour
            break
    if ours.end == earliest:
        return
    if meets:
        while theirs.empty:
            ours.slide_up()
            theirs.preceding()
        return
    first = max(earliest, ours.end - size - 1, ours.end - _FURTHEST_SLIDE)
    best, at = None, ours.end
    for end in range(first, ours.end + 1):
        score = _Score.of(lines, end) + _Score.of(lines, end - size)
        if best is None or score.no_worse_than(best):
            best, at = score, end
    while ours.end > at:
        ours.slide_up()
        theirs.preceding()


class _Score(NamedTuple):
    """How badly a text is divided at a line; less is better."""

    indent: int
    penalty: int

    def __add__(self, other: object) -> _Score:
        assert isinstance(other, _Score)
        return _Score(self.indent + other.indent, self.penalty + other.penalty)

    def no_worse_than(self, other: _Score) -> bool:
        deeper = (self.indent > other.indent) - (self.indent < other.indent)
        return _INDENT * deeper + self.penalty - other.penalty <= 0

    @classmethod
    def of(cls, lines: Sequence[bytes], at: int) -> _Score:
        """Judge a division before ``lines[at]``."""
        here = _indent(lines[at]) if at < len(lines) else _BLANK
        before, blanks_before = _first_indent(lines, at - 1, -1)
        after, blanks_after = _first_indent(lines, at + 1, 1)
        if here != _BLANK:
            blanks_after_split = 0
        else:
            blanks_after_split = 1 + blanks_after
        blanks = blanks_before + blanks_after_split
        penalty = _ALL_BLANKS * blanks + _BLANKS_AFTER * blanks_after_split
        if before == _BLANK and not blanks_before:
            penalty += _START_OF_FILE
        if at >= len(lines):
            penalty += _END_OF_FILE
        indent = here if here != _BLANK else after
        if _BLANK not in (indent, before):
            if indent > before:
                penalty += _DEEPER_AFTER_BLANK if blanks else _DEEPER
            elif indent < before and after > indent:
                penalty += _ELSE_AFTER_BLANK if blanks else _ELSE
            elif indent < before:
                penalty += _SHALLOWER_AFTER_BLANK if blanks else _SHALLOWER
        return cls(indent, penalty)


def _first_indent(lines: Sequence[bytes], index: int, step: int) -> tuple[int, int]:
    """Return the indentation of the nearest line from *index* that is not blank, and the blank ones before it."""
    blanks = 0
    while 0 <= index < len(lines):
        indent = _indent(lines[index])
        if indent != _BLANK:
            return indent, blanks
        blanks += 1
        if blanks == _MOST_BLANKS:
            return 0, blanks
        index += step
    return _BLANK, blanks


def _indent(line: bytes) -> int:
    """Return the columns before the first character, _BLANK where there is none."""
    columns = 0
    for byte in line:
        if byte == 32:
            columns += 1
        elif byte == 9:
            columns += 8 - columns % 8
        elif byte not in b"\n\v\f\r":
            return columns
        if columns >= _MOST_INDENT:
            return _MOST_INDENT
    return _BLANK
