"""The preflight of the fused all-reduce on SM12x, rank by rank, over GPUs that lie about peer access."""

from __future__ import annotations

import ast
import ctypes
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from downstream import pins
from downstream.patches.series import load_series
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
PATH = "python/sglang/srt/layers/flashinfer_comm_fusion.py"
PATIENCE = 20  # seconds until a rank that waits for the others counts as hanging
BFLOAT16, FLOAT32 = object(), object()


@pytest.fixture(scope="module")
def source() -> Iterator[bytes]:
    with Session(default_folder()) as session:
        release = open_pin(pins.load(ROOT, satisfied=False).pin("stable", "sglang"), session)
        content = push(load_series(ROOT / "patches/stable/sglang").patches(), release, base=release).changes[PATH]
        assert content is not None
        yield content


@dataclass(frozen=True)
class Mapping:
    """Memory as one rank sees it; *peer* is None for its own."""

    memory: bytearray
    rank: int
    peer: int | None


@dataclass
class Machine:
    """GPUs of one host. A fault is (what goes wrong, rank it happens on, the peer it concerns)."""

    world_size: int
    fault: tuple[str, int, int] | None = None
    mappings: dict[int, Mapping] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    workspaces: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.meeting = threading.Barrier(self.world_size)
        self.table: list[Any] = [None] * self.world_size
        self.lock = threading.Lock()

    def has(self, what: str, rank: int, peer: int | None) -> bool:
        return self.fault == (what, rank, peer)

    def map(self, memory: bytearray, rank: int, peer: int | None) -> ctypes.c_void_p:
        with self.lock:
            number = max(self.mappings, default=0) + 1
            self.mappings[number] = Mapping(memory, rank, peer)
        return ctypes.c_void_p(number << 32)

    def at(self, address: ctypes.c_void_p) -> tuple[Mapping, int]:
        assert address.value is not None
        return self.mappings[address.value >> 32], address.value & 0xFFFFFFFF

    def unmap(self, address: ctypes.c_void_p) -> None:
        del self.mappings[(address.value or 0) >> 32]

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
        self.machine.table[self.rank_in_group] = item
        self.barrier()
        table = list(self.machine.table)
        self.barrier()
        return table

    def barrier(self) -> None:
        self.machine.meeting.wait(PATIENCE)


@dataclass
class Comm:
    machine: Machine
    rank: int

    def trtllm_create_ipc_workspace_for_all_reduce_fusion(self, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        if self.machine.has("no workspace", self.rank, self.rank):
            raise RuntimeError("out of memory")
        self.machine.workspaces.append((*arguments, *named.values()))
        return object(), object()


class Cudart:
    def __init__(self, machine: Machine, rank: int) -> None:
        self.machine, self.rank = machine, rank
        self.lib = SimpleNamespace(cudaIpcCloseMemHandle=machine.unmap, cudaGetLastError=int)
        self.cudaFree = machine.unmap
        self.cudaDeviceSynchronize: Callable[[], None] = lambda: None

    def cudaMalloc(self, size: int) -> ctypes.c_void_p:  # noqa: N802 - CUDA's name
        if self.machine.has("no memory", self.rank, self.rank):
            raise RuntimeError("CUDART error: out of memory")
        return self.machine.map(bytearray(b"?" * size), self.rank, None)

    def cudaMemset(self, address: ctypes.c_void_p, value: int, size: int) -> None:  # noqa: N802
        self.cudaMemcpy(address, bytes([value]) * size, size)

    def cudaIpcGetMemHandle(self, address: ctypes.c_void_p) -> Any:  # noqa: N802
        return self.machine.at(address)[0]

    def cudaIpcOpenMemHandle(self, handle: Mapping) -> ctypes.c_void_p:  # noqa: N802
        if self.machine.has("no access", self.rank, handle.rank):
            raise RuntimeError("CUDART error: peer access is not supported between these two devices")
        return self.machine.map(handle.memory, self.rank, handle.rank)

    def cudaMemcpy(self, target: Any, source: Any, size: int) -> None:  # noqa: N802
        content = self.read(source, size) if isinstance(source, ctypes.c_void_p) else source
        if not isinstance(target, ctypes.c_void_p):
            target.raw = content
            return
        mapping, start = self.machine.at(target)
        if self.machine.has("lost writes", self.rank, mapping.peer):
            return
        if self.machine.has("a wrong bit written", self.rank, mapping.peer):
            content = content[:-1] + bytes([content[-1] ^ 1])
        mapping.memory[start : start + size] = content

    def read(self, source: ctypes.c_void_p, size: int) -> bytes:
        mapping, start = self.machine.at(source)
        content = bytes(mapping.memory[start : start + size])
        return bytes(size) if self.machine.has("zeros read", self.rank, mapping.peer) else content


def prepare(machine: Machine, source: bytes, dtype: object = BFLOAT16) -> list[bool]:
    """Run every rank to its end; return which of them may fuse."""
    scopes = [machine.rank(rank, source) for rank in range(machine.world_size)]
    ranks = [
        threading.Thread(target=scope["prepare_flashinfer_allreduce_fusion"], args=(4096, dtype), daemon=True)
        for scope in scopes
    ]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a rank waits for the others"
    return [scope["is_flashinfer_allreduce_fusion_prepared"]() for scope in scopes]


@pytest.mark.parametrize("world_size", [2, 4, 8])
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT32])
def test_where_all_bytes_arrive_every_rank_gets_the_workspace_of_the_tp_group(
    source: bytes, world_size: int, dtype: object
) -> None:
    machine = Machine(world_size)
    assert prepare(machine, source, dtype) == [True] * world_size
    assert machine.warnings == []
    assert machine.mappings == {}  # closed and freed
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
    assert (machine.mappings, machine.workspaces) == ({}, [])


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
        (("no access", 1, 0), "rank 1: CUDART error: peer access is not supported between these two devices"),
        (("no access", 3, 2), "rank 3: CUDART error: peer access is not supported between these two devices"),
        (("lost writes", 2, 1), "rank 1: bytes differ after a write from the GPU of rank 2"),
        (("lost writes", 0, 3), "rank 3: bytes differ after a write from the GPU of rank 0"),
        (("a wrong bit written", 1, 2), "rank 2: bytes differ after a write from the GPU of rank 1"),
        (("zeros read", 3, 0), "rank 3: bytes differ after a read from the GPU of rank 0"),
        (("no memory", 2, 2), "rank 2: CUDART error: out of memory"),
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
    assert machine.mappings == {}
    assert len(machine.workspaces) == (3 if fault[0] == "no workspace" else 0)
