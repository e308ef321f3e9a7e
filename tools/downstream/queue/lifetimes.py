"""A series walked over the releases: since when a hunk no longer applies, or is upstream's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from packaging.version import Version

from downstream.errors import DownstreamError
from downstream.patches.text import Patch
from downstream.placing.verdict import FileResult, HunkResult, HunkStatus, PatchResult
from downstream.queue.judged import Place, Verdicts, judged, touched
from downstream.trees.open import prefetch_all
from downstream.trees.releases import Release
from downstream.trees.session import Session
from downstream.trees.tree import Tree


class Fate(Enum):
    """The three answers a walk tells apart."""

    PLACED = "applies"
    TAKEN = "is upstream"
    FAILED = "needs a decision"


def fate(status: HunkStatus) -> Fate:
    if status is HunkStatus.UPSTREAMED:
        return Fate.TAKEN
    return Fate.PLACED if status.placed else Fate.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The verdicts release by release, oldest first, and the releases that could not be read with the reason."""

    versions: tuple[Version, ...]
    verdicts: tuple[Verdicts, ...]
    skipped: tuple[tuple[Version, str], ...] = ()

    def since(self, place: Place) -> Version | None:
        """Return the first release of the last unbroken run with the last release's fate; None where it applies."""
        found: Version | None = None
        last: Fate | None = None
        for version, verdicts in zip(reversed(self.versions), reversed(self.verdicts), strict=True):
            verdict = verdicts.get(place)
            now = fate(verdict.status) if verdict else None
            if last is None:
                last = now
            if now is not last or last is Fate.PLACED:
                break
            found = version
        return found


def between(releases: Iterable[Release], old: Version, new: Version) -> tuple[Version, ...]:
    """Return the final releases after *old* up to *new*, and *new* itself, sorted. An older *new* gives it alone."""
    found = {release.version for release in releases if old < release.version <= new and not release.prerelease}
    return tuple(sorted(found | {new}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One release on the way: its tree and verdicts, or the error that tells why it has none."""

    version: Version
    tree: Tree | None = None
    verdicts: Verdicts | None = None
    problem: DownstreamError | None = None


def stops(
    patches: Sequence[Patch],
    base: Tree,
    versions: Sequence[Version],
    open_version: Callable[[Version], Tree],
    session: Session,
    label: str,
) -> Iterator[Stop]:
    """Push the series on each of *versions* in turn, reading only the files it touches, those of all side by side.

    What is judged is kept at once: a walk that is interrupted goes on where it
    was. A release that cannot be opened or read is a stop that says so.
    """
    opened: dict[Version, Tree | DownstreamError] = {}
    for version in versions:
        try:
            opened[version] = open_version(version)
        except DownstreamError as exc:
            opened[version] = exc
    prefetch_all([tree for tree in opened.values() if not isinstance(tree, Exception)], touched(patches), session)
    with session.progress.task(label, len(versions), "releases") as task:
        for version in versions:
            tree = opened[version]
            if isinstance(tree, DownstreamError):
                yield Stop(version=version, problem=tree)
            else:
                try:
                    yield Stop(version=version, tree=tree, verdicts=judged(patches, base, tree, session))
                except DownstreamError as exc:
                    yield Stop(version=version, problem=exc)
            task.advance(1, str(version))


def walk(
    patches: Sequence[Patch],
    base: Tree,
    versions: Sequence[Version],
    open_version: Callable[[Version], Tree],
    session: Session,
) -> Walk:
    """Push the series on each of *versions*.

    A release that cannot be read is skipped and named; only the last one must
    be readable.
    """
    walked: list[tuple[Version, Verdicts]] = []
    skipped: list[tuple[Version, str]] = []
    for stop in stops(patches, base, versions, open_version, session, "walking the releases"):
        if stop.verdicts is not None:
            walked.append((stop.version, stop.verdicts))
        elif stop.problem is not None:
            if stop.version == versions[-1]:
                raise stop.problem
            skipped.append((stop.version, stop.problem.problem))
    return Walk(
        versions=tuple(version for version, _ in walked),
        verdicts=tuple(verdicts for _, verdicts in walked),
        skipped=tuple(skipped),
    )


def dated(results: Sequence[PatchResult], walked: Walk) -> tuple[PatchResult, ...]:
    """Return *results* with ``since`` filled in from the walk."""

    def hunk_dated(result: PatchResult, index: int, hunk: HunkResult) -> HunkResult:
        since = walked.since((result.patch, index, hunk.number))
        return replace(hunk, since=str(since)) if since else hunk

    def file_dated(result: PatchResult, index: int, file: FileResult) -> FileResult:
        return replace(file, hunks=tuple(hunk_dated(result, index, hunk) for hunk in file.hunks))

    return tuple(
        replace(result, files=tuple(file_dated(result, index, file) for index, file in enumerate(result.files)))
        for result in results
    )
