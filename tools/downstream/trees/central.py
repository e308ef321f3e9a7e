"""Reading a zip file's central directory, from the whole file or from its last bytes alone."""

from __future__ import annotations

import errno
import io
import itertools
import re
import struct
import zipfile
from typing import IO, cast

from downstream.errors import WheelError
from downstream.trees.directory import DEFLATED, ENTRY, STORED, Directory, Entry
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK

_ENCRYPTED = 0x1
# A control character, a backslash, a drive, or a part that is empty, "." or "..".
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:|(?:^|/)\.{0,2}(?:/|\Z)")


class _Ending(io.RawIOBase):
    """The last bytes of a file, seen at their place in the whole one."""

    def __init__(self, size: int, tail: bytes) -> None:
        self._size, self._tail, self._at = size, tail, 0
        self.missing = 0  # the offset that was asked for in vain

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError("before the start")
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        begin = self._size - len(self._tail)
        if self._at < begin:
            self.missing = self._at
            raise EOFError
        start = self._at - begin
        piece = self._tail[start:] if size < 0 else self._tail[start : start + size]
        self._at += len(piece)
        return piece


def parse(size: int, tail: bytes, *, name: str) -> Directory | int:
    """Read the directory of a zip file of *size* bytes from its last bytes, and check every member's name.

    Returns the offset from which the file is needed where *tail* is too short.
    Raises WheelError: no zip file, a name twice, a name that leaves the tree, a
    compression or encryption that no wheel has.
    """
    ending = _Ending(size, tail)
    try:
        return read(cast("IO[bytes]", ending), name=name)
    except EOFError:
        return ending.missing


def read(stream: IO[bytes], *, name: str) -> Directory:
    """Read the directory of the zip file *stream*, which can seek (see parse)."""
    try:
        with zipfile.ZipFile(stream) as archive:
            return _listed(archive, stream.seek(0, io.SEEK_END), name)
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as exc:
        raise _broken(name, exc) from exc
    except OSError as exc:
        if exc.errno not in (None, errno.EINVAL):  # those two: a place before the file's start
            raise
        raise _broken(name, exc) from exc


def _broken(name: str, exc: Exception) -> WheelError:
    step = "fetch it again; if it stays so, the published file is broken"
    return WheelError(name, f"is no complete zip file ({exc})", step)


def _listed(archive: zipfile.ZipFile, size: int, name: str) -> Directory:
    infos = archive.infolist()
    starts = [*sorted({info.header_offset for info in infos}), archive.start_dir]
    following = dict(itertools.pairwise(starts))
    members: dict[str, Entry] = {}
    for info in infos:
        member = info.orig_filename
        _check(member, info, name)
        if member.endswith("/"):
            continue
        if member in members:
            raise WheelError(name, f"holds {member!r} twice", "no installer agrees on such a wheel: report it upstream")
        members[member] = Entry(
            info.header_offset,
            following[info.header_offset],
            info.compress_size,
            info.file_size,
            info.CRC,
            info.compress_type,
            _mode(info),
        )
    names = sorted(members)
    return Directory(size, names, b"".join(ENTRY.pack(*members[member]) for member in names))


def _check(member: str, info: zipfile.ZipInfo, name: str) -> None:
    if _UNSAFE.search(member.removesuffix("/")):
        raise WheelError(
            name, f"holds a member with the unsafe name {member!r}", "do not install it; report it upstream"
        )
    if info.flag_bits & _ENCRYPTED:
        raise WheelError(name, f"{member} is encrypted", "a wheel has no passwords: report it upstream")
    if info.compress_type not in (STORED, DEFLATED):
        raise WheelError(
            name, f"{member} has compression method {info.compress_type}; only 0 and 8 are read", "repack it"
        )


def _mode(info: zipfile.ZipInfo) -> int:
    mode = info.external_attr >> 16
    if mode & 0o170000 == SYMLINK:
        return SYMLINK
    return EXECUTABLE if mode & 0o111 else REGULAR
