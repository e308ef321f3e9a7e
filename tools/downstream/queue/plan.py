"""A series about to be carried from its pin to another release: all that the rebase reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from packaging.specifiers import InvalidSpecifier
from packaging.version import Version

from downstream.errors import PatchError, PinError
from downstream.patches.series import Series, load_series
from downstream.patches.text import Patch
from downstream.pins import Pin, Pins
from downstream.placing.push import Push, push
from downstream.placing.verdict import PatchResult
from downstream.queue.elsewhere import pointed
from downstream.queue.judged import touched
from downstream.queue.lifetimes import Walk, between, dated, walk
from downstream.queue.target import Target
from downstream.trees import releases as published
from downstream.trees.open import open_pin, open_release, prefetch
from downstream.trees.session import Session
from downstream.trees.tree import Tree


@dataclass(frozen=True)
class Plan:
    """One upstream of one line, its series, the pinned release and the one it goes to."""

    pins: Pins
    pin: Pin
    target: Target
    session: Session
    series: Series

    @classmethod
    def make(cls, pins: Pins, line: str, target: Target, session: Session) -> Plan:
        pin = pins.pin(line, target.upstream.name)
        return cls(pins, pin, target, session, load_series(pins.series_folder(pin)))

    @cached_property
    def patches(self) -> tuple[Patch, ...]:
        return self.series.patches()

    @cached_property
    def base(self) -> Tree:
        """The pinned release, its touched files read in as few requests as can be."""
        tree = open_pin(self.pin, self.session)
        prefetch(tree, touched(self.patches))
        return tree

    @cached_property
    def new(self) -> Tree:
        """The release the series goes to, its touched files read in as few requests as can be."""
        tree = self.open(self.target.version)
        prefetch(tree, touched(self.patches))
        return tree

    def open(self, version: Version) -> Tree:
        """Open a release of the upstream. Nothing of it is fetched before it is read."""
        return self.base if version == self.pin.version else open_release(self.target.upstream, version, self.session)

    def verify_base(self) -> None:
        """See that the series applies to its own pin; a rewritten release or a stray edit ends here.

        Raises PatchError at the first hunk that does not.
        """
        for result in push(self.patches, self.base).results:
            for hunk in result.hunks:
                if not hunk.status.placed:
                    raise PatchError(
                        f"patches/{self.pin.line}/{self.pin.upstream.name}/{result.patch}",
                        f"hunk {hunk.number} of {hunk.path} does not apply to its own pin, {self.pin}: {hunk.reason}",
                        f"mend the patch on the pin first; tools/pq.py check --line {self.pin.line} says more",
                    )

    def walk(self) -> Walk:
        """Push the series on every final release from the pin to the target."""
        if self.target.version < self.pin.version:
            return Walk(versions=(), verdicts=())
        known = published.releases(self.target.upstream.package, session=self.session)
        versions = between(known, self.pin.version, self.target.version)
        return walk(self.patches, self.base, versions, self.open, self.session)

    def push(self) -> Push:
        """Push the whole series on the target."""
        run = Push.over(self.new, base=self.base)
        for patch in self.patches:
            run.step(patch)
        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseReport:
    """What became of a series on another release."""

    pin: Pin
    target: Target
    results: tuple[PatchResult, ...]
    walked: tuple[str, ...] = ()  # the releases behind ``since``
    skipped: tuple[str, ...] = ()  # releases that could not be read, each with its reason
    written: tuple[str, ...] = ()  # paths relative to the overlay
    dropped: tuple[str, ...] = ()  # patches that upstream has, or that were skipped
    waiting: str | None = None  # the patch that waits for a person
    warnings: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return all(result.fine for result in self.results) and self.waiting is None


def checked(plan: Plan) -> RebaseReport:
    """Judge the series on the target and say since when; write nothing."""
    plan.verify_base()
    results = tuple(plan.push().results)
    report = RebaseReport(pin=plan.pin, target=plan.target, results=results)
    return since(plan, report)


def since(plan: Plan, report: RebaseReport) -> RebaseReport:
    """Fill in where code went, and the release that broke or merged each hunk, if any needs it."""
    if not any(not hunk.status.placed for result in report.results for hunk in result.hunks):
        return report
    report = replace(report, results=pointed(report.results, plan.patches, plan.base, plan.new))
    walked = plan.walk()
    return replace(
        report,
        results=dated(report.results, walked),
        walked=tuple(map(str, walked.versions)),
        skipped=tuple(f"{version}: {reason}" for version, reason in walked.skipped),
    )


def unsatisfied(plan: Plan, requires: dict[str, str]) -> Sequence[str]:
    """Say which pins of the line no longer satisfy each other once the target is pinned."""
    line = plan.pins.line(plan.pin.line)
    pin = replace(plan.pin, version=plan.target.version, requires=requires)
    try:
        return replace(line, pins={**line.pins, pin.upstream.name: pin}).unsatisfied()
    except InvalidSpecifier as exc:
        raise PinError(str(plan.target), f"its METADATA requires what is no specifier: {exc}") from exc
