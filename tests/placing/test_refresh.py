"""A patch written anew applies at its own lines, and changes no more bytes than it must."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from downstream.patches.parse import parse
from downstream.patches.unified import unified
from downstream.placing.push import Push, Pushed, push
from downstream.placing.refresh import refresh
from downstream.placing.verdict import HunkStatus
from downstream.trees.tree import MemoryTree

from .test_push import numbered

HEADER = b"Subject: why\nForwarded: no\n\nProse.\n\n---\n"


def pushed(text: bytes, old: bytes, new: bytes) -> tuple[Pushed, bytes]:
    run = Push.over(MemoryTree({"f.txt": new}), base=MemoryTree({"f.txt": old}))
    result = run.step(parse(text, name="p.patch"))
    return result, run.report().changes.get("f.txt", new) or b""


BASE = numbered(1, 60)
TEXT = HEADER + unified("f.txt", "f.txt", BASE, numbered(1, 60, {20: "TWENTY", 45: "FORTY-FIVE\nand more"}))


def test_what_moved_changes_its_numbers_and_nothing_else() -> None:
    result, _ = pushed(TEXT, BASE, b"above\n" * 5 + BASE)
    expected = TEXT.replace(b"@@ -17,7 +17,7 @@", b"@@ -22,7 +22,7 @@").replace(
        b"@@ -42,7 +42,8 @@", b"@@ -47,7 +47,8 @@"
    )
    assert expected != TEXT
    assert refresh(result) == expected


def test_what_stayed_keeps_its_bytes() -> None:
    odd = TEXT.replace(b"@@ -17,7 +17,7 @@", b"@@ -17,7 +17,7 @@ a heading that git would not write")
    result, _ = pushed(odd, BASE, BASE + b"below\n")
    assert refresh(result) == odd


def test_what_upstream_took_leaves_the_rest_with_right_numbers() -> None:
    result, after = pushed(TEXT, BASE, numbered(1, 60, {20: "TWENTY"}))
    rest = refresh(result)
    assert rest is not None
    assert rest.startswith(HEADER)
    assert b"TWENTY" not in rest
    assert b"@@ -42,7 +42,8 @@" in rest
    assert (
        push([parse(rest, name="p")], MemoryTree({"f.txt": numbered(1, 60, {20: "TWENTY"})})).changes["f.txt"] == after
    )


def test_nothing_is_left_of_a_patch_that_upstream_took_whole() -> None:
    result, _ = pushed(TEXT, BASE, numbered(1, 60, {20: "TWENTY", 45: "FORTY-FIVE\nand more"}))
    assert refresh(result) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f.txt", "new/f.txt"),
        ("f", "diff/f"),
        ("Makefile", "build/Makefile"),
        ("a b.txt", "new/a b.txt"),
        ("f.txt", "new folder/f.txt"),
        ("é.txt", "new/é.txt"),
        ("f.txt", "é/f.txt"),
    ],
)
def test_a_patch_follows_its_file_to_its_new_name(tmp_path: Path, old: str, new: str) -> None:
    run = Push.over(MemoryTree({new: BASE}), base=MemoryTree({old: BASE}))
    after = numbered(1, 60, {20: "TWENTY"})
    text = refresh(run.step(parse(unified(old, old, BASE, after), name="p")))
    assert text is not None
    assert text == unified(new, new, BASE, after)
    assert push([parse(text, name="p")], MemoryTree({new: BASE})).clean
    (tmp_path / new).parent.mkdir()
    (tmp_path / new).write_bytes(BASE)
    subprocess.run(["patch", "-p1", "--fuzz=0", "--force"], cwd=tmp_path, input=text, check=True, capture_output=True)
    assert (tmp_path / new).read_bytes() == after


lines = st.lists(st.sampled_from([f"l{number}" for number in range(30)]), min_size=1, max_size=40)
edits = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 2), st.lists(st.sampled_from("xyz"), max_size=2)), max_size=4
)


def edited(base: list[str], changes: list[tuple[int, int, list[str]]]) -> bytes:
    result = list(base)
    for place, drop, put in changes:
        at = place % (len(result) + 1)
        result[at : at + drop] = put
    return "".join(f"{line}\n" for line in result).encode()


@pytest.mark.parametrize("applier", ["git", "patch"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=lines, ours=edits, theirs=edits)
def test_others_apply_a_refreshed_patch_without_offset_and_get_our_file(
    tmp_path: Path,
    applier: str,
    base: list[str],
    ours: list[tuple[int, int, list[str]]],
    theirs: list[tuple[int, int, list[str]]],
) -> None:
    old, new = edited(base, []), edited(base, theirs)
    text = unified("f.txt", "f.txt", old, edited(base, ours))
    if not text or not new or not edited(base, ours):
        return
    result, after = pushed(text, old, new)
    if not result.result.fine or (fresh := refresh(result)) is None:
        return
    again = push([parse(fresh, name="p")], MemoryTree({"f.txt": new}))
    assert [hunk.status for hunk in again.results[0].hunks] == [HunkStatus.CLEAN] * len(again.results[0].hunks)
    assert again.changes.get("f.txt", new) == after
    (tmp_path / "f.txt").write_bytes(new)
    command = ["git", "apply", "-"] if applier == "git" else ["patch", "-p1", "--fuzz=0", "--force"]
    done = subprocess.run(command, cwd=tmp_path, input=fresh, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + fresh
    assert b"offset" not in done.stdout
    assert (tmp_path / "f.txt").read_bytes() == after
