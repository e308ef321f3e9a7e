"""Which units a tree has that the proof can compile, and the flags that its generators give them."""

from __future__ import annotations

import pytest

from downstream.arches import parse_target
from downstream.errors import ToolchainError
from downstream.kernels.sources import Sources, touched
from downstream.kernels.units import KNOWN, MOE_GENERATORS, NV_FOLDERS, Unit, flags, known
from downstream.trees.tree import LayeredTree, MemoryTree

SOURCE = "csrc/nv_internal/moe/bf16.cu"
GENERATORS = b"""\
def gen_cutlass_fused_moe_sm120_module(use_fast_build: bool = False) -> JitSpec:
    nvcc_flags = [
        "-DENABLE_BF16",
        "-DENABLE_FP4" if is_cuda_version_at_least("12.8") else "",
    ]
    nvcc_flags += current_compilation_context.get_nvcc_flags_list(supported_major_versions=[12])
    return gen_cutlass_fused_moe_module(nvcc_flags, "120", use_fast_build)


def gen_cutlass_fused_moe_sm90_module(use_fast_build: bool = False) -> JitSpec:
    return gen_cutlass_fused_moe_module(sm90a_nvcc_flags + ["-DHOPPER"], "90", use_fast_build)


def gen_cutlass_fused_moe_sm100_module(use_fast_build: bool = False) -> JitSpec:
    return gen_cutlass_fused_moe_module([], "100", use_fast_build)


def gen_cutlass_fused_moe_module(nvcc_flags, device_arch, use_fast_build=False):
    return gen_jit_spec(
        f"fused_moe_{device_arch}",
        [
            jit_env.FLASHINFER_CSRC_DIR / "nv_internal/moe/bf16.cu",
            jit_env.FLASHINFER_CSRC_DIR / "nv_internal/cpp/common/logger.cpp",
        ],
        extra_cflags=["-DFAST_BUILD"] if use_fast_build else [],
    )
"""
TREE = MemoryTree(
    {
        MOE_GENERATORS: GENERATORS,
        SOURCE: b'#include "dispatch.h"\n',
        "csrc/nv_internal/include/dispatch.h": b"",
        "csrc/trtllm_allreduce.cu": b"",
    }
)
UNIT = Unit(source=SOURCE, include=NV_FOLDERS, moe=True)


def test_the_units_of_the_fused_moe_are_those_its_generator_names() -> None:
    found = known(TREE)
    assert found[SOURCE] == UNIT
    assert set(found) == {SOURCE, *(unit.source for unit in KNOWN)}


@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("120a", ("-DENABLE_BF16", "-DENABLE_FP4")),
        ("121f", ("-DENABLE_BF16", "-DENABLE_FP4")),
        ("90a", ("-DHOPPER",)),
        ("89", None),
    ],
)
def test_flags_are_those_of_the_generator_for_that_gpu(target: str, given: tuple[str, ...] | None) -> None:
    assert flags(TREE, UNIT, parse_target(target)) == given


def test_a_generator_without_definitions_is_not_taken_for_one_that_needs_none() -> None:
    with pytest.raises(ToolchainError, match="gen_cutlass_fused_moe_sm100_module passes no definitions"):
        flags(TREE, UNIT, parse_target("100a"))


def test_other_units_have_the_same_flags_everywhere() -> None:
    unit = Unit(source="csrc/trtllm_allreduce.cu", flags=("-DX",))
    assert {flags(TREE, unit, parse_target(target)) for target in ("89", "90a", "120a")} == {("-DX",)}


def test_a_changed_generator_changes_the_digest_on_its_own_gpus_alone() -> None:
    generators = GENERATORS.replace(b'"-DENABLE_BF16"', b'"-DENABLE_BF16", "-DGDC"')
    before, after = Sources(TREE), Sources(LayeredTree(TREE, {MOE_GENERATORS: generators}))
    same = {
        target: before.digest(UNIT, parse_target(target)) == after.digest(UNIT, parse_target(target))
        for target in ("90a", "120a")
    }
    assert same == {"90a": True, "120a": False}


def test_a_unit_of_the_fused_moe_is_reached_through_its_own_folders() -> None:
    changes: dict[str, bytes | None] = {"csrc/nv_internal/include/dispatch.h": b"int x;\n"}
    before = Sources(TREE)
    reach = touched(before, Sources(LayeredTree(TREE, changes), before, changes), changes)
    assert reach.units == (UNIT,)
    assert reach.unproved == ()


def test_units_left_out_are_named_with_what_takes_them() -> None:
    changes: dict[str, bytes | None] = {
        "csrc/nv_internal/include/dispatch.h": b"int x;\n",
        "csrc/trtllm_allreduce.cu": b"int y;\n",
    }
    before = Sources(TREE)
    reach = touched(before, Sources(LayeredTree(TREE, changes), before, changes), changes)
    chosen = reach.only(["trtllm_*"])
    assert ([unit.name for unit in chosen.units], chosen.total) == (["trtllm_allreduce.cu"], 2)
    assert chosen.unproved == ("bf16.cu: left out; prove --units NAME takes one",)
    assert reach.only(["csrc/nv_internal/*"]).units == (UNIT,)
    assert reach.keep([], "too many").unproved == ("bf16.cu, trtllm_allreduce.cu: too many",)
    old = reach.built_for(before, [parse_target("89"), parse_target("120a")])
    assert old.unproved == ("bf16.cu: not built for each of sm_89, sm_120a",)
