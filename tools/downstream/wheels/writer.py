"""Zip archives written reproducibly: same members, same bytes, wherever and whenever.

No clock, umask, host system or compressor reaches the file: times come from
``SOURCE_DATE_EPOCH``, modes are 644 or 755, copied members keep their compressed
bytes, and new ones are stored, because zlib and zlib-ng deflate differently.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from downstream.errors import WheelError, WriteError
from downstream.wheels.archive import (
    CENTRAL,
    CENTRAL_MARK,
    DEFLATED,
    END,
    END64,
    END64_AT,
    END64_AT_MARK,
    END64_MARK,
    END_MARK,
    LOCAL,
    LOCAL_MARK,
    NO_EXTRA,
    STORED,
    UNIX,
    UTF8,
    ZIP64_FROM,
    Entry,
)

EPOCH = 315_532_800  # 1980-01-01, where zip's calendar begins
_LAST = 4_354_819_198  # 2107-12-31 23:59:58, where it ends
_COUNT_LIMIT = 0xFFFF
_CLASSIC, _ZIP64 = 20, 45  # "version needed to extract"
_MADE_BY = CENTRAL_MARK + bytes((_CLASSIC, UNIX))
_VECTOR = 1000  # buffers in one write; the system takes 1024
_BATCH = 1 << 20  # bytes


def timestamp(text: str | None) -> int:
    """Return seconds since 1970 for the value of ``SOURCE_DATE_EPOCH``, EPOCH for None.

    Clamped to what a zip header can say, 1980 to 2107. Raises WheelError when *text* is no number.
    """
    if text is None:
        return EPOCH
    try:
        seconds = int(text)
    except ValueError as exc:
        raise WheelError(
            "SOURCE_DATE_EPOCH", f"{text!r} is no number of seconds", "set it to whole seconds since 1970, or unset it"
        ) from exc
    return min(max(seconds, EPOCH), _LAST)


class ArchiveWriter:
    """Writes members in the order given; ``finish`` writes the directory.

    *zip64_from* is lowered by tests only: it is where sizes stop fitting 32 bits.
    """

    def __init__(self, stream: BinaryIO, *, epoch: int, zip64_from: int = ZIP64_FROM) -> None:
        self._stream = stream
        self._descriptor = _descriptor_of(stream)
        self._pending: list[bytes | memoryview] = []
        self._pending_size = 0
        when = datetime.fromtimestamp(epoch, tz=UTC)
        self._time = when.hour << 11 | when.minute << 5 | when.second // 2
        self._date = (when.year - 1980) << 9 | when.month << 5 | when.day
        self._limit = zip64_from
        self._narrow = zip64_from if zip64_from == ZIP64_FROM else 0
        self._at = 0
        self._directory: list[bytes] = []
        self._stamps = {
            method: struct.pack("<5H", _CLASSIC, 0, method, self._time, self._date) for method in (STORED, DEFLATED)
        }
        self._tails = {mode: bytes(8) + struct.pack("<L", (stat.S_IFREG | mode) << 16) for mode in (0o644, 0o755)}

    def copy(self, entry: Entry, name: str, raw: memoryview) -> None:
        """Write *entry* of another archive as *name*; *raw* is its content as compressed there."""
        if not (entry.head and name.isascii() and len(name) == len(entry.name) and self._at < self._narrow):
            self._begin(name, entry.mode, entry.method, entry.crc, entry.compressed, entry.size)
            self._write(raw)
            return
        # The same bytes as _begin() writes: CRC, sizes and name length stay, what stands before is ours.
        encoded = name.encode()
        middle = self._stamps[entry.method] + entry.head[10:]
        self._directory.append(_MADE_BY + middle + self._tails[entry.mode] + self._at.to_bytes(4, "little") + encoded)
        self._write(LOCAL_MARK + middle + NO_EXTRA + encoded)
        self._write(raw)

    def store(self, name: str, content: bytes, *, mode: int = 0o644) -> None:
        """Write a member uncompressed."""
        size = len(content)
        self._begin(name, mode, STORED, zlib.crc32(content), size, size)
        self._write(content)

    def finish(self) -> None:
        begin, count = self._at, len(self._directory)
        self._write(b"".join(self._directory))
        size, end64 = self._at - begin, self._at
        if count >= _COUNT_LIMIT or size >= self._limit or begin >= self._limit:
            self._write(
                END64.pack(END64_MARK, END64.size - 12, UNIX << 8 | _ZIP64, _ZIP64, 0, 0, count, count, size, begin)
            )
            self._write(END64_AT.pack(END64_AT_MARK, 0, end64, 1))
            count, size, begin = _COUNT_LIMIT, ZIP64_FROM, ZIP64_FROM
        self._write(END.pack(END_MARK, 0, 0, count, count, size, begin, 0))
        self._flush()

    def _write(self, content: bytes | memoryview) -> None:
        self._pending.append(content)
        self._at += len(content)
        self._pending_size += len(content)
        if self._pending_size >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        # Members are small: a write each, or joining them first, would take longer than the copying.
        if self._descriptor is None:
            self._stream.write(b"".join(self._pending))
        else:
            for at in range(0, len(self._pending), _VECTOR):
                _write_all(self._descriptor, self._pending[at : at + _VECTOR])
        self._pending.clear()
        self._pending_size = 0

    def _begin(self, text: str, mode: int, method: int, crc: int, compressed: int, size: int) -> None:
        """Write the local header of a member and note its directory header."""
        name, offset = text.encode(), self._at
        flags = 0 if text.isascii() else UTF8
        local_extra = central_extra = b""
        version = _CLASSIC
        if size >= self._limit or compressed >= self._limit:
            wide = (size, compressed)
            size = compressed = ZIP64_FROM
            local_extra = struct.pack("<2H2Q", 1, 16, *wide)
            central_extra = local_extra
            version = _ZIP64
        if offset >= self._limit:
            # The directory's extra field holds, in this order, only what does not fit.
            central_extra = struct.pack("<2H", 1, len(central_extra[4:]) + 8) + central_extra[4:]
            central_extra += struct.pack("<Q", offset)
            offset = ZIP64_FROM
            version = _ZIP64
        # fmt: off
        common = (flags, method, self._time, self._date, crc, compressed, size, len(name))
        header = LOCAL.pack(LOCAL_MARK, version, *common, len(local_extra)) + name + local_extra
        self._directory.append(
            CENTRAL.pack(CENTRAL_MARK, version, UNIX, version, 0, *common, len(central_extra),
                         0, 0, 0, (stat.S_IFREG | mode) << 16, offset) + name + central_extra
        )
        # fmt: on
        self._write(header)


def _descriptor_of(stream: BinaryIO) -> int | None:
    try:
        stream.flush()
        return stream.fileno()
    except OSError:  # kept in memory
        return None


def _write_all(descriptor: int, pieces: list[bytes | memoryview]) -> None:
    written = os.writev(descriptor, pieces)
    for piece in pieces:
        if written >= len(piece):
            written -= len(piece)
            continue
        # Cut short: the system writes at most 2 GiB at once, and less as the disk fills up.
        rest = memoryview(piece)[written:]
        written = 0
        while rest:
            rest = rest[os.write(descriptor, rest) :]


@contextmanager
def whole(target: Path) -> Iterator[BinaryIO]:
    """Open *target* for writing; it appears under its name only when everything was written."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            yield stream
        partial.replace(target)
    except OSError as exc:
        raise WriteError(str(target), f"cannot be written ({exc})") from exc
    finally:
        partial.unlink(missing_ok=True)
