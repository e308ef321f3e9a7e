"""The map from the lines of one version of a file to those of another.

Patience diff (Bram Cohen): lines that stand exactly once on both sides are
anchors, the longest increasing run of anchors is kept, and the gaps are mapped
in turn. In a header with thirteen look-alike guards it is the unique lines, the
kernels' names, that say which is which. Gaps without anchors fall back to the
longest matching blocks (Ratcliff and Obershelp, as in difflib).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

GONE = -1


class LineMap:
    """old line → new line, both 0-based; ``GONE`` where the old line has no counterpart.

    Built once per pair of texts; the map is strictly increasing.
    """

    __slots__ = ("_anchors", "new", "old", "to_new")

    def __init__(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        self.old = old
        self._anchors: frozenset[bytes] | None = None
        if old == new:
            self.new = old  # the same object: callers tell by it that nothing changed
            self.to_new = list(range(len(old)))
            return
        self.new = new
        self.to_new = [GONE] * len(old)
        for old_at, new_at, length in _blocks(old, new):
            self.to_new[old_at : old_at + length] = range(new_at, new_at + length)
        self._slide()

    def _slide(self) -> None:
        """Move every pure insertion and deletion as far down as repeated lines allow.

        Of several equally good alignments this picks one, whatever the search
        came upon first, so that equal changes of two files are aligned alike.
        """
        to_new, old = self.to_new, self.old
        line = len(old)
        while line > 0:
            line -= 1
            below = self.image(line + 1)
            if to_new[line] == GONE:
                first = line
                while first > 0 and to_new[first - 1] == GONE:
                    first -= 1
                if self.image(first - 1) + 1 == below:
                    self._slide_deletion(first, line + 1)
                line = first
            elif to_new[line] + 1 < below:
                self._slide_insertion(line + 1)
        if to_new and to_new[0] > 0:
            self._slide_insertion(0)

    def _slide_deletion(self, first: int, end: int) -> None:
        """Old lines [first, end) have no counterpart, and their neighbours stand side by side in the new file."""
        to_new, old = self.to_new, self.old
        while (
            end < len(old)
            and to_new[end] != GONE
            and old[first] == old[end]
            and to_new[end] == self.image(first - 1) + 1
        ):
            to_new[first], to_new[end] = to_new[end], GONE
            first, end = first + 1, end + 1

    def _slide_insertion(self, line: int) -> None:
        """The new file has lines between the counterparts of old *line* - 1 and *line*."""
        to_new, new = self.to_new, self.new
        first = self.image(line - 1) + 1
        while line < len(to_new) and to_new[line] != GONE and to_new[line] > first and new[first] == new[to_new[line]]:
            gap = to_new[line] - first
            to_new[line] = first
            first, line = first + 1, line + 1
            if line < len(to_new) and to_new[line] - first != gap:
                break

    @property
    def anchors(self) -> frozenset[bytes]:
        """The lines that stand once in both files."""
        if self._anchors is None:
            self._anchors = frozenset(_unique(self.old, 0, len(self.old))) & frozenset(
                _unique(self.new, 0, len(self.new))
            )
        return self._anchors

    def is_anchored(self, first: int, end: int) -> bool:
        """Whether the run of mapped lines around old lines [first, end) holds a line that is unique in both files.

        Without one, repeated lines alone decided the alignment, and another would have been as good.
        """
        anchors, old, to_new = self.anchors, self.old, self.to_new
        line = first - 1
        while line >= 0 and to_new[line] != GONE and (line == first - 1 or to_new[line] + 1 == to_new[line + 1]):
            if old[line] in anchors:
                return True
            line -= 1
        line = end
        while line < len(old) and to_new[line] != GONE and (line == end or to_new[line] == to_new[line - 1] + 1):
            if old[line] in anchors:
                return True
            line += 1
        return any(old[line] in anchors for line in range(first, end) if to_new[line] != GONE)

    def image(self, line: int) -> int:
        """Return where old *line* went, GONE if nowhere. -1 and len(old), the file's ends, map to its ends."""
        if line < 0:
            return -1
        if line >= len(self.old):
            return len(self.new)
        return self.to_new[line]

    def is_mapped(self, line: int) -> bool:
        """Whether old *line* (or an end of the file) has a counterpart."""
        return line < 0 or line >= len(self.old) or self.to_new[line] != GONE

    def before(self, line: int) -> int:
        """Return the new line (or -1, the start) of the nearest mapped old line above *line*."""
        line -= 1
        while line >= 0 and self.to_new[line] == GONE:
            line -= 1
        return self.image(line)

    def after(self, line: int) -> int:
        """Return the new line (or len(new), the end) of the nearest mapped old line at or below *line*."""
        while line < len(self.old) and self.to_new[line] == GONE:
            line += 1
        return self.image(line)


