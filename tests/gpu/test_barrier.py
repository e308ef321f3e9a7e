"""The barriers between ranks, slowed down where a race would need bad luck: stock is wrong or hangs, every time.

The kernels are those of the build's own header; a pause is put in before two of its steps (see barrier.cu). Nothing
but nvcc and a GPU is used: on SM12x stock's header compiles, too, whatever its module list says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.builds import Build

pytestmark = pytest.mark.gpu

PROGRAM = Path(__file__).with_name("barrier.cu")
HEADER = Path("flashinfer/comm/trtllm_allreduce.cuh")
WHERE = "import importlib.util as u; print(*u.find_spec('flashinfer').submodule_search_locations)"
# What stands before each step, how often, and the pause that goes in.
PAUSES = (
    ("  if constexpr (PUSH_MODE || COPY_INPUT) {\n", 2, "  hooks::late_warps(params.local_rank);\n"),
    (
        "  for (int offset = thread_offset; offset < norm_this_block * params.fusion_params.hidden_size;\n",
        2,
        "  hooks::late_warps(params.local_rank);\n",
    ),
    (
        "    uint32_t* peer_barrier_d = signals[local_rank] + ",
        2,
        "    hooks::before_wait(local_rank, flag);\n",
    ),
)


@dataclass(frozen=True)
class Paused:
    """A build's barrier kernels with the pauses in, compiled."""

    program: Path

    def __call__(self, scenario: str) -> dict[str, Any]:
        ran = subprocess.run([self.program, scenario], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        answer: dict[str, Any] = json.loads(ran.stdout)
        return answer


def with_pauses(header: str) -> str:
    for line, times, pause in PAUSES:
        assert header.count(line) == times, f"upstream's header has changed: {line!r}"
        header = header.replace(line, pause + line)
    return header


def nvcc() -> str:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    found = str(Path(home) / "bin" / "nvcc") if home else shutil.which("nvcc")
    return found or "/usr/local/cuda/bin/nvcc"


def include_folder(environment: Mapping[str, str]) -> Path:
    ran = subprocess.run(
        [sys.executable, "-c", WHERE], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return Path(ran.stdout.strip()) / "data" / "include"


def compiled(build: Build, folder: Path) -> Paused:
    include = include_folder(build.environment)
    header = folder / HEADER
    header.parent.mkdir(parents=True)
    header.write_text(with_pauses((include / HEADER).read_text()))
    places = [folder, include, include / "flashinfer" / "comm", include.parent / "spdlog" / "include"]
    flags = ["-std=c++17", "--expt-relaxed-constexpr", "-arch=native", "-O3", "-DNDEBUG", "-w"]
    command = [nvcc(), *flags, *(f"-I{place}" for place in places), str(PROGRAM), "-o", str(folder / "barrier")]
    subprocess.run(command, check=True)
    return Paused(folder / "barrier")


@pytest.fixture(scope="module")
def ours(patched: Build, tmp_path_factory: pytest.TempPathFactory) -> Paused:
    return compiled(patched, tmp_path_factory.mktemp("barrier-patched"))


@pytest.fixture(scope="module")
def upstreams(stock: Build, tmp_path_factory: pytest.TempPathFactory) -> Paused:
    return compiled(stock, tmp_path_factory.mktemp("barrier-stock"))


@pytest.mark.parametrize("way", ["oneshot", "twoshot", "norm"])
def test_a_block_arrives_with_its_slowest_warp(way: str, ours: Paused) -> None:
    assert ours(f"late-{way}") == {"scenario": f"late-{way}", "wrong": 0, "hung": False}


@pytest.mark.parametrize("way", ["oneshot", "twoshot", "norm"])
def test_stock_s_flag_overtakes_the_writes_of_its_block(way: str, upstreams: Paused) -> None:
    """Rank 0 reads all but the first warp's part of each of rank 1's blocks before it is there."""
    answer = upstreams(f"late-{way}")
    assert not answer["hung"]
    assert answer["wrong"] > 0


CALLS = ["large-small", "small-large", "norm-oneshot", "copy-memcpy", "memcpy-copy"]


@pytest.mark.parametrize("calls", CALLS)
def test_a_faster_rank_leaves_the_flags_of_its_last_call_alone(calls: str, ours: Paused) -> None:
    assert ours(calls) == {"scenario": calls, "wrong": 0, "hung": False}


@pytest.mark.parametrize("calls", CALLS)
def test_stock_hangs_where_a_rank_is_one_call_ahead(calls: str, upstreams: Paused) -> None:
    assert upstreams(calls)["hung"]
