"""Open a release by its pin, by its version, or by what somebody typed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from downstream.errors import TreeError, UsageError
from downstream.trees import releases as published
from downstream.trees.layout import IDENTITY, Layout
from downstream.trees.releases import Release, ReleaseFile
from downstream.trees.session import Session
from downstream.trees.tree import Tree
from downstream.trees.wheel import FileSource, PublishedSource, WheelTree, check_digest, fetch_whole, kept_whole

if TYPE_CHECKING:
    from downstream.pins import Pin, Upstream
    from downstream.trees.installed import InstalledTree

NEAR = 6  # versions named when one is not found


def open_pin(pin: Pin, session: Session) -> WheelTree:
    """Open the pinned release. Nothing is fetched before it is read.

    Where the pin names several wheels, the one that reading_wheel() chooses.
    Raises DigestError once the index advertises another sha256 than the pin's.
    """
    if not pin.sha256:
        raise TreeError(str(pin), "pins no wheel", "give it a sha256 table: tools/rebase.py writes one")
    name = reading_wheel(pin.sha256)
    digest = pin.sha256[name]

    def locate() -> ReleaseFile:
        release = _release(pin.upstream, pin.version, session)
        return check_digest(_file(release, name, pin.upstream), digest)

    title = f"{pin.upstream.name} {pin.version}"
    source = PublishedSource(locate, digest, session)
    return WheelTree(source, pin.upstream.layout, title, identity=digest, session=session)


def open_release(upstream: Upstream, version: Version, session: Session) -> WheelTree:
    """Open a published version. Raises TreeError, which names near versions, where there is no such one."""
    release = _release(upstream, version, session)
    wheels = {file.name: file for file in release.files if file.is_wheel}
    title = f"{upstream.name} {version}"
    if not wheels:
        found = ", ".join(file.name for file in release.files)
        raise TreeError(title, f"has no wheel on the index, only {found}", "choose a release that has one")
    file = wheels[reading_wheel(wheels)]
    if not file.sha256:
        # An index that tells no digest is trusted by address; its file is read whole, and nothing of it is kept apart.
        return WheelTree(FileSource(_unhashed(file, session)), upstream.layout, title)
    source = PublishedSource(lambda: file, file.sha256, session)
    return WheelTree(source, upstream.layout, title, identity=file.sha256, session=session)


def wheel_files(pin: Pin, session: Session) -> tuple[Path, ...]:
    """Return every wheel of the pin as a whole file in the cache, fetched if need be, sha256 verified.

    Raises DigestError, NetworkError, OfflineError, WriteError.
    """
    found = []
    for name, digest in sorted(pin.sha256.items()):
        path = kept_whole(digest, session)
        if path is None:
            file = _file(_release(pin.upstream, pin.version, session), name, pin.upstream)
            path = fetch_whole(check_digest(file, digest), digest, session)
        found.append(path)
    return tuple(found)


def digests(upstream: Upstream, version: Version, session: Session) -> dict[str, str]:
    """Return the sha256 of each published wheel by file name: what a pin on this release holds.

    Raises TreeError where the index does not tell a digest.
    """
    release = _release(upstream, version, session)
    wheels = {file.name: file.sha256 for file in release.files if file.is_wheel}
    if not wheels or not all(wheels.values()):
        raise TreeError(f"{upstream.name} {version}", "has no wheel with a sha256 on the index", "pip config list")
    return dict(sorted(wheels.items()))


def prefetch(tree: Tree, paths: Iterable[str]) -> None:
    """Tell *tree* which files will be read, so that it can fetch them together. Never needed, sometimes faster."""
    if isinstance(tree, WheelTree):
        tree.prefetch(paths)


def reading_wheel(names: Iterable[str]) -> str:
    """Choose the wheel a release is read from: pure before compiled, then Linux x86-64, then the oldest Python.

    The choice is fixed, so that two readers see one tree. Upstream's wheels of
    one release differ in compiled modules, not in what a patch can touch.
    """

    def rank(name: str) -> tuple[bool, bool, tuple[int, ...], str]:
        tags = parse_wheel_filename(name)[3]
        pure = any(tag.platform == "any" for tag in tags)
        x86 = any(tag.platform.startswith(("manylinux", "linux")) and tag.platform.endswith("x86_64") for tag in tags)
        python = min(tag.interpreter for tag in tags)
        return not pure, not x86, (len(python), *map(ord, python)), name

    return min(names, key=rank)


def _release(upstream: Upstream, version: Version, session: Session) -> Release:
    found = published.known(upstream.package, version, session=session)
    if found is not None:
        return found
    listing = published.listing(upstream.package, session=session, max_age=0)
    found = listing.release(version)
    if found is not None:
        return found
    near = near_versions(version, [release.version for release in listing.releases])
    step = f"the nearest are {', '.join(map(str, near))}" if near else "check the index: pip config list"
    if session.offline:
        step += "; the listing in the cache may be old, try without --offline"
    raise TreeError(f"{upstream.name} {version}", "is not published on the configured index", step)


def open_installed(upstream: Upstream, python: Path | None = None) -> InstalledTree:
    """Open what an environment has installed of *upstream* (see installed.open_installed)."""
    from downstream.trees import installed

    return installed.open_installed(upstream, python)


def near_versions(version: Version, known: Iterable[Version]) -> list[Version]:
    """Return the few of *known* that somebody who typed *version* may have meant, sorted."""
    known = sorted(known)
    close = set(difflib.get_close_matches(str(version), map(str, known), NEAR // 2, 0.8))
    below = [other for other in known if other < version][-NEAR // 2 :]
    above = [other for other in known if other > version][: NEAR // 2]
    return [other for other in known if str(other) in close or other in below or other in above][:NEAR]


def _file(release: Release, name: str, upstream: Upstream) -> ReleaseFile:
    for file in release.files:
        if file.name == name:
            return file
    found = ", ".join(file.name for file in release.files)
    raise TreeError(f"{upstream.name} {release.version}", f"the index has no {name}, only {found}", "pip config list")


def _unhashed(file: ReleaseFile, session: Session) -> Path:
    import hashlib

    from downstream.trees.pipconf import file_path

    if (local := file_path(file.url)) is not None:
        return local
    path = session.cache.folder / "files" / f"url-{hashlib.sha256(file.url.encode()).hexdigest()}" / file.name
    if not path.is_file():
        with session.cache.lock(f"files/{path.parent.name}"):
            if not path.is_file():
                session.download(file.url, path, sha256="", size=file.size, label=f"fetch {file.name}")
    return path


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
        return WheelTree(FileSource(path), layout, path.name)
    from downstream.trees.archive import open_archive

    return open_archive(path, name=text)
