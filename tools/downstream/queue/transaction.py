"""Several files written as one: after a crash the next start finds all of the old or all of the new."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from downstream.errors import DownstreamError, StateError, WriteError
from downstream.queue.exchange import exchange

WORK = ".work"  # below the root, ignored by git, on the root's file system
JOURNAL = "transaction"  # its presence is the commit point
_RECORD = "journal.json"
_SCHEMA = 1


class Transaction:
    """Changes to files below *root* that become visible together.

    Nothing outside ``.work`` changes before ``commit``. A folder in which files
    change is exchanged for its new version by one system call where the file
    system can, so that a process killed between two files leaves no mixture;
    ``recover`` finishes what a killed ``commit`` had promised. The caller keeps
    two writers apart.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._changes: dict[str, bytes | None] = {}

    def write(self, path: str | Path, content: bytes) -> None:
        """Have *path* (relative to the root, or below it) hold *content*; a file's mode is kept."""
        self._changes[self._relative(path)] = content

    def remove(self, path: str | Path) -> None:
        """Have *path* be no file."""
        self._changes[self._relative(path)] = None

    def commit(self) -> tuple[str, ...]:
        """Make every change, or none, and return the paths that changed.

        Raises WriteError where something cannot be written; if that happens
        before the commit point (almost always) nothing has changed.
        """
        recover(self.root)
        changes = {path: new for path, new in self._changes.items() if _read(self.root / path) != new}
        self._changes = {}
        if not changes:
            return ()
        journal = self.root / WORK / JOURNAL
        staging = journal.with_name(f"{JOURNAL}.{os.getpid()}.tmp")
        try:
            _refuse_unwritable(self.root, changes)
            _stage(self.root, staging, changes)
            staging.rename(journal)
            _sync(journal.parent)
        except (OSError, DownstreamError) as exc:
            shutil.rmtree(staging, ignore_errors=True)
            if isinstance(exc, OSError):
                raise _write_error(self.root, exc, "nothing was changed") from exc
            raise
        _roll_forward(self.root)
        return tuple(sorted(changes))

    def _relative(self, path: str | Path) -> str:
        path = Path(path)
        if path.is_absolute():
            path = path.relative_to(self.root)
        if ".." in path.parts or not path.parts:
            raise WriteError(str(path), f"is not below {self.root}")
        return path.as_posix()


def pending(root: Path) -> bool:
    """Whether a commit is under way, or was killed on its way; a reader should ``recover`` first, as a writer."""
    return (root / WORK / JOURNAL).is_dir()


def recover(root: Path) -> bool:
    """Finish a commit that was killed on its way; return whether there was one. Safe to call at every start.

    Raises StateError for a journal that cannot be read, WriteError where
    finishing fails.
    """
    work = root / WORK
    if not work.is_dir():
        return False
    begun = pending(root)
    if begun:
        _roll_forward(root)
    for leftover in work.glob(f"{JOURNAL}.*.tmp"):
        if not _is_running(leftover.name.split(".")[1]):
            shutil.rmtree(leftover, ignore_errors=True)
    return begun


def _is_running(pid: str) -> bool:
    if not pid.isdigit() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stage(root: Path, staging: Path, changes: Mapping[str, bytes | None]) -> None:
    shutil.rmtree(staging, ignore_errors=True)
    (staging / "files").mkdir(parents=True)
    steps: list[dict[str, object]] = []
    for number, (path, content) in enumerate(sorted(changes.items())):
        if content is None:
            steps.append({"path": path, "file": None})
            continue
        staged = staging / "files" / str(number)
        _write_synced(staged, content, mode=_mode(root / path))
        steps.append({"path": path, "file": staged.name})
    folders: list[dict[str, object]] = []
    for number, folder in enumerate(_folders(root, changes)):
        tree = staging / f"folder-{number}"
        _copy_linked(root / folder, tree)
        for path, content in changes.items():
            if PurePosixPath(path).is_relative_to(folder):
                _apply(
                    tree / PurePosixPath(path).relative_to(folder), _staged(staging, steps, path), gone=content is None
                )
        # The inode goes with the folder, so recovery can tell on which side of the exchange it is.
        folders.append({"path": folder, "tree": tree.name, "inode": tree.stat().st_ino})
    record = {"schema": _SCHEMA, "steps": steps, "folders": folders}
    _write_synced(staging / _RECORD, json.dumps(record).encode(), mode=0o644)
    _sync(staging / "files")
    _sync(staging)