def _blocks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield (old index, new index, length) of equal runs, in no particular order."""
    todo = [(0, len(old), 0, len(new))]
    while todo:
        old_lo, old_hi, new_lo, new_hi = todo.pop()
        length = _common_prefix(old, new, old_lo, old_hi, new_lo, new_hi)
        if length:
            yield old_lo, new_lo, length
            old_lo, new_lo = old_lo + length, new_lo + length
        length = _common_suffix(old, new, old_lo, old_hi, new_lo, new_hi)
        if length:
            old_hi, new_hi = old_hi - length, new_hi - length
            yield old_hi, new_hi, length
        if old_lo == old_hi or new_lo == new_hi:
            continue
        anchors = _anchors(old, new, old_lo, old_hi, new_lo, new_hi)
        if not anchors:
            yield from _matching_blocks(old, new, old_lo, old_hi, new_lo, new_hi)
            continue
        for old_at, new_at in anchors:
            # A gap ends at its anchor; the anchor opens the next one and is taken as its common prefix.
            todo.append((old_lo, old_at, new_lo, new_at))
            old_lo, new_lo = old_at, new_at
        todo.append((old_lo, old_hi, new_lo, new_hi))


def _common_prefix(
    old: Sequence[bytes], new: Sequence[bytes], old_lo: int, old_hi: int, new_lo: int, new_hi: int
) -> int:
    limit = min(old_hi - old_lo, new_hi - new_lo)
    length = 0
    while length < limit and old[old_lo + length] == new[new_lo + length]:
        length += 1
    return length


def _common_suffix(
    old: Sequence[bytes], new: Sequence[bytes], old_lo: int, old_hi: int, new_lo: int, new_hi: int
) -> int:
    limit = min(old_hi - old_lo, new_hi - new_lo)
    length = 0
    while length < limit and old[old_hi - 1 - length] == new[new_hi - 1 - length]:
        length += 1
    return length


def _unique(lines: Sequence[bytes], low: int, high: int) -> dict[bytes, int]:
    seen: dict[bytes, int] = {}
    for index in range(low, high):
        line = lines[index]
        seen[line] = GONE if line in seen else index
    return {line: index for line, index in seen.items() if index != GONE}


def _anchors(
    old: Sequence[bytes], new: Sequence[bytes], old_lo: int, old_hi: int, new_lo: int, new_hi: int
) -> list[tuple[int, int]]:
    """Return the longest run of lines unique on both sides that is in order on both, as (old, new) pairs."""
    in_new = _unique(new, new_lo, new_hi)
    pairs = [(at, in_new[line]) for line, at in _unique(old, old_lo, old_hi).items() if line in in_new]
    # Longest increasing subsequence by patience sorting: each pile's top is the smallest end of a run of that length.
    tops: list[int] = []
    piles: list[int] = []  # index into pairs of each pile's top
    previous: list[int] = [GONE] * len(pairs)
    for index, (_, new_at) in enumerate(pairs):
        pile = bisect_left(tops, new_at)
        if pile:
            previous[index] = piles[pile - 1]
        if pile == len(tops):
            tops.append(new_at)
            piles.append(index)
        else:
            tops[pile] = new_at
            piles[pile] = index
    run = []
    at = piles[-1] if piles else GONE
    while at != GONE:
        run.append(pairs[at])
        at = previous[at]
    run.reverse()
    return run


def _matching_blocks(
    old: Sequence[bytes], new: Sequence[bytes], old_lo: int, old_hi: int, new_lo: int, new_hi: int
) -> Iterator[tuple[int, int, int]]:
    matcher = SequenceMatcher(None, old[old_lo:old_hi], new[new_lo:new_hi], autojunk=False)
    for block in matcher.get_matching_blocks():
        if block.size:
            yield old_lo + block.a, new_lo + block.b, block.size
