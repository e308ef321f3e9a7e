"""What machine code has to show: no dead kernel, no missing wait, and nothing moved where nothing should."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from downstream.arches import Target
from downstream.kernels.machine import MEANT_EMPTY, Kernel

# A patch that means to change code for GPUs that upstream supports says so: the kernel families whose machine
# code changes, and the device functions or types in whose text it lies (the fast form sees only those):
#   Changes-Machine-Code: lamport_style_one_shot_all_reduce_norm_kernel Reducer
DECLARATION = "Changes-Machine-Code"
_DECLARED = re.compile(rf"^{DECLARATION}:[ \t]*(.+)$".encode(), re.MULTILINE | re.IGNORECASE)

Listings = Mapping[Target, Mapping[str, Kernel]]

# A measure beside the references: the release itself, on the target.
RELEASE = "the release"


class Fault(StrEnum):
    """Why machine code fails the proof. The values are those of the JSON."""

    EMPTY = "empty"  # has a body on a reference, none on the target
    ABSENT = "absent"  # exists on a reference, not on the target
    NO_WAIT = "no-wait"  # waits on a reference, not on the target
    NO_TRIGGER = "no-trigger"  # triggers on a reference, not on the target
    MOVED = "moved"  # the series changes code for a reference, and no patch declares it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of one kernel family of a unit on a target; *count* kernels have it."""

    fault: Fault
    unit: str
    target: str
    reference: str
    family: str
    count: int
    example: str  # a mangled name

    def __str__(self) -> str:
        words = {
            Fault.EMPTY: f"empty, with a body on {self.reference}" if self.reference else "empty, and on no reference",
            Fault.ABSENT: f"absent, present on {self.reference}",
            Fault.NO_WAIT: f"without the wait that {self.reference} has",
            Fault.NO_TRIGGER: f"without the trigger that {self.reference} has",
            Fault.MOVED: "changed by the series, which no patch declares",
        }
        return f"{self.unit}: {self.target}: {self.count} {self.family} {words[self.fault]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRow:
    """A kernel family in one tree on one target: how many, how long, how many wait, trigger or do nothing."""

    unit: str
    target: str
    tree: str
    family: str
    kernels: int
    empty: int
    least: int  # instructions of the shortest
    most: int
    waits: int  # kernels with at least one
    triggers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The kernels of one tree on one target, over all units: how many, how many are empty, how many wait."""

    kernels: int
    empty: int
    waits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Code for a reference that differs between the trees, because a patch says so."""

    unit: str
    target: str
    family: str
    count: int
    patch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The answer over all units. It holds when there is no finding."""

    rows: tuple[FamilyRow, ...]
    findings: tuple[Finding, ...]
    moved: tuple[Moved, ...] = ()
    equal: tuple[tuple[str, str, int], ...] = ()  # unit, reference, kernels whose code is byte for byte the same
    unproved: tuple[str, ...] = ()  # touched units that were not compiled
    no_kernels: tuple[str, ...] = ()  # units of which no tree has a kernel for any target or reference

    @property
    def holds(self) -> bool:
        """Whether there is no finding, and something to find one in."""
        return not self.findings and bool(self.rows)

    def empty(self, tree: str, target: str) -> int:
        return self.totals(tree, target).empty

    def totals(self, tree: str, target: str) -> Totals:
        rows = [row for row in self.rows if row.tree == tree and row.target == target]
        return Totals(
            kernels=sum(row.kernels for row in rows),
            empty=sum(row.empty for row in rows),
            waits=sum(row.waits for row in rows),
        )


def declared(patches: Mapping[str, bytes]) -> dict[str, str]:
    """Return name -> patch (several: with commas), from the headers that declare a change of machine code."""
    found: dict[str, str] = {}
    for name, raw in patches.items():
        header = re.split(rb"^(?:diff --git |--- )", raw, maxsplit=1, flags=re.MULTILINE)[0]
        for match in _DECLARED.finditer(header):
            for word in match[1].decode("utf-8", "replace").replace(",", " ").split():
                said = found.get(word, "").split(", ")
                found[word] = ", ".join(dict.fromkeys([*filter(None, said), name]))
    return found


def prove_unit(
    unit: str,
    unpatched: Listings,
    patched: Listings,
    *,
    references: Sequence[Target],
    targets: Sequence[Target],
    allowed: Mapping[str, str],
) -> Proof:
    """Judge one unit. *allowed* maps families to the patch that declares their change (see declared()).

    A target must lack nothing that a reference or the release on that target has, and a kernel that no reference has
    must not be empty.
    """
    findings: list[Finding] = []
    moved: list[Moved] = []
    equal: list[tuple[str, str, int]] = []
    for reference in references:
        before, after = unpatched[reference], patched[reference]
        changed = [name for name in sorted({*before, *after}) if _code(before, name) != _code(after, name)]
        equal.append((unit, str(reference), len({*before, *after}) - len(changed)))
        for group, names in _families(changed, {**before, **after}).items():
            if group in allowed:
                entry = Moved(unit=unit, target=str(reference), family=group, count=len(names), patch=allowed[group])
                moved.append(entry)
            else:
                findings.append(_finding(Fault.MOVED, unit, reference, str(reference), group, names))
    for target in targets:
        lacking: list[Finding] = []
        for reference in references:
            # What the release itself does there is the measure; what only the series adds must hold as well.
            wanted = {**patched[reference], **unpatched[reference]}
            lacking += _lacking(unit, wanted, patched[target], str(reference), target)
        # And what it does on the target: a body may exist there alone, as in a module for one family of GPUs.
        told = {(finding.fault, finding.family) for finding in lacking}
        alone = _lacking(unit, unpatched[target], patched[target], RELEASE, target)
        known = {name for reference in references for name in patched[reference]}
        dead = [
            name
            for name, kernel in patched[target].items()
            if kernel.empty
            and name not in known
            and kernel.family not in MEANT_EMPTY
            and not _alive(unpatched[target], name)
        ]
        for group, names in _families(sorted(dead), patched[target]).items():
            alone.append(_finding(Fault.EMPTY, unit, target, "", group, names))
        findings += [*lacking, *(finding for finding in alone if (finding.fault, finding.family) not in told)]
    return Proof(
        rows=tuple(_rows(unit, "unpatched", unpatched)) + tuple(_rows(unit, "patched", patched)),
        findings=tuple(findings),
        moved=tuple(moved),
        equal=tuple(equal),
        no_kernels=() if any(unpatched.values()) or any(patched.values()) else (unit,),
    )


def join(proofs: Iterable[Proof], unproved: Sequence[str] = ()) -> Proof:
    """Return one proof over several units."""
    found = list(proofs)
    return Proof(
        rows=tuple(row for proof in found for row in proof.rows),
        findings=tuple(finding for proof in found for finding in proof.findings),
        moved=tuple(entry for proof in found for entry in proof.moved),
        equal=tuple(entry for proof in found for entry in proof.equal),
        unproved=tuple(unproved),
        no_kernels=tuple(unit for proof in found for unit in proof.no_kernels),
    )


def _lacking(
    unit: str, wanted: Mapping[str, Kernel], found: Mapping[str, Kernel], reference: str, target: Target
) -> list[Finding]:
    faults: dict[Fault, list[str]] = {}
    for name, model in sorted(wanted.items()):
        kernel = found.get(name)
        if kernel is None:
            faults.setdefault(Fault.ABSENT, []).append(name)
        elif kernel.empty and not model.empty:
            faults.setdefault(Fault.EMPTY, []).append(name)
        else:
            if model.waits and not kernel.waits:
                faults.setdefault(Fault.NO_WAIT, []).append(name)
            if model.triggers and not kernel.triggers:
                faults.setdefault(Fault.NO_TRIGGER, []).append(name)
    return [
        _finding(fault, unit, target, reference, group, members)
        for fault, names in faults.items()
        for group, members in _families(names, wanted).items()
    ]


def _finding(fault: Fault, unit: str, target: Target, reference: str, group: str, names: Sequence[str]) -> Finding:
    return Finding(
        fault=fault,
        unit=unit,
        target=str(target),
        reference=reference,
        family=group,
        count=len(names),
        example=names[0],
    )


def _alive(kernels: Mapping[str, Kernel], name: str) -> bool:
    return name in kernels and not kernels[name].empty


def _code(kernels: Mapping[str, Kernel], name: str) -> str:
    return kernels[name].digest if name in kernels else ""


def _families(names: Iterable[str], kernels: Mapping[str, Kernel]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(kernels[name].family, []).append(name)
    return dict(sorted(groups.items()))


def _rows(unit: str, tree: str, listings: Listings) -> Iterable[FamilyRow]:
    for target, kernels in listings.items():
        for group, names in _families(sorted(kernels), kernels).items():
            members = [kernels[name] for name in names]
            yield FamilyRow(
                unit=unit,
                target=str(target),
                tree=tree,
                family=group,
                kernels=len(members),
                empty=sum(kernel.empty for kernel in members),
                least=min(kernel.instructions for kernel in members),
                most=max(kernel.instructions for kernel in members),
                waits=sum(kernel.waits > 0 for kernel in members),
                triggers=sum(kernel.triggers > 0 for kernel in members),
            )
