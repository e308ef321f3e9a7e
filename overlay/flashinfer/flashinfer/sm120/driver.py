"""GPUs, peer access and a copy between peers, asked of the CUDA driver itself through ctypes: no torch."""

from __future__ import annotations

import ctypes
import random
import subprocess
from dataclasses import dataclass
from typing import Any

LIBRARY = "libcuda.so.1"
SIZE = 1 << 20  # bytes copied per pair
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NO_DEVICE = 100
_PEER_ALREADY_ENABLED = 704


class DriverError(RuntimeError):
    """The driver is not there, or a call to it failed."""


@dataclass(frozen=True)
class Gpu:
    """One device as the driver numbers it."""

    number: int
    name: str
    major: int
    minor: int

    @property
    def is_sm12x(self) -> bool:
        return self.major == 12


class Driver:
    """libcuda, initialised. Raises DriverError where it is not installed or finds no device."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._cuda = ctypes.CDLL(library)
        except OSError as exc:
            raise DriverError(f"the NVIDIA driver is not installed ({LIBRARY} does not load)") from exc
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code == _NO_DEVICE:
            raise DriverError("the driver finds no GPU")
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def _integer(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_int()
        self._call(name, ctypes.byref(value), *arguments)
        return value.value

    def version(self) -> str:
        """The CUDA version that the driver supports, e.g. 13.0."""
        number = self._integer("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"

    def gpus(self) -> list[Gpu]:
        return [self._gpu(number) for number in range(self._integer("cuDeviceGetCount"))]

    def _gpu(self, number: int) -> Gpu:
        device = self._integer("cuDeviceGet", number)
        name = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", name, len(name), device)
        major = self._integer("cuDeviceGetAttribute", _MAJOR, device)
        minor = self._integer("cuDeviceGetAttribute", _MINOR, device)
        return Gpu(number, name.value.decode(errors="replace"), major, minor)

    def can_access(self, reader: int, owner: int) -> bool:
        """Whether device *reader* says it can address the memory of *owner*."""
        devices = [self._integer("cuDeviceGet", number) for number in (reader, owner)]
        return bool(self._integer("cuDeviceCanAccessPeer", *devices))

    def copies_right(self, source: int, target: int) -> bool:
        """Copy SIZE bytes from *source*'s memory to *target*'s through peer access and compare them.

        With *source* equal to *target* the copy stays on the device. May hang
        where an IOMMU translates peer addresses: run it in a process of its own.
        """
        pattern = random.Random(source * 64 + target).randbytes(SIZE)
        contexts = {number: self._context(number) for number in {source, target}}
        if source != target:
            self._enter(contexts[target])
            code = self._cuda.cuCtxEnablePeerAccess(contexts[source], 0)
            if code not in (0, _PEER_ALREADY_ENABLED):
                self._call("cuCtxEnablePeerAccess", contexts[source], 0)
        theirs, ours = self._memory(contexts[source]), self._memory(contexts[target])
        self._enter(contexts[source])
        self._call("cuMemcpyHtoD_v2", theirs, pattern, ctypes.c_size_t(SIZE))
        self._call("cuCtxSynchronize")
        self._enter(contexts[target])
        self._call("cuMemsetD8_v2", ours, ctypes.c_ubyte(0), ctypes.c_size_t(SIZE))
        self._call("cuMemcpyDtoD_v2", ours, theirs, ctypes.c_size_t(SIZE))
        self._call("cuCtxSynchronize")
        back = ctypes.create_string_buffer(SIZE)
        self._call("cuMemcpyDtoH_v2", back, ours, ctypes.c_size_t(SIZE))
        for context, pointer in ((contexts[source], theirs), (contexts[target], ours)):
            self._enter(context)
            self._call("cuMemFree_v2", pointer)
        return back.raw == pattern

    def _context(self, number: int) -> ctypes.c_void_p:
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._integer("cuDeviceGet", number))
        return context

    def _enter(self, context: ctypes.c_void_p) -> None:
        self._call("cuCtxSetCurrent", context)

    def _memory(self, context: ctypes.c_void_p) -> ctypes.c_uint64:
        self._enter(context)
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(SIZE))
        return pointer


def from_nvidia_smi() -> list[Gpu]:
    """Return the GPUs as nvidia-smi lists them; [] where it is absent or fails."""
    command = ["nvidia-smi", "--query-gpu=index,name,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
        return [Gpu(int(row[0]), row[1], *(int(part) for part in row[2].split("."))) for row in rows]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, TypeError):
        return []
