"""Which GPUs a shared library holds code for, read from its ELF sections: cuobjdump need not be installed.

nvcc puts a *fatbin* into the section ``.nv_fatbin`` (``__nv_relfatbin`` before
device linking): a header, then an entry per image. The layout is not
documented by NVIDIA; what is used here was read off the output of nvcc 13.0,
and the tests compare it with cuobjdump's.

    header  u32 magic 0xBA55ED50 · u16 version · u16 header size · u64 size of all entries
    entry   u16 kind (1 PTX, 2 machine code) · u16 version · u32 header size · u64 payload size
            … u32 architecture at 28 · u64 flags at 40, of which bit 20 is the suffix a, bit 21 the suffix f
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = 0xBA55ED50
SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_KINDS = {1: "ptx", 2: "sm"}
_SUFFIX_A, _SUFFIX_F = 1 << 20, 1 << 21
_ENTRY = 48  # bytes of an entry's header that are read
_PADDING = 64  # bytes looked at in one go for the next fatbin


class FatbinError(ValueError):
    """A file that is no ELF library for 64 bits, or whose GPU code cannot be walked."""


@dataclass(frozen=True, order=True)
class Image:
    """GPU code for one target: machine code (``sm``) or PTX, which the driver compiles for newer GPUs."""

    kind: str
    number: int  # 120 for sm_120
    suffix: str = ""  # "", "a" or "f"

    def __str__(self) -> str:
        return f"{'compute' if self.kind == 'ptx' else 'sm'}_{self.number}{self.suffix}"

    def runs_on(self, major: int, minor: int) -> bool:
        """Whether a device of capability *major*.*minor* can run this (CUDA programming guide, 5.1.3)."""
        own, device = divmod(self.number, 10), (major, minor)
        if self.suffix == "a":
            return own == device
        if self.kind == "ptx" and not self.suffix:
            return own <= device
        return own[0] == major and own[1] <= minor


def images(path: Path) -> tuple[Image, ...]:
    """Return what GPU code the library at *path* holds, sorted, each target once; payloads are not read.

    A library without GPU code gives (). Raises FatbinError.
    """
    try:
        with path.open("rb") as stream:
            found = {image for start, size in _sections(stream) for image in _walk(stream, start, size)}
    except (OSError, struct.error) as exc:
        raise FatbinError(f"{path}: {exc}") from exc
    except FatbinError as exc:
        raise FatbinError(f"{path}: {exc}") from None
    return tuple(sorted(found))


def _read(stream: BinaryIO, offset: int, size: int) -> bytes:
    stream.seek(offset)
    content = stream.read(size)
    if len(content) != size:
        raise FatbinError(f"ends at byte {offset + len(content)}, {size} bytes were due from {offset}")
    return content


def _sections(stream: BinaryIO) -> Iterator[tuple[int, int]]:
    head = stream.read(64)
    if len(head) < 64 or head[:4] != b"\x7fELF":
        raise FatbinError("is no ELF file")
    if head[4:6] != b"\x02\x01":
        raise FatbinError("is no ELF file for 64 bits, little endian")
    (table,) = struct.unpack_from("<Q", head, 0x28)
    width, count, names = struct.unpack_from("<HHH", head, 0x3A)
    if not table:
        return
    if width < 64:
        raise FatbinError(f"has section headers of {width} bytes")
    first = _section(stream, table)
    # Numbers that do not fit their 16 bits stand in the first section's header (ELF specification, e_shnum).
    count = count or first[2]
    names = first[3] if names == 0xFFFF else names
    _, name_offset, name_size, _ = _section(stream, table + names * width)
    strings = _read(stream, name_offset, name_size)
    for number in range(count):
        name, offset, size, _ = _section(stream, table + number * width)
        if strings[name : strings.find(b"\0", name)] in SECTIONS:
            yield offset, size


def _section(stream: BinaryIO, at: int) -> tuple[int, int, int, int]:
    """Return name, offset, size and link of the section header at *at*."""
    name, _, _, _, offset, size, link = struct.unpack("<IIQQQQI", _read(stream, at, 44))
    return name, offset, size, link


def _walk(stream: BinaryIO, start: int, size: int) -> Iterator[Image]:
    at, end = start, start + size
    while at + 16 <= end:
        magic, _, header, body = struct.unpack("<IHHQ", _read(stream, at, 16))
        if magic != MAGIC:
            at = _next(stream, at, end)
            continue
        if header < 16 or at + header + body > end:
            raise FatbinError(f"a fatbin at byte {at} is longer than its section")
        yield from _entries(stream, at + header, at + header + body)
        at += header + body


def _next(stream: BinaryIO, at: int, end: int) -> int:
    """Return where the next fatbin may begin: after zeros, on 8 bytes."""
    while at < end:
        chunk = _read(stream, at, min(_PADDING, end - at))
        rest = chunk.lstrip(b"\0")
        if rest:
            begin = at + (len(chunk) - len(rest)) // 8 * 8
            if rest[:1] == b"\x50" and begin > at:
                return begin
            raise FatbinError(f"something other than a fatbin at byte {begin}")
        at += len(chunk)
    return end


def _entries(stream: BinaryIO, at: int, end: int) -> Iterator[Image]:
    while at < end:
        head = _read(stream, at, _ENTRY)
        kind, _, header, payload = struct.unpack_from("<HHIQ", head, 0)
        (number,) = struct.unpack_from("<I", head, 28)
        (flags,) = struct.unpack_from("<Q", head, 40)
        if header < _ENTRY or at + header + payload > end:
            raise FatbinError(f"an image at byte {at} is longer than its fatbin")
        if kind in _KINDS:
            suffix = "a" if flags & _SUFFIX_A else "f" if flags & _SUFFIX_F else ""
            yield Image(_KINDS[kind], number, suffix)
        at += header + payload
