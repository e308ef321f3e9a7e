"""The fast proof on the real release: it holds, and each way to break the series is caught."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from downstream.cli import FINDINGS, OK, door
from downstream.patched import build
from downstream.patches.unified import unified
from downstream.pins import load
from downstream.trees.cache import default_folder
from downstream.trees.session import Session

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
HEADER = "include/flashinfer/comm/trtllm_allreduce.cuh"
GUARDS = "open-allreduce-header-guards.patch"
FIELDS = b"Subject: x\nAuthor: x <x@localhost>\nForwarded: not-needed\nLast-Update: 2026-11-30\n\nA reason.\n\n---\n\n"


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """A copy of what the proof reads of the checkout, for a test to break."""
    for name in ("patches", "constraints", "overlay"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "VERSIONS.toml", tmp_path)
    return tmp_path


def prove(
    root: Path, capsys: pytest.CaptureFixture[str], *, line: str = "stable"
) -> tuple[int, list[tuple[str, str, str]]]:
    code = door("kernels", ["prove", "--fast", "--json", "--root", str(root), "--line", line])
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] == (code == OK)
    return code, [(found["fault"], found["name"], found["target"]) for found in document["findings"]]


def edited(root: Path, old: bytes, new: bytes) -> None:
    """Append a patch to the series that turns the first *old* of the header into *new*."""
    pins = load(root)
    with Session(default_folder()) as session:
        before = build(pins, pins.pin("stable", "flashinfer"), session).read(HEADER)
    assert before is not None
    after = before.replace(old, new, 1)
    assert after != before
    folder = root / "patches" / "stable" / "flashinfer"
    text = unified(HEADER, HEADER, before, after, old_mode=0o100644, new_mode=0o100644)
    (folder / "broken.patch").write_bytes(FIELDS + text)
    with (folder / "series").open("a") as series:
        series.write("broken.patch\n")


@pytest.mark.parametrize("line", load(ROOT).lines)
def test_every_line_holds(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(ROOT, capsys, line=line) == (OK, [])


def test_without_the_guards_patch_the_kernels_are_dead_again(overlay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series = overlay / "patches" / "stable" / "flashinfer" / "series"
    series.write_text(series.read_text().replace(f"{GUARDS}\n", ""))
    code, findings = prove(overlay, capsys)
    assert code == FINDINGS
    assert ("empty", "lamport_style_one_shot_all_reduce_norm_kernel", "sm_120a") in findings
    assert {name for fault, name, _ in findings if fault == "no-wait"} == {
        "oneShotAllReduceKernel",
        "one_shot_all_reduce_norm_kernel",
        "one_shot_prenorm_all_reduce_norm_kernel",
        "rms_norm_kernel",
        "rms_pre_post_norm_kernel",
        "twoShotAllReduceKernel",
    }


def test_a_wait_removed_everywhere_moves_code_for_the_references_and_is_missed_on_the_targets(
    overlay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(overlay, b"  cudaGridDependencySynchronize();\n", b"")
    code, findings = prove(overlay, capsys)
    assert code == FINDINGS
    moved, missed = {("moved", "sm_90a"), ("moved", "sm_100a")}, {("no-wait", "sm_120a"), ("no-wait", "sm_121a")}
    assert {(fault, target) for fault, _, target in findings} == moved | missed


def test_a_wait_removed_on_sm120_only_is_missed_there(overlay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wait = b"  cudaGridDependencySynchronize();\n"
    edited(overlay, wait, b"#if __CUDA_ARCH__ < 1200\n" + wait + b"#endif\n")
    code, findings = prove(overlay, capsys)
    assert code == FINDINGS
    assert {(fault, target) for fault, _, target in findings} == {("no-wait", "sm_120a"), ("no-wait", "sm_121a")}
