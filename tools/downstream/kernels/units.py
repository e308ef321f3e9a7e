"""Translation units, and what their module's generator adds to each compile."""

from __future__ import annotations

import ast
import posixpath
from dataclasses import dataclass

from downstream.arches import Target
from downstream.errors import ToolchainError
from downstream.trees.tree import Tree

CSRC = "csrc"
_NV = f"{CSRC}/nv_internal"
# What the generators of fused MoE and of the FP4 kernels add to the folders that every module looks in.
NV_FOLDERS = (
    _NV,
    f"{_NV}/include",
    f"{_NV}/tensorrt_llm/cutlass_extensions/include",
    f"{_NV}/tensorrt_llm/kernels/cutlass_kernels/include",
    f"{_NV}/tensorrt_llm/kernels/cutlass_kernels",
)

# flashinfer/jit/fused_moe.py has a generator for each family of GPUs; all compile the same sources.
MOE_GENERATORS = "flashinfer/jit/fused_moe.py"
_MOE_SOURCES = "gen_cutlass_fused_moe_module"
_MOE_FLAGS = {
    90: "gen_cutlass_fused_moe_sm90_module",
    100: "gen_cutlass_fused_moe_sm100_module",
    103: "gen_cutlass_fused_moe_sm103_module",
    120: "gen_cutlass_fused_moe_sm120_module",
    121: "gen_cutlass_fused_moe_sm120_module",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One translation unit. ``moe`` are those whose flags the tree's fused MoE generators hold.

    ``module`` is set where its ninja file holds them (see module_sources.py): a source may be in several modules.
    """

    source: str  # repository path
    flags: tuple[str, ...] = ()
    include: tuple[str, ...] = ()  # repository folders, before those of every module
    moe: bool = False
    module: str = ""

    @property
    def name(self) -> str:
        base = posixpath.basename(self.source)
        return f"{self.module}/{base}" if self.module else base

    @property
    def key(self) -> str:
        """What tells one compile of a source from another, the target's flags apart."""
        return f"Unit(source={self.source!r}, flags={self.flags!r}, include={self.include!r})"


# Modules whose units add nothing to the flags common to all, by release-independent source path
# (jit/comm.py: gen_trtllm_comm_module, gen_trtllm_mnnvl_comm_module, gen_vllm_comm_module).
KNOWN = tuple(
    Unit(source=f"{CSRC}/{name}.cu")
    for name in (
        "trtllm_allreduce",
        "trtllm_allreduce_fusion",
        "trtllm_moe_allreduce_fusion",
        "trtllm_mnnvl_allreduce",
        "vllm_custom_all_reduce",
    )
)


def known(tree: Tree) -> dict[str, Unit]:
    """Return the units of *tree* whose flags are known, by source: KNOWN, and those of the fused MoE."""
    found = {unit.source: unit for unit in KNOWN}
    for text in _strings(_function(tree, _MOE_SOURCES)):
        if text.endswith(".cu") and "/" in text:
            source = f"{CSRC}/{text}"
            found[source] = Unit(source=source, include=NV_FOLDERS, moe=True)
    return found


def flags(tree: Tree, unit: Unit, target: Target) -> tuple[str, ...] | None:
    """Return what *tree*'s generator adds for *target*, None where it builds no such unit for it.

    Read from the generator's text: the definitions it passes. A choice by CUDA
    version is taken (the newest toolkit's; ours is 13.0).
    """
    if not unit.moe:
        return unit.flags
    generator = _MOE_FLAGS.get(target.capability.number)
    if generator is None:
        return None
    said = [text for text in _strings(_function(tree, generator)) if text.startswith("-D")]
    if not said:
        raise ToolchainError(MOE_GENERATORS, f"{generator} passes no definitions any more", "look at what it does now")
    return (*unit.flags, *said)


def _function(tree: Tree, name: str) -> ast.AST:
    module = ast.parse(tree.read(MOE_GENERATORS) or b"")
    found = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[0] if found else ast.Module(body=[], type_ignores=[])


def _strings(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
