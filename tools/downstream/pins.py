"""VERSIONS.toml: which releases ship together, and what their files must hash to."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from downstream.errors import PinError
from downstream.trees.layout import Layout

FILE = "VERSIONS.toml"
SCHEMA = 1
LOCAL_LABEL = "sm120"

_T = TypeVar("_T")


def canonical_name(package: str) -> str:
    """Return a package's name as PEP 503 compares it. packaging.utils has it too, at 15 ms of every start."""
    return re.sub(r"[-_.]+", "-", package).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A project we carry patches for: its package, its repository, and how the two differ."""

    name: str
    package: str  # as the index knows it
    repository: str  # URL
    tag: str  # with {version}
    layout: Layout
    version_file: str  # repository path of the file that holds the runtime version

    def tag_of(self, version: Version) -> str:
        return self.tag.format(version=version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One upstream of one line: the release, its digests, and our build count on it."""

    line: str
    upstream: Upstream
    version: Version
    revision: int
    sha256: Mapping[str, str]  # wheel file name -> hex digest
    requires: Mapping[str, str] = field(default_factory=dict)  # sibling package -> what its METADATA demands

    @property
    def local_version(self) -> Version:
        """Our build's version: upstream's with ``+sm120.N``."""
        return Version(f"{self.version}+{LOCAL_LABEL}.{self.revision}")

    def __str__(self) -> str:
        return f"{self.line}/{self.upstream.name} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Releases shipped together, with a series of their own."""

    name: str
    pins: Mapping[str, Pin]  # by upstream name

    def unsatisfied(self) -> tuple[str, ...]:
        """Return a sentence for each pin that a sibling's ``requires`` does not admit.

        Pre-releases count as admitted by their number, and a local part is
        ignored, as PEP 440 says of specifiers without one.
        """
        packages = {canonical_name(pin.upstream.package): pin.version for pin in self.pins.values()}
        demands = [
            (pin, package, wanted, packages.get(canonical_name(package)))
            for pin in self.pins.values()
            for package, wanted in pin.requires.items()
        ]
        return tuple(
            f"{pin.upstream.name} {pin.version} requires {package}{wanted}, not {version}"
            for pin, package, wanted, version in demands
            if version is not None and not SpecifierSet(wanted).contains(version, prereleases=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """All of VERSIONS.toml."""

    root: Path  # the folder it lies in
    upstreams: Mapping[str, Upstream]
    lines: Mapping[str, Line]

    def line(self, name: str) -> Line:
        if name not in self.lines:
            raise PinError(FILE, f"has no line '{name}'", f"choose one of: {', '.join(self.lines)}")
        return self.lines[name]

    def pin(self, line: str, upstream: str) -> Pin:
        pins = self.line(line).pins
        if upstream not in pins:
            raise PinError(FILE, f"line '{line}' does not pin '{upstream}'", f"choose one of: {', '.join(pins)}")
        return pins[upstream]

    def series_folder(self, pin: Pin) -> Path:
        return self.root / "patches" / pin.line / pin.upstream.name

    def overlay_folder(self, upstream: Upstream) -> Path:
        return self.root / "overlay" / upstream.name


def load(root: Path, *, satisfied: bool = True) -> Pins:
    """Read *root*/VERSIONS.toml. Raises PinError with the place of the fault.

    Unless *satisfied* is False, the pins of each line must satisfy each other:
    what a pin ``requires`` of its siblings was read from its wheel's METADATA
    when it was pinned, so no network is asked here (trees.requires asks it).
    """
    path = root / FILE
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise PinError(str(path), "does not exist", "run from a checkout of the overlay") from exc
    except OSError as exc:
        raise PinError(str(path), f"cannot be read: {exc.strerror}", "make it readable") from exc
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        step = "correct it there; git diff VERSIONS.toml shows what was changed last"
        raise PinError(str(path), f"is no TOML: {exc}", step) from exc
    if raw.get("schema") != SCHEMA:
        step = "use the tools that came with this VERSIONS.toml"
        raise PinError(FILE, f"schema is {raw.get('schema')!r}, this tool reads {SCHEMA}", step)
    upstreams = {name: _upstream(name, fields) for name, fields in _tables(raw, "upstreams").items()}
    lines = {}
    for line, fields in _tables(raw, "lines").items():
        pins = {}
        for upstream in _tables(fields, "", place=f"[lines.{line}]"):
            if upstream not in upstreams:
                raise PinError(FILE, f"[lines.{line}.{upstream}] names an upstream that [upstreams] lacks")
            pins[upstream] = _pin(line, upstreams[upstream], fields[upstream])
        lines[line] = Line(name=line, pins=pins)
        if satisfied and (faults := lines[line].unsatisfied()):
            step = "pin releases that were published for each other; move both with tools/rebase.py --upstream"
            raise PinError(FILE, f"[lines.{line}]: {'; '.join(faults)}", step)
    return Pins(root=root, upstreams=upstreams, lines=lines)


def _tables(raw: Mapping[str, Any], key: str, *, place: str = "") -> Mapping[str, Any]:
    tables = raw.get(key) if key else raw
    where = place or f"[{key}]"
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise PinError(FILE, f"{where} must hold tables")
    return tables


def _field(table: Mapping[str, Any], key: str, kind: type[_T], place: str) -> _T:
    value = table.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PinError(FILE, f"{place}: '{key}' must be a {kind.__name__}, it is {value!r}")
    return value


def _upstream(name: str, fields: Mapping[str, Any]) -> Upstream:
    place = f"[upstreams.{name}]"
    tag = _field(fields, "tag", str, place)
    if "{version}" not in tag:
        raise PinError(FILE, f"{place}: 'tag' must contain {{version}}, it is {tag!r}")
    layout = _field(fields, "layout", dict, place)
    return Upstream(
        name=name,
        package=_field(fields, "package", str, place),
        repository=_field(fields, "repository", str, place),
        tag=tag,
        layout=Layout(tuple((str(repository), str(wheel)) for repository, wheel in layout.items())),
        version_file=_field(fields, "version-file", str, place),
    )


def _pin(line: str, upstream: Upstream, fields: Mapping[str, Any]) -> Pin:
    place = f"[lines.{line}.{upstream.name}]"
    text = _field(fields, "version", str, place)
    try:
        version = Version(text)
    except InvalidVersion as exc:
        raise PinError(FILE, f"{place}: '{text}' is no version (PEP 440)") from exc
    revision = _field(fields, "revision", int, place)
    if version.local or revision < 1:
        raise PinError(FILE, f"{place}: version must have no local part and revision be 1 or more")
    sha256 = _field(fields, "sha256", dict, place)
    for name, digest in sha256.items():
        if not (isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
            raise PinError(FILE, f"{place}: sha256 of {name} is not 64 lower-case hex digits")
        if canonical_name(name.split("-")[0]) != canonical_name(upstream.package):
            raise PinError(FILE, f"{place}: {name} is no file of package {upstream.package}")
    requires = fields.get("requires", {})
    if not isinstance(requires, dict):
        raise PinError(FILE, f"{place}: 'requires' must be a table of package = \"specifier\"")
    for package, wanted in requires.items():
        try:
            SpecifierSet(wanted)
        except (InvalidSpecifier, TypeError, AttributeError) as exc:
            raise PinError(FILE, f"{place}: requires of {package} is no specifier (PEP 440): {wanted!r}") from exc
    return Pin(line=line, upstream=upstream, version=version, revision=revision, sha256=sha256, requires=requires)


def moved(
    text: str,
    line: str,
    upstream: str,
    version: Version,
    sha256: Mapping[str, str],
    revision: int,
    requires: Mapping[str, str] | None = None,
) -> str:
    """Return *text* (of VERSIONS.toml) with one pin on another release; comments and all else stay.

    *requires* None leaves that table as it is. Raises PinError where there is no such pin.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        table = document["lines"][line][upstream]
    except TOMLKitError as exc:
        raise PinError(FILE, f"[lines.{line}.{upstream}]: {exc}", "name a line and an upstream that it pins") from exc
    table["version"] = str(version)
    table["revision"] = revision
    _replace(table, "sha256", sha256)
    if requires is not None:
        _replace(table, "requires", requires)
    return str(tomlkit.dumps(document))


def _replace(table: Any, key: str, entries: Mapping[str, str]) -> None:
    """Make the subtable *key* hold *entries*; what stays the same keeps its line and its comment."""
    import tomlkit

    if key not in table:
        if not entries:
            return
        table[key] = tomlkit.table()
    kept = table[key]
    for name in [name for name in kept if name not in entries]:
        del kept[name]
    for name, value in entries.items():
        if kept.get(name) != value:
            kept[name] = value
