"""A wheel's table of contents: read once from the zip, kept so that it opens in milliseconds."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from downstream.errors import WheelError

STORED = 0
DEFLATED = 8

_HEAD = struct.Struct("<4sQII")  # magic, file size, entries, bytes of names
_MAGIC = b"dir1"
ENTRY = struct.Struct("<QQQQIHI")
_LOCAL = struct.Struct("<4s5H3I2H")  # APPNOTE 4.3.7


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
        return None if number is None else Entry(*ENTRY.unpack_from(self._entries, number * ENTRY.size))

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
            raw = zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, min(entry.size + 1, sys.maxsize))
        except zlib.error as exc:
            raise _broken(name, member, str(exc)) from None
    if len(raw) != entry.size or zlib.crc32(raw) != entry.crc:
        raise _broken(name, member, "its checksum does not agree")
    return raw


def _broken(name: str, member: str, problem: str) -> WheelError:
    return WheelError(f"{name}:{member}", problem, "fetch it again; if it stays so, the published file is broken")
