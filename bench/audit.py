#!/usr/bin/env python3
"""How long the audit takes, against what people do without it.

The peers: grep for the two words an auditor would grep for, GNU cpp run over
the same files (once per file and architecture, which is what it takes to learn
which branches are compiled), and unifdef where it is installed. Whole process
against whole process on the same unpacked release, in turns; medians and ratios.

    python bench/audit.py                        FlashInfer of line stable: headers, csrc, Python
    python bench/audit.py --tree DIR             another tree
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from downstream import pins as pinned  # noqa: E402
from downstream.guards.definitions import SUFFIXES  # noqa: E402
from downstream.trees.cache import default_folder  # noqa: E402
from downstream.trees.open import wheel_files  # noqa: E402
from downstream.trees.session import Session  # noqa: E402

PATTERN = "__CUDA_ARCH__|supported_major_versions"
ARCHES = (900, 1000, 1030, 1200, 1210)
GOAL = 10.0  # seconds, for a whole FlashInfer tree on two cores


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tree", type=Path, help="an unpacked wheel or a repository (default: the pinned release)")
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tree = asked.tree or _unpacked(Path(scratch))
        files = [path for path in sorted(tree.rglob("*")) if path.suffix in SUFFIXES and _ours(path)]
        asking = [path for path in files if b"__CUDA_ARCH" in path.read_bytes()]
        print(f"{tree.name}: {len(files)} C++ and CUDA files, {len(asking)} of them ask for the architecture")
        print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, {asked.runs} runs each, in turns")
        audit = [
            "env",
            f"SM120_OVERLAY_CACHE={os.devnull}/none",
            sys.executable,
            str(ROOT / "tools/audit.py"),
            "--tree",
            str(tree),
            "-q",
            "--json",
        ]
        peers: dict[str, Callable[[], None]] = {
            "audit (whole tree)": lambda: _run(audit),
            "grep -rnE": lambda: _run(["grep", "-rnE", PATTERN, str(tree)]),
            f"gcc -E, {len(ARCHES)} architectures": lambda: _cpp(asking),
        }
        if shutil.which("unifdef"):
            peers[f"unifdef, {len(ARCHES)} architectures"] = lambda: _unifdef(asking)
        else:
            print("unifdef is not installed, so it is left out")
        _compare(peers, asked.runs)
    return 0


def _unpacked(scratch: Path) -> Path:
    pins = pinned.load(ROOT)
    with Session(default_folder()) as session:
        (wheel,) = wheel_files(pins.pin("stable", "flashinfer"), session)
    folder = scratch / wheel.stem
    shutil.unpack_archive(wheel, folder, "zip")
    return folder


def _ours(path: Path) -> bool:
    return not {"cutlass", "spdlog", "cccl", "3rdparty"} & set(path.parts)


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _cpp(files: Sequence[Path]) -> None:
    # Includes are not followed: what is asked is which branches of the file itself are compiled.
    for arch in ARCHES:
        for path in files:
            _run(
                ["gcc", "-E", "-fdirectives-only", "-w", "-x", "c++", f"-D__CUDA_ARCH__={arch}", "-nostdinc", str(path)]
            )


def _unifdef(files: Sequence[Path]) -> None:
    for arch in ARCHES:
        for path in files:
            _run(["unifdef", f"-D__CUDA_ARCH__={arch}", str(path)])


def _compare(peers: dict[str, Callable[[], None]], runs: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(runs):
        for name, run in peers.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    ours = statistics.median(next(iter(times.values())))
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name:32} {median:8.2f} s   {median / ours:6.2f} x the audit")
    print(f"goal: under {GOAL:.0f} s on 2 cores: {'met' if ours < GOAL else 'missed'}")


if __name__ == "__main__":
    sys.exit(main())
