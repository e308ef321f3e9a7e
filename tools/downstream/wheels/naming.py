"""What a wheel's file name says, and the folders that must say the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.tags import Tag, parse_tag
from packaging.utils import InvalidWheelFilename, NormalizedName, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from downstream.wheels.metadata import split
from downstream.wheels.rules import RefusedError, Rule, Violation

# What stands before the machine in a platform tag.
_SYSTEM = re.compile(r"^(?:(?:many|musl)linux(?:_\d+_\d+|\d+)|linux|macosx_\d+_\d+)_")


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelName:
    """A wheel's file name, taken apart (binary distribution format, file name convention)."""

    text: str
    distribution: str  # as spelled in the file name
    version: Version
    rest: str  # build tag, if any, and tags: what stays when the version changes
    tags: frozenset[Tag]

    @property
    def package(self) -> NormalizedName:
        return canonicalize_name(self.distribution)

    @property
    def pure(self) -> bool:
        """Whether the tags promise to run on any platform."""
        return any(tag.platform == "any" for tag in self.tags)

    def with_version(self, version: Version) -> str:
        """Return the file name of another version of this wheel."""
        return f"{self.distribution}-{version}-{self.rest}.whl"

    def fits(self, python: str | None, platform: str | None) -> bool:
        """Whether it installs on interpreter *python* (``cp311``) and *platform* (a tag, or a machine: ``x86_64``)."""
        return any(
            (python in (None, tag.interpreter) or tag.interpreter == "py3")
            and (platform in (None, tag.platform, _SYSTEM.sub("", tag.platform)) or tag.platform == "any")
            for tag in self.tags
        )


def parse_name(text: str) -> WheelName:
    """Take a wheel's file name apart. Raises RefusedError naming the rule."""
    try:
        _, version, _, tags = parse_wheel_filename(text)
    except (InvalidWheelFilename, InvalidVersion) as exc:
        raise RefusedError(text, [Violation(member="", rule=Rule.FILE_NAME, detail=str(exc))]) from exc
    distribution, _, rest = text.removesuffix(".whl").split("-", 2)
    return WheelName(text=text, distribution=distribution, version=version, rest=rest, tags=tags)


def dist_info_of(names: Iterable[str], wheel: WheelName) -> str:
    """Return the name of the one dist-info folder among *names*, which must be the file name's.

    Raises RefusedError naming the rule.
    """
    folders = sorted({name.partition("/")[0] for name in names if name.partition("/")[0].endswith(".dist-info")})
    if len(folders) != 1:
        detail = f"has {len(folders)} dist-info folders, not one: {', '.join(folders) or 'none'}"
        raise RefusedError(wheel.text, [Violation(member="", rule=Rule.DIST_INFO, detail=detail)])
    distribution, _, version = folders[0].removesuffix(".dist-info").rpartition("-")
    try:
        agrees = canonicalize_name(distribution) == wheel.package and Version(version) == wheel.version
    except InvalidVersion:
        agrees = False
    if not agrees:
        detail = "is not the file name's name and version"
        raise RefusedError(wheel.text, [Violation(member=folders[0], rule=Rule.DIST_INFO, detail=detail)])
    return folders[0]


def tag_violations(raw: bytes, wheel: WheelName, member: str) -> Iterator[Violation]:
    """Yield where the Tag lines of WHEEL (*raw*) are not the tags of the file name."""
    lines = [header.value for header in split(raw)[0] if header.name == "tag"]
    tags = frozenset(tag for line in lines for tag in parse_tag(line))
    if tags != wheel.tags:
        yield Violation(
            member=member,
            rule=Rule.TAGS,
            detail=f"says {', '.join(lines) or 'nothing'}, the file name says {wheel.rest}",
        )
