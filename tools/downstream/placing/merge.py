"""One change of a hunk carried through a line map: still to make, made already, or in the way.

A three-way merge as merge(1) and git do it, but of one change at a time, so
that what upstream took and what it did not are told apart inside a hunk.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum

from downstream.patches.text import Hunk
from downstream.placing.linemap import LineMap


@dataclass(frozen=True, slots=True)
class Change:
    """Lines [first, end), 0-based, of a file give way to *added*."""

    first: int
    end: int
    added: tuple[bytes, ...]


class Carry(Enum):
    FRESH = "to be made"  # its old lines stand unchanged, so do their neighbours
    TAKEN = "made already"  # upstream made the very same change
    BLOCKED = "in the way"  # upstream changed the same lines, or their neighbours, otherwise


@dataclass(frozen=True, slots=True)
class Carried:
    """What became of one change, and the lines [first, end) of the new file that it concerns."""

    carry: Carry
    first: int
    end: int
    change: Change  # as it was, in the old file


def changes_of(hunk: Hunk, at: int) -> list[Change]:
    """Return the changes of *hunk* whose first old line is the 0-based line *at* of the old file."""
    found: list[Change] = []
    first, removed = at, 0
    added: list[bytes] = []
    for sign, line in hunk.body:
        if sign == " ":
            if removed or added:
                found.append(Change(first, first + removed, tuple(added)))
            first, removed, added = first + removed + 1, 0, []
        elif sign == "-":
            removed += 1
        else:
            added.append(line)
    if removed or added:
        found.append(Change(first, first + removed, tuple(added)))
    return found


def carry(change: Change, through: LineMap) -> Carried:
    """Carry *change* from the map's old file to its new one.

    As in git, one unchanged line must part our change from upstream's on either side.
    """
    new = through.new
    first = through.before(change.first) + 1
    end = through.after(change.end)
    anchored = through.is_mapped(change.first - 1) and through.is_mapped(change.end)
    removed = change.end - change.first
    if anchored and end - first == removed and _stands(through, change):
        return Carried(Carry.FRESH, first, end, change)
    if anchored and tuple(new[first:end]) == change.added:
        return Carried(Carry.TAKEN, first, end, change)
    taken = _taken_within(change, through, first, end)
    if taken is not None:
        return Carried(Carry.TAKEN, taken, taken + len(change.added), change)
    return Carried(Carry.BLOCKED, first, end, change)


def _stands(through: LineMap, change: Change) -> bool:
    return all(through.is_mapped(line) for line in range(change.first, change.end))


def _taken_within(change: Change, through: LineMap, first: int, end: int) -> int | None:
    """Return where upstream made the change together with others beside it, None where it did not.

    Proof: the added lines stand as they are at one end of the lines that replaced ours, beside an unchanged
    neighbour; they say something that the old release said nowhere; and what they replace is gone.
    """
    added = list(change.added)
    replaced = list(through.new[first:end])
    if not added or len(replaced) <= len(added):
        return None
    after_neighbour = through.is_mapped(change.first - 1) and replaced[: len(added)] == added
    before_neighbour = through.is_mapped(change.end) and replaced[len(replaced) - len(added) :] == added
    if not (after_neighbour or before_neighbour):
        return None
    rest = replaced[len(added) :] if after_neighbour else replaced[: len(replaced) - len(added)]
    known = set(through.old)
    telling = [line for line in added if is_telling(line, known)]
    removed = [line for line in through.old[change.first : change.end] if line.strip()]
    if not telling or any(line in removed for line in rest):
        return None
    return first if after_neighbour else end - len(added)


def is_telling(line: bytes, known: Container[bytes]) -> bool:
    """Whether *line* holds a word, and is none of the *known*: found again, it tells where it came from."""
    return line not in known and any(byte in _WORD for byte in line)


_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def apply(lines: Sequence[bytes], changes: Sequence[Change]) -> list[bytes]:
    """Return *lines* with *changes*, which are in order and do not overlap, made.

    A last line without LF gets one when lines come to stand below it, as with GNU patch.
    """
    result: list[bytes] = []
    at = 0
    for change in changes:
        _extend(result, lines[at : change.first])
        _extend(result, change.added)
        at = change.end
    _extend(result, lines[at:])
    return result


def _extend(result: list[bytes], lines: Sequence[bytes]) -> None:
    if lines and result and not result[-1].endswith(b"\n"):
        result[-1] += b"\n"
    result.extend(lines)
