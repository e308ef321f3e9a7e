"""A wheel by itself: whether it is one, by readers that are not ours (zipfile, installer, packaging, CycloneDX)."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

from packaging.metadata import Metadata

from downstream.wheels import sbom
from downstream.wheels.archive import CENTRAL, END, END64, END64_AT, LOCAL, NO_EXTRA
from downstream.wheels.naming import WheelName, dist_info_of, tag_violations
from downstream.wheels.rules import SIGNATURES, RefusedError, Rule, Violation, name_violations, native_violations

_ZIP64_EXTRA = b"\1\0"


def inspect(path: Path, name: WheelName) -> Iterator[Violation]:
    """Yield every rule of the wheel format, and every rule of ours that needs no upstream, that *path* breaks."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield from _inspect(archive, path, name)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as exc:  # RuntimeError: what it does not support
        yield Violation(member="", rule=Rule.CONTENT, detail=f"zipfile cannot read it ({exc})")


def _inspect(archive: zipfile.ZipFile, path: Path, name: WheelName) -> Iterator[Violation]:
    names = [entry.orig_filename for entry in archive.infolist()]
    broken = list(name_violations(names))
    yield from broken
    yield from native_violations(names, pure=name.pure)
    yield from _uniform(archive)
    yield from _between_members(archive, path)
    if broken:
        return  # what follows finds members by name
    try:
        info = dist_info_of(names, name)
    except RefusedError as exc:
        yield from exc.violations
        return
    for part in ("METADATA", "WHEEL", "RECORD"):
        if f"{info}/{part}" not in names:
            yield Violation(member=f"{info}/{part}", rule=Rule.DIST_INFO, detail="is missing")
            return
    for part in SIGNATURES:
        if f"{info}/{part}" in names:
            yield Violation(member=f"{info}/{part}", rule=Rule.SIGNATURE, detail="signs a RECORD that is no more")
    yield from tag_violations(archive.read(f"{info}/WHEEL"), name, f"{info}/WHEEL")
    yield from _metadata(archive.read(f"{info}/METADATA"), name, f"{info}/METADATA")
    yield from _record(path, archive, f"{info}/RECORD")
    member = f"{info}/{sbom.file_name(name.package)}"
    if member not in names:
        yield Violation(member=member, rule=Rule.SBOM, detail="is missing")
    else:
        for error in sbom.schema_errors(archive.read(member)):
            yield Violation(member=member, rule=Rule.SBOM, detail=error)


def _uniform(archive: zipfile.ZipFile) -> Iterator[Violation]:
    """Yield what would differ if the wheel were built elsewhere or later."""
    entries = archive.infolist()
    times = {entry.date_time for entry in entries}
    if len(times) > 1:
        yield Violation(member="", rule=Rule.DETERMINISM, detail=f"members have {len(times)} different times")
    for entry in entries:
        mode = entry.external_attr >> 16
        if stat.S_ISLNK(mode):
            yield Violation(member=entry.filename, rule=Rule.SYMLINK, detail="installers write or follow it as a file")
        elif mode not in (stat.S_IFREG | 0o644, stat.S_IFREG | 0o755):
            yield Violation(member=entry.filename, rule=Rule.MODE, detail=f"is {mode:o}, not 100644 or 100755")
    names = [entry.filename for entry in entries]
    if names != sorted(names, key=_place):
        early, late = next((a, b) for a, b in pairwise(names) if _place(a) > _place(b))
        yield Violation(member=early, rule=Rule.DETERMINISM, detail=f"stands before {late}")


def _place(name: str) -> tuple[bool, bool, str]:
    return name.partition("/")[0].endswith(".dist-info"), name.endswith(".dist-info/RECORD"), name


def _between_members(archive: zipfile.ZipFile, path: Path) -> Iterator[Violation]:
    """Yield the first place with bytes that are no member's: no digest covers them, and readers differ on them."""
    at = directory = 0
    with path.open("rb") as file:
        for entry in archive.infolist():
            file.seek(entry.header_offset + LOCAL.size - len(NO_EXTRA))
            inside = int.from_bytes(file.read(len(NO_EXTRA)), "little")
            extra = entry.extra
            wide = extra[:2] == _ZIP64_EXTRA and len(extra) == 4 + int.from_bytes(extra[2:4], "little")
            if entry.header_offset != at or entry.comment or ((extra or inside) and not wide):
                yield Violation(member=entry.filename, rule=Rule.NO_MEMBER, detail="stand before it, or in its headers")
                return
            name = len(entry.orig_filename.encode())
            at += LOCAL.size + name + inside + entry.compress_size
            directory += CENTRAL.size + name + len(extra)
    end = path.stat().st_size - at - directory
    if archive.start_dir != at or end not in (END.size, END64.size + END64_AT.size + END.size):
        yield Violation(member="", rule=Rule.NO_MEMBER, detail="stand after its last member")


def _metadata(raw: bytes, name: WheelName, member: str) -> Iterator[Violation]:
    try:
        metadata = Metadata.from_email(raw, validate=True)
    except ExceptionGroup as group:
        for error in group.exceptions:
            yield Violation(member=member, rule=Rule.METADATA, detail=str(error))
        return
    if metadata.version != name.version:
        yield Violation(
            member=member, rule=Rule.VERSION, detail=f"says {metadata.version}, the file name says {name.version}"
        )
    if metadata.name.lower().replace("_", "-").replace(".", "-") != name.package:
        yield Violation(
            member=member, rule=Rule.METADATA, detail=f"names {metadata.name}, the file name {name.distribution}"
        )


def _record(path: Path, archive: zipfile.ZipFile, member: str) -> Iterator[Violation]:
    """Yield what installer finds, and what it forgives: rows that are double or belong to no member."""
    from installer.records import InvalidRecordEntry, parse_record_file
    from installer.sources import WheelFile

    try:
        rows = list(parse_record_file(archive.read(member).decode().splitlines()))
    except (InvalidRecordEntry, UnicodeDecodeError) as exc:
        yield Violation(member=member, rule=Rule.RECORD, detail=str(exc))
        return
    counts = Counter(fields[0] for fields in rows)
    present = set(archive.namelist())
    for listed, count in sorted(counts.items()):
        if count > 1:
            yield Violation(member=listed, rule=Rule.RECORD, detail=f"has {count} rows")
        if listed not in present:
            yield Violation(member=listed, rule=Rule.RECORD, detail="has a row, and is not in the wheel")
    with WheelFile.open(path) as source:
        try:
            source.validate_record()
        except source.validation_error as exc:
            for issue in cast("list[str]", getattr(exc, "issues", [str(exc)])):
                text = issue.removeprefix(f"In {archive.filename}, ")
                named = max((name for name in present if name in text), key=len, default=member)
                yield Violation(member=named, rule=Rule.RECORD, detail=text)
