"""A series that is not ours on a tree that is not ours: judged, and written out as far as it could be placed."""

from __future__ import annotations

import os
from pathlib import Path

from downstream.errors import PatchError, UnsafePathError, UsageError, WriteError
from downstream.patches.parse import Parsed, parse_tolerant
from downstream.patches.series import DEFAULT_STRIP, FILE, Series, load_series
from downstream.patches.text import Patch
from downstream.placing.verdict import PushReport
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK, Tree


def find_series(path: Path, *, strip: int = DEFAULT_STRIP) -> Series:
    """Load the series in a folder, or the series file at *path*. Raises UsageError, PatchError."""
    if path.is_dir():
        return load_series(path, FILE, strip=strip)
    if path.is_file():
        return load_series(path.parent, path.name, strip=strip)
    raise UsageError(str(path), "does not exist", "name a series file, or the folder that holds one (debian/patches)")


def read_tolerantly(series: Series) -> tuple[Parsed, ...]:
    """Read every patch; one that cannot be read at all stays in its place as a fault, so that the others are judged.

    Raises PatchError only for a file that is not there.
    """
    return tuple(_parsed(series.read(entry), name=entry.name, strip=entry.strip) for entry in series)


def _parsed(content: bytes, *, name: str, strip: int) -> Parsed:
    try:
        return parse_tolerant(content, name=name, strip=strip)
    except PatchError as exc:
        return Parsed(patch=Patch(name=name, header=content, files=(), strip=strip), faults=(exc,))


def write_out(report: PushReport, tree: Tree, folder: Path) -> tuple[str, ...]:
    """Write each file of *tree* whose content or mode the series changed into *folder*, and return their paths, sorted.

    Modes are kept, a symlink stays one. Symlinks below *folder* are not followed. Raises UnsafePathError, WriteError.
    """
    chmods = {path: tree.read(path) for path in report.modes if path not in report.changes}
    changed = sorted({**chmods, **report.changes}.items())
    written = [(path, content) for path, content in changed if content is not None]
    root = os.fspath(folder)
    made = {root}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in written:
            target = f"{root}/{path}"
            _make_folders(target.rpartition("/")[0], made)
            _write(target, content, mode=report.modes.get(path) or tree.mode(path) or REGULAR)
    except OSError as exc:
        place = str(exc.filename or folder)
        raise WriteError(place, exc.strerror or str(exc), "make room or choose another --out folder") from exc
    return tuple(path for path, _ in written)


def _make_folders(folder: str, made: set[str]) -> None:
    """Make *folder* and those above it, up to one that is *made*; asked once for each, however many files it holds."""
    if folder in made:
        return
    _make_folders(folder.rpartition("/")[0], made)
    try:
        os.mkdir(folder)  # noqa: PTH102 - thousands of files, and a Path for each takes longer than writing it
    except FileExistsError as exc:
        if os.path.islink(folder):  # noqa: PTH114
            raise UnsafePathError(folder, "is a symlink in the output folder", "choose an empty --out folder") from exc
    made.add(folder)


def _write(target: str, content: bytes, *, mode: int) -> None:
    before, _, name = target.rpartition("/")
    part = f"{before}/.{name}.{os.getpid()}.part"
    if mode == SYMLINK:
        os.symlink(content, os.fsencode(part))  # noqa: PTH211 - bytes
    else:
        with open(part, "wb") as stream:  # noqa: PTH123
            stream.write(content)
            os.fchmod(stream.fileno(), 0o755 if mode == EXECUTABLE else 0o644)
    os.replace(part, target)  # noqa: PTH105
