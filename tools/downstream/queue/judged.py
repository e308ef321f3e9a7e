"""The verdicts of a series on a release, kept by content so that none is worked out twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from downstream.patches.text import Patch
from downstream.placing.push import push
from downstream.placing.verdict import FileResult, HunkResult, HunkStatus, PatchResult
from downstream.trees.session import Session
from downstream.trees.tree import Tree

RULES = 10  # raised when placement changes its mind about something: kept verdicts are then worked out anew

Place = tuple[str, int, int]  # patch, index of its file patch, hunk number (0: a file patch without hunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a release does to one hunk, as much of it as a walk over many releases shows."""

    status: HunkStatus
    line: int | None = None  # where it lands, 1-based
    offset: int | None = None
    reason: str = ""
    review: str | None = None
    candidates: tuple[int, ...] = ()
    found: tuple[tuple[int, bytes], ...] = ()  # the upstream lines in the way

    @classmethod
    def of(cls, result: HunkResult | FileResult) -> Verdict:
        if isinstance(result, FileResult):
            return cls(status=result.status, reason=result.reason)
        return cls(
            status=result.status,
            line=result.line,
            offset=result.offset,
            reason=result.reason,
            review=result.review,
            candidates=result.candidates,
            found=result.found,
        )


Verdicts = dict[Place, Verdict]


def touched(patches: Sequence[Patch]) -> tuple[str, ...]:
    """Return every path that the series reads, sorted."""
    paths = {path for patch in patches for file in patch.files for path in (file.old_path, file.new_path) if path}
    return tuple(sorted(paths))


def judged(patches: Sequence[Patch], base: Tree, new: Tree, session: Session) -> Verdicts:
    """Return the verdict on every hunk of the series, carried from *base* to *new*.

    The result is kept in the session's cache under the content of the series
    and of the files it touches in both trees: releases that share those files
    share the answer.
    """
    name = f"verdicts/{_key(patches, base, new)}.json"
    kept = session.cache.read(name)
    if kept is not None:
        return {(patch, file, hunk): _read(row) for patch, file, hunk, row in json.loads(kept)}
    found = verdicts_of(push(patches, new, base=base).results)
    rows = [[*place, _written(verdict)] for place, verdict in found.items()]
    session.cache.write(name, json.dumps(rows, separators=(",", ":")).encode())
    return found


def verdicts_of(results: Sequence[PatchResult]) -> Verdicts:
    """Return the verdicts of *results* by place."""
    return dict(_verdicts(results))


def _verdicts(results: Sequence[PatchResult]) -> Iterator[tuple[Place, Verdict]]:
    for result in results:
        for index, file in enumerate(result.files):
            for hunk in file.hunks:
                yield (result.patch, index, hunk.number), Verdict.of(hunk)
            if not file.hunks:
                yield (result.patch, index, 0), Verdict.of(file)


def _written(verdict: Verdict) -> list[Any]:
    found = [[line, text.decode("latin-1")] for line, text in verdict.found]
    return [
        verdict.status.value,
        verdict.line,
        verdict.offset,
        verdict.reason,
        verdict.review,
        verdict.candidates,
        found,
    ]


def _read(row: list[Any]) -> Verdict:
    status, line, offset, reason, review, candidates, found = row
    return Verdict(
        status=HunkStatus(status),
        line=line,
        offset=offset,
        reason=reason,
        review=review,
        candidates=tuple(candidates),
        found=tuple((number, text.encode("latin-1")) for number, text in found),
    )


def series_digest(patches: Sequence[Patch]) -> str:
    """Return the sha256 of a series: names, strips and content in order."""
    digest = hashlib.sha256()
    for patch in patches:
        content = patch.to_bytes()
        digest.update(b"%s\n%d %d\n" % (patch.name.encode("utf-8", "surrogateescape"), patch.strip, len(content)))
        digest.update(content)
    return digest.hexdigest()


def _key(patches: Sequence[Patch], base: Tree, new: Tree) -> str:
    digest = hashlib.sha256(b"%d\n%s\n" % (RULES, series_digest(patches).encode()))
    for tree in (base, new):
        gone = False
        for path in touched(patches):
            found = tree.read(path)
            gone = gone or found is None
            state = b"-" if found is None else hashlib.sha256(found).digest()
            digest.update(path.encode("utf-8", "surrogateescape") + b"\0%o" % (tree.mode(path) or 0) + state)
        if gone:
            # Where a file is gone, the verdict depends on which other files there are.
            names = "\0".join(tree.paths()).encode("utf-8", "surrogateescape")
            digest.update(hashlib.sha256(names).digest())
    return digest.hexdigest()
