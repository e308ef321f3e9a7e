"""What a page says of a wheel, read from the wheel itself."""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.metadata import RawMetadata, parse_email
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from downstream.errors import UsageError, WheelError
from downstream.index.folder import sha256_of
from downstream.index.pages import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A wheel to be published, with the METADATA bytes it holds."""

    path: Path
    project: str  # normalized
    metadata: bytes
    offer: Offer


def read(path: Path, *, uploaded: datetime | None = None) -> Candidate:
    """Read the wheel at *path*. Raises WheelError where file name, METADATA and archive do not agree.

    *uploaded* is the time its page will state; by default SOURCE_DATE_EPOCH,
    else the newest time inside the wheel, so that no clock is asked.
    """
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as exc:
        raise WheelError(path.name, str(exc)) from exc
    try:
        with zipfile.ZipFile(path) as archive:
            metadata = archive.read(_metadata_member(archive, path.name, version))
            newest = max(member.date_time for member in archive.infolist())
    except (zipfile.BadZipFile, OSError) as exc:
        raise WheelError(path.name, f"cannot be read as a zip archive: {exc}") from exc
    fields, _ = parse_email(metadata)
    requires_python = _agreeing(fields, path.name, str(name), version)
    offer = Offer(
        filename=path.name,
        sha256=sha256_of(path),
        size=path.stat().st_size,
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        requires_python=requires_python,
        uploaded=uploaded or _source_date() or datetime(*newest, tzinfo=UTC),
    )
    return Candidate(path=path, project=str(name), metadata=metadata, offer=offer)


def _metadata_member(archive: zipfile.ZipFile, filename: str, version: Version) -> str:
    found = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")]
    if len(found) != 1:
        raise WheelError(filename, f"must hold one .dist-info/METADATA, it holds {len(found)}")
    folder = found[0].split("/")[0]
    stem, _, stated = folder.removesuffix(".dist-info").partition("-")
    distribution = filename.split("-", maxsplit=1)[0]
    try:
        same = canonicalize_name(stem) == canonicalize_name(distribution) and Version(stated) == version
    except InvalidVersion:
        same = False
    if not same:
        problem = f"{folder} does not agree with the file name: the wheel was renamed, not built"
        raise WheelError(filename, problem, "build it with tools/wheels.py")
    return found[0]


def _agreeing(fields: RawMetadata, filename: str, name: str, version: Version) -> str | None:
    stated = fields.get("name", ""), fields.get("version", "")
    try:
        agree = canonicalize_name(stated[0]) == name and Version(stated[1]) == version
    except InvalidVersion:
        agree = False
    if not agree:
        problem = (
            f"METADATA names {stated[0] or '(nothing)'} {stated[1] or '(no version)'}, not what the file name says"
        )
        raise WheelError(filename, problem, "build it with tools/wheels.py")
    requires_python = fields.get("requires_python")
    try:
        SpecifierSet(requires_python or "")
    except InvalidSpecifier as exc:
        raise WheelError(filename, f"METADATA: Requires-Python: {exc}") from exc
    return requires_python


def _source_date() -> datetime | None:
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if not text:
        return None
    try:
        return datetime.fromtimestamp(int(text), tz=UTC)
    except (ValueError, OverflowError, OSError) as exc:
        raise UsageError("SOURCE_DATE_EPOCH", f"is '{text}', it must be a number of seconds") from exc
