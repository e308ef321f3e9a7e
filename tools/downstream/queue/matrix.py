"""Every hunk on every release: where it applies, since when not, and what ended it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from downstream.patches.text import FilePatch, Hunk, Patch
from downstream.queue.ending import Sides, sides, whereabouts
from downstream.queue.judged import Place, Verdict, Verdicts
from downstream.queue.lifetimes import Fate, Stop, fate, stops
from downstream.queue.plan import Plan
from downstream.trees.open import AT_ONCE
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
    elsewhere: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)  # "path:line" where code went


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
    withdrawn: tuple[Version, ...] = ()  # yanked releases, which are no columns
    sides: Mapping[Place, Sides] = field(default_factory=dict)  # where a life ended

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


def withdrawn(releases: Sequence[Release], columns: Sequence[Release]) -> tuple[Version, ...]:
    """Return the yanked releases within the span of *columns* that are none of them."""
    if not columns:
        return ()
    first, last, judged_ones = columns[0].version, columns[-1].version, {release.version for release in columns}
    return tuple(
        release.version
        for release in releases
        if release.yanked and first <= release.version <= last and release.version not in judged_ones
    )


def matrix(
    plan: Plan,
    releases: Sequence[Release],
    *,
    unversioned: Sequence[str] = (),
    yanked: Sequence[Version] = (),
    opened: Callable[[Version], Tree] | None = None,
) -> Matrix:
    """Judge the series of *plan* on each of *releases*, reading only the files it touches.

    A release that cannot be read, for want of a wheel say, is a column that says so.
    """
    dates = {release.version: release.uploaded or "" for release in releases}
    upstream = plan.pin.upstream.name
    on_the_way = list(
        stops(
            plan.patches, plan.base, list(dates), opened or plan.open, plan.session, f"{upstream} on its releases"
        )
    )  # fmt: skip
    found = Matrix(
        upstream=upstream,
        line=plan.pin.line,
        pin=plan.pin.version,
        patches=plan.patches,
        columns=tuple(_column(stop, dates[stop.version]) for stop in on_the_way),
        unversioned=tuple(unversioned),
        withdrawn=tuple(yanked),
    )
    return _with_endings(found, plan, {stop.version: stop.tree for stop in on_the_way if stop.tree})


def _column(stop: Stop, uploaded: str) -> Column:
    problem = f"{stop.problem.place}: {stop.problem.problem}" if stop.problem else ""
    return Column(version=stop.version, uploaded=uploaded, verdicts=stop.verdicts, skipped=problem)


def _with_endings(found: Matrix, plan: Plan, trees: Mapping[Version, Tree]) -> Matrix:
    """Fill in what the releases that ended a hunk's life show: their lines, and the code's new home."""
    columns = {column.version: column for column in found.columns}
    shown: dict[Place, Sides] = {}
    for place in found.places:
        life = found.lifetime(place)
        if life.ended and life.last:
            file, hunk = _hunk(plan.patches, place)
            last, ended = (
                (trees[version], (columns[version].verdicts or {})[place]) for version in (life.last, life.ended)
            )
            shown[place] = sides(file, hunk, last, ended)
    return replace(found, columns=tuple(_pointed(found, plan, trees)), sides=shown)


def _pointed(found: Matrix, plan: Plan, trees: Mapping[Version, Tree]) -> Iterator[Column]:
    """Yield each column with the places its lost code went to: new files are fetched for AT_ONCE releases at a time."""
    from concurrent.futures import ThreadPoolExecutor

    def where(column: Column) -> Column:
        if not column.verdicts or column.version <= found.pin:
            return column
        tree = trees[column.version]
        return replace(column, elsewhere=whereabouts(plan.patches, plan.base, tree, column.verdicts, plan.session))

    with (
        plan.session.progress.task("where code went", len(found.columns), "releases") as task,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        futures = [threads.submit(where, column) for column in found.columns]
        try:
            for column, future in zip(found.columns, futures, strict=True):
                yield future.result()
                task.advance(1, str(column.version))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _hunk(patches: Sequence[Patch], place: Place) -> tuple[FilePatch, Hunk | None]:
    patch = next(patch for patch in patches if patch.name == place[0])
    file = patch.files[place[1]]
    return file, next((hunk for hunk in file.hunks if hunk.number == place[2]), None)
