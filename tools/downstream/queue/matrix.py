"""Every hunk on every release: where it applies, since when not, and what ended it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from downstream.errors import TreeError
from downstream.patches.text import Patch
from downstream.progress import Progress
from downstream.queue.judged import Place, Verdict, Verdicts, judged, touched
from downstream.queue.lifetimes import Fate, fate
from downstream.queue.plan import Plan
from downstream.trees.open import prefetch
from downstream.trees.releases import Release
from downstream.trees.tree import Tree

BEFORE = 2  # releases before the pin, where none are asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One release: its verdicts, or why it has none."""

    version: Version
    uploaded: str = ""  # ISO 8601, as the index says; empty where it does not
    verdicts: Verdicts | None = None
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """How long a hunk applied. Versions are those of columns that were judged."""

    first: Version | None  # first and last release in which it applies
    last: Version | None
    ended: Version | None = None  # the release that broke or merged it, the next one judged after ``last``
    before: Version | None = None  # the release judged before that one
    fate: Fate | None = None  # what it is from there on


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The series of one upstream against its releases, oldest first."""

    upstream: str
    line: str
    pin: Version
    patches: tuple[Patch, ...]
    columns: tuple[Column, ...]
    unversioned: tuple[str, ...] = ()  # files on the index whose version is none (PEP 440), or that are no release

    @property
    def places(self) -> tuple[Place, ...]:
        """Every row, in the order of the series."""
        return tuple(
            (patch.name, index, number)
            for patch in self.patches
            for index, file in enumerate(patch.files)
            for number in ([hunk.number for hunk in file.hunks] or [0])
        )

    def verdict(self, place: Place, column: Column) -> Verdict | None:
        return (column.verdicts or {}).get(place)

    def lifetime(self, place: Place) -> Lifetime:
        """Return the unbroken run of releases around the pin in which the hunk applies, and what ended it."""
        judged_ones = [(c.version, c.verdicts[place]) for c in self.columns if c.verdicts and place in c.verdicts]
        applies = [index for index, (_, verdict) in enumerate(judged_ones) if fate(verdict.status) is Fate.PLACED]
        if not applies:
            return Lifetime(first=None, last=None)
        at = min(applies, key=lambda index: abs(_distance(judged_ones[index][0], self.pin, judged_ones)))
        first = last = at
        while first - 1 in applies:
            first -= 1
        while last + 1 in applies:
            last += 1
        ending = judged_ones[last + 1] if last + 1 < len(judged_ones) else None
        return Lifetime(
            first=judged_ones[first][0],
            last=judged_ones[last][0],
            ended=ending[0] if ending else None,
            before=judged_ones[last][0] if ending else None,
            fate=fate(ending[1].status) if ending else None,
        )


def _distance(version: Version, pin: Version, columns: Sequence[tuple[Version, Verdict]]) -> int:
    versions = sorted({found for found, _ in columns} | {pin})
    return versions.index(version) - versions.index(pin)


def chosen(releases: Sequence[Release], pin: Version, asked: SpecifierSet | None, *, pre: bool) -> tuple[Release, ...]:
    """Return the releases to judge: what *asked* admits, else from two before the pin on; yanked ones if pinned."""
    usable = [
        release
        for release in releases
        if release.version == pin or ((pre or not release.prerelease) and not release.yanked)
    ]
    if asked is not None:
        return tuple(release for release in usable if asked.contains(release.version, prereleases=pre))
    earlier = [release for release in usable if release.version < pin][-BEFORE:]
    return (*earlier, *(release for release in usable if release.version >= pin))


def matrix(
    plan: Plan,
    releases: Sequence[Release],
    progress: Progress,
    *,
    unversioned: Sequence[str] = (),
    opened: Callable[[Version], Tree] | None = None,
) -> Matrix:
    """Judge the series of *plan* on each of *releases*, reading only the files it touches.

    A release that cannot be read, for want of a wheel say, is a column that says so.
    """
    paths = touched(plan.patches)
    open_version = opened or plan.open
    columns: list[Column] = []
    with progress.task(f"{plan.pin.upstream.name} on its releases", len(releases), "releases") as task:
        for release in releases:
            uploaded = release.uploaded or ""
            try:
                tree = open_version(release.version)
                prefetch(tree, paths)
                found = judged(plan.patches, plan.base, tree, plan.session)
                columns.append(Column(version=release.version, uploaded=uploaded, verdicts=found))
            except TreeError as exc:
                columns.append(Column(version=release.version, uploaded=uploaded, skipped=exc.problem))
            task.advance(1, str(release.version))
    return Matrix(
        upstream=plan.pin.upstream.name,
        line=plan.pin.line,
        pin=plan.pin.version,
        patches=plan.patches,
        columns=tuple(columns),
        unversioned=tuple(unversioned),
    )
