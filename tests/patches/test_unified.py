"""Changes written as git writes them, and taken by git and by GNU patch."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downstream.patches.differences import Block, differences
from downstream.patches.parse import parse
from downstream.patches.text import ChangeKind
from downstream.patches.unified import unified, unified_hunks


def lines(first: int, last: int, **changes: str) -> bytes:
    return b"".join(changes.get(f"n{n}", str(n)).encode() + b"\n" for n in range(first, last + 1))


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        pytest.param(("f", "f", b"a\n", b"b\n"), b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", id="modify"),
        pytest.param(
            (None, "f", None, b"b\n"),
            b"new file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n",
            id="add",
        ),
        pytest.param((None, "f", None, b""), b"new file mode 100644\n", id="add an empty file"),
        pytest.param(
            ("f", None, b"a\n", None),
            b"deleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
            id="delete",
        ),
        pytest.param(
            ("f", "f", b"a", b"b"),
            b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
            id="no newline on either side",
        ),
        pytest.param(
            ("f", "f", b"a\n", b"a"),
            b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n",
            id="newline lost",
        ),
    ],
)
def test_git_form(arguments: tuple[str | None, str | None, bytes | None, bytes | None], written: bytes) -> None:
    assert unified(*arguments) == b"diff --git a/f b/f\n" + written


def test_nothing_changed_is_nothing_written() -> None:
    assert unified("f", "f", b"a\n", b"a\n") == b""
    assert unified(None, None, None, None) == b""
    assert unified("f", "f", b"", b"", old_mode=0o100644, new_mode=0o100644) == b""


def test_modes_renames_and_copies() -> None:
    assert unified("f", "f", b"a\n", b"a\n", old_mode=0o100644, new_mode=0o100755) == (
        b"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"
    )
    moved = unified("f", "d/g", b"a\n", b"a\n")
    assert moved == b"diff --git a/f b/d/g\nrename from f\nrename to d/g\n"
    assert b"copy from f\ncopy to d/g\n" in unified("f", "d/g", b"a\n", b"a\n", copy=True)


def test_names_are_quoted_and_ended_as_git_does() -> None:
    assert unified('é"', 'é"', b"a\n", b"b\n").split(b"@@")[0] == (
        b'diff --git "a/\\303\\251\\"" "b/\\303\\251\\""\n--- "a/\\303\\251\\""\n+++ "b/\\303\\251\\""\n'
    )
    assert b"--- a/my file\t\n+++ b/my file\t\n" in unified("my file", "my file", b"a\n", b"b\n")


def test_the_section_is_the_last_line_that_begins_like_a_definition() -> None:
    old = b"int f(void)\n{\n" + lines(1, 9) + b"}\n"
    assert b"@@ -6,6 +6,7 @@ int f(void)\n" in unified("f", "f", old, old.replace(b"6\n", b"6\nnew\n"))


@pytest.mark.parametrize(
    ("gap", "hunks"),
    [(6, 1), (7, 2)],
)
def test_changes_are_joined_where_all_lines_between_are_context(gap: int, hunks: int) -> None:
    old, new = lines(1, 30), lines(1, 30, n5="five", **{f"n{5 + gap + 1}": "other"})
    assert unified_hunks(old, new).count(b"@@ -") == hunks


@pytest.mark.parametrize(
    ("old", "new", "blocks"),
    [
        ("abc", "abc", []),
        ("", "ab", [Block(0, 0, 0, 2)]),
        ("ab", "", [Block(0, 2, 0, 0)]),
        ("abc", "axc", [Block(1, 2, 1, 2)]),
        ("abcabba", "cbabac", [Block(0, 2, 0, 0), Block(3, 3, 1, 2), Block(5, 6, 4, 4), Block(7, 7, 5, 6)]),
        ("a}}b", "a}}}b", [Block(3, 3, 3, 4)]),
        ("a}}}b", "a}}b", [Block(3, 4, 3, 3)]),
    ],
)
def test_differences(old: str, new: str, blocks: list[Block]) -> None:
    found = differences([c.encode() for c in old], [c.encode() for c in new])
    assert rebuilt(old, new, found) == new
    assert sum(b.old_end - b.old_start + b.new_end - b.new_start for b in found) == sum(
        b.old_end - b.old_start + b.new_end - b.new_start for b in blocks
    )
    if len(blocks) < 2:
        assert found == blocks


def rebuilt(old: str, new: str, blocks: list[Block]) -> str:
    out, at = "", 0
    for block in blocks:
        out += old[at : block.old_start] + new[block.new_start : block.new_end]
        at = block.old_end
    return out + old[at:]


CODE = st.lists(
    st.sampled_from([b"def f():", b"    if x:", b"        y()", b"    else:", b"    return", b"", b"}", b"\tz", b"  "]),
    min_size=1,
    max_size=12,
)


@given(CODE, CODE, st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_an_added_or_removed_run_stands_where_git_puts_it(code: list[bytes], run: list[bytes], at: int) -> None:
    old = b"".join(line + b"\n" for line in code)
    new = b"".join(line + b"\n" for line in [*code[:at], *run, *code[at:]])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "old").write_bytes(old)
        Path(folder, "new").write_bytes(new)
        for before, after, ours in (("old", "new", unified_hunks(old, new)), ("new", "old", unified_hunks(new, old))):
            command = ["git", "diff", "--no-index", "--no-color", before, after]
            out = subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout
            assert ours == out[out.index(b"@@ -") :]


def test_files_that_share_little_are_still_compared_at_once() -> None:
    old = [b"old %d\n" % n for n in range(6000)]
    new = [b"new %d\n" % n for n in range(6000)]
    old[3000] = new[3000] = b"common\n"
    assert differences(old, new) == [Block(0, 3000, 0, 3000), Block(3001, 6000, 3001, 6000)]


def test_what_is_written_is_read_back() -> None:
    old, new = lines(1, 40), lines(1, 40, n3="x", n20="y", n39="z")
    (file,) = parse(unified("d/f", "d/f", old, new), name="x").files
    assert (file.kind, [hunk.old_start for hunk in file.hunks]) == (ChangeKind.MODIFY, [1, 17, 36])
