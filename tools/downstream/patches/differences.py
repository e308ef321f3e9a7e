"""The shortest edit script between two lists of lines (Myers 1986, "An O(ND) difference algorithm").

It is for writing a patch, as git would. Which line of a release became which of another is another question, and
``placing.linemap`` answers it by the lines that stand once: a shortest script happily pairs look-alikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from downstream.patches.compaction import compact

# Above this many changed lines the memory of the exact search (its square) is not worth it.
_EXACT_LIMIT = 1500


@dataclass(frozen=True, slots=True)
class Block:
    """Old lines [old_start, old_end) replaced by new lines [new_start, new_end); 0-based."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def differences(old: Sequence[bytes], new: Sequence[bytes]) -> list[Block]:
    """Return the changed blocks in order; each side between two blocks is equal.

    A block that could stand at several places stands where git puts it.
    """
    start = 0
    shorter = min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    tail = 0
    while tail < shorter - start and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    a, b = _numbered(old[start : len(old) - tail], new[start : len(new) - tail])
    if not a or not b:
        changed = [Block(0, len(a), 0, len(b))] if a or b else []
    else:
        exact = _myers(a, b)
        changed = _by_difflib(a, b) if exact is None else exact
    blocks = [Block(c.old_start + start, c.old_end + start, c.new_start + start, c.new_end + start) for c in changed]
    return _compacted(old, new, blocks)


def _numbered(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Give equal lines equal numbers: comparing ints is several times faster than comparing lines."""
    numbers: dict[bytes, int] = {}
    return [numbers.setdefault(line, len(numbers)) for line in old], [
        numbers.setdefault(line, len(numbers)) for line in new
    ]


def _myers(a: Sequence[int], b: Sequence[int]) -> list[Block] | None:
    """Return the shortest script; None where it is longer than _EXACT_LIMIT."""
    n, m = len(a), len(b)
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for d in range(min(n + m, _EXACT_LIMIT) + 1):
        trace.append(furthest.copy())
        for k in range(-d, d + 1, 2):
            if k < -m or k > n:
                continue
            if k == -d or (k != d and furthest.get(k - 1, -1) < furthest.get(k + 1, -1)):
                x = furthest.get(k + 1, 0)
            else:
                x = furthest.get(k - 1, -1) + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            furthest[k] = x
            if x >= n and y >= m:
                return _walk_back(trace, n, m)
    return None


def _walk_back(trace: Sequence[dict[int, int]], n: int, m: int) -> list[Block]:
    gone, come = [False] * n, [False] * m
    x, y = n, m
    for d in range(len(trace) - 1, 0, -1):
        furthest = trace[d]
        k = x - y
        down = k == -d or (k != d and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
        previous_k = k + 1 if down else k - 1
        previous_x = furthest[previous_k]
        previous_y = previous_x - previous_k
        if down:
            come[previous_y] = True
        else:
            gone[previous_x] = True
        x, y = previous_x, previous_y
    return _from_flags(gone, come)


def _by_difflib(a: Sequence[int], b: Sequence[int]) -> list[Block]:
    codes = SequenceMatcher(None, a, b, autojunk=True).get_opcodes()
    return [Block(a0, a1, b0, b1) for tag, a0, a1, b0, b1 in codes if tag != "equal"]


def _compacted(old: Sequence[bytes], new: Sequence[bytes], blocks: Sequence[Block]) -> list[Block]:
    if not blocks:
        return []
    gone, come = [False] * len(old), [False] * len(new)
    for block in blocks:
        gone[block.old_start : block.old_end] = [True] * (block.old_end - block.old_start)
        come[block.new_start : block.new_end] = [True] * (block.new_end - block.new_start)
    a, b = _numbered(old, new)
    compact(old, a, gone, come)
    compact(new, b, come, gone)
    return _from_flags(gone, come)


def _from_flags(gone: Sequence[bool], come: Sequence[bool]) -> list[Block]:
    found: list[Block] = []
    x = y = 0
    while x < len(gone) or y < len(come):
        start_x, start_y = x, y
        while x < len(gone) and gone[x]:
            x += 1
        while y < len(come) and come[y]:
            y += 1
        if (x, y) != (start_x, start_y):
            found.append(Block(start_x, x, start_y, y))
        x += 1
        y += 1
    return found
