"""What ended a hunk's life: upstream's lines before and after, and where the code went."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from downstream.errors import DownstreamError
from downstream.patches.parse import split_lines
from downstream.patches.text import FilePatch, Hunk, Patch
from downstream.placing.push import push
from downstream.placing.verdict import HunkStatus
from downstream.queue.elsewhere import pointed
from downstream.queue.judged import RULES, Place, Verdict, Verdicts, series_digest
from downstream.trees.session import Session
from downstream.trees.tree import Tree

Lines = tuple[tuple[int, bytes], ...]  # 1-based numbers, text without its LF

SHOWN = 12  # lines of a side: enough to see what happened
_LEFT = (HunkStatus.CONFLICT, HunkStatus.FILE_GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The few upstream lines a hunk speaks of, in the last release that takes it and in the next."""

    before: Lines = ()
    after: Lines = ()


def sides(file: FilePatch, hunk: Hunk | None, last: tuple[Tree, Verdict], ended: tuple[Tree, Verdict]) -> Sides:
    """Return both sides; a side is empty where the release says nothing of the place (its file is gone, say)."""
    if hunk is None:
        return Sides()
    tree, placed = last
    before = _at(tree, file.old_path, hunk.old_start + (placed.offset or 0), hunk.old)
    tree, verdict = ended
    if verdict.found:
        after = tuple((line, text.rstrip(b"\r\n")) for line, text in verdict.found[:SHOWN])
    elif verdict.status is HunkStatus.UPSTREAMED and verdict.candidates:
        after = _at(tree, file.new_path, verdict.candidates[0], hunk.new)
    else:
        after = ()
    return Sides(before=before, after=after)


def _at(tree: Tree, path: str | None, line: int, wanted: Sequence[bytes]) -> Lines:
    """The lines of *path* that are *wanted*, nearest to *line*; those at *line* where they are not to be found."""
    content = tree.read(path) if path else None
    if content is None or not wanted:
        return ()
    lines = split_lines(content)
    size = len(wanted)
    starts = [index for index in range(len(lines) - size + 1) if lines[index : index + size] == list(wanted)]
    first = min(starts, key=lambda index: abs(index + 1 - line), default=max(line - 1, 0))
    shown = lines[first : first + min(size, SHOWN)]
    return tuple((first + 1 + index, text.rstrip(b"\r\n")) for index, text in enumerate(shown))


def whereabouts(
    patches: Sequence[Patch], base: Tree, new: Tree, verdicts: Verdicts, session: Session
) -> Mapping[Place, tuple[str, ...]]:
    """Return ``path:line`` in other files of *new* for hunks whose code left their file.

    Kept in the session's cache by the release's own digest: new files are read once.
    """
    if not any(verdict.status in _LEFT for verdict in verdicts.values()):
        return {}
    identity = [str(getattr(tree, "identity", "")) for tree in (base, new)]
    name = "\n".join([str(RULES), series_digest(patches), *identity])
    entry = f"elsewhere/{hashlib.sha256(name.encode()).hexdigest()}.json" if all(identity) else ""
    kept = session.cache.read(entry) if entry else None
    if kept is None:
        try:
            results = pointed(push(patches, new, base=base).results, patches, base, new)
        except DownstreamError:
            return {}  # a pointer is a courtesy: files that cannot be read (offline, say) give none
        rows = [
            [result.patch, index, hunk.number, hunk.elsewhere]
            for result in results
            for index, file in enumerate(result.files)
            for hunk in file.hunks
            if hunk.elsewhere
        ]
        kept = json.dumps(rows, separators=(",", ":")).encode()
        if entry:
            session.cache.write(entry, kept)
    return {(patch, file, hunk): tuple(places) for patch, file, hunk, places in json.loads(kept)}
