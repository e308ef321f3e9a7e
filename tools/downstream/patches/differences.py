"""The shortest edit script between two lists of lines (Myers 1986, "An O(ND) difference algorithm")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

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

    A block that could stand at several places is moved as far down as it goes,
    as git does, so that equal changes are written alike.
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
    moved = [
        Block(block.old_start + start, block.old_end + start, block.new_start + start, block.new_end + start)
        for block in changed
    ]
    return _slid_down(old, new, moved)


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
    deleted: list[int] = []
    inserted: list[int] = []
    x, y = n, m
    for d in range(len(trace) - 1, 0, -1):
        furthest = trace[d]
        k = x - y
        down = k == -d or (k != d and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
        previous_k = k + 1 if down else k - 1
        previous_x = furthest[previous_k]
        previous_y = previous_x - previous_k
        if down:
            inserted.append(previous_y)
        else:
            deleted.append(previous_x)
        x, y = previous_x, previous_y
    return _blocks(n, m, set(deleted), set(inserted))


def _blocks(n: int, m: int, deleted: set[int], inserted: set[int]) -> list[Block]:
    blocks: list[Block] = []
    x = y = 0
    while x < n or y < m:
        if x in deleted or y in inserted:
            start_x, start_y = x, y
            while x in deleted:
                x += 1
            while y in inserted:
                y += 1
            blocks.append(Block(start_x, x, start_y, y))
        else:
            x += 1
            y += 1
    return blocks


def _by_difflib(a: Sequence[int], b: Sequence[int]) -> list[Block]:
    codes = SequenceMatcher(None, a, b, autojunk=True).get_opcodes()
    return [Block(a0, a1, b0, b1) for tag, a0, a1, b0, b1 in codes if tag != "equal"]


def _slid_down(old: Sequence[bytes], new: Sequence[bytes], blocks: Sequence[Block]) -> list[Block]:
    out: list[Block] = []
    for index, block in enumerate(blocks):
        a0, a1, b0, b1 = block.old_start, block.old_end, block.new_start, block.new_end
        limit = blocks[index + 1].old_start if index + 1 < len(blocks) else len(old)
        if a0 == a1:  # insertion
            while a1 < limit and new[b0] == old[a1]:
                a0, a1, b0, b1 = a0 + 1, a1 + 1, b0 + 1, b1 + 1
        elif b0 == b1:  # deletion
            while a1 < limit and old[a0] == old[a1]:
                a0, a1, b0, b1 = a0 + 1, a1 + 1, b0 + 1, b1 + 1
        out.append(Block(a0, a1, b0, b1))
    return out
