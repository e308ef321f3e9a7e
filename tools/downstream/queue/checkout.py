"""A series as commits: a git working tree of the pinned release in which patches are edited."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from downstream.errors import PatchError, StateError
from downstream.patches.header import Header
from downstream.patches.series import Series
from downstream.patches.text import Patch
from downstream.pins import Pin
from downstream.placing.push import Push
from downstream.queue.history import History
from downstream.queue.judged import touched
from downstream.queue.message import mailbox, message_of
from downstream.queue.state import write_whole
from downstream.queue.worktree import Commit, File, Worktree
from downstream.trees.open import prefetch
from downstream.trees.session import Session
from downstream.trees.tree import REGULAR, Tree

VENDORED = "3rdparty/"  # thousands of files of other projects
_RECORD = "sm120-overlay.json"
_SCHEMA = 1
# A message keeps its lines that begin with '#', and no signing or hook of the user's gets in the way.
_CONFIG = "[commit]\n\tcleanup = scissors\n\tgpgSign = false\n[core]\n\thooksPath = /dev/null\n"


class Extent(StrEnum):
    """How much of the release a checkout holds."""

    TOUCHED = "touched"  # what the series names
    SOURCES = "sources"  # all but what is vendored
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a checkout was made of; kept inside its git folder."""

    line: str
    upstream: str
    version: str
    extent: str
    series: str  # digest of the series and its patches
    base: str  # the commit of the release
    head: str  # the last commit of ours
    schema: int = _SCHEMA


def make(
    folder: Path,
    pin: Pin,
    series: Series,
    tree: Tree,
    session: Session,
    *,
    extent: Extent = Extent.SOURCES,
    more: Sequence[str] = (),
) -> Record:
    """Write the release and one commit per patch to *folder* (replaced) and return what was made.

    *more* are paths, folders or patterns to hold besides. Raises PatchError
    where a patch does not apply to its pin.
    """
    patches = series.patches()
    release = Commit(changes=_files(tree, patches, session, extent, more), message=f"{tree.name}\n".encode())
    commits = list(_commits(patches, tree))
    worktree, head = Worktree.create(folder, [release, *commits])
    history = History(folder / ".git")
    with (folder / ".git" / "config").open("a", encoding="ascii") as config:
        config.write(_CONFIG)
    base = history.resolve(f"{head}~{len(commits)}")
    history.run("update-ref", "refs/tags/release", base)
    record = Record(
        line=pin.line,
        upstream=pin.upstream.name,
        version=str(pin.version),
        extent=extent.value,
        series=digest(series),
        base=base,
        head=head,
    )
    _save(worktree.folder, record)
    return record


def renew(folder: Path, record: Record, series: Series) -> None:
    """Note that what the checkout holds is exported: *series* is what its commits now are."""
    head = History(folder / ".git").resolve("HEAD")
    _save(folder, replace(record, series=digest(series), head=head))


def _save(folder: Path, record: Record) -> None:
    write_whole(folder / ".git" / _RECORD, json.dumps(asdict(record), indent=1).encode())


def load(folder: Path) -> Record | None:
    """Return what the checkout at *folder* was made of, None where there is none. Raises StateError if damaged."""
    path = folder / ".git" / _RECORD
    try:
        return Record(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as exc:
        raise StateError(str(path), f"cannot be read: {exc}", "make the checkout again: tools/pq.py checkout") from exc


def unexported(folder: Path, record: Record) -> list[str]:
    """Return what in the checkout would be lost with it: changed files, and commits of the user's."""
    lost = [f"{path} is changed and not committed" for path in changed_files(folder)]
    head = History(folder / ".git").resolve("HEAD")
    if head != record.head:
        lost.append(f"its commit {head[:12]} is not the one it was made with")
    return lost


def changed_files(folder: Path) -> list[str]:
    """Return the tracked files that differ from HEAD, sorted."""
    out = History(folder / ".git").run(
        "--work-tree", str(folder), "status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames"
    )
    return sorted(entry[3:].decode("utf-8", "surrogateescape") for entry in out.split(b"\0") if entry)


def under_way(folder: Path) -> str | None:
    """Return what git is in the middle of there, None where it is in the middle of nothing."""
    for name, what in (("rebase-merge", "rebase"), ("rebase-apply", "rebase"), ("CHERRY_PICK_HEAD", "cherry-pick")):
        if (folder / ".git" / name).exists():
            return what
    return None


def digest(series: Series) -> str:
    """A digest of the series file and of every patch it names."""
    total = hashlib.sha256(series.raw)
    for entry in series:
        total.update(hashlib.sha256(series.read(entry)).digest())
    return total.hexdigest()


def applied(patches: Iterable[Patch], tree: Tree) -> Iterable[tuple[Patch, dict[str, File | None]]]:
    """Push *patches* and yield each with the files it leaves. Raises PatchError at the first that does not apply."""
    run = Push.over(tree)
    for patch in patches:
        result = run.step(patch).result
        for hunk in result.hunks:
            if not hunk.status.placed:
                raise PatchError(
                    patch.name,
                    f"hunk {hunk.number} of {hunk.path} does not apply to {tree.name}: {hunk.reason}",
                    "mend it by hand first; tools/pq.py check says more",
                )
        if not result.fine:
            raise PatchError(patch.name, f"does not apply to {tree.name}: {result.reason}", "tools/pq.py check")
        yield patch, {path: _pushed(run, path) for path in touched([patch])}


def _commits(patches: Sequence[Patch], tree: Tree) -> Iterable[Commit]:
    for patch, files in applied(patches, tree):
        header = Header.parse(patch.header)
        yield Commit(changes=files, message=message_of(header, patch.name), author=mailbox(header.author))


def _pushed(run: Push, path: str) -> File | None:
    lines = run.new.lines(path)
    return None if lines is None else (run.new.mode(path) or REGULAR, b"".join(lines))


def _files(
    tree: Tree, patches: Sequence[Patch], session: Session, extent: Extent, more: Sequence[str]
) -> dict[str, File | None]:
    wanted = set(touched(patches))
    if extent is not Extent.TOUCHED or more:
        wanted.update(path for path in tree.paths() if _is_wanted(path, extent, more))
    paths = sorted(wanted)
    files: dict[str, File | None] = {}
    with session.progress.task(f"check out {tree.name}", len(paths), "files") as task:
        prefetch(tree, paths)
        for path in paths:
            content = tree.read(path)
            if content is not None:
                files[path] = (tree.mode(path) or REGULAR, content)
            task.advance(1, path)
    return files


def _is_wanted(path: str, extent: Extent, more: Sequence[str]) -> bool:
    if extent is Extent.FULL or (extent is Extent.SOURCES and not path.startswith(VENDORED)):
        return True
    return any(path == one or path.startswith(one.rstrip("/") + "/") or fnmatchcase(path, one) for one in more)
