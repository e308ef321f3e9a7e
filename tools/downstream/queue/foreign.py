"""A series that is not ours on a tree that is not ours: judged, and written out as far as it could be placed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from downstream.errors import PatchError, UnsafePathError, UsageError, WriteError
from downstream.patches.parse import Parsed, parse_tolerant
from downstream.patches.series import DEFAULT_STRIP, FILE, Series, load_series
from downstream.patches.text import Patch
from downstream.placing.verdict import PushReport
from downstream.trees.tree import EXECUTABLE, REGULAR


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


def write_out(report: PushReport, folder: Path) -> tuple[str, ...]:
    """Write each file that a placed hunk changed into *folder*, as it then is, and return their paths, sorted.

    Symlinks below *folder* are not followed. Raises UnsafePathError, WriteError.
    """
    written = [(path, content) for path, content in sorted(report.changes.items()) if content is not None]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in written:
            _write(folder, path, content, mode=report.modes.get(path, REGULAR))
    except OSError as exc:
        place = str(exc.filename or folder)
        raise WriteError(place, exc.strerror or str(exc), "make room or choose another --out folder") from exc
    return tuple(path for path, _ in written)


def _write(folder: Path, path: str, content: bytes, *, mode: int) -> None:
    target = folder / path
    for parent in _between(folder, target):
        if parent.is_symlink():
            raise UnsafePathError(str(parent), "is a symlink in the output folder", "choose an empty --out folder")
        parent.mkdir(exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.chmod(0o755 if mode == EXECUTABLE else 0o644)
    part.replace(target)


def _between(folder: Path, target: Path) -> Iterable[Path]:
    parents = []
    for parent in target.parents:
        if parent == folder:
            break
        parents.append(parent)
    return reversed(parents)
