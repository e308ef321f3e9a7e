"""The files of one tree as a series changes them: lines, kept split between patches."""

from __future__ import annotations

from dataclasses import dataclass, field

from downstream.patches.parse import split_lines
from downstream.trees.tree import REGULAR, Tree


@dataclass(slots=True)
class Side:
    """A tree under a series being pushed. Files are read once, and only when a patch names them."""

    tree: Tree
    _lines: dict[str, list[bytes] | None] = field(default_factory=dict)
    _modes: dict[str, int] = field(default_factory=dict)
    _before: dict[str, list[bytes] | None] = field(default_factory=dict)  # the tree's lines of files that were put

    def lines(self, path: str) -> list[bytes] | None:
        """Return the file's lines as they now are, None where there is no such file. Not to be changed in place."""
        if path not in self._lines:
            content = self.tree.read(path)
            self._lines[path] = None if content is None else split_lines(content)
        return self._lines[path]

    def mode(self, path: str) -> int | None:
        """Return git's mode of the file as it now is, None where there is no such file."""
        if self.lines(path) is None:
            return None
        return self._modes.get(path) or self.tree.mode(path) or REGULAR

    def put(self, path: str, lines: list[bytes] | None, *, mode: int | None = None) -> None:
        """Change, add or (None) remove a file."""
        if path not in self._before:
            self._before[path] = self.lines(path)
        self._lines[path] = lines
        if mode is not None:
            self._modes[path] = mode

    def changes(self) -> dict[str, bytes | None]:
        """Return every file that differs from the tree's, None for one removed."""
        found: dict[str, bytes | None] = {}
        for path, before in sorted(self._before.items()):
            lines = self._lines[path]
            content = None if lines is None else b"".join(lines)
            # A last line that a patch leaves without any character is none in the file.
            if lines != before and (before is None or content != b"".join(before)):
                found[path] = content
        return found

    def modes(self) -> dict[str, int]:
        """Return the modes that differ from the tree's, of files that are there."""
        return {
            path: mode
            for path, mode in sorted(self._modes.items())
            if self._lines.get(path) is not None and mode != (self.tree.mode(path) or REGULAR)
        }
