"""The verdicts of a series on a release, kept by content so that none is worked out twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from downstream.patches.text import Patch
from downstream.placing.push import push
from downstream.placing.verdict import HunkStatus, PatchResult
from downstream.trees.session import Session
from downstream.trees.tree import Tree

RULES = 2  # raised when placement changes its mind about something: kept verdicts are then worked out anew

Place = tuple[str, int, int]  # patch, index of its file patch, hunk number (0: a file patch without hunks)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a release does to one hunk, as much of it as a walk over many releases needs."""

    status: HunkStatus
    line: int | None = None
    reason: str = ""


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
        return {
            (patch, file, hunk): Verdict(HunkStatus(s), at, why) for patch, file, hunk, s, at, why in json.loads(kept)
        }
    found = verdicts_of(push(patches, new, base=base).results)
    rows = [[*place, verdict.status.value, verdict.line, verdict.reason] for place, verdict in found.items()]
    session.cache.write(name, json.dumps(rows, separators=(",", ":")).encode())
    return found


def verdicts_of(results: Sequence[PatchResult]) -> Verdicts:
    """Return the verdicts of *results* by place."""
    return dict(_verdicts(results))


def _verdicts(results: Sequence[PatchResult]) -> Iterator[tuple[Place, Verdict]]:
    for result in results:
        for index, file in enumerate(result.files):
            for hunk in file.hunks:
                yield (result.patch, index, hunk.number), Verdict(hunk.status, hunk.line, hunk.reason)
            if not file.hunks:
                yield (result.patch, index, 0), Verdict(file.status, None, file.reason)


def _key(patches: Sequence[Patch], base: Tree, new: Tree) -> str:
    digest = hashlib.sha256(b"%d\n" % RULES)
    for patch in patches:
        content = patch.to_bytes()
        digest.update(b"%s\n%d %d\n" % (patch.name.encode("utf-8", "surrogateescape"), patch.strip, len(content)))
        digest.update(content)
    for tree in (base, new):
        gone = False
        for path in touched(patches):
            content_or_none = tree.read(path)
            gone = gone or content_or_none is None
            state = b"-" if content_or_none is None else hashlib.sha256(content_or_none).digest()
            digest.update(path.encode("utf-8", "surrogateescape") + b"\0%o" % (tree.mode(path) or 0) + state)
        if gone:
            # Where a file is gone, the verdict depends on which other files there are.
            names = "\0".join(tree.paths()).encode("utf-8", "surrogateescape")
            digest.update(hashlib.sha256(names).digest())
    return digest.hexdigest()
