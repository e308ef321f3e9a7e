"""Which members of a published wheel the series, the overlay and the local version touch, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import NormalizedName, canonicalize_name

from downstream.errors import WheelError
from downstream.patched import PatchedTree
from downstream.pins import Line, Pin
from downstream.wheels.archive import Archive
from downstream.wheels.metadata import Sibling
from downstream.wheels.rules import RefusedError, Rule, Violation
from downstream.wheels.runtime import edit_runtime_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What series, overlay and runtime version do to the members of one published wheel."""

    files: Mapping[str, bytes | None]  # member -> new content, None: removed
    modes: Mapping[str, int]  # member -> git's mode, where the series sets one
    outside: tuple[str, ...]  # repository paths that a wheel does not hold (tests, workflows)


def changes_for(archive: Archive, tree: PatchedTree) -> Changes:
    """Return what *tree* does to the members of *archive*.

    Raises WheelError where a touched file is not the text that the series was placed
    on: all wheels of a release must agree on every file that a patch touches.
    """
    layout = tree.pin.upstream.layout
    files: dict[str, bytes | None] = {}
    modes: dict[str, int] = {}
    outside: list[str] = []
    for path in sorted({*tree.changed, *tree.modes}):
        member = layout.to_wheel(path)
        if member is None:
            outside.append(path)
            continue
        if archive.read(member) != tree.base.read(path):
            detail = f"is not the {path} that the series was placed on; the wheels of a release must agree on it"
            raise RefusedError(archive.name, [Violation(member=member, rule=Rule.OTHER_BASE, detail=detail)])
        files[member] = tree.changed[path] if path in tree.changed else archive.read(member)
        if path in tree.modes:
            modes[member] = tree.modes[path]
    version_file = version_member(tree.pin)
    source = files[version_file] if version_file in files else archive.read(version_file)
    if source is None:
        raise RefusedError(
            archive.name, [Violation(member=version_file, rule=Rule.VERSION, detail="is not in the wheel")]
        )
    place = f"{archive.name}: {version_file}"
    files[version_file] = edit_runtime_version(source, place=place, local=tree.pin.local_version)
    return Changes(files=files, modes=modes, outside=tuple(outside))


def version_member(pin: Pin) -> str:
    """Return the member that holds the runtime version."""
    member = pin.upstream.layout.to_wheel(pin.upstream.version_file)
    if member is None:
        raise WheelError(pin.upstream.version_file, "is not in the wheel", "correct 'version-file' or the layout")
    return member


def siblings_of(pin: Pin, line: Line) -> dict[NormalizedName, Sibling]:
    """Return the other packages of *line* by their normalized name."""
    return {
        canonicalize_name(other.upstream.package): Sibling(upstream=other.version, local=other.local_version)
        for other in line.pins.values()
        if other.upstream.name != pin.upstream.name
    }
