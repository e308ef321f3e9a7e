"""The sources of a tree, read when they are asked for, and what each says by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from downstream.trees.tree import Tree

HELD = 32  # texts

# Trees that every process can read by itself; a git tree has one child to ask, an archive one stream.
_SHARED = frozenset({"WheelTree", "FolderTree", "InstalledTree", "MemoryTree"})


class Texts(Mapping[str, bytes]):
    """Contents by path. Only the last few are held, unless other processes could not read them again."""

    def __init__(self, tree: Tree, paths: Iterable[str]) -> None:
        self._tree = tree
        self._paths = tuple(paths)
        self._known = frozenset(self._paths)
        base = tree
        while hasattr(base, "base"):
            base = base.base
        self.shared = type(base).__name__ in _SHARED
        self._held: dict[str, bytes] = {}

    def __getitem__(self, path: str) -> bytes:
        if path in self._held:
            return self._held[path]
        if path not in self._known:
            raise KeyError(path)
        content = self._tree.read(path) or b""
        if self.shared and len(self._held) >= HELD:
            del self._held[next(iter(self._held))]
        self._held[path] = content
        return content

    def __contains__(self, path: object) -> bool:
        return path in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def passing(self, path: str) -> bytes:
        """The content of *path*, which is not held where it can be read again."""
        return (self._tree.read(path) or b"") if self.shared else self[path]