def _folders(root: Path, changes: Iterable[str]) -> list[str]:
    """Return the folders to exchange: per top-level folder, the deepest existing one that holds all its changes.

    One file needs none: replacing it is atomic. Nor is a folder exchanged in
    which the user's shell stands, since that would be left in the old one.
    """
    parents: dict[str, list[str]] = {}
    for path in changes:
        if "/" in path:
            parents.setdefault(path.split("/")[0], []).append(str(PurePosixPath(path).parent))
    found = []
    for group in parents.values():
        if len(group) < 2:
            continue
        common = os.path.commonpath(group)
        while common and not (root / common).is_dir():
            common = str(PurePosixPath(common).parent) if "/" in common else ""
        if common and not (root / common).is_symlink() and not _stands_in(root / common):
            found.append(common)
    return found


def _stands_in(folder: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(folder.resolve())
    except FileNotFoundError:  # the working folder itself is gone
        return False


def _copy_linked(folder: Path, target: Path) -> None:
    """Copy a folder without copying bytes, where the file system has hard links."""

    def link(source: str, destination: str) -> None:
        try:
            os.link(source, destination, follow_symlinks=False)
        except OSError:
            shutil.copy2(source, destination, follow_symlinks=False)

    shutil.copytree(folder, target, symlinks=True, copy_function=link)


def _staged(staging: Path, steps: Iterable[Mapping[str, object]], path: str) -> Path | None:
    name = next(step["file"] for step in steps if step["path"] == path)
    return staging / "files" / str(name) if name is not None else None


def _apply(target: Path, staged: Path | None, *, gone: bool) -> None:
    target.unlink(missing_ok=True)
    if gone or staged is None:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(staged, target)
    except OSError:
        shutil.copy2(staged, target)


def _roll_forward(root: Path) -> None:
    journal = root / WORK / JOURNAL
    try:
        record = json.loads((journal / _RECORD).read_bytes())
        steps, folders = record["steps"], record["folders"]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise StateError(str(journal), f"the journal of a write cannot be read: {exc}", "remove that folder") from exc
    try:
        done: list[str] = []
        for folder in folders:
            real, tree = root / folder["path"], journal / folder["tree"]
            if real.stat().st_ino == folder["inode"] or exchange(tree, real):
                done.append(folder["path"])
        for step in steps:
            if not any(PurePosixPath(step["path"]).is_relative_to(folder) for folder in done):
                _put(root / step["path"], None if step["file"] is None else journal / "files" / step["file"])
        for parent in {(root / step["path"]).parent for step in steps}:
            if parent.is_dir():
                _sync(parent)
    except OSError as exc:
        raise _write_error(root, exc, "the change is kept in .work and is finished at the next start") from exc
    finished = journal.with_name(f"{JOURNAL}.{os.getpid()}.tmp")
    shutil.rmtree(finished, ignore_errors=True)
    journal.rename(finished)
    shutil.rmtree(finished, ignore_errors=True)


def _put(target: Path, staged: Path | None) -> None:
    if staged is None:
        target.unlink(missing_ok=True)
    elif staged.exists():  # else an earlier, killed attempt has moved it already
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.replace(target)


def _refuse_unwritable(root: Path, changes: Iterable[str]) -> None:
    for path in changes:
        target = root / path
        if target.is_dir():
            raise WriteError(path, "is a folder", "move it out of the way")
        folder = target.parent
        while not folder.exists():
            folder = folder.parent
        if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
            raise WriteError(path, "cannot be written; nothing was changed", f"make {folder} writable")


def _read(path: Path) -> bytes | None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return path.read_bytes()
    return None


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777 if path.exists() else 0o644


def _write_synced(path: Path, content: bytes, *, mode: int) -> None:
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fchmod(stream.fileno(), mode)
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_error(root: Path, exc: OSError, state: str) -> WriteError:
    place = str(exc.filename or root)
    return WriteError(
        place, f"cannot be written: {exc.strerror or exc}; {state}", "make room or set its permissions, then run again"
    )
