"""The text that the device compiler reads: gcc's preprocessor with the macros that nvcc would define."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from downstream.arches import Suffix, Target
from downstream.kernels.compile import DEFINES, include_flags
from downstream.kernels.toolchain import run
from downstream.kernels.units import Unit

# nvcc 13.0 --dryrun of a device pass; a test marked nvcc reads them back from the compiler.
LANGUAGE = (
    "-DCUDA_DOUBLE_MATH_FUNCTIONS",
    "-D__CUDACC__",
    "-D__NVCC__",
    "-D__CUDACC_RELAXED_CONSTEXPR__",
    "-D__CUDACC_VER_MAJOR__=13",
    "-D__CUDACC_VER_MINOR__=0",
    "-D__CUDACC_VER_BUILD__=88",
    "-D__CUDA_API_VER_MAJOR__=13",
    "-D__CUDA_API_VER_MINOR__=0",
    "-D__NVCC_DIAG_PRAGMA_SUPPORT__=1",
    "-D__CUDACC_DEVICE_ATOMIC_BUILTINS__=1",
)
_MARKER = re.compile(r'^# \d+ "((?:[^"\\]|\\.)*)"')


def architecture_macros(target: Target) -> dict[str, str]:
    """Return what nvcc predefines for *target* (its manual, 4.2.7; read back from nvcc 13.0).

    A suffix ``a`` sets the feature, specific and family macros, ``f`` the family one alone.
    """
    arch = str(target.capability.cuda_arch)
    macros = {"__CUDA_ARCH__": arch, "__CUDA_ARCH_LIST__": arch}
    if target.suffix is Suffix.ARCHITECTURE:
        macros[f"__CUDA_ARCH_FEAT_SM{target.capability.number}_ALL"] = ""
        macros["__CUDA_ARCH_SPECIFIC__"] = arch
    if target.suffix is not Suffix.PLAIN:
        macros["__CUDA_ARCH_FAMILY_SPECIFIC__"] = arch
    return macros


def device_text(
    folder: Path, unit: Unit, target: Target, outside: Sequence[Path], flags: Sequence[str], last: Sequence[str] = ()
) -> str:
    """Return *unit* (below *folder*) preprocessed for *target*, line markers in place.

    *outside* are header folders of other packages, CUDA's first; *flags* the
    generator's, *last* those that go behind every folder. Raises ToolchainError where gcc fails.
    """
    macros = [f"-D{name}={value}" if value else f"-D{name}" for name, value in architecture_macros(target).items()]
    width = ["-m64"] if platform.machine() == "x86_64" else []
    command = ["g++", "-std=c++17", *macros, "-E", "-x", "c++", *LANGUAGE, "-fPIC", "-O3", *DEFINES]
    command += [flag for flag in flags if flag.startswith(("-D", "-U"))]
    command += [*include_flags(unit, outside), *last, "-include", "cuda_runtime.h", *width, unit.source]
    return run(command, cwd=folder)


def by_file(text: str) -> Mapping[str, str]:
    """Return the text each file contributes, blank lines and line numbers left out, in order of first appearance.

    gcc breaks a line where a macro from a system header stands in it; such breaks
    go, so that two texts differ only where the compiler would see a difference.
    """
    parts: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("# ") and (marker := _MARKER.match(line)):
            current = parts.setdefault(marker[1], [])
        elif stripped := line.strip():
            current.append(stripped)
    return {name: "\n".join(lines) for name, lines in parts.items()}
