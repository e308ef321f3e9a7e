"""What cuobjdump lists, read: counts, empties, targets and bytes."""

from __future__ import annotations

import pytest

from downstream.kernels.machine import Kernel, family, from_json, parse, to_json

STUB = """
\tcode for sm_120
\t.target\tsm_120

\t\tFunction : _ZN3foo4deadEv
\t.headerflags\t@"EF_CUDA_SM120"
        /*0000*/                   LDC R1, c[0x0][0x37c] ;                /* 0x0000df00ff017b82 */
                                                                          /* 0x000fe20000000800 */
        /*0010*/                   EXIT ;                                 /* 0x000000000000794d */
                                                                          /* 0x000fea0003800000 */
        /*0020*/                   BRA 0x20;                              /* 0xfffffffc00fc7947 */
                                                                          /* 0x000fc0000383ffff */
        /*0030*/                   NOP;                                   /* 0x0000000000007918 */
                                                                          /* 0x000fc00000000000 */
\t\t..........
"""
ALIVE = """
\t\tFunction : _ZN3foo5aliveILi2EEEvv
        /*0000*/                   LDC R1, c[0x0][0x37c] ;                /* 0x0000df00ff017b82 */
                                                                          /* 0x000fe20000000800 */
        /*0010*/                   ACQBULK ;                              /* 0x000000000000782e */
                                                                          /* 0x000fe20000000000 */
        /*0020*/              @!P0 STG.E desc[UR4][R2.64], R5 ;           /* 0x0000000502007986 */
                                                                          /* 0x001fe2000c101904 */
        /*0030*/                   PREEXIT ;                              /* 0x000000000000782d */
                                                                          /* 0x000fea0000000000 */
        /*0040*/                   EXIT ;                                 /* 0x000000000000794d */
                                                                          /* 0x000fea0003800000 */
        /*0050*/                   BRA 0x50;                              /* 0xfffffffc00fc7947 */
                                                                          /* 0x000fc0000383ffff */
"""


def test_a_stub_has_three_instructions_and_no_body() -> None:
    (kernel,) = parse(STUB.splitlines())["sm_120"].values()
    assert (kernel.instructions, kernel.body, kernel.empty) == (3, 0, True)
    assert (kernel.waits, kernel.triggers) == (0, 0)


def test_waits_and_triggers_are_counted_and_predicates_are_no_opcodes() -> None:
    found = parse((STUB + ALIVE).splitlines())["sm_120"]
    kernel = found["_ZN3foo5aliveILi2EEEvv"]
    assert (kernel.waits, kernel.triggers, kernel.body, kernel.empty) == (1, 1, 3, False)
    assert kernel.family == "alive"


def test_every_target_of_a_fat_binary_is_kept_apart() -> None:
    text = STUB + STUB.replace("sm_120", "sm_90a")
    assert sorted(parse(text.splitlines())) == ["sm_120", "sm_90a"]


def test_a_target_without_a_kernel_is_there_and_empty() -> None:
    """A unit that its module's flags leave nothing of: cuobjdump prints the heading alone."""
    assert parse("\n\tcode for sm_90a\n\t.target\tsm_90a\n\n".splitlines()) == {"sm_90a": {}}
    assert list(parse((STUB + "\tcode for sm_121a\n").splitlines())) == ["sm_120", "sm_121a"]


@pytest.mark.parametrize("half", ["0x0000df00ff017b82", "0x000fe20000000800"])
def test_one_changed_half_of_an_instruction_changes_the_digest(half: str) -> None:
    """The second half holds the scheduling bits: text that reads the same may still differ."""
    (before,) = parse(STUB.splitlines())["sm_120"].values()
    (after,) = parse(STUB.replace(half, "0x0000000000000bad", 1).splitlines())["sm_120"].values()
    assert before.digest != after.digest


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN10flashinfer16trtllm_allreduce13reduce_fusion15rms_norm_kernelI6__halfLb1EEEvv", "rms_norm_kernel"),
        ("_Z5probePf", "probe"),
        ("_ZL6hiddenv", "hidden"),
        ("kernel_in_c", "kernel_in_c"),
        ("_ZN12_GLOBAL__N_13fooEv", "foo"),
    ],
)
def test_the_family_is_the_innermost_name(mangled: str, name: str) -> None:
    assert family(mangled) == name


def test_a_listing_survives_json() -> None:
    found = parse((STUB + ALIVE).splitlines())["sm_120"]
    assert from_json(to_json(found)) == found
    assert all(isinstance(kernel, Kernel) for kernel in found.values())
