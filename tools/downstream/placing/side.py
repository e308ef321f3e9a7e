"""The files of one tree as a series changes them: bytes at rest, lines while a patch is at work on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from downstream.patches.parse import split_lines
from downstream.trees.tree import REGULAR, Tree

AT_WORK = 32  # files kept as lines, which take several times the memory of their bytes


@dataclass(slots=True)
class Side:
    """A tree under a series being pushed. Files are read once, and only when a patch names them."""

    tree: Tree
    _contents: dict[str, bytes | None] = field(default_factory=dict)
    _modes: dict[str, int] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)  # of the tree's own files that were put, -1 where it has none
    _at_work: dict[str, list[bytes]] = field(default_factory=dict)
    _origins: dict[str, tuple[list[bytes] | None, int | None]] = field(default_factory=dict)

    def begin(self, paths: Iterable[str]) -> None:
        """Begin a patch: keep *paths* as they now are, for the copies and renames that it makes of them."""
        self._origins = {path: (self.lines(path), self.mode(path)) for path in paths}

    def origin(self, path: str) -> tuple[list[bytes] | None, int | None]:
        """Return lines and mode of a file as the patch found it."""
        return self._origins[path] if path in self._origins else (self.lines(path), self.mode(path))

    def touched(self, path: str) -> bool:
        """Say whether the patch has changed a file that it copies or renames."""
        return path in self._origins and self._origins[path][0] != self.lines(path)

    def lines(self, path: str) -> list[bytes] | None:
        """Return the file's lines as they now are, None where there is no such file. Not to be changed in place."""
        if (lines := self._at_work.pop(path, None)) is not None:
            return self._kept(path, lines)  # the last one used is the last to go
        content = self._content(path)
        return None if content is None else self._kept(path, split_lines(content))

    def mode(self, path: str) -> int | None:
        """Return git's mode of the file as it now is, None where there is no such file."""
        if self._content(path) is None:
            return None
        return self._modes.get(path) or self.tree.mode(path) or REGULAR

    def put(self, path: str, lines: list[bytes] | None, *, mode: int | None = None) -> None:
        """Change, add or (None) remove a file."""
        if path not in self._sizes:
            content = self._content(path)
            self._sizes[path] = -1 if content is None else len(content)
        self._at_work.pop(path, None)
        if lines is None:
            self._contents[path] = None
        else:
            self._contents.pop(path, None)
            self._kept(path, lines)
        if mode is not None:
            self._modes[path] = mode

    def changes(self) -> dict[str, bytes | None]:
        """Return every file that differs from the tree's, None for one removed."""
        found: dict[str, bytes | None] = {}
        for path, size in sorted(self._sizes.items()):
            content = self._content(path)
            if size != (-1 if content is None else len(content)) or content != self.tree.read(path):
                found[path] = content
        return found

    def modes(self) -> dict[str, int]:
        """Return the modes that differ from the tree's, of files that are there."""
        return {
            path: mode
            for path, mode in sorted(self._modes.items())
            if self._content(path) is not None and mode != (self.tree.mode(path) or REGULAR)
        }

    def _content(self, path: str) -> bytes | None:
        if path not in self._contents:
            lines = self._at_work.get(path)
            self._contents[path] = self.tree.read(path) if lines is None else b"".join(lines)
        return self._contents[path]

    def _kept(self, path: str, lines: list[bytes]) -> list[bytes]:
        while len(self._at_work) >= AT_WORK:
            oldest = next(iter(self._at_work))
            self._content(oldest)
            del self._at_work[oldest]
        self._at_work[path] = lines
        return lines
