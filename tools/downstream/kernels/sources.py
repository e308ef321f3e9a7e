"""Translation units: which of them a series touches, what each includes, and how they lie on disk."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from downstream.arches import Target
from downstream.kernels.units import CSRC, NV_FOLDERS, Unit, flags, known
from downstream.trees.tree import Tree

# Where FlashInfer's generator lets every module look for headers (jit/cpp_ext.py, get_system_includes), in its order.
ROOTS = (
    "include",
    "csrc",
    "3rdparty/cutlass/include",
    "3rdparty/cutlass/tools/util/include",
    "3rdparty/spdlog/include",
)
DEVICE_SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".inl", ".inc")
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)

# Python below flashinfer/jit that says where modules are kept or which architectures they get, not how they compile.
GENERATORS = ("flashinfer/jit/env.py", "flashinfer/jit/comm.py")


@dataclass(frozen=True)
class Sources:
    """A tree's device sources, read once, and who includes whom.

    Conditionals are not evaluated, so a closure may hold a file too many, never one too few;
    ``#include MACRO`` is not followed. *like* is a tree that differs in *changed* alone.
    """

    tree: Tree
    like: Sources | None = None
    changed: Collection[str] = ()

    @cached_property
    def paths(self) -> frozenset[str]:
        return frozenset(self.tree.paths())

    @cached_property
    def _included(self) -> dict[str, tuple[tuple[str, str], ...]]:
        return {}

    @cached_property
    def _edges(self) -> dict[tuple[str, tuple[str, ...]], tuple[str, ...]]:
        return {}

    @cached_property
    def _flags(self) -> dict[tuple[Unit, Target], tuple[str, ...] | None]:
        return {}

    def flags(self, unit: Unit, target: Target) -> tuple[str, ...] | None:
        """What the tree's generator adds to *unit* for *target*; None where it is not built for it."""
        if (unit, target) not in self._flags:
            self._flags[unit, target] = flags(self.tree, unit, target)
        return self._flags[unit, target]

    def closure(self, unit: Unit) -> tuple[str, ...]:
        """Return every file of the tree that *unit* may include, itself too, sorted."""
        seen, queue = {unit.source}, [unit.source]
        while queue:
            for found in self._next(queue.pop(), unit.include):
                if found not in seen:
                    seen.add(found)
                    queue.append(found)
        return tuple(sorted(seen & self.paths))

    def _next(self, path: str, folders: tuple[str, ...]) -> tuple[str, ...]:
        key = path, folders
        if key not in self._edges:
            found = (self._resolved(path, kind, name, (*folders, *ROOTS)) for kind, name in self.includes(path))
            self._edges[key] = tuple(dict.fromkeys(each for each in found if each))
        return self._edges[key]

    def includes(self, path: str) -> tuple[tuple[str, str], ...]:
        """Return what *path* includes, each with how it is quoted (``"`` or ``<``)."""
        if self.like and path not in self.changed:
            return self.like.includes(path)
        if path not in self._included:
            content = self.tree.read(path) or b""
            self._included[path] = tuple(
                (quote.decode(), name.decode("utf-8", "surrogateescape")) for quote, name in _INCLUDE.findall(content)
            )
        return self._included[path]

    def _resolved(self, path: str, kind: str, name: str, roots: Iterable[str]) -> str | None:
        near = (posixpath.dirname(path),) if kind == '"' else ()
        for root in (*near, *roots):
            candidate = f"{root}/{name}"
            if "./" in candidate:
                candidate = posixpath.normpath(candidate)
            if candidate in self.paths:
                return candidate
        return None

    def digest(self, unit: Unit, target: Target) -> str:
        """Return a sha256 over every file that can reach the compiler through *unit*, and its flags for *target*."""
        total = hashlib.sha256(unit.key.encode())
        if unit.moe or unit.module:
            total.update(repr(self.flags(unit, target)).encode())
        for path in self.closure(unit):
            content = self.tree.read(path) or b""
            total.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
        return total.hexdigest()

    def lay(self, unit: Unit, folder: Path) -> None:
        """Write what *unit* needs below *folder*, at repository paths."""
        for path in self.closure(unit):
            target = folder / path
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(self.tree.read(path) or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What a series changes for the compiler."""

    files: tuple[str, ...]  # device sources that changed
    units: tuple[Unit, ...]  # known units that include one of them
    other: tuple[str, ...]  # units that include one, whose flags are not known here
    idle: tuple[str, ...]  # changed files that no unit of the release includes
    flags: tuple[str, ...]  # generators (Python) that changed: what they add to a compile is not seen here
    left: tuple[tuple[Unit, str], ...] = ()  # known units that are left out, with the reason

    @property
    def total(self) -> int:
        """How many units of the release the series touches."""
        return len(self.units) + len(self.other) + len(self.left)

    def only(self, patterns: Sequence[str]) -> Touched:
        """Return this with the units alone whose file name or path one of *patterns* (globs) fits."""
        fits = {
            unit
            for unit in self.units
            if any(
                fnmatchcase(name, pattern)
                for pattern in patterns
                for name in (unit.name, unit.source, posixpath.basename(unit.source))
            )
        }
        return self.keep(fits, "left out; prove --units NAME takes one")

    def built_for(self, sources: Sources, targets: Sequence[Target]) -> Touched:
        """Return this without the units that have no generator for one of *targets*."""
        fits = {unit for unit in self.units if all(sources.flags(unit, target) is not None for target in targets)}
        return self.keep(fits, f"not built for each of {', '.join(map(str, targets))}")

    def keep(self, kept: Collection[Unit], reason: str) -> Touched:
        """Return this with *kept* of its units; *reason* is why the others are left out."""
        left = ((unit, reason) for unit in self.units if unit not in kept)
        return replace(self, units=tuple(unit for unit in self.units if unit in kept), left=(*self.left, *left))

    @property
    def unproved(self) -> tuple[str, ...]:
        """What a proof over ``units`` says nothing about, in words."""
        reasons: dict[str, list[str]] = {}
        for unit, reason in self.left:
            reasons.setdefault(reason, []).append(unit.name)
        return (
            *(f"{', '.join(names)}: {reason}" for reason, names in reasons.items()),
            *(f"{source}: the flags of its module are not known here" for source in self.other),
            *(f"{path}: no source file of the release includes it; generated ones may" for path in self.idle),
            *(f"{path}: a generator; the sources that it generates are not compiled here" for path in self.flags),
        )


def touched(base: Sources, patched: Sources, changed: Mapping[str, bytes | None]) -> Touched:
    """Return the units that *changed* reaches, on either side of the series."""
    files = tuple(sorted(path for path in changed if path.endswith(DEVICE_SUFFIXES)))
    ours = {**known(base.tree), **known(patched.tree)}
    units, other, seen = [], [], set[str]()
    for source in sorted(_unit_sources(base) | _unit_sources(patched)):
        # Folders too many may find an include too many, never miss one.
        unit = ours.get(source, Unit(source=source, include=NV_FOLDERS))
        reached = set(base.closure(unit)) | set(patched.closure(unit))
        if reached.isdisjoint(files):
            continue
        seen |= reached
        if source in ours:
            units.append(unit)
        else:
            other.append(source)
    return Touched(
        files=files,
        units=tuple(units),
        other=tuple(other),
        idle=tuple(path for path in files if path not in seen),
        flags=tuple(sorted(path for path in changed if path.startswith("flashinfer/jit/") and path not in GENERATORS)),
    )


def _unit_sources(sources: Sources) -> set[str]:
    return {path for path in sources.paths if path.startswith(f"{CSRC}/") and path.endswith(".cu")}
