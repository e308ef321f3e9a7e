"""What the compiler itself defines for each target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from downstream.arches import Suffix, Target
from downstream.errors import UsageError
from downstream.guards.tokens import Lookup, Macro, tokenize
from downstream.guards.values import Value, unknown

# Names whose meaning differs from target to target.
ARCHITECTURE = re.compile(
    r"__CUDA_ARCH__|__CUDA_ARCH_FEAT_SM\d+_ALL|__CUDA_ARCH_SPECIFIC__|__CUDA_ARCH_FAMILY_SPECIFIC__"
    r"|__CUDA_ARCH_HAS_FEATURE__|__CUDA_HAS_ARCH_SPECIFIC|__CUDA_HAS_ARCH_FAMILY_SPECIFIC"
)

# nvcc with GNU C++ on Linux, compiling for real: other compilers and the parsers of editors are not at work.
_ABSENT = frozenset(
    {
        "__CUDA__",
        "__CUDACC_RTC__",
        "__CUDA_LIBDEVICE__",
        "__HIP__",
        "__HIPCC__",
        "__HIP_DEVICE_COMPILE__",
        "__HIP_PLATFORM_AMD__",
        "__HIP_PLATFORM_HCC__",
        "USE_ROCM",
        "_MSC_VER",
        "_WIN32",
        "_WIN64",
        "__APPLE__",
        "__clang__",
        "__CLANGD__",
        "__CLION_IDE__",
        "IN_KDEVELOP_PARSER",
        "Q_CREATOR_RUN",
        "__INTELLISENSE__",
        "__JETBRAINS_IDE__",
        "__CDT_PARSER__",
        "__DOXYGEN__",
        "DOXYGEN",
    }
)
_PRESENT = ("__cplusplus", "__GNUC__", "__linux__", "__x86_64__", "__has_include", "__has_cpp_attribute")
# CUDA 13.0, crt/host_defines.h.
_CALLS = {
    "__CUDA_ARCH_HAS_FEATURE__": ("F", "__CUDA_ARCH_FEAT_##F"),
    "__CUDA_HAS_ARCH_SPECIFIC": ("N", "(defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ == N##0)"),
    "__CUDA_HAS_ARCH_FAMILY_SPECIFIC": (
        "N",
        "(defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= N##0 &&"  # noqa: ISC004
        " __CUDA_ARCH_FAMILY_SPECIFIC__ < N##0 + (N == 101 || __CUDA_ARCH_FAMILY_SPECIFIC__ == 1010 ? 1 : 100))",
    ),
}


@dataclass(frozen=True, slots=True, order=True)
class Toolkit:
    """The CUDA release that is assumed to compile: its version macros are known."""

    major: int = 13
    minor: int = 0

    @property
    def cuda_version(self) -> int:
        """The value of ``CUDA_VERSION``: 13000 for 13.0."""
        return self.major * 1000 + self.minor * 10

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def parse_toolkit(text: str) -> Toolkit:
    """Read ``13.0``. Raises UsageError for anything else."""
    found = re.fullmatch(r"(\d+)\.(\d+)", text.strip())
    if not found:
        raise UsageError(text, "is no CUDA version", "write it as 13.0")
    return Toolkit(int(found[1]), int(found[2]))


class Any:
    """Stands for a target nothing is known about: the macros that name it are unknown."""


ANY = Any()


@dataclass(frozen=True, slots=True)
class Predefined:
    """The compiler's macros for one target: nvcc 13.0's ``-dryrun``, read back, and ``-D`` options."""

    target: Target | Any | None  # None: the host pass, where __CUDA_ARCH__ is not defined
    macros: Mapping[str, Macro] = field(default_factory=dict)
    options: frozenset[str] = frozenset()  # names given by -D

    def knows(self, name: str) -> bool:
        if name in self.macros or name in _ABSENT:
            return True
        return self.target is not ANY and ARCHITECTURE.fullmatch(name) is not None

    def lookup(self, name: str) -> Macro | None:
        """The macro, or None: not defined. Only for names that it knows."""
        return self.macros.get(name)


def predefined(
    target: Target | Any | None, toolkit: Toolkit | None = None, defines: Mapping[str, str] | None = None
) -> Predefined:
    """The macro table of *target*: with *toolkit* None, the version macros are left unknown."""
    macros = {name: Macro(name, None) for name in _PRESENT}
    words: dict[str, str] = {"__CUDACC__": "1", "__NVCC__": "1"}
    if toolkit is not None:
        words["__CUDACC_VER_MAJOR__"] = str(toolkit.major)
        words["__CUDACC_VER_MINOR__"] = str(toolkit.minor)
        words["CUDA_VERSION"] = words["CUDART_VERSION"] = str(toolkit.cuda_version)
    if isinstance(target, Target):
        arch = str(target.capability.cuda_arch)
        words["__CUDA_ARCH__"] = arch
        if target.suffix is Suffix.ARCHITECTURE:
            words[f"__CUDA_ARCH_FEAT_SM{target.capability.number}_ALL"] = "1"
            words["__CUDA_ARCH_SPECIFIC__"] = arch
        if target.suffix is not Suffix.PLAIN:
            words["__CUDA_ARCH_FAMILY_SPECIFIC__"] = arch
    options = dict(defines or {})
    for name, text in (words | options).items():
        macros[name] = Macro(name, tokenize(text))
    for name, (parameter, body) in _CALLS.items() if target is not ANY else ():
        macros[name] = Macro(name, tokenize(body), (parameter,))
    return Predefined(target, macros, frozenset(options))


def compiler_lookup(table: Predefined) -> Lookup:
    """A lookup that knows only the compiler's macros and leaves every other name open."""

    def lookup(name: str) -> Macro | Value | None:
        return table.lookup(name) if table.knows(name) else unknown(f"defined({name})", frozenset({name}))

    return lookup


def suffixes(target: Target) -> tuple[Target, ...]:
    """The suffixed targets of a plain one: 9.0 has ``a`` only (CUDA programming guide, 5.1.3)."""
    variants = [Target(target.capability, Suffix.ARCHITECTURE)] if target.capability.major >= 9 else []
    if target.capability.major >= 10:
        variants.append(Target(target.capability, Suffix.FAMILY))
    return tuple(variants)


_CALL = re.compile(r"([A-Za-z_]\w*)\(([^()]*)\)(.*)", re.DOTALL)


def parse_define(text: str, origin: str = "") -> Macro | None:
    """Read what follows ``#define``; None where it is not one."""
    called = _CALL.fullmatch(text)
    name, _, body = text.partition(" ")
    if called:
        parameters = tuple(word.strip() for word in called[2].split(",") if word.strip())
        name, body = called[1], called[3]
    else:
        parameters = None
    if not re.fullmatch(r"[A-Za-z_$]\w*", name):
        return None
    try:
        return Macro(name, tokenize(body), parameters, origin)
    except ValueError:
        return Macro(name, None, None, origin)
