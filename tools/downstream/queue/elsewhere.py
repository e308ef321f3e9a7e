"""Code that left its file: where the lines of a failing hunk stand in the new release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from downstream.patches.parse import split_lines
from downstream.patches.text import FilePatch, Hunk, Patch
from downstream.placing.verdict import FileResult, HunkResult, HunkStatus, PatchResult
from downstream.queue.judged import touched
from downstream.trees.open import prefetch
from downstream.trees.tree import Tree

NEAREST = 120  # new files looked into per file that code has left, the nearest by folder first
TELLING = 12  # characters that make a line worth looking for
UNIQUE = 40  # characters that make a single line telling enough
SLACK = 12  # lines that may have come in between
SHARE = 0.5  # of a hunk's telling lines, found together, that point to a place
_LEFT = (HunkStatus.CONFLICT, HunkStatus.FILE_GONE)


def pointed(results: Sequence[PatchResult], patches: Sequence[Patch], base: Tree, new: Tree) -> tuple[PatchResult, ...]:
    """Return *results* with ``elsewhere`` filled in for hunks whose code left their file.

    Only files that the old release did not have, and those the series touches,
    are read: code moves to new files far more often than to old ones.
    """
    by_name = {patch.name: patch for patch in patches}
    failing = [result for result in results if any(hunk.status in _LEFT for hunk in result.hunks)]
    if not failing:
        return tuple(results)
    arrived = set(new.paths()) - set(base.paths())
    near = {
        file.path: _nearest(file.path, arrived)
        for result in failing
        for file in result.files
        if any(hunk.status in _LEFT for hunk in file.hunks)
    }
    own = set(touched(patches))
    prefetch(new, sorted(own | {path for paths in near.values() for path in paths}))
    texts: dict[str, list[bytes]] = {}
    for path in sorted(own | {path for paths in near.values() for path in paths}):
        content = new.read(path)
        if content is not None:
            texts[path] = [line.strip() for line in split_lines(content)]
    return tuple(
        replace(
            result,
            files=tuple(
                _file(file, source, {path: texts[path] for path in (*near.get(file.path, ()), *own) if path in texts})
                for file, source in zip(result.files, by_name[result.patch].files, strict=False)
            )
            + result.files[len(by_name[result.patch].files) :],
        )
        for result in results
    )


def _file(file: FileResult, source: FilePatch, texts: Mapping[str, Sequence[bytes]]) -> FileResult:
    hunks = {hunk.number: hunk for hunk in source.hunks}
    return replace(file, hunks=tuple(_hunk(result, hunks[result.number], file.path, texts) for result in file.hunks))


def _hunk(result: HunkResult, hunk: Hunk, path: str, texts: Mapping[str, Sequence[bytes]]) -> HunkResult:
    if result.status not in _LEFT:
        return result
    here = set(texts.get(path, ()))
    old = [line.strip() for line in hunk.old]
    telling = {line for line in old if len(line) >= TELLING and line not in here}
    if not telling:
        return result
    found = [
        (score, other, line)
        for other, lines in texts.items()
        if other != path
        for score, line in _best(lines, telling, len(old))
    ]
    if not found:
        return result
    best = max(score for score, _, _ in found)
    places = tuple(f"{other}:{line}" for score, other, line in sorted(found, key=lambda one: one[1:]) if score == best)
    return replace(result, elsewhere=places[:3])


def _best(lines: Sequence[bytes], telling: set[bytes], size: int) -> Iterable[tuple[int, int]]:
    """Yield (telling lines found together, 1-based first line) of the densest window, if it is dense enough."""
    hits = [index for index, line in enumerate(lines) if line in telling]
    best = (0, 0)
    for position, first in enumerate(hits):
        window = {lines[index] for index in hits[position:] if index < first + size + SLACK}
        if len(window) > best[0]:
            best = (len(window), first + 1)
    enough = best[0] > 1 or (best[0] == 1 and len(max(telling, key=len)) >= UNIQUE)
    if enough and best[0] >= round(len(telling) * SHARE):
        yield best


def _nearest(path: str, arrived: Iterable[str]) -> list[str]:
    folders, suffix = path.split("/")[:-1], path.rsplit(".", 1)[-1]

    def distance(other: str) -> tuple[int, str]:
        theirs = other.split("/")[:-1]
        shared = 0
        while shared < min(len(folders), len(theirs)) and folders[shared] == theirs[shared]:
            shared += 1
        return len(folders) + len(theirs) - 2 * shared, other

    return sorted((other for other in arrived if other.rsplit(".", 1)[-1] == suffix), key=distance)[:NEAREST]
