"""A wheel by itself: whether it is one, by readers that are not ours (zipfile, installer, packaging, CycloneDX)."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from packaging.metadata import Metadata

from downstream.wheels import sbom
from downstream.wheels.naming import WheelName, dist_info_of, tag_violations
from downstream.wheels.rules import SIGNATURES, RefusedError, Rule, Violation, name_violations, native_violations


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
    if entries and not entries[-1].filename.endswith(".dist-info/RECORD"):
        yield Violation(member=entries[-1].filename, rule=Rule.DETERMINISM, detail="stands after RECORD")


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
