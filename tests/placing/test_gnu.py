"""GNU patch is the oracle: without a base, every hunk ends where it ends there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from downstream.patches.parse import parse
from downstream.patches.unified import unified
from downstream.placing.push import push
from downstream.placing.verdict import HunkResult, HunkStatus
from downstream.trees.tree import MemoryTree

SAID = re.compile(r"Hunk #(\d+) (succeeded|FAILED) at (\d+)(?: with fuzz (\d+))?(?: \(offset (-?\d+) lines?\))?")


def gnu_patch(
    folder: Path, patch: bytes, content: bytes, *, fuzz: int
) -> tuple[dict[int, tuple[bool, int, int, int]], bytes]:
    """Return what GNU patch says per hunk (placed, line, fuzz, offset), and the file it leaves."""
    (folder / "f").write_bytes(content)
    run = subprocess.run(
        ["patch", "-p1", "--verbose", "--force", f"--fuzz={fuzz}", "--reject-file=-"],
        cwd=folder,
        input=patch,
        capture_output=True,
        check=False,
    )
    said = {
        int(number): (verb == "succeeded", int(line), int(taken or 0), int(offset or 0))
        for number, verb, line, taken, offset in SAID.findall(run.stdout.decode("latin-1"))
    }
    return said, (folder / "f").read_bytes()


def placed(patch: bytes, content: bytes) -> tuple[tuple[HunkResult, ...], bytes]:
    report = push([parse(patch, name="p")], MemoryTree({"f": content}))
    changed = report.changes.get("f", content)
    assert changed is not None
    return report.results[0].hunks, changed


# Few distinct lines make look-alikes; an edit is (place, lines to drop, lines to put).
lines = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40)
edits = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 3), st.lists(st.sampled_from("abcdefgh"), max_size=3)), max_size=4
)


def edited(base: list[str], changes: list[tuple[int, int, list[str]]]) -> list[str]:
    result = list(base)
    for place, drop, put in changes:
        at = place % (len(result) + 1)
        result[at : at + drop] = put
    return result


def content_of(text: list[str], *, newline: bool) -> bytes:
    joined = "".join(f"{line}\n" for line in text).encode()
    return joined if newline else joined[:-1]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=lines,
    ours=edits,
    theirs=edits,
    context=st.sampled_from((0, 1, 2, 3, 3)),
    newlines=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_every_hunk_ends_where_gnu_patch_puts_it(
    tmp_path: Path,
    base: list[str],
    ours: list[tuple[int, int, list[str]]],
    theirs: list[tuple[int, int, list[str]]],
    context: int,
    newlines: tuple[bool, bool, bool],
) -> None:
    old, new, tree = (
        content_of(text, newline=newline)
        for text, newline in zip((base, edited(base, ours), edited(base, theirs)), newlines, strict=True)
    )
    patch = unified("f", "f", old, new, context=context)
    if not patch or not old or not new:
        return
    said, result = gnu_patch(tmp_path, patch, tree, fuzz=0)
    hunks, ours_result = placed(patch, tree)
    unsure = [hunk for hunk in hunks if hunk.status is HunkStatus.AMBIGUOUS]
    for hunk in hunks:
        found, line, _, offset = said[hunk.number]
        if hunk.status is HunkStatus.AMBIGUOUS:
            assert found, "only a text that stands somewhere can stand twice"
            assert len(hunk.candidates) > 1
        elif hunk.status in (HunkStatus.CLEAN, HunkStatus.OFFSET):
            assert found
            assert hunk.offset == offset
            assert (hunk.status is HunkStatus.CLEAN) == (offset == 0)
            assert unsure or hunk.line == line
        else:
            assert not found, hunk.reason
    if not unsure:
        assert ours_result == result


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=lines, ours=edits, theirs=edits)
def test_the_fuzz_hint_is_what_gnu_patch_would_use(
    tmp_path: Path, base: list[str], ours: list[tuple[int, int, list[str]]], theirs: list[tuple[int, int, list[str]]]
) -> None:
    old, new, tree = (content_of(text, newline=True) for text in (base, edited(base, ours), edited(base, theirs)))
    patch = unified("f", "f", old, new)
    if not old or patch.count(b"\n@@ ") != 1:
        return
    hunk = placed(patch, tree)[0][0]
    if hunk.status is not HunkStatus.CONFLICT:
        return
    found, _, fuzz, _ = gnu_patch(tmp_path, patch, tree, fuzz=2)[0][1]
    assert hunk.hint_fuzz == (fuzz if found else None)


@pytest.mark.parametrize(
    ("case", "patch", "tree", "status"),
    [
        ("an empty old side adds at the top", b"@@ -0,0 +1 @@\n+new\n", b"a\nb\n", HunkStatus.CLEAN),
        ("no context trusts the line number", b"@@ -2,0 +3 @@\n+new\n", b"a\nb\nc\n", HunkStatus.CLEAN),
        ("no context, below an empty file", b"@@ -2,0 +3 @@\n+new\n", b"", HunkStatus.CLEAN),
        ("it begins the file", b"@@ -1,2 +1,2 @@\n-a\n+A\n b\n", b"x\na\nb\n", HunkStatus.CONFLICT),
        ("it ends the file", b"@@ -1,2 +1,2 @@\n a\n-b\n+B\n", b"a\nb\nc\n", HunkStatus.CONFLICT),
        ("far off", b"@@ -9,3 +9,3 @@\n a\n-b\n+B\n c\n", b"a\nb\nc\n", HunkStatus.OFFSET),
    ],
)
def test_where_a_hunk_may_match(tmp_path: Path, case: str, patch: bytes, tree: bytes, status: HunkStatus) -> None:
    whole = b"--- a/f\n+++ b/f\n" + patch
    hunks, result = placed(whole, tree)
    assert hunks[0].status is status, case
    said, theirs = gnu_patch(tmp_path, whole, tree, fuzz=0)
    assert said[1][0] == hunks[0].status.placed
    assert result == theirs


def test_a_patch_from_a_mailer_that_added_carriage_returns_fits_an_lf_file(tmp_path: Path) -> None:
    patch = b"--- a/f\r\n+++ b/f\r\n@@ -1,3 +1,3 @@\r\n a\r\n-b\r\n+B\r\n c\r\n"
    assert placed(patch, b"a\nb\nc\n")[1] == gnu_patch(tmp_path, patch, b"a\nb\nc\n", fuzz=0)[1] == b"a\nB\nc\n"


def test_a_hunk_that_claims_the_end_of_the_file_says_so_where_its_text_stands_above_it() -> None:
    text = b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n two\n-three\n+THREE\n"
    tree = MemoryTree({"f": b"one\ntwo\nthree\nfour\n"})
    hunk = push([parse(text, name="p")], tree).results[0].hunks[0]
    assert hunk.status is HunkStatus.CONFLICT
    assert "begins or ends the file" in hunk.reason
