"""From a truth per architecture to whether the target is shut out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from downstream.arches import Target
from downstream.guards.model import Question, Verdict
from downstream.guards.values import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What a condition says on each architecture, and what that means for the target."""

    arches: Mapping[str, Verdict]
    excluded: bool  # active on a reference, inactive on a target, for certain
    possibly: bool  # so for some value of what is unknown
    admits: frozenset[Target]  # references on which it is active (or may be)
    excludes: frozenset[Target]  # targets on which it is inactive (or may be)
    unknown: tuple[str, ...]


def verdict(value: Value) -> Verdict:
    if value.truth is None:
        return Verdict.UNKNOWN
    return Verdict.ACTIVE if value.truth else Verdict.INACTIVE


def assess(state: Callable[[Target], Value], question: Question, *, inverted: bool = False) -> Assessment:
    """Ask *state* for every architecture of *question*; *inverted* for a branch that refuses the build."""
    values = {target: state(target) for target in question.asked}
    want = not inverted
    admits: set[Target] = set()
    excludes: set[Target] = set()
    excluded = possibly = False
    names: set[str] = set()
    for references, targets in question.rounds:
        for reference in references:
            for target in targets:
                mine, theirs = values[reference], values[target]
                if mine.truth is want and theirs.truth is (not want):
                    excluded = True
                elif mine.truth is (not want) or theirs.truth is want or mine.residual == theirs.residual:
                    continue
                else:
                    possibly = True
                    names |= mine.names | theirs.names
                admits.add(reference)
                excludes.add(target)
    arches = {str(target): verdict(values[target]) for target in question.requested}
    for requested, variants in question.variants_of:
        # A suffixed build is named only where it differs from the plain one.
        if len({verdict(values[target]) for target in (requested, *variants)}) > 1:
            arches.update((str(target), verdict(values[target])) for target in variants)
    if not names:
        names = {name for value in values.values() for name in value.names}
    return Assessment(
        arches=arches,
        excluded=excluded,
        possibly=possibly and not excluded,
        admits=frozenset(admits),
        excludes=frozenset(excludes),
        unknown=tuple(sorted(names)),
    )


def suspicion(assessment: Assessment) -> str:
    """What makes an exclusion suspect for which nothing speaks."""
    majors = {target.capability.major for target in assessment.admits}
    return "admits both SM90 and SM100" if {9, 10} <= majors else "uses nothing that SM12x lacks"
