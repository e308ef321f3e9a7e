"""Files as lists of lines, split on LF only, every byte kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def occurrences(
    lines: Sequence[bytes], wanted: Sequence[bytes], *, start: int = 0, end: int | None = None
) -> Iterator[int]:
    """Yield each 0-based index in [start, end) where *wanted* (not empty) stands whole before *end*."""
    stop = len(lines) if end is None else min(end, len(lines))
    # The longest line is the one least likely to stand elsewhere.
    pivot = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    needle, size = wanted[pivot], len(wanted)
    want = list(wanted)
    at = start + pivot
    while True:
        try:
            at = lines.index(needle, at, stop)
        except ValueError:
            return
        first = at - pivot
        if first + size <= stop and list(lines[first : first + size]) == want:
            yield first
        at += 1


def count(lines: Sequence[bytes], wanted: Sequence[bytes], *, limit: int) -> int:
    """Return how often *wanted* stands in *lines*, at most *limit*."""
    found = 0
    for _ in occurrences(lines, wanted):
        found += 1
        if found == limit:
            break
    return found
