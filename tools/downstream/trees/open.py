"""Open a release by its pin or by its version."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from downstream.errors import DownstreamError, OfflineError, TreeError
from downstream.trees import releases as published
from downstream.trees.published import PublishedSource, check_digest, fetch_whole, kept_whole
from downstream.trees.releases import Release, ReleaseFile
from downstream.trees.session import ONLINE, Session
from downstream.trees.tree import Tree
from downstream.trees.wheel import FileSource, WheelTree

if TYPE_CHECKING:
    from downstream.pins import Pin, Upstream
    from downstream.trees.installed import InstalledTree

NEAR = 6  # versions named when one is not found
AT_ONCE = 4  # releases fetched side by side: an index is shared


def open_pin(pin: Pin, session: Session) -> WheelTree:
    """Open the pinned release. Nothing is fetched before it is read.

    Where the pin names several wheels, the one that reading_wheel() chooses.
    Raises DigestError once the index advertises another sha256 than the pin's.
    """
    if not pin.sha256:
        raise TreeError(str(pin), "pins no wheel", "give it a sha256 table: tools/rebase.py writes one")
    name = reading_wheel(pin.sha256)
    return _wheel(pin.upstream, pin.version, name, pin.sha256[name], session)


def open_release(upstream: Upstream, version: Version, session: Session) -> WheelTree:
    """Open a published version. Raises TreeError, which names near versions, where there is no such one."""
    release = _release(upstream, version, session)
    wheels = {file.name: file for file in release.files if file.is_wheel}
    title = f"{upstream.name} {version}"
    if not wheels:
        found = ", ".join(file.name for file in release.files)
        step = f"read its repository instead: git:{upstream.repository}@{upstream.tag_of(version)}"
        raise TreeError(title, f"has no wheel on the index, only {found}", step)
    file = wheels[reading_wheel(wheels)]
    if not file.sha256:
        # An index that tells no digest is trusted by address; its file is read whole, and nothing of it is kept apart.
        return WheelTree(FileSource(_unhashed(file, session)), upstream.layout, title)
    return _wheel(upstream, version, file.name, file.sha256, session)


def wheel_files(pin: Pin, session: Session) -> tuple[Path, ...]:
    """Return every wheel of the pin as a whole file in the cache, fetched if need be, sha256 verified.

    Raises DigestError, NetworkError, OfflineError, WriteError.
    """
    found = []
    for name, digest in sorted(pin.sha256.items()):
        path = kept_whole(digest, session)
        if path is None:
            file = _file(pin.upstream, pin.version, name, session)
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


def prefetch_all(trees: Iterable[Tree], paths: Iterable[str], session: Session) -> None:
    """prefetch() for several trees, AT_ONCE of them side by side.

    A release that cannot be fetched ends it quietly: the read that needs it will say so.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    wanted, wheels = list(paths), [tree for tree in trees if isinstance(tree, WheelTree)]
    with session.progress.task("fetch releases", len(wheels)) as task, ThreadPoolExecutor(AT_ONCE) as threads:
        futures = {threads.submit(tree.prefetch, wanted): tree for tree in wheels}
        try:
            for future in as_completed(futures):
                future.result()
                task.advance(note=futures[future].name)
        except DownstreamError:
            threads.shutdown(wait=False, cancel_futures=True)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def reading_wheel(names: Iterable[str]) -> str:
    """Choose the wheel a release is read from: pure before compiled, then Linux x86-64, then the oldest Python.

    The choice is fixed, so that two readers see one tree. Upstream's wheels of
    one release differ in compiled modules, not in what a patch can touch.
    """

    candidates = list(names)
    if len(candidates) == 1:
        return candidates[0]
    from packaging.utils import parse_wheel_filename  # late: 15 ms that one pure wheel need not pay

    def rank(name: str) -> tuple[bool, bool, tuple[int, ...], str]:
        tags = parse_wheel_filename(name)[3]
        pure = any(tag.platform == "any" for tag in tags)
        x86 = any(tag.platform.startswith(("manylinux", "linux")) and tag.platform.endswith("x86_64") for tag in tags)
        python = min(tag.interpreter for tag in tags)
        return not pure, not x86, (len(python), *map(ord, python)), name

    return min(candidates, key=rank)


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
        raise OfflineError(f"{upstream.name} {version}", "is not in the cached listing", f"{ONLINE}; {step}")
    raise TreeError(f"{upstream.name} {version}", "is not published on the configured index", step)


def open_installed(upstream: Upstream, python: Path | None = None) -> InstalledTree:
    """Open what an environment has installed of *upstream* (see installed.open_installed)."""
    from downstream.trees import installed

    return installed.open_installed(upstream, python)


def near_versions(version: Version, known: Iterable[Version]) -> list[Version]:
    """Return the few of *known* that somebody who typed *version* may have meant, sorted."""
    import difflib

    known = sorted(known)
    close = set(difflib.get_close_matches(str(version), map(str, known), NEAR // 2, 0.8))
    below = [other for other in known if other < version][-NEAR // 2 :]
    above = [other for other in known if other > version][: NEAR // 2]
    return [other for other in known if str(other) in close or other in below or other in above][:NEAR]


def _wheel(upstream: Upstream, version: Version, name: str, digest: str, session: Session) -> WheelTree:
    source = PublishedSource(lambda: check_digest(_file(upstream, version, name, session), digest), digest, session)
    return WheelTree(source, upstream.layout, f"{upstream.name} {version}", identity=digest, session=session)


def _file(upstream: Upstream, version: Version, name: str, session: Session) -> ReleaseFile:
    """Return where *name* is to be had, from the kept listing if it is of the indexes that pip asks now."""
    for age in (math.inf, 0):
        release = published.listing(upstream.package, session=session, max_age=age).release(version)
        for file in release.files if release else ():
            if file.name == name:
                return file
    found = ", ".join(file.name for file in release.files) if release else "no such release"
    step = "check which index pip is configured with: pip config list"
    raise TreeError(f"{upstream.name} {version}", f"the index has no {name} ({found})", step)


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
