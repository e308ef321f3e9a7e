"""Translation units: which of them a series touches, what each includes, and how they lie on disk."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One translation unit and what its module's generator adds to every compile."""

    source: str  # repository path
    flags: tuple[str, ...] = ()
    include: tuple[str, ...] = ()  # repository folders, before ROOTS

    @property
    def name(self) -> str:
        return posixpath.basename(self.source)


# Modules whose units add nothing to the flags common to all, by release-independent source path
# (jit/comm.py: gen_trtllm_comm_module, gen_trtllm_mnnvl_comm_module, gen_vllm_comm_module).
KNOWN = tuple(
    Unit(source=f"csrc/{name}.cu")
    for name in (
        "trtllm_allreduce",
        "trtllm_allreduce_fusion",
        "trtllm_moe_allreduce_fusion",
        "trtllm_mnnvl_allreduce",
        "vllm_custom_all_reduce",
    )
)


# Python below flashinfer/jit that says where modules are kept or which architectures they get, not how they compile.
GENERATORS = ("flashinfer/jit/env.py", "flashinfer/jit/comm.py")


@dataclass(frozen=True)
class Sources:
    """A tree's device sources, read once, and who includes whom.

    Conditionals are not evaluated, so a closure may hold a file too many, never one too few;
    ``#include MACRO`` is not followed.
    """

    tree: Tree

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(self.tree.paths())

    @cached_property
    def _included(self) -> dict[str, tuple[tuple[str, str], ...]]:
        return {}

    def closure(self, unit: Unit) -> tuple[str, ...]:
        """Return every file of the tree that *unit* may include, itself too, sorted."""
        roots = (*unit.include, *ROOTS)
        seen, queue = {unit.source}, [unit.source]
        while queue:
            path = queue.pop()
            for kind, name in self._includes(path):
                found = self._resolved(path, kind, name, roots)
                if found and found not in seen:
                    seen.add(found)
                    queue.append(found)
        return tuple(sorted(seen & self._paths))

    def _includes(self, path: str) -> tuple[tuple[str, str], ...]:
        if path not in self._included:
            content = self.tree.read(path) or b""
            self._included[path] = tuple(
                (quote.decode(), name.decode("utf-8", "surrogateescape")) for quote, name in _INCLUDE.findall(content)
            )
        return self._included[path]

    def _resolved(self, path: str, kind: str, name: str, roots: Iterable[str]) -> str | None:
        near = (posixpath.dirname(path),) if kind == '"' else ()
        for root in (*near, *roots):
            candidate = posixpath.normpath(f"{root}/{name}")
            if candidate in self._paths:
                return candidate
        return None

    def digest(self, unit: Unit) -> str:
        """Return a sha256 over every file that can reach the compiler through *unit*."""
        total = hashlib.sha256(repr(unit).encode())
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

    @property
    def unproved(self) -> tuple[str, ...]:
        """What a proof over ``units`` says nothing about, in words."""
        return (
            *(
                f"{folder}: {count} units: their module's flags are not known here"
                for folder, count in sorted(Counter(map(posixpath.dirname, self.other)).items())
            ),
            *(f"{path}: no source file of the release includes it; generated ones may" for path in self.idle),
            *(f"{path}: a generator; flags it adds to other modules are not compiled here" for path in self.flags),
        )


def touched(base: Sources, patched: Sources, changed: Mapping[str, bytes | None]) -> Touched:
    """Return the units that *changed* reaches, on either side of the series."""
    files = tuple(sorted(path for path in changed if path.endswith(DEVICE_SUFFIXES)))
    known = {unit.source: unit for unit in KNOWN}
    units, other, seen = [], [], set[str]()
    for source in sorted(_unit_sources(base) | _unit_sources(patched)):
        unit = known.get(source, Unit(source=source))
        reached = set(base.closure(unit)) | set(patched.closure(unit))
        if reached.isdisjoint(files):
            continue
        seen |= reached
        if source in known:
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
    return {path for path in sources.tree.paths() if path.startswith("csrc/") and path.endswith(".cu")}
