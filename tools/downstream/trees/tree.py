"""The one contract that everything reads releases through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

REGULAR = 0o100644
EXECUTABLE = 0o100755
SYMLINK = 0o120000


@runtime_checkable
class Tree(Protocol):
    """The files of one release by *repository* path, whatever keeps them.

    Paths are POSIX and relative; bytes that are no UTF-8 are surrogate-escaped.
    Trees are lazy: nothing is read before it is asked for.
    """

    @property
    def name(self) -> str:
        """What to call it in a message: ``flashinfer 0.6.3``."""

    def read(self, path: str) -> bytes | None:
        """Return the file's content (a symlink's target), or None where there is no such file."""

    def mode(self, path: str) -> int | None:
        """Return git's mode of the file (REGULAR, EXECUTABLE, SYMLINK), or None where there is none."""

    def paths(self) -> Iterable[str]:
        """Yield every file's path, sorted."""


@dataclass(frozen=True, slots=True)
class MemoryTree:
    """A tree held in memory; what tests and generated files are made of."""

    files: Mapping[str, bytes]
    name: str = "memory"
    modes: Mapping[str, int] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def mode(self, path: str) -> int | None:
        return self.modes.get(path, REGULAR) if path in self.files else None

    def paths(self) -> Iterable[str]:
        return sorted(self.files)


@dataclass(frozen=True, slots=True)
class LayeredTree:
    """*base* with some files changed, added or (None) removed."""

    base: Tree
    changes: Mapping[str, bytes | None]
    modes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.base.name

    def read(self, path: str) -> bytes | None:
        return self.changes[path] if path in self.changes else self.base.read(path)

    def mode(self, path: str) -> int | None:
        if path in self.changes and self.changes[path] is None:
            return None
        if path in self.modes:
            return self.modes[path]
        return REGULAR if (mode := self.base.mode(path)) is None and path in self.changes else mode

    def paths(self) -> Iterable[str]:
        removed = {path for path, content in self.changes.items() if content is None}
        added = {path for path, content in self.changes.items() if content is not None}
        return sorted((set(self.base.paths()) | added) - removed)
