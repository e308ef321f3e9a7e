"""Zip archives read strictly, member by member as they are compressed.

``zipfile`` gives no member without inflating it and forgives what we refuse, so the
few records that a wheel needs are read here (APPNOTE.TXT 4.3, zip64 in 4.5.3).
"""

from __future__ import annotations

import mmap
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from downstream.errors import WheelError
from downstream.wheels.rules import RefusedError, Rule, Violation, name_violations

STORED, DEFLATED = 0, 8
ZIP64_FROM = 0xFFFFFFFF  # sizes and offsets from here on do not fit the classic fields
_CHUNK = 1 << 23  # bytes inflated at once
_PIECE = 1 << 24  # bytes that come of it at once, at the most

LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s4B4H3L5H2L")
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
END64_AT = struct.Struct("<4sLQL")
LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
END64_MARK, END64_AT_MARK = b"PK\6\6", b"PK\6\7"
NO_EXTRA = bytes(2)  # the length of a local header's extra field
_ENCRYPTED, _DESCRIPTOR, UTF8 = 0x1, 0x8, 0x800
UNIX = 3


class Entry(NamedTuple):
    """One file of an archive as its central directory describes it."""

    name: str
    mode: int  # 0o644 or 0o755: all that an installer looks at
    method: int  # STORED or DEFLATED
    crc: int
    compressed: int  # bytes
    size: int  # bytes
    offset: int  # of the local header
    head: bytes = b""  # what local and directory header have in common, version to name length, where nothing is wide


