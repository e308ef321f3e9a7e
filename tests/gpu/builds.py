"""Which FlashInfer a group of ranks loads: wheels or a folder, installed apart from this interpreter's packages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WARM = "import torch; torch.cuda.init(); from flashinfer.comm.trtllm_ar import get_trtllm_comm_module as get; get()"


@dataclass(frozen=True, kw_only=True)
class Build:
    """A FlashInfer to test. ``problem`` is what its comm module answered when it was first asked for."""

    name: str
    environment: Mapping[str, str]
    problem: str = ""


def named(variable: str) -> list[Path]:
    """Return the wheels or folders in *variable*, separated as in PATH."""
    return [Path(word) for word in os.environ.get(variable, "").split(os.pathsep) if word]


def patched_paths() -> list[Path]:
    """Return $FLASHINFER_PATCHED, else the newest patched wheel below dist/ and, where there is one, its jit cache."""
    found = named("FLASHINFER_PATCHED")
    if found:
        return found
    for pattern in ("flashinfer_python-*+sm120*.whl", "flashinfer_jit_cache-*+sm120*.whl"):
        wheels = sorted(ROOT.glob(f"dist/**/{pattern}"), key=lambda path: path.stat().st_mtime)
        found += wheels[-1:]
    return found


def stock_paths() -> list[Path]:
    """Return $FLASHINFER_STOCK, else the pinned wheel from the index."""
    found = named("FLASHINFER_STOCK")
    if found:
        return found
    from downstream.pins import load
    from downstream.trees.cache import default_folder
    from downstream.trees.open import wheel_files
    from downstream.trees.session import Session

    with Session(default_folder()) as session:
        return list(wheel_files(load(ROOT).pin("stable", "flashinfer"), session))


def install(name: str, paths: list[Path], folder: Path) -> Build:
    """Put *paths* before everything else on a rank's path, and load (or compile) the comm module once."""
    folders = [str(path.resolve()) for path in paths if path.is_dir()]
    wheels = [str(path.resolve()) for path in paths if path.is_file()]
    if wheels:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
        subprocess.run([*command, "--target", str(folder / "site"), *wheels], check=True)
        folders.append(str(folder / "site"))
    inherited = os.environ.get("PYTHONPATH", "")
    environment = {
        "PYTHONPATH": os.pathsep.join([*folders, *([inherited] if inherited else [])]),
        "FLASHINFER_WORKSPACE_BASE": str(folder / "workspace"),
    }
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WARM],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    problem = ran.stderr.strip().splitlines()[-1] if ran.returncode else ""
    return Build(name=name, environment=environment, problem=problem)
