"""The morning after: one report for every line and upstream, and a file per release that needs somebody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..queue.conftest import Overlay, numbered, overlay, story

__all__ = ["overlay", "story"]


def watch(overlay: Overlay, *arguments: str) -> Any:
    return overlay.ask("watch", *arguments, "--root", overlay.root, "--color", "never")


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_release_that_needs_somebody_has_a_report_of_its_own(story: Overlay) -> None:
    run = watch(story)
    folder = story.root / ".work" / "watch"
    assert run.code == 1, run.err
    assert written(folder) == ["matrix.html", "matrix.svg", "report.md", "stable-kernels-2.0.md"]
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert run.out == report == (folder / "stable-kernels-2.0.md").read_text(encoding="utf-8")
    assert report.startswith("# kernels 2.0: line stable, pin 1.0\n\n")
    for part in (
        "### kernels 1.0 → 2.0",  # the rebase's check
        "file-gone",
        "### guards: kernels 1.0 → kernels 2.0",
        "### kernels: the series of line stable on",  # the matrix
        "tools/rebase.py --line stable --upstream kernels=v2.0",
    ):
        assert part in report


def test_nothing_of_the_overlay_is_touched(story: Overlay) -> None:
    before = story.written()
    watch(story)
    assert story.written() == before


def test_a_good_morning_is_exit_code_0_and_no_issue(overlay: Overlay) -> None:
    overlay.publish("1.1", {**overlay.releases["1.0"], "kernels/a.py": b"new\n" + numbered(1, 20)})
    run = watch(overlay, "--out", str(overlay.root / "out"))
    assert run.code == 0, run.err
    assert written(overlay.root / "out") == ["matrix.html", "matrix.svg", "report.md"]
    overlay.publish("1.0.1", {})  # not the newest: nobody asks
    assert watch(overlay, "--out", str(overlay.root / "out")).code == 0


def test_the_pin_itself_may_be_the_newest(overlay: Overlay) -> None:
    run = watch(overlay)
    assert run.code == 0
    assert "The pin, 1.0, is the newest release." in run.out


def test_yesterdays_report_of_a_release_goes_when_it_is_settled(story: Overlay) -> None:
    folder = story.root / "out"
    folder.mkdir()
    (folder / "mine-own-notes.md").write_text("stay")
    watch(story, "--out", str(folder))
    assert (folder / "stable-kernels-2.0.md").exists()
    story.publish("2.2", story.releases["1.0"])
    assert watch(story, "--out", str(folder)).code == 0
    assert written(folder) == ["matrix.html", "matrix.svg", "mine-own-notes.md", "report.md"]


def test_annotations_go_to_stdout_in_place_of_the_report(story: Overlay) -> None:
    run = watch(story, "--github")
    assert run.code == 1
    lines = run.out.splitlines()
    assert any(line.startswith("::error file=patches/stable/kernels/ten.patch,") for line in lines)
    assert all(line.startswith("::") for line in lines)
    assert (story.root / ".work/watch/report.md").read_text(encoding="utf-8").startswith("# kernels 2.0")


def test_json_names_every_release(story: Overlay) -> None:
    run = watch(story, "--json")
    found = json.loads(run.out)
    assert (found["command"], found["ok"], run.code) == ("watch", False, 1)
    assert found["releases"] == [
        {"title": "kernels 2.0: line stable, pin 1.0", "release": "2.0", "ok": False, "failed": False}
    ]
    assert found["matrices"][0]["guards"]["scope"] == "touched"


def test_what_could_not_be_read_is_in_the_report_and_exit_code_2(overlay: Overlay) -> None:
    run = watch(overlay, "--offline")
    assert run.code == 2
    assert "**Could not be checked:**" in run.out
    assert not list((overlay.root / ".work/watch").glob("stable-*"))


def test_a_new_guard_in_a_file_of_the_series_is_a_finding(overlay: Overlay) -> None:
    guard = (
        b"__global__ void late(int* x) {\n#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200\n  x[0] = 1;\n#endif\n}\n"
    )
    k = overlay.releases["1.0"]["include/k.cuh"]
    overlay.publish("1.1", {**overlay.releases["1.0"], "include/k.cuh": k + guard})
    run = watch(overlay)
    assert run.code == 1
    assert "1 new guard that no ledger entry explains" in run.out
    assert "include/k.cuh:42" in run.out


def test_an_upstream_that_no_line_pins_is_refused(overlay: Overlay) -> None:
    run = watch(overlay, "--upstream", "cutlass")
    assert run.code == 2
    assert "choose one of: kernels" in run.err
