"""Who includes whom, and what a series reaches."""

from __future__ import annotations

from pathlib import Path

from downstream.arches import parse_target
from downstream.kernels.sources import Sources, touched
from downstream.kernels.units import Unit
from downstream.trees.tree import LayeredTree, MemoryTree

UNIT = Unit(source="csrc/trtllm_allreduce.cu")
SM120 = parse_target("120a")
TREE = MemoryTree(
    {
        "csrc/trtllm_allreduce.cu": b'#include "flashinfer/comm/ar.cuh"\n#include <cuda_fp16.h>\n# include "near.h"\n',
        "csrc/near.h": b"int near;\n",
        "csrc/other.cu": b'#include "flashinfer/deep.cuh"\n',
        "include/flashinfer/comm/ar.cuh": b'#include "../deep.cuh"\n  #\tinclude <cutlass/cutlass.h>\n',
        "include/flashinfer/deep.cuh": b"// #include text\n",
        "include/flashinfer/idle.cuh": b"",
        "3rdparty/cutlass/include/cutlass/cutlass.h": b"",
        "flashinfer/jit/fused_moe.py": b"",
    }
)


def test_a_closure_follows_quotes_brackets_and_dots() -> None:
    assert Sources(TREE).closure(UNIT) == (
        "3rdparty/cutlass/include/cutlass/cutlass.h",
        "csrc/near.h",
        "csrc/trtllm_allreduce.cu",
        "include/flashinfer/comm/ar.cuh",
        "include/flashinfer/deep.cuh",
    )


def test_the_digest_changes_with_anything_included_and_with_nothing_else() -> None:
    base = Sources(TREE).digest(UNIT, SM120)
    assert Sources(LayeredTree(TREE, {"include/flashinfer/idle.cuh": b"x"})).digest(UNIT, SM120) == base
    assert Sources(LayeredTree(TREE, {"include/flashinfer/deep.cuh": b"x"})).digest(UNIT, SM120) != base
    assert Sources(TREE).digest(Unit(source=UNIT.source, flags=("-DX",)), SM120) != base


def test_laid_out_files_are_the_closure(tmp_path: Path) -> None:
    Sources(TREE).lay(UNIT, tmp_path)
    laid = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert laid == set(Sources(TREE).closure(UNIT))


def test_a_series_reaches_units_by_what_they_include() -> None:
    changes: dict[str, bytes | None] = {
        "include/flashinfer/deep.cuh": b"new\n",
        "include/flashinfer/idle.cuh": b"new\n",
        "flashinfer/jit/fused_moe.py": b"new\n",
    }
    reach = touched(Sources(TREE), Sources(LayeredTree(TREE, changes)), changes)
    assert [unit.source for unit in reach.units] == ["csrc/trtllm_allreduce.cu"]
    assert (reach.other, reach.idle, reach.flags) == (
        ("csrc/other.cu",),
        ("include/flashinfer/idle.cuh",),
        ("flashinfer/jit/fused_moe.py",),
    )
    assert len(reach.unproved) == 3


def test_a_unit_that_stops_including_a_changed_file_is_still_reached() -> None:
    changes: dict[str, bytes | None] = {"csrc/trtllm_allreduce.cu": b"", "csrc/near.h": None}
    reach = touched(Sources(TREE), Sources(LayeredTree(TREE, changes)), changes)
    assert [unit.source for unit in reach.units] == ["csrc/trtllm_allreduce.cu"]
