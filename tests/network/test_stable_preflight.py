"""The preflight of the fused all-reduce on SM12x, rank by rank, over GPUs that lie about peer access."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.network.gpus import FAULTS, Cudart, GPUs, run

from downstream import pins
from downstream.patches.series import load_series
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
PATH = "python/sglang/srt/layers/flashinfer_comm_fusion.py"
BFLOAT16, FLOAT32 = object(), object()


@pytest.fixture(scope="module")
def source() -> Iterator[bytes]:
    with Session(default_folder()) as session:
        release = open_pin(pins.load(ROOT, satisfied=False).pin("stable", "sglang"), session)
        content = push(load_series(ROOT / "patches/stable/sglang").patches(), release, base=release).changes[PATH]
        assert content is not None
        yield content


@dataclass
class Machine(GPUs):
    """GPUs of one host."""

    world_size: int
    fault: tuple[str, int, int] | None = None

    def rank(self, rank: int, source: bytes) -> dict[str, Any]:
        """Load the module as the process of *rank* would."""
        tree = ast.parse(source)
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.ImportFrom) and (node.module or "")[:6] == "sglang")
        ]
        tree.body = [node for node in tree.body if ast.unparse(node) != "import torch"]
        scope: dict[str, Any] = {
            "__name__": f"rank{rank}",
            "torch": SimpleNamespace(Tensor=object, dtype=object, float32=FLOAT32),
            "GroupCoordinator": Group,
            "CudaRTLibrary": lambda: Cudart(self, rank),
            "get_tp_group": lambda: Group(self, rank),
            "get_tensor_model_parallel_rank": lambda: rank,
            "get_tensor_model_parallel_world_size": lambda: self.world_size,
            "register_custom_op": lambda **_: lambda decorated: decorated,
            "is_flashinfer_available": lambda: False,  # no import: what it gives is put in place below
        }
        exec(compile(tree, PATH, "exec"), scope)
        if not self.has("no flashinfer.comm", rank, rank):
            scope["is_flashinfer_available"] = lambda: True
            scope["comm"] = scope["_flashinfer_comm"] = Comm(self, rank)
        scope["logger"] = SimpleNamespace(warning=self.warnings.append, info=lambda _: None)
        return scope


@dataclass
class Group:
    machine: Machine
    rank_in_group: int
    device_group: str = "NCCL group of the TP ranks"

    @property
    def world_size(self) -> int:
        return self.machine.world_size

    def all_gather_object(self, item: Any) -> list[Any]:
        return self.machine.gather(self.rank_in_group, item)

    def barrier(self) -> None:
        self.machine.meet()


@dataclass
class Comm:
    machine: Machine
    rank: int

    def trtllm_create_ipc_workspace_for_all_reduce_fusion(self, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        if self.machine.has("no workspace", self.rank, self.rank):
            raise RuntimeError("out of memory")
        self.machine.workspaces.append((*arguments, *named.values()))
        return object(), object()


def prepare(machine: Machine, source: bytes, dtype: object = BFLOAT16) -> list[bool]:
    """Run every rank to its end; return which of them may fuse."""
    scopes = [machine.rank(rank, source) for rank in range(machine.world_size)]
    run([partial(scope["prepare_flashinfer_allreduce_fusion"], 4096, dtype) for scope in scopes])
    return [scope["is_flashinfer_allreduce_fusion_prepared"]() for scope in scopes]


@pytest.mark.parametrize("world_size", [2, 4, 8])
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT32])
def test_where_all_bytes_arrive_every_rank_gets_the_workspace_of_the_tp_group(
    source: bytes, world_size: int, dtype: object
) -> None:
    machine = Machine(world_size)
    assert prepare(machine, source, dtype) == [True] * world_size
    assert machine.warnings == []
    assert machine.memory == {}  # closed and freed
    assert sorted(machine.workspaces) == [
        (rank, world_size, 2048, 4096, Group.device_group, dtype is FLOAT32) for rank in range(world_size)
    ]


def test_one_gpu_alone_prepares_nothing(source: bytes) -> None:
    machine = Machine(1)
    assert prepare(machine, source) == [False]
    assert (machine.warnings, machine.workspaces) == ([], [])


@pytest.mark.parametrize("world_size", [3, 6, 16])
def test_a_group_that_flashinfer_has_no_kernels_or_thresholds_for_goes_on_without(
    source: bytes, world_size: int
) -> None:
    machine = Machine(world_size)
    assert prepare(machine, source) == [False] * world_size
    told = f"rank 0: it takes 2, 4 or 8 GPUs, not {world_size}"
    assert machine.warnings == [f"FlashInfer allreduce fusion is off: {told}"]
    assert (machine.memory, machine.workspaces) == ({}, [])


@pytest.mark.parametrize(("value", "off"), [("1", True), (" 2", True), ("0", False), ("", False)])
def test_nccl_p2p_disable_turns_it_off(source: bytes, value: str, off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", value)
    machine = Machine(4)
    assert prepare(machine, source) == [not off] * 4
    told = ["FlashInfer allreduce fusion is off: rank 0: NCCL_P2P_DISABLE is set"]
    assert machine.warnings == (told if off else [])


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        *FAULTS,
        (("no workspace", 1, 1), "rank 1: out of memory"),
        (("no flashinfer.comm", 3, 3), "rank 3: flashinfer.comm is not available"),
    ],
)
def test_a_fault_of_one_rank_leaves_all_ranks_without_and_is_told_once(
    source: bytes, fault: tuple[str, int, int], told: str
) -> None:
    machine = Machine(4, fault)
    assert prepare(machine, source) == [False] * 4
    assert machine.warnings == [f"FlashInfer allreduce fusion is off: {told}"]
    assert machine.memory == {}
    assert len(machine.workspaces) == (3 if fault[0] == "no workspace" else 0)
