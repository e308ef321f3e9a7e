"""The preflight of both lines on real GPUs: on where bytes arrive, off for everybody where it is told or cannot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.builds import ROOT, Build, named

pytestmark = pytest.mark.gpu

PROGRAM = Path(__file__).with_name("serving.py")
LIMIT = 180  # seconds; the first rank may have to compile
SPARE = 64 << 20  # bytes that the driver may keep for peers' mappings and a first kernel


@pytest.fixture(scope="module")
def gpus() -> int:
    code = "import torch; print(torch.cuda.device_count())"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="module", params=["0.5.9", "0.5.23"])
def sglang(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The patched SGLang of a line: $SGLANG_PATCHED (wheels), else what lies below dist/."""
    wheels = named("SGLANG_PATCHED") or sorted(ROOT.glob("dist/**/sglang-*+sm120*.whl"))
    found = [wheel for wheel in wheels if wheel.name.startswith(f"sglang-{request.param}+sm120")]
    if not found:
        pytest.skip(f"no patched SGLang {request.param}: name its wheel in SGLANG_PATCHED, or build it")
    folder = tmp_path_factory.mktemp(f"sglang-{request.param}")
    with zipfile.ZipFile(found[-1]) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith(".py")])
    return folder


def started(
    folder: Path, world: int, build: Build, scratch: Path, environments: Mapping[int, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Start *world* ranks; return what each said, or fail with what it printed."""
    ranks = []
    try:
        for rank in range(world):
            command = [sys.executable, str(PROGRAM), str(folder), str(rank), str(world), str(scratch / "rendezvous")]
            environment = {**os.environ, **build.environment, **environments.get(rank, {})}
            ranks.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            )
        said = [process.communicate(timeout=LIMIT)[0] for process in ranks]
    finally:
        for process in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for process, words in zip(ranks, said, strict=True):
        assert process.returncode == 0, words[-3000:]
    return [json.loads(words.splitlines()[-1]) for words in said]


def assert_off(ranks: list[dict[str, Any]], why: str) -> None:
    assert [rank["on"] for rank in ranks] == [False] * len(ranks)
    assert [rank["usable"] for rank in ranks] == [True] * len(ranks)
    assert [len(rank["told"]) for rank in ranks] == [1] + [0] * (len(ranks) - 1)
    assert why in ranks[0]["told"][0], ranks[0]["told"]
    assert max(rank["kept"] for rank in ranks) <= SPARE


@pytest.mark.parametrize("world", [2, 4, 8])
def test_it_is_on_where_every_byte_arrives_and_the_fused_call_is_right(
    world: int, sglang: Path, patched: Build, tmp_path: Path
) -> None:
    ranks = started(sglang, world, patched, tmp_path, {})
    assert [rank["on"] for rank in ranks] == [True] * world, ranks[0]["told"]
    assert max(rank.get("error", 0.0) for rank in ranks) <= 1e-2


@pytest.mark.parametrize("told", ["on all ranks", "on the last rank"])
def test_nccl_p2p_disable_turns_it_off_on_every_rank(told: str, sglang: Path, patched: Build, tmp_path: Path) -> None:
    disabled = {"NCCL_P2P_DISABLE": "1"}
    ranks = started(
        sglang, 2, patched, tmp_path, {1: disabled} if told == "on the last rank" else {0: disabled, 1: disabled}
    )
    assert_off(ranks, "NCCL_P2P_DISABLE is set")


def test_a_group_of_three_goes_on_without(sglang: Path, patched: Build, tmp_path: Path) -> None:
    assert_off(started(sglang, 3, patched, tmp_path, {}), "it takes 2, 4 or 8 GPUs, not 3")


def test_ranks_that_see_one_gpu_each_agree(sglang: Path, patched: Build, tmp_path: Path, gpus: int) -> None:
    """With CUDA_VISIBLE_DEVICES a rank sees its own GPU alone; whether IPC then reaches the others is the driver's."""
    if gpus < 2:
        pytest.skip("takes two GPUs")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    ranks = started(sglang, 2, patched, tmp_path, {rank: {"CUDA_VISIBLE_DEVICES": visible[rank]} for rank in (0, 1)})
    assert [rank["gpus"] for rank in ranks] == [1, 1]
    if ranks[0]["on"]:
        assert ranks[1]["on"]
        assert max(rank.get("error", 0.0) for rank in ranks) <= 1e-2
    else:
        assert_off(ranks, "rank ")
