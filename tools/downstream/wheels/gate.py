"""The gate: no wheel leaves that differs from upstream's where neither series nor overlay say so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from downstream.errors import WheelError
from downstream.patched import PatchedTree
from downstream.pins import Line
from downstream.wheels.archive import open_archive
from downstream.wheels.comparison import Pair, compare
from downstream.wheels.inspection import inspect
from downstream.wheels.naming import dist_info_of, parse_name
from downstream.wheels.rules import RefusedError, Rule, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """What the gate found. No violations: the wheel may leave."""

    wheel: str
    violations: tuple[Violation, ...]

    @property
    def passed(self) -> bool:
        return not self.violations

    @property
    def stale_rows(self) -> frozenset[str] | None:
        """The members whose RECORD rows are wrong, if nothing else is; None where something else is."""
        if all(violation.rule is Rule.RECORD for violation in self.violations):
            return frozenset(violation.member for violation in self.violations)
        return None


def verify(wheel: Path, upstream: Path, tree: PatchedTree, *, line: Line) -> GateReport:
    """Hold our *wheel* against the published one and the tree it should have been made from.

    A breach is an answer here, not an error; WheelError means that *upstream* cannot be read.
    """
    return GateReport(wheel=wheel.name, violations=tuple(_violations(wheel, upstream, tree, line)))


def _violations(wheel: Path, upstream: Path, tree: PatchedTree, line: Line) -> list[Violation]:
    pin = tree.pin
    theirs = open_archive(upstream)
    their_name = parse_name(upstream.name)
    with upstream.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != pin.sha256.get(upstream.name):
            detail = f"{upstream.name} is not the file that {pin} names"
            return [Violation(member="", rule=Rule.OTHER_BASE, detail=detail)]
    try:
        name = parse_name(wheel.name)
        ours = open_archive(wheel)
    except RefusedError as exc:
        return list(exc.violations)
    violations = list(inspect(wheel, name))
    wanted = their_name.with_version(pin.local_version)
    if name.text != wanted:
        violations.append(Violation(member="", rule=Rule.FILE_NAME, detail=f"is {name.text}, must be {wanted}"))
    try:
        our_dist_info = dist_info_of(ours.entries, name)
        their_dist_info = dist_info_of(theirs.entries, their_name)
    except RefusedError:
        return violations  # inspect has said so
    pair = Pair(
        ours=ours, theirs=theirs, our_dist_info=our_dist_info, their_dist_info=their_dist_info, tree=tree, line=line
    )
    return [*violations, *_readable(compare(pair))]


def _readable(violations: Iterator[Violation]) -> Iterator[Violation]:
    """Yield *violations*, and last what kept them from being found."""
    try:
        yield from violations
    except RefusedError as exc:
        yield from exc.violations
    except WheelError as exc:
        yield Violation(member=exc.place, rule=Rule.METADATA, detail=exc.problem)