class Archive:
    """An archive open for reading; the file stays mapped as long as this, or a view that ``raw`` gave, lives."""

    def __init__(self, name: str, content: mmap.mmap) -> None:
        self.name = name
        self._view = memoryview(content)
        self.entries = {entry.name: entry for entry in self._directory()}

    def raw(self, entry: Entry) -> memoryview:
        """Return the member's bytes as they are compressed."""
        name = entry.name.encode()
        begin = entry.offset + LOCAL.size + len(name)
        end = begin + entry.compressed
        header = LOCAL_MARK + entry.head + NO_EXTRA + name
        if entry.head and end <= len(self._view) and self._view[entry.offset : begin] == header:
            return self._view[begin:end]
        return self._checked(entry)

    def _checked(self, entry: Entry) -> memoryview:
        """Return what raw() returns, for a local header that does not repeat the directory's byte for byte."""
        try:
            mark, _, flags, method, _, _, crc, compressed, size, name_length, extra_length = LOCAL.unpack_from(
                self._view, entry.offset
            )
        except (struct.error, OverflowError) as exc:  # the latter: beyond what any machine addresses
            raise self._refuse(entry.name, Rule.HEADER, "its local header lies outside the file") from exc
        begin = entry.offset + LOCAL.size
        name = bytes(self._view[begin : begin + name_length])
        # An installer that reads local headers must see the same file as one that reads the directory.
        same = name == entry.name.encode() or name == _cp437(entry.name)
        sizes = (crc, compressed, size) == (entry.crc, entry.compressed, entry.size)
        if not sizes:  # they may follow the content, or stand in the extra field
            sizes = bool(flags & _DESCRIPTOR) or ZIP64_FROM in (compressed, size)
        if mark != LOCAL_MARK or method != entry.method or not (same and sizes):
            raise self._refuse(entry.name, Rule.HEADER, "its local header says something else than the directory")
        begin += name_length + extra_length
        if begin + entry.compressed > len(self._view):
            raise self._refuse(entry.name, Rule.HEADER, "its bytes lie outside the file")
        return self._view[begin : begin + entry.compressed]

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """Yield the member's content in pieces. Raises WheelError where size or CRC are not as declared."""
        raw, size, crc = self.raw(entry), 0, 0
        inflate = zlib.decompressobj(-15)
        for at in range(0, max(len(raw), 1), _CHUNK):
            rest = bytes(raw[at : at + _CHUNK])
            while rest and size <= entry.size:  # more than promised is a lie already, and need not be paid for
                piece, rest = self._inflated(entry, inflate, rest) if entry.method == DEFLATED else (rest, b"")
                size, crc = size + len(piece), zlib.crc32(piece, crc)
                yield piece
        if size != entry.size or crc != entry.crc:
            raise self._refuse(entry.name, Rule.CONTENT, "size or CRC are not those of the directory")

    def _inflated(self, entry: Entry, inflate: zlib._Decompress, rest: bytes) -> tuple[bytes, bytes]:
        try:
            return inflate.decompress(rest, _PIECE), inflate.unconsumed_tail
        except zlib.error as exc:
            raise self._refuse(entry.name, Rule.CONTENT, f"cannot be inflated ({exc})") from exc

    def read(self, name: str) -> bytes | None:
        """Return the content of the member *name*, or None where there is none."""
        entry = self.entries.get(name)
        return None if entry is None else b"".join(self.chunks(entry))

    def _refuse(self, member: str, rule: Rule, detail: str) -> WheelError:
        return RefusedError(self.name, [Violation(member=member, rule=rule, detail=detail)])

    def _directory(self) -> list[Entry]:
        begin, count = self._end()
        raw, at = bytes(self._view[begin:]), 0
        entries: list[Entry] = []
        names: list[str] = []
        violations: list[Violation] = []
        for _ in range(count):
            try:
                (mark, _, system, _, _, flags, method, _, _, crc, compressed, size, name_length, extra_length,
                 comment_length, _, _, attributes, offset) = CENTRAL.unpack_from(raw, at)  # fmt: skip
            except struct.error as exc:
                raise self._refuse("", Rule.NOT_A_ZIP, "its directory is cut short") from exc
            if mark != CENTRAL_MARK:
                raise self._refuse("", Rule.NOT_A_ZIP, "its directory holds something else than file headers")
            at += CENTRAL.size
            name = _decoded(raw[at : at + name_length], flags)
            names.append(name)
            head = raw[at - 40 : at - 16]
            if ZIP64_FROM in (size, compressed, offset):
                head = b""
                extra = raw[at + name_length : at + name_length + extra_length]
                size, compressed, offset = self._wide(name, extra, size, compressed, offset)
            at += name_length + extra_length + comment_length
            mode = attributes >> 16 if system == UNIX else 0
            usual = mode >> 12 == stat.S_IFREG >> 12 and method == DEFLATED and not flags & _ENCRYPTED
            if (not usual or name.endswith("/")) and (violation := _kind_violation(name, mode, flags, method)):
                violations.append(violation)
            if not name.endswith("/"):  # folders exist through their files
                installed = 0o755 if mode & 0o111 else 0o644
                entries.append(Entry(name, installed, method, crc, compressed, size, offset, head))
        violations.extend(name_violations(names))
        if violations:
            raise RefusedError(self.name, violations)
        return entries

    def _end(self) -> tuple[int, int]:
        """Return where the central directory begins and how many headers it holds."""
        tail = bytes(self._view[-(END.size + 0xFFFF) :])
        found = tail.rfind(END_MARK)
        if found < 0 or len(tail) - found < END.size:
            raise self._refuse("", Rule.NOT_A_ZIP, "is no zip archive")
        _, _, _, _, count, _, begin, _ = END.unpack_from(tail, found)
        at = len(self._view) - len(tail) + found - END64_AT.size
        if at >= 0:
            mark, _, end64, _ = END64_AT.unpack_from(self._view, at)
            if mark == END64_AT_MARK:
                try:
                    mark, _, _, _, _, _, _, count, _, begin = END64.unpack_from(self._view, end64)
                except (struct.error, OverflowError):  # the latter: beyond what any machine addresses
                    mark = b""
                if mark != END64_MARK:
                    raise self._refuse("", Rule.NOT_A_ZIP, "its zip64 end record is not where it should be")
        return begin, count

    def _wide(self, name: str, extra: bytes, size: int, compressed: int, offset: int) -> tuple[int, int, int]:
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                wide = [value for (value,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + length // 8 * 8])]
                try:
                    size, compressed, offset = (
                        wide.pop(0) if value == ZIP64_FROM else value for value in (size, compressed, offset)
                    )
                except IndexError:
                    break
                return size, compressed, offset
            at += 4 + length
        raise self._refuse(name, Rule.HEADER, "its zip64 sizes are missing")


def _kind_violation(name: str, mode: int, flags: int, method: int) -> Violation | None:
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        return Violation(member=name, rule=Rule.SYMLINK, detail="installers write it as a text file, or follow it")
    if kind not in (0, stat.S_IFDIR if name.endswith("/") else stat.S_IFREG):
        return Violation(member=name, rule=Rule.SPECIAL_FILE, detail=f"has file type {kind:#o}")
    if flags & _ENCRYPTED:
        return Violation(member=name, rule=Rule.ENCRYPTED, detail="nobody could install it")
    if method not in (STORED, DEFLATED):
        return Violation(member=name, rule=Rule.COMPRESSION, detail=f"method {method}, wheels have stored and deflated")
    return None


def _decoded(raw: bytes, flags: int) -> str:
    return raw.decode("utf-8" if flags & UTF8 or raw.isascii() else "cp437", errors="surrogateescape")


def _cp437(name: str) -> bytes:
    return name.encode("cp437", errors="replace")


def open_archive(path: Path) -> Archive:
    """Map a zip file. Raises WheelError naming member and rule where it breaks one of ours."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as exc:
        raise WheelError(str(path), f"cannot be read ({exc})") from exc
    except ValueError as exc:  # an empty file cannot be mapped
        violation = Violation(member="", rule=Rule.NOT_A_ZIP, detail="is empty")
        raise RefusedError(path.name, [violation]) from exc
    return Archive(path.name, content)
