"""Each rule of the proof, on listings of two or three kernels."""

from __future__ import annotations

import pytest

from downstream.arches import parse_target, parse_targets
from downstream.kernels.machine import Kernel
from downstream.kernels.proof import Fault, Proof, declared, join, prove_unit

REFERENCES = parse_targets("90a,100a")
TARGETS = parse_targets("120a,121a")
NAME = "_ZN2fi7lamportILi{}EEEvv"


def kernel(name: str, *, code: str = "same", body: int = 90, waits: int = 1, triggers: int = 1) -> Kernel:
    return Kernel(name=name, instructions=body + 3, body=body, waits=waits, triggers=triggers, digest=code)


def listings(**by_target: list[Kernel]) -> dict[object, dict[str, Kernel]]:
    return {parse_target(to): {one.name: one for one in kernels} for to, kernels in by_target.items()}


def everywhere(*kernels: Kernel) -> dict[object, dict[str, Kernel]]:
    return listings(sm_90a=[*kernels], sm_100a=[*kernels], sm_120a=[*kernels], sm_121a=[*kernels])


def prove(before: object, after: object, allowed: dict[str, str] | None = None) -> Proof:
    return prove_unit(
        "unit.cu",
        before,  # type: ignore[arg-type]
        after,  # type: ignore[arg-type]
        references=REFERENCES,
        targets=TARGETS,
        allowed=allowed or {},
    )


FINE = [kernel(NAME.format(index)) for index in range(3)]


def test_dead_before_and_alive_after_holds_and_is_counted() -> None:
    dead = [kernel(one.name, body=0, waits=0, triggers=0) for one in FINE]
    before = {**listings(sm_90a=FINE, sm_100a=FINE), **listings(sm_120a=dead, sm_121a=dead)}
    proof = prove(before, everywhere(*FINE))
    assert proof.holds
    assert (proof.empty("unpatched", "sm_120a"), proof.empty("patched", "sm_120a")) == (3, 0)
    assert ("unit.cu", "sm_90a", 3) in proof.equal


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ([kernel(NAME.format(0), body=0, waits=0, triggers=0)], Fault.EMPTY),
        ([kernel(NAME.format(0), waits=0)], Fault.NO_WAIT),
        ([kernel(NAME.format(0), triggers=0)], Fault.NO_TRIGGER),
        ([], Fault.ABSENT),
    ],
)
def test_what_a_target_lacks_is_found_and_named(broken: list[Kernel], fault: Fault) -> None:
    one = [FINE[0]]
    after = {**everywhere(*one), **listings(sm_121a=broken)}
    proof = prove(everywhere(*one), after)
    assert {(finding.fault, finding.target, finding.family) for finding in proof.findings} == {
        (fault, "sm_121a", "lamport")
    }
    assert {finding.reference for finding in proof.findings} == {"sm_90a", "sm_100a"}


def test_a_wait_taken_from_every_architecture_is_still_missed() -> None:
    """The measure is the published release, not what the series made of it."""
    without = [kernel(FINE[0].name, waits=0, code="other")]
    faults = {finding.fault for finding in prove(everywhere(FINE[0]), everywhere(*without)).findings}
    assert faults == {Fault.NO_WAIT, Fault.MOVED}


def test_moved_code_fails_unless_a_patch_declares_the_family() -> None:
    after = {**everywhere(FINE[0]), **listings(sm_90a=[kernel(FINE[0].name, code="moved")])}
    assert [finding.fault for finding in prove(everywhere(FINE[0]), after).findings] == [Fault.MOVED]
    proof = prove(everywhere(FINE[0]), after, {"lamport": "zero.patch"})
    assert proof.holds
    assert [(moved.family, moved.count, moved.patch) for moved in proof.moved] == [("lamport", 1, "zero.patch")]


def test_a_kernel_that_is_empty_on_the_reference_too_is_no_finding() -> None:
    empty = [kernel(FINE[0].name, body=0, waits=0, triggers=0)]
    assert prove(everywhere(*empty), everywhere(*empty)).holds


def test_what_only_the_series_adds_must_hold_as_well() -> None:
    new = kernel(NAME.format(9))
    after = {**everywhere(FINE[0], new), **listings(sm_120a=[FINE[0], kernel(new.name, waits=0)])}
    faults = {finding.fault for finding in prove(everywhere(FINE[0]), after, {"lamport": "new.patch"}).findings}
    assert faults == {Fault.NO_WAIT}


def test_joined_proofs_keep_what_was_not_compiled() -> None:
    proof = join([prove(everywhere(*FINE), everywhere(*FINE))], ["csrc/other.cu: flags not known"])
    assert proof.holds
    assert proof.unproved == ("csrc/other.cu: flags not known",)


def test_declarations_are_read_from_headers_only() -> None:
    patches = {
        "zero.patch": b"Subject: x\nChanges-Machine-Code: lamport, one_shot\n\n---\n\n"
        b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+Changes-Machine-Code: forged\n",
        "plain.patch": b"Subject: y\n\ndiff --git a/x b/x\n",
        "late.patch": b"Changes-Machine-Code: one_shot one_shot\n\ndiff --git a/x b/x\n",
    }
    assert declared(patches) == {"lamport": "zero.patch", "one_shot": "zero.patch, late.patch"}
