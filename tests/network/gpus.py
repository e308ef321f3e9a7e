"""GPUs that reach each other, or say so and do not: what both lines' preflights try, without a GPU.

A fault is (what goes wrong, the rank it happens on, the peer it concerns).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

PATIENCE = 20  # seconds until a rank that waits for the others counts as hanging
NO_ACCESS = "CUDART error: peer access is not supported between these two devices"

# Faults that the copies meet, and what all ranks are told then: a group of four.
FAULTS = [
    (("no access", 1, 0), f"rank 1: {NO_ACCESS}"),
    (("no access", 3, 2), f"rank 3: {NO_ACCESS}"),
    (("lost writes", 2, 1), "rank 1: bytes differ after a write from the GPU of rank 2"),
    (("lost writes", 0, 3), "rank 3: bytes differ after a write from the GPU of rank 0"),
    (("a wrong bit written", 1, 2), "rank 2: bytes differ after a write from the GPU of rank 1"),
    (("zeros read", 3, 0), "rank 3: bytes differ after a read from the GPU of rank 0"),
    (("no memory", 2, 2), "rank 2: CUDART error: out of memory"),
    (("no libcudart", 1, 1), "rank 1: libcudart is not loaded in the current process"),
]


@dataclass(frozen=True)
class Memory:
    """Memory as one rank sees it; *peer* is None for its own."""

    content: bytearray
    rank: int
    peer: int | None


class GPUs:
    """The GPUs of a group; a dataclass of *world_size* and *fault*, and of what else its test asks for, derives."""

    world_size: int
    fault: tuple[str, int, int] | None

    def __post_init__(self) -> None:
        self.memory: dict[int, Memory] = {}
        self.warnings: list[str] = []
        self.workspaces: list[Any] = []
        self.copies = 0  # between two GPUs
        self._meeting = threading.Barrier(self.world_size)
        self._table: list[Any] = [None] * self.world_size
        self._lock = threading.Lock()

    def has(self, what: str, rank: int, peer: int | None) -> bool:
        return self.fault == (what, rank, peer)

    def gather(self, rank: int, item: Any) -> list[Any]:
        """Return every rank's item; the ranks wait for each other."""
        self._table[rank] = item
        self.meet()
        table = list(self._table)
        self.meet()
        return table

    def meet(self) -> None:
        self._meeting.wait(PATIENCE)

    def map(self, content: bytearray, rank: int, peer: int | None) -> ctypes.c_void_p:
        with self._lock:
            number = max(self.memory, default=0) + 1
            self.memory[number] = Memory(content, rank, peer)
        return ctypes.c_void_p(number << 32)

    def at(self, address: ctypes.c_void_p) -> tuple[Memory, int]:
        assert address.value is not None
        return self.memory[address.value >> 32], address.value & 0xFFFFFFFF

    def unmap(self, address: ctypes.c_void_p) -> None:
        del self.memory[(address.value or 0) >> 32]

    def copied(self) -> None:
        with self._lock:
            self.copies += 1


class Cudart:
    """SGLang's CudaRTLibrary on one rank."""

    def __init__(self, machine: GPUs, rank: int) -> None:
        if machine.has("no libcudart", rank, rank):
            raise AssertionError("libcudart is not loaded in the current process")
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

    def cudaIpcOpenMemHandle(self, handle: Memory) -> ctypes.c_void_p:  # noqa: N802
        if self.machine.has("no access", self.rank, handle.rank):
            raise RuntimeError(NO_ACCESS)
        return self.machine.map(handle.content, self.rank, handle.rank)

    def cudaMemcpy(self, target: Any, source: Any, size: int) -> None:  # noqa: N802
        content = self._read(source, size) if isinstance(source, ctypes.c_void_p) else source
        if not isinstance(target, ctypes.c_void_p):
            target.raw = content
            return
        memory, start = self.machine.at(target)
        if memory.peer is not None:
            self.machine.copied()
        if self.machine.has("lost writes", self.rank, memory.peer):
            return
        if self.machine.has("a wrong bit written", self.rank, memory.peer):
            content = content[:-1] + bytes([content[-1] ^ 1])
        memory.content[start : start + size] = content

    def _read(self, source: ctypes.c_void_p, size: int) -> bytes:
        memory, start = self.machine.at(source)
        content = bytes(memory.content[start : start + size])
        return bytes(size) if self.machine.has("zeros read", self.rank, memory.peer) else content


def run(steps: list[Callable[[], None]]) -> None:
    """Run every rank's step to its end, each in its thread."""
    threads = [threading.Thread(target=step, daemon=True) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a rank waits for the others"
