"""The real series with one thing taken out: the proof has to see it."""

from __future__ import annotations

import difflib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from downstream.cli import FINDINGS, OK, door
from downstream.patched import PatchedTree, build
from downstream.pins import load
from downstream.trees.cache import default_folder
from downstream.trees.session import Session

# The release and CUDA's headers are kept in the user's cache, which tests marked network see.
pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
HEADER = "include/flashinfer/comm/trtllm_allreduce.cuh"
LAMPORT = "lamport_style_one_shot_all_reduce_norm_kernel"
ONE_SHOT = "oneShotAllReduceKernel"
FAST = ("--fast", "--units", "trtllm_allreduce.cu")
WAIT = "cudaGridDependencySynchronize();"

Prove = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the overlay, to be broken."""
    for name in ("patches", "overlay", "constraints"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copyfile(ROOT / "VERSIONS.toml", tmp_path / "VERSIONS.toml")
    return tmp_path


@pytest.fixture
def prove(root: Path, capsys: pytest.CaptureFixture[str]) -> Prove:
    def call(*words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = door("kernels", ["prove", "--root", str(root), "--json", *words])
        return code, json.loads(capsys.readouterr().out)

    return call


def drop(root: Path, patch: str) -> None:
    series = root / "patches" / "stable" / "flashinfer" / "series"
    lines = series.read_text().splitlines(keepends=True)
    assert f"{patch}\n" in lines
    series.write_text("".join(line for line in lines if line != f"{patch}\n"))


def without_wait(root: Path, kernel: str) -> None:
    """End the series with a patch that takes the wait out of *kernel*, on every GPU."""
    before = (patched(root).read(HEADER) or b"").decode()
    head, name, rest = before.partition(f" {kernel}(")
    assert name
    after = head + name + rest.replace(f"  {WAIT}\n", "", 1)
    assert after.count(WAIT) == before.count(WAIT) - 1
    diff = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{HEADER}", f"b/{HEADER}"
    )
    folder = root / "patches" / "stable" / "flashinfer"
    (folder / "no-wait.patch").write_text("Subject: wait for nothing\n---\n" + "".join(diff))
    with (folder / "series").open("a") as series:
        series.write("no-wait.patch\n")


def patched(root: Path) -> PatchedTree:
    pins = load(root)
    with Session(default_folder()) as session:
        return build(pins, pins.pin("stable", "flashinfer"), session)


def faults(document: dict[str, Any], field: str) -> set[tuple[str, str, str]]:
    return {(entry["fault"], entry[field], entry["target"]) for entry in document["findings"]}


@pytest.mark.parametrize(("line", "dead"), [("stable", 26), ("next", 0)])
def test_the_series_as_it_is_holds(line: str, dead: int, prove: Prove) -> None:
    code, document = prove("--fast", "--line", line)
    assert (code, document["ok"], document["findings"]) == (OK, True, [])
    assert len(document["dead"]) == dead  # what SM12x lacks without the series
    assert {row["unit"] for row in document["rows"]} == {"trtllm_allreduce.cu", "fused MoE, 14 units"}


def test_without_the_guards_patch_the_kernels_are_dead_again(root: Path, prove: Prove) -> None:
    drop(root, "open-allreduce-header-guards.patch")
    code, document = prove(*FAST)
    assert code == FINDINGS
    found = faults(document, "name")
    assert {("empty", LAMPORT, "sm_120a"), ("empty", LAMPORT, "sm_121a")} <= found
    assert {("no-wait", ONE_SHOT, "sm_120a"), ("no-trigger", ONE_SHOT, "sm_120a")} <= found
    assert len(document["findings"]) == len(document["dead"]) == 26


@pytest.mark.parametrize("kernel", [ONE_SHOT, LAMPORT])
def test_a_wait_removed_is_found_whether_its_kernel_is_declared_to_change_or_not(
    kernel: str, root: Path, prove: Prove
) -> None:
    without_wait(root, kernel)
    code, document = prove(*FAST)
    assert code == FINDINGS
    assert {("no-wait", kernel, "sm_120a"), ("no-wait", kernel, "sm_121a")} <= faults(document, "name")


def test_the_stride_patch_is_host_code_that_only_a_gpu_shows(root: Path, prove: Prove) -> None:
    """tests/gpu/test_stock.py has the fault: pointers packed at the group's size, read at 16."""
    drop(root, "fix-lamport-pointer-stride.patch")
    code, document = prove(*FAST)
    assert (code, document["findings"]) == (OK, [])


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("broken", ["guards", "wait"])
def test_machine_code_shows_what_is_broken(broken: str, root: Path, prove: Prove) -> None:
    if broken == "guards":
        drop(root, "open-allreduce-header-guards.patch")
    else:
        without_wait(root, LAMPORT)
    words = ["--references", "sm_90a", "--targets", "sm_120a", "--units", "trtllm_allreduce.cu"]
    code, document = prove(*words, "--jobs", "1")
    assert code == FINDINGS
    found = {(entry["fault"], entry["family"], entry["count"]) for entry in document["findings"]}
    if broken == "guards":
        assert {("empty", LAMPORT, 480), ("no-wait", ONE_SHOT, 60), ("no-trigger", ONE_SHOT, 60)} <= found
    else:
        assert found == {("no-wait", LAMPORT, 480)}
