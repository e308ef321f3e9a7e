"""A wheel's table of contents: read once from the zip, kept so that it opens in milliseconds."""

from __future__ import annotations

import io
import itertools
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from downstream.errors import WheelError
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK

STORED = 0
DEFLATED = 8

_HEAD = struct.Struct("<4sQII")  # magic, file size, entries, bytes of names
_MAGIC = b"dir1"
_ENTRY = struct.Struct("<QQQQIHI")
_LOCAL = struct.Struct("<4s5H3I2H")  # APPNOTE 4.3.7
_ENCRYPTED = 0x1
# A control character, a backslash, a drive, or a part that is empty, "." or "..".
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:|(?:^|/)\.{0,2}(?:/|\Z)")


class Entry(NamedTuple):
    """One member: where it lies (*start* up to *stop* bound its header and content), and what it is."""

    start: int
    stop: int
    compressed: int  # bytes
    size: int  # bytes
    crc: int
    method: int
    mode: int  # git's


class Directory:
    """The members of one zip file by name; folders are left out."""

    def __init__(self, size: int, names: list[str], entries: bytes) -> None:
        self.size = size  # of the zip file, bytes
        self._names = names
        self._entries = entries
        self._index = dict(zip(names, range(len(names)), strict=True))

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def __iter__(self) -> Iterator[str]:
        """Yield the names, sorted."""
        return iter(self._names)

    def get(self, name: str) -> Entry | None:
        number = self._index.get(name)
        return None if number is None else Entry(*_ENTRY.unpack_from(self._entries, number * _ENTRY.size))

    def to_bytes(self) -> bytes:
        names = "\n".join(self._names).encode("utf-8", "surrogateescape")
        head = _HEAD.pack(_MAGIC, self.size, len(self._names), len(names))
        return head + zlib.compress(names + self._entries, 6)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Directory | None:
        """Read what to_bytes wrote; None where the form is another one."""
        if len(raw) < _HEAD.size:
            return None
        magic, size, count, length = _HEAD.unpack_from(raw)
        if magic != _MAGIC:
            return None
        content = zlib.decompress(raw[_HEAD.size :])
        text = content[:length].decode("utf-8", "surrogateescape")
        return cls(size, text.split("\n") if count else [], content[length:])


class _Ending(io.RawIOBase):
    """The last bytes of a file, seen at their place in the whole one."""

    def __init__(self, size: int, tail: bytes) -> None:
        self._size, self._tail, self._at = size, tail, 0
        self.missing: int | None = None  # the lowest offset that was asked for in vain

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
        with zipfile.ZipFile(ending) as archive:
            return from_zip(archive, size, name=name)
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, struct.error, NotImplementedError) as exc:
        if ending.missing is not None:
            return ending.missing
        step = "fetch it again; if it stays so, the published file is broken"
        raise WheelError(name, f"is no complete zip file ({exc})", step) from exc


def from_zip(archive: zipfile.ZipFile, size: int, *, name: str) -> Directory:
    """Read the directory of an open zip file."""
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
    return Directory(size, names, b"".join(_ENTRY.pack(*members[member]) for member in names))


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


def extract(member: str, entry: Entry, span: bytes, *, name: str) -> bytes:
    """Return the content of *member* from its bytes in the zip file, checked against length and CRC-32.

    Raises WheelError where header, length or checksum do not agree.
    """
    try:
        header = _LOCAL.unpack_from(span)
    except struct.error:
        raise _broken(name, member, "its header is cut") from None
    if header[0] != b"PK\x03\x04":
        raise _broken(name, member, "there is no header where the directory says")
    begin = _LOCAL.size + header[9] + header[10]
    local = span[_LOCAL.size : _LOCAL.size + header[9]]
    if local.decode("utf-8" if header[2] & 0x800 else "cp437", "replace") != member:
        raise _broken(name, member, f"its header names {local!r}")
    raw = span[begin : begin + entry.compressed]
    if len(raw) != entry.compressed:
        raise _broken(name, member, "its content is cut")
    if entry.method == DEFLATED:
        try:
            # One byte more than promised is enough to see a lie, and bounds what a lie can cost.
            raw = zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, entry.size + 1)
        except zlib.error as exc:
            raise _broken(name, member, str(exc)) from None
    if len(raw) != entry.size or zlib.crc32(raw) != entry.crc:
        raise _broken(name, member, "its checksum does not agree")
    return raw


def _broken(name: str, member: str, problem: str) -> WheelError:
    return WheelError(f"{name}:{member}", problem, "fetch it again; if it stays so, the published file is broken")
