"""A tar or zip archive as a tree, the one top folder that source archives have taken off."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from downstream.errors import TreeError
from downstream.trees.layout import IDENTITY, Layout
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK, Tree
from downstream.trees.wheel import FileSource, WheelTree

ZIPS = (".zip", ".egg")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz", ".tar.zst", ".tzst")

_IN_MEMORY = 64 << 20  # bytes of an unpacked tar kept off the disk


def open_archive(path: Path, *, name: str = "") -> Tree:
    """Open a tar (plain, gz, bz2, xz, zst) or zip archive.

    Where everything lies in one folder, as in a source distribution, paths
    begin below it. Raises TreeError.
    """
    title = name or path.name
    lower = path.name.lower()
    if lower.endswith(ZIPS):
        top = _top(WheelTree(FileSource(path), IDENTITY, title).members())
        return WheelTree(FileSource(path), Layout((("", top),)), title)
    if lower.endswith(TARS):
        return _open_tar(path, title)
    raise TreeError(title, "is no archive that can be read", f"use one of: {' '.join((*ZIPS, *TARS))}")


class TarTree:
    """The files of a tar archive. Unpacked once, into memory or an unnamed file; a later entry wins over an earlier."""

    def __init__(self, plain: IO[bytes], name: str) -> None:
        self.name = name
        self._plain = plain
        self._archive = tarfile.open(fileobj=plain, mode="r:", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        members: dict[str, tarfile.TarInfo] = {}
        for member in self._archive:
            path = member.name.removeprefix("./")
            if member.isdir() or not path:
                continue
            if path.startswith("/") or ".." in path.split("/"):
                raise TreeError(name, f"holds the unsafe path {path!r}", "do not unpack it")
            if member.isreg() or member.issym() or member.islnk():
                members[path] = member
        top = _top(members)
        self._members = {path.removeprefix(top): member for path, member in members.items()}

    def read(self, path: str) -> bytes | None:
        member = self._members.get(path)
        if member is None:
            return None
        if member.issym():
            return member.linkname.encode("utf-8", "surrogateescape")
        try:
            stream = self._archive.extractfile(member)  # follows a hard link within the archive
            return stream.read() if stream is not None else None
        except (KeyError, OSError, tarfile.TarError) as exc:
            raise TreeError(f"{self.name}/{path}", f"cannot be read ({exc})", "fetch the archive again") from exc

    def mode(self, path: str) -> int | None:
        member = self._members.get(path)
        if member is None:
            return None
        return SYMLINK if member.issym() else EXECUTABLE if member.mode & 0o100 else REGULAR

    def paths(self) -> Iterable[str]:
        return sorted(self._members)

    def __del__(self) -> None:
        self._plain.close()


def _open_tar(path: Path, title: str) -> TarTree:
    opener, broken = _decoder(path.name.lower(), title)
    # Unpacked whole: a compressed stream can only be read forwards, a tree is read anywhere.
    spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - the tree keeps it
    try:
        with path.open("rb") as packed, opener(packed) as plain:
            shutil.copyfileobj(plain, spool)
        spool.seek(0)
        return TarTree(spool, title)
    except BaseException as exc:
        spool.close()
        if isinstance(exc, OSError) and exc.strerror:
            raise TreeError(title, f"cannot be unpacked: {exc.strerror}", "make it readable, and room for it") from exc
        if isinstance(exc, (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, broken)):
            raise TreeError(title, f"is no complete archive ({exc})", "fetch it again") from exc
        raise


def _decoder(name: str, title: str) -> tuple[Callable[[IO[bytes]], AbstractContextManager[Any]], type[Exception]]:
    """Return how a compressed tar is opened, and the error its decoder has of its own."""
    if name.endswith("gz"):
        return gzip.open, zlib.error
    if name.endswith(("bz2", "tbz")):
        return bz2.open, OSError
    if name.endswith("xz"):
        return lzma.open, lzma.LZMAError
    if name.endswith("zst"):
        for module in ("compression.zstd", "zstandard"):  # Python 3.14, or the package
            try:
                zstd: Any = importlib.import_module(module)
            except ImportError:
                continue
            opener: Callable[[IO[bytes]], AbstractContextManager[Any]] = zstd.open
            return opener, zstd.ZstdError
        raise TreeError(title, "this Python reads no zst archives", "unpack it (unzstd), or: pip install zstandard")
    return nullcontext, tarfile.TarError


def _top(paths: Iterable[str]) -> str:
    """Return the one top folder of *paths* with its slash, or "" where there is none."""
    tops = set()
    for path in paths:
        top, slash, _ = path.partition("/")
        if not slash:
            return ""
        tops.add(top)
    return f"{tops.pop()}/" if len(tops) == 1 else ""
