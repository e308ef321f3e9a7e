"""The environment that FlashInfer's generator runs in: CPU torch, its own requirements, and our wheel."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from downstream.errors import OfflineError, ToolchainError, UsageError
from downstream.kernels.toolchain import environment
from downstream.progress import SILENT, Progress

# No version of torch reaches the modules (they speak TVM's FFI); this one has a CPU build for every Python we run on.
TORCH = "torch==2.13.0+cpu"
REQUIREMENTS = Path("constraints") / "generator.txt"
GENERATOR = Path(__file__).with_name("generator.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildEnvironment:
    """An interpreter with the generator's requirements, and a folder with one FlashInfer wheel unpacked."""

    python: Path
    site: Path  # where the wheel is installed
    path: str  # PYTHONPATH: the site, and what the interpreter's owner had there


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A module as FlashInfer's generator describes it."""

    module: str  # what it was asked for by
    name: str  # what FlashInfer loads it by
    ninja: Path
    library: Path
    generated: Path  # the folder of the sources that generators wrote


def interpreter(
    root: Path, cache: Path, *, torch: str = TORCH, offline: bool = False, progress: Progress = SILENT
) -> Path:
    """Return a Python with *torch* and what the generator imports, made below *cache* once (about 1 GB).

    Raises ToolchainError with pip's reason, OfflineError where it would have to be fetched.
    """
    requirements = root / REQUIREMENTS
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    key = hashlib.sha256(f"{torch}\n{version}\n".encode() + requirements.read_bytes()).hexdigest()[:16]
    folder = cache / "generator" / key
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    if offline:
        raise OfflineError("the build environment", "is not installed, and --offline forbids fetching it")
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")), progress.task("install the build environment"):
        if not (folder / "complete").exists():
            _made(folder, python, requirements, torch)
    return python


def _made(folder: Path, python: Path, requirements: Path, torch: str) -> None:
    # A virtual environment knows its own path, so it is made in place and marked when it is whole.
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], "venv")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        _run([*install, torch, "-r", str(requirements)], "pip")
    except ToolchainError as exc:
        step = "name another torch with --torch, or the index that has CPU builds in PIP_EXTRA_INDEX_URL"
        raise ToolchainError(torch, exc.problem, step) from exc
    (folder / "complete").touch()


def installed_wheel(python: Path, wheel: Path, cache: Path, *, inherited: str = "") -> BuildEnvironment:
    """Return a BuildEnvironment that holds *wheel* alone beside the requirements.

    It lies below *cache* under the wheel's digest: compiler caches know a source
    by its path, too. *inherited* is a PYTHONPATH that *python* finds the
    requirements by.
    """
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]
    site = cache / "generator" / f"wheel-{digest}"
    if not site.is_dir():
        site.parent.mkdir(parents=True, exist_ok=True)
        part = Path(mkdtemp(prefix=f".wheel-{digest}.", dir=site.parent))
        try:
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            _run([*command, "--no-index", "--no-compile", "--target", str(part), str(wheel)], "pip")
            part.chmod(0o755)
            with contextlib.suppress(OSError):  # another build was faster: its folder is as good
                part.rename(site)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    path = os.pathsep.join([str(site), *([inherited] if inherited else [])])
    return BuildEnvironment(python=python, site=site, path=path)


def specs(
    env: BuildEnvironment, modules: Sequence[str], variables: Mapping[str, str], *, without: str = ""
) -> tuple[str, tuple[Spec, ...]]:
    """Ask FlashInfer for the ninja files of *modules*; return its version and a Spec each.

    It sees *variables*, and of the caller's those whose names *without* (a regex) does not fit.

    Raises UsageError for a name it has no generator for, ToolchainError where a generator refuses.
    """
    command = [str(env.python), "-P", str(GENERATOR), *modules]
    text = _run(command, "generator", {**variables, "PYTHONPATH": env.path}, without=without)
    answer = json.loads(text[text.index("{") :])
    if answer["unknown"]:
        near = [name for name in answer["known"] if re.search("comm|moe|norm|gemm", name)]
        step = f"some it has: {', '.join(near[:12])}"
        raise UsageError("--modules", f"FlashInfer has no generator for {', '.join(answer['unknown'])}", step)
    for module, reason in answer["failed"].items():
        step = "name targets that it is built for, or leave it out" if "architectures" in reason else ""
        raise ToolchainError(module, f"FlashInfer's generator refuses: {reason}", step)
    places = ("ninja", "library", "generated")
    found = [
        Spec(module=one["module"], name=one["name"], **{place: Path(one[place]) for place in places})
        for one in answer["specs"]
    ]
    return answer["version"], tuple(found)


def _run(command: Sequence[str], what: str, variables: Mapping[str, str] | None = None, *, without: str = "") -> str:
    sealed = environment(variables, without=without)
    ran = subprocess.run(command, env=sealed, capture_output=True, text=True, check=False)
    if ran.returncode:
        words = "\n".join((ran.stderr.strip() or ran.stdout.strip()).splitlines()[-8:])
        raise ToolchainError(what, f"failed with exit code {ran.returncode}:\n{words}")
    return ran.stdout
