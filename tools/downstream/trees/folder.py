"""A folder as a tree: what lies in it, never what its symlinks lead to."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from downstream.errors import TreeError
from downstream.trees.layout import IDENTITY, Layout
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK

# A component that is empty, '.', '..' or '.git', or a NUL: no file of a tree is called that.
_NO_FILE = re.compile(rb"(?:^|/)(?:\.|\.\.|\.git)?(?:/|$)|\0")


class FolderTree:
    """The files below *root* by repository path through *layout*.

    A symlink is a file whose content is its target; a path through one leads
    nowhere. ``.git`` is no part of the tree at any depth, as for git itself;
    nor are sockets, pipes and devices.
    """

    def __init__(self, root: Path, *, name: str = "", layout: Layout = IDENTITY) -> None:
        self.name = name or str(root)
        self._root = os.fsencode(root.absolute())
        self._layout = layout
        self._folders: set[bytes] = set()  # places seen to be real folders; asking once a file would be half of a check

    def read(self, path: str) -> bytes | None:
        found = self._find(path)
        if found is None:
            return None
        place, status = found
        try:
            if stat.S_ISLNK(status.st_mode):
                return os.readlink(place)  # noqa: PTH115 - bytes
            with open(place, "rb") as stream:  # noqa: PTH123 - a path of bytes, whatever the locale
                return stream.read()
        except OSError as exc:
            raise TreeError(f"{self.name}/{path}", f"cannot be read: {exc.strerror}") from exc

    def mode(self, path: str) -> int | None:
        found = self._find(path)
        if found is None:
            return None
        mode = found[1].st_mode
        return SYMLINK if stat.S_ISLNK(mode) else EXECUTABLE if mode & stat.S_IXUSR else REGULAR

    def paths(self) -> Iterable[str]:
        mapped = (self._layout.to_repository(path) for path in self._below(b""))
        return sorted(path for path in mapped if path is not None)

    def _find(self, path: str) -> tuple[bytes, os.stat_result] | None:
        inner = self._layout.to_wheel(path)
        if inner is None:
            return None
        encoded = inner.encode("utf-8", "surrogateescape")
        if _NO_FILE.search(encoded):
            return None
        place = self._root + b"/" + encoded
        try:
            if place in self._folders or not self._leads_through_folders(place):
                return None
            status = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise TreeError(f"{self.name}/{path}", f"cannot be read: {exc.strerror}") from exc
        return (place, status) if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) else None

    def _leads_through_folders(self, place: bytes) -> bool:
        """Whether every folder above *place*, below the root, is one and no symlink. Raises OSError."""
        end = place.rfind(b"/")
        if end <= len(self._root) or place[:end] in self._folders:
            return True
        folder = place[:end]
        if not self._leads_through_folders(folder) or not stat.S_ISDIR(os.lstat(folder).st_mode):
            return False
        self._folders.add(folder)
        return True

    def _below(self, folder: bytes) -> Iterator[str]:
        try:
            with os.scandir(os.path.join(self._root, folder)) as entries:  # noqa: PTH118
                found = list(entries)
        except OSError as exc:
            place = f"{self.name}/{folder.decode('utf-8', 'surrogateescape')}"
            raise TreeError(place, f"cannot be listed: {exc.strerror}") from exc
        for entry in found:
            if entry.name == b".git":
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._below(folder + entry.name + b"/")
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                yield (folder + entry.name).decode("utf-8", "surrogateescape")
