"""The CUDA toolchain: pinned wheels laid out as FlashInfer's ninja files expect, or a system's own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from downstream.errors import OfflineError, ToolchainError
from downstream.progress import SILENT, Progress

REQUIREMENTS = Path("constraints") / "cuda-13.0.txt"
HEADERS = Path("constraints") / "cuda-13.0-headers.txt"
RELEASE = "13.0"
_VERSION = re.compile(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)")
_AGAIN = "run the same command once without --offline"

# What changes nvcc's and gcc's meaning from outside; a build must not depend on who started it.
_SEALED = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A CUDA compiler and its disassembler. ``home`` is what CUDA_HOME is to be."""

    home: Path
    origin: str  # "pinned wheels" or "system"
    version: str  # nvcc's: 13.0.88
    host: str  # the host compiler's first line about itself
    digest: str  # changes when anything that compiles does
    cuobjdump: Path
    nvdisasm: Path

    @property
    def nvcc(self) -> Path:
        return self.home / "bin" / "nvcc"

    @property
    def identity(self) -> str:
        """What two builds must share to be joined: compilers and digest."""
        return f"nvcc {self.version}, {self.host}, {self.digest[:16]}"


def environment(extra: Mapping[str, str] | None = None, *, without: str = "") -> dict[str, str]:
    """The environment that compilers run in: ours without what would change their meaning, and *without* (a regex)."""
    kept = {
        name: value for name, value in os.environ.items() if name not in _SEALED and not re.fullmatch(without, name)
    }
    return kept | {"LC_ALL": "C"} | dict(extra or {})


def pinned(root: Path, cache: Path, *, offline: bool = False, progress: Progress = SILENT) -> Toolchain:
    """Return the toolchain of *root*'s constraints file, installed below *cache* if it is not there yet.

    About 280 MB on disk. Raises ToolchainError, and OfflineError where it would have to be fetched.
    """
    requirements = root / REQUIREMENTS
    folder = installed(requirements, cache / "cuda", offline=offline, progress=progress, finish=_lay_out)
    return _described(folder / "home", "pinned wheels", _digest(requirements), folder / "home" / "bin")


def headers(root: Path, cache: Path, *, offline: bool = False, progress: Progress = SILENT) -> tuple[Path, ...]:
    """Return the folders of the headers that kernels include from other packages: CUDA's two, then TVM's (10 MB)."""
    site = installed(root / HEADERS, cache / "cuda", offline=offline, progress=progress) / "site"
    cuda = site / "nvidia" / "cu13" / "include"
    return cuda, cuda / "cccl", site / "tvm_ffi" / "include"


def system(home: Path) -> Toolchain:
    """Return the toolkit at *home*, as ``--cuda-home`` names it. Raises ToolchainError where it is none of 13.0."""
    home = home.absolute()
    if not (home / "bin" / "nvcc").is_file():
        raise ToolchainError(str(home), "holds no bin/nvcc", "name the folder that holds bin, include and nvvm")
    return _described(home, "system", "", home / "bin")


def installed(
    requirements: Path,
    cache: Path,
    *,
    offline: bool = False,
    progress: Progress = SILENT,
    finish: Callable[[Path], None] | None = None,
) -> Path:
    """Return the folder below *cache* that holds *requirements* (hashes checked by pip) in ``site``.

    The folder is named by the requirements' digest and appears whole or not at all.
    """
    try:
        name = f"{requirements.stem}-{_digest(requirements)[:16]}"
    except OSError as exc:
        raise ToolchainError(str(requirements), "cannot be read", "run from a checkout of the overlay") from exc
    folder = cache / name
    if folder.is_dir():
        return folder
    if offline:
        raise OfflineError(requirements.name, "is not installed, and --offline forbids fetching it", _AGAIN)
    cache.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f".{name}.", dir=cache))
    try:
        with progress.task(f"install {requirements.name}"):
            _pip(requirements, part / "site")
        if finish is not None:
            finish(part)
        part.chmod(0o755)
        with contextlib.suppress(OSError):  # another run was faster: its folder is as good
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    if not folder.is_dir():
        raise ToolchainError(str(folder), "could not be put in place", "make the cache folder writable")
    return folder


def _pip(requirements: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--no-compile", "--target", str(target)]
    ran = subprocess.run([*command, "-r", str(requirements)], capture_output=True, text=True, check=False)
    if ran.returncode:
        last = (ran.stderr.strip() or ran.stdout.strip() or "pip said nothing").splitlines()[-1]
        raise ToolchainError(requirements.name, f"pip could not install it: {last}", "check pip's index and network")


def _lay_out(folder: Path) -> None:
    """Lay a CUDA_HOME over the wheels: they have ``lib``, versioned libraries and no libcuda to link with."""
    wheels = folder / "site" / "nvidia" / "cu13"
    home = folder / "home"
    (home / "lib64" / "stubs").mkdir(parents=True)
    for name in ("bin", "include", "nvvm", "lib"):
        if not (wheels / name).is_dir():
            raise ToolchainError(str(wheels), f"the wheels have no {name}", "the constraints name other packages")
        (home / name).symlink_to(Path("..") / "site" / "nvidia" / "cu13" / name)
    for library in sorted((wheels / "lib").iterdir()):
        if library.suffix == ".a" or ".so" in library.name:
            (home / "lib64" / library.name).symlink_to(Path("..") / "lib" / library.name)
            if ".so." in library.name:
                (home / "lib64" / (library.name.split(".so.")[0] + ".so")).symlink_to(library.name)
    # Nothing in it is ever called: the driver's own libcuda.so.1 takes its place on a machine with a GPU.
    stub = home / "lib64" / "stubs" / "libcuda.so"
    run(["cc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", str(stub), "-x", "c", os.devnull])


def _described(home: Path, origin: str, digest: str, tools: Path) -> Toolchain:
    said = run([str(home / "bin" / "nvcc"), "--version"])
    found = _VERSION.search(said)
    if not found:
        raise ToolchainError(str(home), "nvcc does not tell its version", "is it an nvcc?")
    if found[1] != RELEASE:
        step = f"name a CUDA {RELEASE} toolkit, or leave --cuda-home out for the pinned one"
        raise ToolchainError(str(home), f"is CUDA {found[2]}, the proof and the wheels are made with {RELEASE}", step)
    host = run(["c++", "--version"]).splitlines()[0]
    missing = [name for name in ("cuobjdump", "nvdisasm") if not (tools / name).is_file()]
    if missing:
        raise ToolchainError(str(tools), f"has no {' and no '.join(missing)}", "install the toolkit's binary utilities")
    text = f"{said}\n{host}\n{digest}"
    return Toolchain(
        home=home,
        origin=origin,
        version=found[2],
        host=host,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        cuobjdump=tools / "cuobjdump",
        nvdisasm=tools / "nvdisasm",
    )


def run(command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run *command* in the sealed environment; return its stdout. Raises ToolchainError with its last words."""
    try:
        ran = subprocess.run(command, cwd=cwd, env=environment(env), capture_output=True, text=True, check=False)
    except OSError as exc:
        step = "install a C++ compiler (gcc 11 to 15)" if command[0] in ("cc", "c++", "g++") else ""
        raise ToolchainError(command[0], f"cannot be run: {exc.strerror}", step) from exc
    if ran.returncode:
        words = "\n".join((ran.stderr.strip() or ran.stdout.strip()).splitlines()[-12:])
        raise ToolchainError(Path(command[0]).name, f"failed with exit code {ran.returncode}:\n{words}")
    return ran.stdout


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
