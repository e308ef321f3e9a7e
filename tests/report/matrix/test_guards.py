"""The second map: suspect guards appearing and vanishing, and who answers for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from downstream.report.matrix import page, text
from downstream.report.matrix.guards import STATES, letters, lines, states
from downstream.report.matrix.page_guards import COLOURS

from .conftest import Overlay

GUARD = "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))"
OPEN = "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900))"
LEDGER = """\
schema = 1

[[guard]]
paths = ["include/reviewed.cuh"]
covers = 1
reason = "nobody builds it"
reviewer = "A"
date = 2026-01-01
"""


def kernel(name: str, guard: str | None) -> bytes:
    wait = 'asm volatile("griddepcontrol.wait;");'
    body = f"{guard}\n  {wait}\n#endif" if guard else wait
    return f"__global__ void {name}(float* out) {{\n{body}\n  out[0] = 1.0f;\n}}\n".encode()


@pytest.fixture
def guarded(overlay: Overlay) -> Overlay:
    """1.0: one guard patched, one in the ledger. 0.9: neither yet. 1.1: upstream took the patch. 1.2: a new guard."""
    files = {
        "kernels/a.py": overlay.releases["1.0"]["kernels/a.py"],
        "include/k.cuh": overlay.releases["1.0"]["include/k.cuh"],
    }
    pinned = {**files, "include/wait.cuh": kernel("wait", GUARD), "include/reviewed.cuh": kernel("old", GUARD)}
    overlay.publish("0.9", {**files, "include/wait.cuh": kernel("wait", None)})
    overlay.publish("1.0", pinned)
    overlay.pin()
    opened = kernel("wait", OPEN)
    overlay.add_patch("open.patch", {"include/wait.cuh": pinned["include/wait.cuh"]}, {"include/wait.cuh": opened})
    overlay.publish("1.1", {**pinned, "include/wait.cuh": opened})
    overlay.publish("1.2", {**pinned, "include/wait.cuh": opened + kernel("late", GUARD)})
    (overlay.root / "patches/stable/kernels/guards.toml").write_text(LEDGER, encoding="utf-8")
    return overlay


def asked(overlay: Overlay, *arguments: str) -> dict[str, Any]:
    run = overlay.matrix("--releases", ">=0.1", "--guards", "--json", *arguments)
    assert run.out, run.err
    (matrix,) = json.loads(run.out)["matrices"]
    return dict(matrix)


def shown(matrix: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(row["file"], row["function"]): letters(states([row], matrix)) for row in matrix["guards"]["rows"]}


def test_guards_appear_and_vanish_release_by_release(guarded: Overlay) -> None:
    matrix = asked(guarded)
    assert shown(matrix) == {
        ("include/reviewed.cuh", "old"): "·RRR",
        ("include/wait.cuh", "wait"): "·P··",
        ("include/wait.cuh", "late"): "···S",
    }
    assert matrix["guards"]["changes"] == [
        {"version": "1.0", "appeared": 2, "gone": 0},
        {"version": "1.1", "appeared": 0, "gone": 1},
        {"version": "1.2", "appeared": 1, "gone": 0},
    ]


def test_who_answers_for_a_guard_is_named(guarded: Overlay) -> None:
    cells = {cell["state"]: cell for cell in asked(guarded)["guards"]["cells"]}
    assert cells["patched"]["covered_by"] == "open.patch"
    assert cells["reviewed"]["covered_by"] == "nobody builds it"
    assert cells["suspect"]["covered_by"] == ""
    assert cells["suspect"]["arches"]["sm_120"] == "inactive"
    assert cells["suspect"]["arches"]["sm_90"] == "active"


def test_all_files_are_audited_when_asked(guarded: Overlay) -> None:
    stray = {**guarded.releases["1.2"], "include/stray.cuh": kernel("stray", GUARD)}
    guarded.publish("1.3", stray)
    assert ("include/stray.cuh", "stray") not in shown(asked(guarded))
    run = guarded.matrix("--releases", ">=0.1", "--guards", "all", "--json")
    (matrix,) = json.loads(run.out)["matrices"]
    assert shown(matrix)["include/stray.cuh", "stray"] == "····S"


def test_a_file_judged_once_is_not_judged_again(guarded: Overlay) -> None:
    first = asked(guarded)
    kept = {path: path.stat().st_mtime_ns for path in guarded.cache.glob("v1/guards/*")}
    assert len(kept) == 5  # four releases, and the pinned one with the series applied
    assert asked(guarded, "--offline") == first
    assert {path: path.stat().st_mtime_ns for path in guarded.cache.glob("v1/guards/*")} == kept


def test_a_guard_whose_file_moved_stays_one_row(guarded: Overlay) -> None:
    files = {path: content for path, content in guarded.releases["1.2"].items() if path != "include/reviewed.cuh"}
    guarded.publish("1.3", {**files, "include/new/reviewed.cuh": kernel("old", GUARD)})
    run = guarded.matrix("--releases", ">=0.1", "--guards", "all", "--json")
    (matrix,) = json.loads(run.out)["matrices"]
    # In its new home no entry of the ledger speaks of it.
    assert shown(matrix)["include/new/reviewed.cuh", "old"] == "·RRRS"


def test_the_map_is_in_every_format(guarded: Overlay) -> None:
    matrix = asked(guarded)
    said = list(lines(matrix))
    assert "include/wait.cuh      ·P·S  2" in said
    assert "1.2: 1 appeared, 0 gone" in said
    assert any(line.startswith("include/wait.cuh:") and "suspect" in line for line in said)
    document = {"schema": 1, "command": "matrix", "ok": True, "matrices": [matrix]}
    assert "\n".join(said) in text.render(document)
    assert "·P·S  2" in guarded.matrix("--releases", ">=0.1", "--guards", "--markdown").out
    sheet = page.render(document)
    assert sheet.count('data-map="guards"') == 1
    assert sheet.count('class="g-suspect"') == 2  # the file's row and the guard's
    assert set(COLOURS) == set(STATES)


@pytest.mark.browser
def test_a_click_on_a_guard_says_what_shuts_whom_out(guarded: Overlay, browser: Any, tmp_path: Path) -> None:
    sheet = tmp_path / "guards.html"
    assert guarded.matrix("--releases", ">=0.1", "--guards", "--html", str(sheet)).out
    tab = browser.new_page()
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto(sheet.as_uri())
    rows = tab.locator('table[data-map="guards"] tr.patch')
    rows.nth(1).locator("td").nth(3).click()
    said = tab.locator("#details").inner_text()
    assert "include/wait.cuh" in said
    assert ": suspect" in said
    assert GUARD.removeprefix("#if ") in said
    assert "sm_120 inactive" in said
    rows.nth(1).locator("td").nth(1).click()
    assert "patched: open.patch" in tab.locator("#details").inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator("#details").is_hidden()
    tab.close()
    assert not faults
