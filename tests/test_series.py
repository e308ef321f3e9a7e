"""The patch files of every line, as files: complete headers, one plain form, nothing left over."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from downstream import pins
from downstream.patches.header import Header
from downstream.patches.parse import parse
from downstream.patches.series import load_series

ROOT = Path(__file__).resolve().parent.parent
PINS = pins.load(ROOT)
SERIES = [f"{line}/{upstream}" for line in PINS.lines for upstream in PINS.line(line).pins]
PATCHES = [(series, entry.name) for series in SERIES for entry in load_series(ROOT / "patches" / series)]

every_series = pytest.mark.parametrize("series", SERIES)
every_patch = pytest.mark.parametrize(("series", "name"), PATCHES)


def content(series: str, name: str) -> bytes:
    return (ROOT / "patches" / series / name).read_bytes()


def header(series: str, name: str) -> Header:
    return Header.parse(parse(content(series, name), name=name).header)


def test_the_lines_are_those_that_have_a_folder() -> None:
    assert sorted(SERIES) == sorted(
        path.parent.relative_to(ROOT / "patches").as_posix() for path in ROOT.glob("patches/*/*/series")
    )


@every_series
def test_the_series_names_every_patch_once_and_nothing_else(series: str) -> None:
    listed = [entry.name for entry in load_series(ROOT / "patches" / series)]
    assert sorted(listed) == sorted(path.name for path in (ROOT / "patches" / series).glob("*.patch"))


@every_series
def test_names_say_what_a_patch_does_and_leave_the_order_to_the_series(series: str) -> None:
    for entry in load_series(ROOT / "patches" / series):
        assert re.fullmatch(r"[a-z][a-z0-9]*(?:-[a-z0-9.]+){2,}\.patch", entry.name)
        assert entry.strip == 1


@every_patch
def test_the_header_is_complete(series: str, name: str) -> None:
    fields = header(series, name)
    assert fields.missing() == []
    assert fields.get("From") is not None
    assert fields.subject is not None
    assert len(fields.subject) <= 72
    datetime.date.fromisoformat(fields.last_update or "")
    assert re.match(r"(?:backport, https://\S+|vendor|upstream, \S+)$", fields.origin or "")
    assert re.fullmatch(r"https://\S+|no|not-needed", fields.forwarded or "")


@every_patch
def test_the_header_says_what_breaks_without_the_patch(series: str, name: str) -> None:
    text = header(series, name).description
    assert len(text.split()) >= 40
    assert max(len(line) for line in text.splitlines()) <= 82


@every_patch
def test_what_upstream_has_merged_needs_no_forwarding_and_names_the_release(series: str, name: str) -> None:
    fields = header(series, name)
    if fields.applied_upstream is not None:
        assert fields.forwarded == "not-needed"
        assert re.match(r"\d+\.\d+\.\d+(?:\.post\d+)?(?:, https://\S+| \(.*\))?$", fields.applied_upstream)


@every_patch
def test_git_and_quilt_find_their_form_and_no_churn(series: str, name: str) -> None:
    raw = content(series, name)
    assert raw.startswith(b"From: ")  # what makes git am take the file for a mail
    assert b"\r" not in raw
    assert raw.endswith(b"\n")
    assert not re.search(rb"^(?:index [0-9a-f]|-- $|GIT binary| \d+ files? changed)", raw, re.MULTILINE)
    head, diff = raw.split(b"\n---\n\n", 1)
    assert b"\ndiff --git " not in head
    assert diff.startswith(b"diff --git ")


@every_patch
def test_paths_are_repository_paths_that_the_wheel_has_too(series: str, name: str) -> None:
    layout = PINS.upstreams[series.rpartition("/")[2]].layout
    for part in parse(content(series, name), name=name).files:
        assert part.old_path == part.new_path is not None
        assert layout.to_wheel(part.new_path) is not None


@every_patch
def test_hunks_have_three_lines_of_context(series: str, name: str) -> None:
    for part in parse(content(series, name), name=name).files:
        for hunk in part.hunks:
            signs = "".join(sign for sign, _ in hunk.body)
            assert hunk.old_start == 1 or re.match(r" {3}[-+]", signs)
            assert re.search(r"[-+] {3}$", signs)


def test_the_13_guards_lose_their_upper_bound_and_nothing_else() -> None:
    patch = parse(content("stable/flashinfer", "open-allreduce-header-guards.patch"), name="guards")
    changed = [(sign, line) for part in patch.files for hunk in part.hunks for sign, line in hunk.body if sign != " "]
    gone = [line for sign, line in changed if sign == "-"]
    assert len(gone) == 13
    assert [line.replace(b" && (__CUDA_ARCH__ < 1200)", b"") for line in gone] == [
        line for sign, line in changed if sign == "+"
    ]


@pytest.mark.parametrize("line", PINS.lines)
def test_nothing_turns_the_fusion_on_by_itself(line: str) -> None:
    """What sets a model's flags says nothing of it; over PCIe four GPUs lose (sgl-project/sglang#32330)."""
    patches = load_series(ROOT / "patches" / line / "sglang").patches()
    setters = {f"python/sglang/srt/arg_groups/{name}.py" for name in ("overrides", "serving_hook")}
    hunks = [hunk for patch in patches for file in patch.files if file.new_path in setters for hunk in file.hunks]
    changed = [text for hunk in hunks for sign, text in hunk.body if sign != " "]
    assert not [text for text in changed if b"fusion" in text.lower()]
    text = header(f"{line}/sglang", "fuse-allreduce-on-sm12x-when-asked.patch").description
    assert "stays opt-in" in text
    assert "sgl-project/sglang#32330" in text


def test_what_line_next_keeps_of_line_stable_has_the_same_name_and_subject() -> None:
    kept = {name for series, name in PATCHES if series == "next/flashinfer"}
    assert kept < {name for series, name in PATCHES if series == "stable/flashinfer"}
    for name in kept:
        assert header("next/flashinfer", name).subject == header("stable/flashinfer", name).subject
