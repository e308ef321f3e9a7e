"""METADATA and WHEEL edited by header line, as bytes: what is not edited is not touched, long lines included.

An email library would fold, quote and re-encode; a licence text in a header does not survive that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from downstream.errors import WheelError

_LICENSE_FILES_SINCE = (2, 4)  # PEP 639
_NAME = re.compile(rb"([!-9;-~]+):")
# name and extras | specifier, perhaps in parentheses | marker
_REQUIREMENT = re.compile(r"(\s*[A-Za-z0-9._-]+\s*(?:\[[^\]]*\])?)\s*(?:\([^)]*\)|[^;@]*?)(\s*;.*|\s*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """Another package of the same line: what upstream may require, and what we make of it."""

    upstream: Version
    local: Version


@dataclass(frozen=True, slots=True)
class Header:
    """One header with its continuation lines and its line end, as in the file."""

    name: str  # lower case; empty where the line is no header
    raw: bytes

    @property
    def value(self) -> str:
        """What follows the colon, without the blanks around it; continuations keep their line ends."""
        return self.raw.partition(b":")[2].decode("utf-8", "surrogateescape").strip()


def split(raw: bytes) -> tuple[list[Header], bytes]:
    """Return the headers, and the rest from the empty line on. Joined, they are *raw*."""
    headers: list[Header] = []
    at = 0
    # Not bytes.splitlines: a lone CR is content.
    for line in re.findall(rb"[^\n]*\n|[^\n]+", raw):
        if not line.strip(b"\r\n"):
            break
        if line[:1] in b" \t" and headers:
            headers[-1] = Header(headers[-1].name, headers[-1].raw + line)
        else:
            found = _NAME.match(line)
            headers.append(Header(found[1].decode().lower() if found else "", line))
        at += len(line)
    return headers, raw[at:]


def edit_metadata(
    raw: bytes, *, place: str, local: Version, siblings: Mapping[NormalizedName, Sibling], license_file: str
) -> bytes:
    """Return METADATA with Version, requirements on *siblings*, and License-File (metadata 2.4 on) edited.

    Metadata-Version never changes. Raises WheelError where upstream's version is not
    the one that *local* builds on, or a sibling's requirement excludes the pinned release.
    """
    headers, body = split(raw)
    _check_version(headers, place, local)
    edited: list[bytes] = []
    for header in headers:
        if header.name == "version":
            edited.append(_with_value(header, str(local)))
        elif header.name == "requires-dist":
            edited.append(_with_siblings(header, place, siblings))
        else:
            edited.append(header.raw)
    if _metadata_version(headers, place) >= _LICENSE_FILES_SINCE:
        names = [header.name for header in headers]
        at = len(names) - names[::-1].index("license-file") if "license-file" in names else len(names)
        end = _line_end(headers[0].raw)
        if not edited[at - 1].endswith(b"\n"):
            edited[at - 1] += end
        edited.insert(at, b"License-File: %s%s" % (license_file.encode(), end))
    return b"".join(edited) + body


def edit_wheel(raw: bytes, *, place: str, generator: str) -> bytes:
    """Return WHEEL with *generator* before the generator it had."""
    headers, body = split(raw)
    named = [header for header in headers if header.name == "generator"]
    if len(named) != 1:
        raise WheelError(place, f"has {len(named)} Generator lines, not one")
    edited = [
        _with_value(header, f"{generator} from {header.value}") if header is named[0] else header.raw
        for header in headers
    ]
    return b"".join(edited) + body


def requirements(raw: bytes, place: str) -> list[Requirement]:
    """Return what METADATA requires, in its order. Raises WheelError for a line that is no requirement."""
    return [_requirement(header, place) for header in split(raw)[0] if header.name == "requires-dist"]


def _check_version(headers: list[Header], place: str, local: Version) -> None:
    values = [header.value for header in headers if header.name == "version"]
    if len(values) != 1:
        raise WheelError(place, f"has {len(values)} Version lines, not one")
    try:
        version = Version(values[0])
    except InvalidVersion as exc:
        raise WheelError(place, f"Version '{values[0]}' is none (PEP 440)") from exc
    if version != Version(local.public):
        raise WheelError(place, f"is version {version}, the pin is {local.public}", "pin the wheel's own version")


def _metadata_version(headers: list[Header], place: str) -> tuple[int, ...]:
    values = [header.value for header in headers if header.name == "metadata-version"]
    if len(values) != 1 or not re.fullmatch(r"\d+\.\d+", values[0]):
        raise WheelError(place, f"Metadata-Version is {values}, not one pair of numbers")
    return tuple(int(part) for part in values[0].split("."))


def _requirement(header: Header, place: str) -> Requirement:
    try:
        return Requirement(" ".join(header.value.split()))
    except InvalidRequirement as exc:
        raise WheelError(place, f"'{header.value}' is no requirement ({exc})".replace("\n", " ")) from exc


def _with_siblings(header: Header, place: str, siblings: Mapping[NormalizedName, Sibling]) -> bytes:
    requirement = _requirement(header, place)
    sibling = siblings.get(canonicalize_name(requirement.name))
    if sibling is None:
        return header.raw
    if requirement.url:
        raise WheelError(place, f"requires {requirement.name} by URL", "no local version can stand in for a URL")
    if not requirement.specifier.contains(sibling.upstream, prereleases=True):
        raise WheelError(
            place,
            f"requires '{requirement}', this line pins {requirement.name} {sibling.upstream}",
            "pin releases that belong together",
        )
    field, _, value = header.raw.decode("utf-8", "surrogateescape").partition(":")
    end = _line_end(header.raw).decode()
    found = _REQUIREMENT.fullmatch(value.removesuffix(end))
    assert found is not None, value  # packaging read it, and it is no URL
    text = f"{field}:{found[1]}=={sibling.local}{found[2]}{end}"
    again = _requirement(Header("requires-dist", text.encode()), place)
    same = (again.name, again.extras, again.marker) == (requirement.name, requirement.extras, requirement.marker)
    if not same or again.specifier != SpecifierSet(f"=={sibling.local}"):
        raise WheelError(place, f"'{requirement}' cannot be made an exact requirement", "report this line")
    return text.encode("utf-8", "surrogateescape")


def _with_value(header: Header, value: str) -> bytes:
    field = header.raw.partition(b":")[0]
    return b"%s: %s%s" % (field, value.encode(), _line_end(header.raw))


def _line_end(raw: bytes) -> bytes:
    return b"\r\n" if raw.endswith(b"\r\n") else b"\n"
