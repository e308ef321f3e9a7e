"""The fast form on a kernel file of our own: gcc alone, with stand-ins for CUDA's headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from downstream.arches import parse_targets
from downstream.errors import ToolchainError
from downstream.kernels.fast import FastProof, prove_text
from downstream.kernels.proof import Fault
from downstream.kernels.sources import Sources
from downstream.kernels.units import MOE_GENERATORS, NV_FOLDERS, Unit
from downstream.trees.tree import MemoryTree

HEADER = "include/k.cuh"
UNIT = Unit(source="csrc/k.cu")
CUDA = """\
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
void cudaGridDependencySynchronize();
void cudaTriggerProgrammaticLaunchCompletion();
"""
GUARD = "#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200\n"
OPEN = "#if __CUDA_ARCH__ >= 900\n"
KERNELS = """\
#pragma once
__device__ inline int twice(int x) { return x + x; }
__global__ void whole(int* x) {
{guard}  cudaGridDependencySynchronize();
  *x = twice(*x);
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
__global__ void waits(int* x) {
{guard}  cudaGridDependencySynchronize();
#endif
  *x = 1;
{guard}  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
"""
SOURCE = '#include "k.cuh"\nint launch(int* x) { return 1; }\n'


def tree(guard: str, *, source: str = SOURCE, edit: tuple[str, str] = ("", "")) -> Sources:
    header = KERNELS.replace("{guard}", guard).replace(*edit) if edit[0] else KERNELS.replace("{guard}", guard)
    return Sources(MemoryTree({HEADER: header.encode(), "csrc/k.cu": source.encode()}))


@pytest.fixture
def outside(tmp_path: Path) -> list[Path]:
    (tmp_path / "cuda_runtime.h").write_text(CUDA)
    return [tmp_path]


def prove(after: Sources, outside: list[Path], allowed: dict[str, str] | None = None) -> FastProof:
    return prove_text(
        [UNIT],
        tree(GUARD),
        after,
        changed=[HEADER],
        references=parse_targets("90a,100a"),
        targets=parse_targets("120a,121a"),
        allowed=allowed or {},
        outside=outside,
    )


def test_open_guards_hold_and_the_dead_are_named(outside: list[Path]) -> None:
    proof = prove(tree(OPEN), outside)
    assert proof.holds
    assert {(dead.name, dead.fault) for dead in proof.dead if dead.target == "sm_120a"} == {
        ("whole", Fault.EMPTY),
        ("waits", Fault.NO_WAIT),
        ("waits", Fault.NO_TRIGGER),
    }
    assert not proof.unknown


def test_the_guards_patch_dropped_fails(outside: list[Path]) -> None:
    proof = prove(tree(GUARD), outside)
    assert {(finding.name, finding.fault) for finding in proof.findings} == {
        ("whole", Fault.EMPTY),
        ("waits", Fault.NO_WAIT),
        ("waits", Fault.NO_TRIGGER),
    }


def test_a_wait_removed_everywhere_fails_on_the_references_and_on_the_targets(outside: list[Path]) -> None:
    edit = (f"{OPEN}  cudaGridDependencySynchronize();\n#endif\n  *x = 1;", "  *x = 1;")
    proof = prove(tree(OPEN, edit=edit), outside)
    assert {(finding.name, finding.fault, finding.target) for finding in proof.findings} == {
        ("waits", Fault.MOVED, "sm_90a"),
        ("waits", Fault.MOVED, "sm_100a"),
        ("waits", Fault.NO_WAIT, "sm_120a"),
        ("waits", Fault.NO_WAIT, "sm_121a"),
    }
    declared = prove(tree(OPEN, edit=edit), outside, {"waits": "two.patch"})
    assert {finding.fault for finding in declared.findings} == {Fault.NO_WAIT}


def test_a_declared_kernel_may_move_and_nothing_else(outside: list[Path]) -> None:
    edit = ("*x = 1;", "*x = 2;")
    assert not prove(tree(OPEN, edit=edit), outside).holds
    proof = prove(tree(OPEN, edit=edit), outside, {"waits": "two.patch"})
    assert proof.holds
    assert proof.declared == ("waits",)
    assert not prove(tree(OPEN, edit=edit), outside, {"whole": "two.patch"}).holds


def test_a_device_function_that_moves_is_declared_by_its_own_name(outside: list[Path]) -> None:
    edit = ("return x + x;", "return x * 2;")
    for allowed in ({}, {"whole": "two.patch"}):
        findings = prove(tree(OPEN, edit=edit), outside, allowed).findings
        assert {(finding.name, finding.fault) for finding in findings} == {("twice", Fault.MOVED)}
    proof = prove(tree(OPEN, edit=edit), outside, {"whole": "two.patch", "twice": "two.patch"})
    assert proof.holds
    assert proof.declared == ("twice",)


def test_host_code_may_change_and_is_said_to(outside: list[Path]) -> None:
    proof = prove(tree(OPEN, source=SOURCE.replace("return 1", "return 2")), outside)
    assert proof.holds
    assert {row.host_only for row in proof.rows if row.before == "unpatched sm_90a"} == {("launch",)}


MOE = """\
def gen_cutlass_fused_moe_sm90_module():
    return gen_cutlass_fused_moe_module(["-DFAMILY=90"])
def gen_cutlass_fused_moe_sm100_module():
    return gen_cutlass_fused_moe_module(["-DFAMILY=100"])
def gen_cutlass_fused_moe_sm120_module():
    return gen_cutlass_fused_moe_module(["-DFAMILY=120"])
"""
DISPATCH = """\
#pragma once
#include <cublasLt.h>
#ifndef FAMILY
#error its generator passes FAMILY
#endif
template <int N> __device__ int scale(int x) { return x * FAMILY; }
inline int dispatch(int x) { return {host}; }
"""


def moe(host: str, scale: str = "x * FAMILY") -> Sources:
    header = DISPATCH.replace("{host}", host).replace("x * FAMILY", scale)
    units = {f"csrc/moe_{name}.cu": b'#include "./dispatch.h"\n' for name in ("bf16", "fp8")}
    content = {MOE_GENERATORS: MOE.encode(), "csrc/dispatch.h": header.encode(), **units}
    return Sources(MemoryTree(content))


def prove_moe(after: Sources, outside: list[Path]) -> FastProof:
    return prove_text(
        [Unit(source=f"csrc/moe_{name}.cu", include=NV_FOLDERS, moe=True) for name in ("bf16", "fp8")],
        moe("x"),
        after,
        changed=["csrc/dispatch.h"],
        references=parse_targets("90a,100a"),
        targets=parse_targets("120a"),
        allowed={},
        outside=outside,
    )


def test_units_of_the_fused_moe_are_read_together_with_each_gpu_s_flags(outside: list[Path]) -> None:
    """cublasLt.h is in none of the folders: a stand-in serves."""
    proof = prove_moe(moe("x + 1"), outside)
    assert proof.holds
    assert [(row.unit, row.host_only, row.differ) for row in proof.rows if row.after == "patched sm_100a"] == [
        ("fused MoE, 2 units", ("dispatch",), ())
    ]


def test_device_code_of_the_fused_moe_that_moves_is_found(outside: list[Path]) -> None:
    proof = prove_moe(moe("x", "x * FAMILY + 1"), outside)
    assert {(finding.path, finding.name, finding.fault) for finding in proof.findings} == {
        ("csrc/dispatch.h", "scale", Fault.MOVED)
    }


def test_text_that_is_no_cpp_is_named_with_its_place(outside: list[Path]) -> None:
    with pytest.raises(ToolchainError, match=r"csrc/dispatch\.h, patched sm_90a: cannot be cut into declarations"):
        prove_moe(moe("x; } }"), outside)
