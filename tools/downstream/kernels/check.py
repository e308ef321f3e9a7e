"""Whether a toolchain can do what FlashInfer's build asks of it, tried on a kernel of three lines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from downstream.arches import Target
from downstream.errors import ToolchainError
from downstream.kernels.compile import gencode
from downstream.kernels.machine import listing
from downstream.kernels.toolchain import Toolchain, run

_SOURCE = """\
__global__ void probe(float* value) {
  cudaGridDependencySynchronize();
  *value += 1.0f;
  cudaTriggerProgrammaticLaunchCompletion();
}
extern "C" int launch(float* value) { probe<<<1, 1>>>(value); return cudaGetLastError(); }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing tried. ``problem`` is empty where it worked."""

    what: str
    problem: str = ""


def checks(toolchain: Toolchain, targets: Sequence[Target]) -> tuple[Check, ...]:
    """Compile, disassemble, link and compare; a second or two for each target."""
    found: list[Check] = []
    with tempfile.TemporaryDirectory(prefix="toolchain-") as name:
        folder = Path(name)
        (folder / "probe.cu").write_text(_SOURCE, encoding="ascii")
        found += [
            _tried(f"compiles for {target}, with wait and trigger", _compiles, toolchain, folder, target)
            for target in targets
        ]
        found.append(_tried("gives the same object twice (-objtemp)", _same_twice, toolchain, folder, targets[0]))
        found.append(_tried("links with -L$CUDA_HOME/lib64 -lcudart -lcuda", _links, toolchain, folder, targets[0]))
    return tuple(found)


def _tried(
    what: str, probe: Callable[[Toolchain, Path, Target], str], toolchain: Toolchain, folder: Path, target: Target
) -> Check:
    try:
        return Check(what=what, problem=probe(toolchain, folder, target))
    except ToolchainError as exc:
        return Check(what=what, problem=str(exc))


def _compiles(toolchain: Toolchain, folder: Path, target: Target) -> str:
    cubin = folder / f"{target}.cubin"
    run([str(toolchain.nvcc), "-cubin", gencode(target), "probe.cu", "-o", str(cubin)], cwd=folder)
    (kernels,) = listing(toolchain, cubin).values()
    (kernel,) = kernels.values()
    missing = [word for word, count in (("wait", kernel.waits), ("trigger", kernel.triggers)) if not count]
    return f"the machine code has no {' and no '.join(missing)}" if missing else ""


def _same_twice(toolchain: Toolchain, folder: Path, target: Target) -> str:
    objects = []
    for turn in ("a", "b"):
        out = folder / turn / "probe.o"
        out.parent.mkdir()
        command = [str(toolchain.nvcc), gencode(target), "-objtemp", "-c", "probe.cu", "-o", str(out)]
        run(command, cwd=folder)
        objects.append(out.read_bytes())
    return "" if objects[0] == objects[1] else "two compiles of one file differ"


def _links(toolchain: Toolchain, folder: Path, target: Target) -> str:
    library = toolchain.home / "lib64"
    compiled = ["-Xcompiler", "-fPIC", "-c", "probe.cu", "-o", "link.o"]
    run([str(toolchain.nvcc), gencode(target), *compiled], cwd=folder)
    link = ["c++", "-shared", "link.o", f"-L{library}", f"-L{library / 'stubs'}", "-lcudart", "-lcuda"]
    run([*link, "-o", "probe.so"], cwd=folder)
    return ""
