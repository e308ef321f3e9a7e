"""The series of line stable on real releases: what DOMAIN says of them, and what sabotage does to them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from downstream import pins as pinned
from downstream.cli import door
from downstream.patches.parse import split_lines
from downstream.patches.series import load_series
from downstream.patches.text import Patch
from downstream.placing.enclosing import Span, enclosing
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session
from downstream.trees.tree import MemoryTree

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
HEADER = "include/flashinfer/comm/trtllm_allreduce.cuh"
GUARDS = "open-allreduce-header-guards.patch"


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, dict[str, Any]]]:
    def run(release: str) -> tuple[int, dict[str, Any]]:
        code = door("rebase", ["--upstream", release, "--check", "--json"])
        said = capsys.readouterr()
        assert said.out, said.err
        return code, json.loads(said.out)

    return run


def patch_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(patch for patch in document["patches"] if patch["patch"] == name)


def hunks_of(patch: dict[str, Any]) -> list[dict[str, Any]]:
    return [hunk for file in patch["files"] for hunk in file["hunks"]]


def test_the_release_after_the_pin_takes_every_patch(check: Callable[[str], tuple[int, dict[str, Any]]]) -> None:
    code, document = check("v0.6.4")
    assert (code, document["ok"], document["upstream"]) == (0, True, "flashinfer")
    assert {hunk["status"] for patch in document["patches"] for hunk in hunks_of(patch)} <= {
        "clean",
        "offset",
        "merged",
    }


@pytest.mark.parametrize("release", ["v0.6.12", "v0.6.16"])
def test_the_thirteen_guards_still_apply_before_upstream_opened_them(
    check: Callable[[str], tuple[int, dict[str, Any]]], release: str
) -> None:
    _, document = check(release)
    hunks = hunks_of(patch_of(document, GUARDS))
    assert [hunk["status"] for hunk in hunks] == ["clean"] * 13
    assert hunks_of(patch_of(document, "allow-sm120-in-comm-arch-list.patch"))[0]["status"] == "offset"


@pytest.mark.parametrize("release", ["v0.6.17", "v0.7.2"])
def test_what_upstream_took_in_0_6_17_is_proved_and_dated(
    check: Callable[[str], tuple[int, dict[str, Any]]], release: str
) -> None:
    code, document = check(release)
    assert code == 1
    for name in ("allow-sm120-in-comm-arch-list.patch", GUARDS, "fix-lamport-pointer-stride.patch"):
        patch = patch_of(document, name)
        assert patch["status"] == "upstreamed"
        assert {hunk["since"] for hunk in hunks_of(patch)} == {"0.6.17"}
    # Its missing return is upstream's to this day.
    assert patch_of(document, "return-launch-errors.patch")["status"] == "refreshed"


@pytest.mark.parametrize(
    ("release", "since", "home"),
    [
        ("v0.5.12", None, None),
        ("v0.5.14", "0.5.13", "model_executor/runner/base_runner.py"),
        ("v0.5.23", "0.5.13", "model_executor/runner/flashinfer_autotune.py"),
    ],
)
def test_sglangs_autotune_list_is_dated_and_found_again(
    check: Callable[[str], tuple[int, dict[str, Any]]], release: str, since: str | None, home: str | None
) -> None:
    _, document = check(release)
    gate = hunks_of(patch_of(document, "autotune-flashinfer-cutlass-on-sm12x.patch"))[-1]
    assert gate["since"] == since
    assert gate["status"] == ("conflict" if since else "merged")
    assert [place.split("srt/")[1].split(":")[0] for place in gate["elsewhere"]] == ([home] if home else [])


def test_the_fusion_gate_left_communicator_py(check: Callable[[str], tuple[int, dict[str, Any]]]) -> None:
    _, document = check("v0.5.23")
    patch = patch_of(document, "fuse-allreduce-on-sm12x-when-asked.patch")
    statuses = {file["path"].split("/")[-1]: file["status"] for file in patch["files"]}
    assert statuses["communicator.py"] == "file-gone"


@pytest.fixture(scope="module")
def guarded() -> tuple[bytes, Patch]:
    """The header of the pinned release, and the patch that opens its guards."""
    pins = pinned.load(ROOT)
    pin = pins.pin("stable", "flashinfer")
    content = open_pin(pin, Session(default_folder())).read(HEADER)
    assert content is not None
    series = load_series(pins.series_folder(pin))
    return content, series.patch(series.entry(GUARDS))


def kernels(content: bytes, patch: Patch) -> list[Span]:
    lines = split_lines(content)
    found = [enclosing(HEADER, lines, hunk.old_start + 2) for hunk in patch.files[0].hunks]
    assert all(found)
    return list(dict.fromkeys(span for span in found if span))


def opened_guards(content: bytes) -> list[tuple[str, str]]:
    """The kernel around each open guard, and the kernel around each closed one."""
    lines = split_lines(content)
    found = []
    for index, line in enumerate(lines):
        if b"__CUDA_ARCH__ >= 900" in line:
            span = enclosing(HEADER, lines, index)
            found.append((span.name if span else "", "closed" if b"< 1200" in line else "open"))
    return found


@pytest.mark.parametrize("sabotage", ["delete", "double", "swap"])
def test_a_missing_doubled_or_moved_kernel_is_refused_where_gnu_patch_goes_on(
    guarded: tuple[bytes, Patch], tmp_path: Path, sabotage: str
) -> None:
    content, patch = guarded
    lines = split_lines(content)
    spans = kernels(content, patch)
    assert len(spans) == 7
    fooled = 0
    for index, span in enumerate(spans):
        body = lines[span.first : span.end]
        if sabotage == "delete":
            theirs = [*lines[: span.first], *lines[span.end :]]
        elif sabotage == "double":
            theirs = [*lines[: span.end], b"\n", *body, *lines[span.end :]]
        elif index + 1 < len(spans):
            other = spans[index + 1]
            moved = [*lines[other.first : other.end], *lines[span.end : other.first], *body]
            theirs = [*lines[: span.first], *moved, *lines[other.end :]]
        else:
            continue
        text = b"".join(theirs)
        report = push([patch], MemoryTree({HEADER: text}), base=MemoryTree({HEADER: content}))
        refused = [hunk for hunk in report.results[0].hunks if not hunk.status.fine]
        own = sum(enclosing(HEADER, lines, hunk.old_start + 2) == span for hunk in patch.files[0].hunks)
        assert len(refused) >= min(own, 1), span.name
        # Hunks of untouched kernels are placed, each in its own kernel.
        after = report.changes.get(HEADER, text) or b""
        done = [name for name, state in opened_guards(after) if state == "open"]
        placed = [
            enclosing(HEADER, lines, hunk.old_line + 1)
            for hunk in report.results[0].hunks
            if hunk.status.placed and hunk.old_line
        ]
        assert sorted(done) == sorted(where.name for where in placed if where), span.name
        fooled += _gnu_patch_is_fooled(text, patch, tmp_path)
    assert fooled, "the sabotage no longer shows what text search does"


def _gnu_patch_is_fooled(text: bytes, patch: Patch, folder: Path) -> bool:
    """Whether GNU patch at its defaults placed a hunk by fuzz, or all of them without a word."""
    target = folder / HEADER
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text)
    done = subprocess.run(
        ["patch", "-p1", "--force"], cwd=folder, input=patch.to_bytes(), capture_output=True, check=False
    )
    return done.returncode == 0 or bool(re.search(rb"succeeded at \d+ with fuzz", done.stdout))
