"""Open what somebody typed. Each kind of tree is imported where it is met: a folder needs none of the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from downstream.errors import UsageError
from downstream.trees.layout import IDENTITY, Layout
from downstream.trees.tree import Tree

if TYPE_CHECKING:
    from downstream.trees.session import Session


def open_spec(text: str, *, layout: Layout = IDENTITY, base_dir: Path = Path(), session: Session | None = None) -> Tree:
    """Open what somebody typed: a folder, an archive, a wheel, or ``git:REPO@REV``.

    Relative paths start at *base_dir*. *layout* is for wheels, packed or
    unpacked; everything else is taken for a repository. A *session* lets REPO be
    a URL. Raises UsageError where *text* is none of these.
    """
    if text.startswith("git:"):
        from downstream.trees.repository import open_git

        return open_git(text.removeprefix("git:"), base_dir=base_dir, session=session)
    path = base_dir / text
    if path.is_dir():
        from downstream.trees.folder import FolderTree

        unpacked = any(path.glob("*.dist-info"))
        return FolderTree(path, name=text, layout=layout if unpacked else IDENTITY)
    if not path.exists():
        raise UsageError(text, "does not exist", "name a folder, an archive, a wheel, or git:REPO@REV")
    if path.name.endswith(".whl"):
        from downstream.trees.wheel import FileSource, WheelTree

        return WheelTree(FileSource(path), layout, path.name)
    from downstream.trees.archive import open_archive

    return open_archive(path, name=text)
