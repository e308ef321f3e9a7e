"""Compile one translation unit for one target, and remember what its machine code was."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from downstream.arches import Target
from downstream.errors import ToolchainError
from downstream.kernels import machine, standin
from downstream.kernels.sources import ROOTS, Sources
from downstream.kernels.toolchain import Toolchain, run
from downstream.kernels.units import Unit
from downstream.progress import SILENT, Progress

# What FlashInfer's generator passes for every module (jit/core.py gen_jit_spec, jit/cpp_ext.py build_cuda_cflags);
# a test marked nvcc holds them against the ninja file that the generator writes.
DEFINES = (
    "-DPy_LIMITED_API=0x03090000",
    "-D_GLIBCXX_USE_CXX11_ABI=1",
    "-DFLASHINFER_ENABLE_FP8_E8M0",
    "-DFLASHINFER_ENABLE_FP4_E2M1",
    "-DFLASHINFER_ENABLE_F16",
    "-DFLASHINFER_ENABLE_BF16",
    "-DFLASHINFER_ENABLE_FP8_E4M3",
    "-DFLASHINFER_ENABLE_FP8_E5M2",
    "-DNDEBUG",
)
FLAGS = (
    "-std=c++17",
    "--compiler-options=-fPIC",
    "--expt-relaxed-constexpr",
    "-static-global-template-stub=false",
    "-use_fast_math",
    "-O3",
    *DEFINES,
)
MEMORY = 1_600_000_000  # bytes one compile of the largest unit takes, with room (1.15 GB measured)
_GENERATION = "1"  # changes when a stored listing can no longer be compared with a new one


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One compile: a tree's unit for a target."""

    tree: str  # "unpatched" or "patched"
    unit: Unit
    target: Target


def gencode(target: Target) -> str:
    number = f"{target.capability.number}{target.suffix.value}"
    return f"-gencode=arch=compute_{number},code=sm_{number}"


def include_flags(unit: Unit, outside: Sequence[Path]) -> list[str]:
    """``-isystem`` for the tree's own folders (relative: run where the tree lies) and those *outside* it."""
    folders = [*map(str, outside), *unit.include, *ROOTS]
    return [word for folder in folders for word in ("-isystem", folder)]


def machine_code(
    toolchain: Toolchain, ffi: Sequence[Path], sources: Sources, unit: Unit, target: Target, cache: Path
) -> dict[str, machine.Kernel]:
    """Return the kernels of *unit* compiled for *target*, by mangled name.

    A listing is kept below *cache* under everything that goes in: compiler, flags, target and the
    content of each file that the unit may include. *ffi* are TVM's header folders.
    """
    own = sources.flags(unit, target)
    if own is None:
        raise ToolchainError(unit.name, f"{sources.tree.name} does not build it for {target}")
    flags = own if unit.module else (*FLAGS, *own)  # a module's are whole
    key = hashlib.sha256(
        "\n".join([_GENERATION, toolchain.digest, *FLAGS, str(target), sources.digest(unit, target)]).encode()
    ).hexdigest()
    kept = cache / "kernels" / f"{key}.json"
    try:
        return machine.from_json(json.loads(kept.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or damaged: compile it
    with tempfile.TemporaryDirectory(prefix="kernels-") as name:
        folder = Path(name)
        tree = folder / "tree"
        sources.lay(unit, tree)
        cubin = folder / f"{Path(unit.source).name}.{target}.cubin"  # complaints name it
        outside = [toolchain.home / "include", toolchain.home / "include" / "cccl", *ffi]
        command = [str(toolchain.nvcc), "-cubin", gencode(target), *flags]
        command += [*include_flags(unit, outside), *standin.flags(folder), "-objtemp", unit.source, "-o", str(cubin)]
        run(command, cwd=tree, env={"TMPDIR": name})
        kernels = machine.listing(toolchain, cubin)
        found = next(iter(kernels.values()))
    _write(kept, json.dumps(machine.to_json(found), indent=0))
    return found


def compile_all(
    jobs: Sequence[Job],
    toolchain: Toolchain,
    ffi: Sequence[Path],
    trees: dict[str, Sources],
    cache: Path,
    *,
    workers: int,
    progress: Progress = SILENT,
) -> dict[Job, dict[str, machine.Kernel]]:
    """Compile *jobs*, at most *workers* at once. The first failure ends the run."""
    found: dict[Job, dict[str, machine.Kernel]] = {}
    with (
        progress.task("compile", len(jobs), "units") as task,
        ThreadPoolExecutor(max_workers=workers) as pool,
    ):
        waiting = {
            pool.submit(machine_code, toolchain, ffi, trees[job.tree], job.unit, job.target, cache): job for job in jobs
        }
        try:
            for future in as_completed(waiting):
                job = waiting[future]
                found[job] = future.result()
                task.advance(note=f"{job.unit.name} {job.target} {job.tree}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def workers_for(memory: int = MEMORY) -> int:
    """How many compiles this machine takes at once: by its free memory, at most one a core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        available = int(text.split("MemAvailable:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return cores
    return max(1, min(cores, available // memory))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
