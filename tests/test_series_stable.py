"""The patch files of line stable, as files: complete headers, one plain form, nothing left over."""

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
FOLDER = ROOT / "patches" / "stable"
UPSTREAMS = ("flashinfer", "sglang")
PATCHES = [(name, entry.name) for name in UPSTREAMS for entry in load_series(FOLDER / name)]

every_upstream = pytest.mark.parametrize("upstream", UPSTREAMS)
every_patch = pytest.mark.parametrize(("upstream", "name"), PATCHES)


def content(upstream: str, name: str) -> bytes:
    return (FOLDER / upstream / name).read_bytes()


def header(upstream: str, name: str) -> Header:
    return Header.parse(parse(content(upstream, name), name=name).header)


@every_upstream
def test_the_series_names_every_patch_once_and_nothing_else(upstream: str) -> None:
    listed = [entry.name for entry in load_series(FOLDER / upstream)]
    assert sorted(listed) == sorted(path.name for path in (FOLDER / upstream).glob("*.patch"))


@every_upstream
def test_names_say_what_a_patch_does_and_leave_the_order_to_the_series(upstream: str) -> None:
    for entry in load_series(FOLDER / upstream):
        assert re.fullmatch(r"[a-z][a-z0-9]*(?:-[a-z0-9.]+){2,}\.patch", entry.name)
        assert entry.strip == 1


@every_patch
def test_the_header_is_complete(upstream: str, name: str) -> None:
    fields = header(upstream, name)
    assert fields.missing() == []
    assert fields.get("From") is not None
    assert fields.subject is not None
    assert len(fields.subject) <= 72
    datetime.date.fromisoformat(fields.last_update or "")
    assert re.match(r"(?:backport, https://\S+|vendor|upstream, \S+)$", fields.origin or "")
    assert re.fullmatch(r"https://\S+|no|not-needed", fields.forwarded or "")


@every_patch
def test_the_header_says_what_breaks_without_the_patch(upstream: str, name: str) -> None:
    text = header(upstream, name).description
    assert len(text.split()) >= 40
    assert max(len(line) for line in text.splitlines()) <= 82


@every_patch
def test_what_upstream_has_merged_needs_no_forwarding_and_names_the_release(upstream: str, name: str) -> None:
    fields = header(upstream, name)
    if fields.applied_upstream is not None:
        assert fields.forwarded == "not-needed"
        assert re.match(r"\d+\.\d+\.\d+(?:\.post\d+)?(?:, https://\S+| \(.*\))?$", fields.applied_upstream)


@every_patch
def test_git_and_quilt_find_their_form_and_no_churn(upstream: str, name: str) -> None:
    raw = content(upstream, name)
    assert raw.startswith(b"From: ")  # what makes git am take the file for a mail
    assert b"\r" not in raw
    assert raw.endswith(b"\n")
    assert not re.search(rb"^(?:index [0-9a-f]|-- $|GIT binary| \d+ files? changed)", raw, re.MULTILINE)
    head, diff = raw.split(b"\n---\n\n", 1)
    assert b"\ndiff --git " not in head
    assert diff.startswith(b"diff --git ")


@every_patch
def test_paths_are_repository_paths_that_the_wheel_has_too(upstream: str, name: str) -> None:
    layout = pins.load(ROOT, satisfied=False).upstreams[upstream].layout
    for part in parse(content(upstream, name), name=name).files:
        assert part.old_path == part.new_path is not None
        assert layout.to_wheel(part.new_path) is not None


@every_patch
def test_hunks_have_three_lines_of_context(upstream: str, name: str) -> None:
    for part in parse(content(upstream, name), name=name).files:
        for hunk in part.hunks:
            signs = "".join(sign for sign, _ in hunk.body)
            assert hunk.old_start == 1 or re.match(r" {3}[-+]", signs)
            assert re.search(r"[-+] {3}$", signs)


def test_the_13_guards_lose_their_upper_bound_and_nothing_else() -> None:
    patch = parse(content("flashinfer", "open-allreduce-header-guards.patch"), name="guards")
    changed = [(sign, line) for part in patch.files for hunk in part.hunks for sign, line in hunk.body if sign != " "]
    gone = [line for sign, line in changed if sign == "-"]
    assert len(gone) == 13
    assert [line.replace(b" && (__CUDA_ARCH__ < 1200)", b"") for line in gone] == [
        line for sign, line in changed if sign == "+"
    ]
