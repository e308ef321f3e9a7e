"""What is read of a patch file, what is refused, and that every byte is owned."""

from __future__ import annotations

import time

import pytest

from downstream.errors import PatchError, UnsafePathError
from downstream.patches.parse import MalformedError, parse, parse_tolerant
from downstream.patches.text import ChangeKind

HUNK = b"@@ -1 +1 @@\n-a\n+b\n"


def plain(old: bytes, new: bytes, hunks: bytes = HUNK) -> bytes:
    return b"--- " + old + b"\n+++ " + new + b"\n" + hunks


ONE = plain(b"a/f.c", b"b/f.c")


@pytest.mark.parametrize(
    ("content", "strip", "paths"),
    [
        pytest.param(ONE, 1, ["f.c"], id="plain pair"),
        pytest.param(b"diff --git a/f.c b/f.c\nindex 1a..2b 100644\n" + ONE, 1, ["f.c"], id="git"),
        pytest.param(b"Index: x/f.c\n=====\n" + plain(b"x/f.c", b"x/f.c"), 1, ["f.c"], id="Index"),
        pytest.param(b"Index: f.c\n=====\n" + HUNK, 0, ["f.c"], id="Index alone"),
        pytest.param(b"diff -urN x/f.c y/f.c\n" + plain(b"x/f.c", b"y/f.c"), 1, ["f.c"], id="diff -urN"),
        pytest.param(plain(b"f.c", b"f.c"), 0, ["f.c"], id="-p0"),
        pytest.param(plain(b"x/a/d/f.c", b"x/b/d/f.c"), 2, ["d/f.c"], id="-p2"),
        pytest.param(plain(b"a//f.c", b"b//f.c"), 1, ["f.c"], id="a run of slashes is one"),
        pytest.param(plain(b"./f.c", b"./f.c"), 0, ["f.c"], id="a dot"),
        pytest.param(plain(b"a/f.c\t2026-01-01 10:00:00", b"b/f.c\t2026"), 1, ["f.c"], id="stamp after TAB"),
        pytest.param(
            plain(b"a/f.c   2026-01-01 10:00:00.5 +0100", b"b/f.c  Mon Jan  5 10:00:00 2026"), 1, ["f.c"], id="spaces"
        ),
        pytest.param(plain(b"a/f.c  (revision 12)", b"b/f.c  (working copy)"), 1, ["f.c"], id="revision after spaces"),
        pytest.param(plain(b"a/my file\t", b"b/my file\t"), 1, ["my file"], id="space in a name, TAB"),
        pytest.param(plain(b"a/my file", b"b/my file"), 1, ["my file"], id="space in a name"),
        pytest.param(plain(b'"a/\\303\\251\\t\\"x"', b'"b/\\303\\251\\t\\"x"'), 1, ['é\t"x'], id="C-quoted"),
        pytest.param(plain(b"a/\xe9", b"b/\xe9"), 1, ["\udce9"], id="Latin-1 name"),
        pytest.param(
            b"diff --git a/x b/y b/x b/y\nold mode 100644\nnew mode 100755\n", 1, ["x b/y"], id="' b/' in a name"
        ),
        pytest.param(
            b"diff --git a/x b/x\n" + plain(b"a/x", b"b/x") * 1 + plain(b"a/y", b"b/y"), 1, ["x", "y"], id="two"
        ),
        pytest.param(ONE + ONE, 1, ["f.c", "f.c"], id="the same file twice"),
        pytest.param(b"\xef\xbb\xbfprose\n" + ONE, 1, ["f.c"], id="BOM"),
        pytest.param(b"\xef\xbb\xbf" + ONE, 1, ["f.c"], id="BOM right before the first file header"),
    ],
)
def test_names(content: bytes, strip: int, paths: list[str]) -> None:
    patch = parse(content, name="x.patch", strip=strip)
    assert [file.path for file in patch.files] == paths
    assert patch.to_bytes() == content


@pytest.mark.parametrize(
    ("content", "kind", "old", "new", "hunks"),
    [
        (ONE, ChangeKind.MODIFY, "f.c", "f.c", 1),
        (plain(b"/dev/null", b"b/n", b"@@ -0,0 +1 @@\n+x\n"), ChangeKind.ADD, None, "n", 1),
        (plain(b"a/n", b"/dev/null", b"@@ -1 +0,0 @@\n-x\n"), ChangeKind.DELETE, "n", None, 1),
        (
            plain(b"a/n\t1970-01-01 01:00:00.000000000 +0100", b"b/n\t2026-01-01", b"@@ -0,0 +1 @@\n+x\n"),
            ChangeKind.ADD, None, "n", 1,
        ),
        (
            plain(b"a/n\t2026-01-01", b"b/n\t1969-12-31 19:00:00 -0500", b"@@ -1 +0,0 @@\n-x\n"),
            ChangeKind.DELETE, "n", None, 1,
        ),
        # Without any sign that the file is absent, GNU patch also adds to a file that is there.
        (plain(b"a/n", b"b/n", b"@@ -0,0 +1 @@\n+x\n"), ChangeKind.MODIFY, "n", "n", 1),
        (plain(b"a/f.c.orig", b"b/f.c"), ChangeKind.MODIFY, "f.c.orig", "f.c", 1),
        (b"diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n", ChangeKind.ADD, None, "e", 0),
        (b"diff --git a/e b/e\ndeleted file mode 100644\n", ChangeKind.DELETE, "e", None, 0),
        (b"diff --git a/e b/e\nold mode 100644\nnew mode 100755\n", ChangeKind.MODE, "e", "e", 0),
        (
            b"diff --git a/o b/d/n\nsimilarity index 100%\nrename from o\nrename to d/n\n",
            ChangeKind.RENAME, "o", "d/n", 0,
        ),
        (
            b'diff --git "a/\\303\\251" b/n\nsimilarity index 90%\nrename from "\\303\\251"\nrename to n\n'
            + plain(b'"a/\\303\\251"', b"b/n"),
            ChangeKind.RENAME, "é", "n", 1,
        ),
        (b"diff --git a/o b/n\nsimilarity index 100%\ncopy from o\ncopy to n\n", ChangeKind.COPY, "o", "n", 0),
        # git diff --submodule=diff (met in Debian's qemu): the rename lines begin below the submodule's folder.
        (
            b"diff --git a/s/o b/s/n\nsimilarity index 90%\nrename from o\nrename to n\n" + plain(b"a/s/o", b"b/s/n"),
            ChangeKind.RENAME, "s/o", "s/n", 1,
        ),
        (
            b"diff --git a/s/o b/s/n\nsimilarity index 100%\nrename from o\nrename to n\n",
            ChangeKind.RENAME, "s/o", "s/n", 0,
        ),
    ],
)  # fmt: skip
def test_kinds(content: bytes, kind: ChangeKind, old: str | None, new: str | None, hunks: int) -> None:
    patch = parse(content, name="x.patch")
    (file,) = patch.files
    assert (file.kind, file.old_path, file.new_path, len(file.hunks)) == (kind, old, new, hunks)
    assert patch.to_bytes() == content


def test_modes() -> None:
    content = (
        b"diff --git a/l b/l\nnew file mode 120000\nindex 0..1\n"
        + plain(b"/dev/null", b"b/l", b"@@ -0,0 +1 @@\n+to\n\\ No newline at end of file\n")
        + b"diff --git a/l b/l\nindex 1..2 120000\n" + plain(b"a/l", b"b/l")
        + b"diff --git a/f b/f\nindex 1..2 100755\n" + plain(b"a/f", b"b/f")
        + b"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"
    )  # fmt: skip
    patch = parse(content, name="x.patch")
    assert [(file.old_mode, file.new_mode) for file in patch.files] == [
        (None, 0o120000),
        (0o120000, 0o120000),
        (None, None),
        (0o100644, 0o100755),
    ]
    assert patch.files[0].hunks[0].new == (b"to",)


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        pytest.param(b"@@ -1 +1 @@\n-a\rb\n+c\rd\n", [("-", b"a\rb\n"), ("+", b"c\rd\n")], id="lone CR"),
        pytest.param(
            b"@@ -1,2 +1,2 @@\n \x0c\xc2\x85\xe2\x80\xa8--- a/x\n-a\n+b\n",
            [(" ", b"\x0c\xc2\x85\xe2\x80\xa8--- a/x\n"), ("-", b"a\n"), ("+", b"b\n")],
            id="FF, NEL, U+2028",
        ),
        pytest.param(b"@@ -1,2 +1 @@\n-\xe9\r\n c\r\n", [("-", b"\xe9\r\n"), (" ", b"c\r\n")], id="Latin-1, CR LF"),
        pytest.param(
            b"@@ -1 +1 @@\n-a\n\\ Kein Zeilenumbruch am Dateiende.\n+b\n\\ No newline at end of file\n",
            [("-", b"a"), ("+", b"b")],
            id="no newline, two languages",
        ),
        pytest.param(b"@@ -1,2 +1 @@\n--- x\n c\n", [("-", b"-- x\n"), (" ", b"c\n")], id="SQL comment removed"),
        pytest.param(
            b"@@ -1,2 +1,2 @@\n--- x\n+++ y\n c\n", [("-", b"-- x\n"), ("+", b"++ y\n"), (" ", b"c\n")], id="both signs"
        ),
        pytest.param(b"@@ -1,2 +1 @@\n-a\n\n", [("-", b"a\n"), (" ", b"\n")], id="blank context without its space"),
        pytest.param(b"@@ -1,2 +1 @@\n-a\n\tb\n", [("-", b"a\n"), (" ", b"\tb\n")], id="TAB without its space"),
        pytest.param(b"@@ -1 +1,2 @@\n a\n+\n", [(" ", b"a\n"), ("+", b"\n")], id="ends in an added blank line"),
        pytest.param(b"@@ -1 +1 @@\n-a\n+b", [("-", b"a\n"), ("+", b"b\n")], id="no final LF"),
        pytest.param(b"@@ -1 +1 @@\n-a\n+b\n\\ No newline", [("-", b"a\n"), ("+", b"b")], id="no final LF, marker"),
    ],
)
def test_bodies(body: bytes, pairs: list[tuple[str, bytes]]) -> None:
    content = plain(b"a/f", b"b/f", body)
    patch = parse(content, name="x.patch")
    assert list(patch.files[0].hunks[0].body) == pairs
    assert patch.to_bytes() == content


@pytest.mark.parametrize(
    ("header", "trailer"),
    [
        (b"Subject: x\n--- text\ndiff of opinion\n@@ x @@\n@@ -1 +1 @@\ndiff --git is a command\n\n", b""),
        (b"--- a/x\n+++ b/x\nno hunk follows\n\n", b""),
        (b"", b"-- \n2.39.5\n\n"),
        (b"", b"--\n2.39.5\n"),
        (b"", b"---\ntg: (9a079e2..) t/thread-cancel (depends on: baseline)\n"),
        (b"", b"\n\nFrom 123\nSubject: next\n\n+1 from me\n---\n f | 2 +-\n\n"),
    ],
)
def test_prose_is_not_a_diff(header: bytes, trailer: bytes) -> None:
    content = header + ONE + trailer
    patch = parse(content, name="x.patch")
    assert (patch.header, patch.files[0].trailer, len(patch.files)) == (header, trailer, 1)
    assert patch.to_bytes() == content


def test_crlf_patch_keeps_its_bytes_and_says_so() -> None:
    content = ONE.replace(b"\n", b"\r\n")
    patch = parse(content, name="x.patch")
    assert patch.files[0].crlf
    assert patch.files[0].path == "f.c"
    assert patch.files[0].hunks[0].new == (b"b\r\n",)
    assert patch.to_bytes() == content
    assert not parse(ONE, name="x.patch").files[0].crlf


@pytest.mark.parametrize(
    ("hunks", "line", "hunk", "problem"),
    [
        pytest.param(HUNK + b" more\n", 6, 1, "goes on", id="longer, context"),
        pytest.param(HUNK + b"+more\n", 6, 1, "goes on", id="longer, added"),
        pytest.param(HUNK + b"-- x\n", 6, 1, "goes on", id="longer, removed"),
        pytest.param(HUNK + b"---\n+++\n", 6, 1, "goes on", id="longer, two dashes removed"),
        pytest.param(HUNK + b"\n+more\n", 7, 1, "goes on", id="longer after a blank line"),
        pytest.param(HUNK + b"\n@@ -5 +5 @@\n-a\n+b\n", 7, 1, "goes on", id="a hunk after a gap"),
        pytest.param(HUNK + b"prose\n@@ -5 +5 @@\n-a\n+b\n", 7, 0, "without a file header", id="a hunk after prose"),
        pytest.param(b"@@ -1,2 +1,2 @@\n-a\n+b\n", 5, 1, "ends 1 line before", id="shorter at the end"),
        pytest.param(b"@@ -1,3 +1,3 @@\n-a\n+b\n c\n" + ONE, 7, 1, "at the next file", id="shorter, pair eaten"),
        pytest.param(
            b"@@ -1,3 +1,3 @@\n-a\n+b\n c\ndiff --git a/g b/g\n" + ONE, 7, 1, "ends 1 line before", id="shorter, git"
        ),
        pytest.param(b"@@ -1 +1 @@\n a\n" + b"-b\n", 5, 1, "goes on", id="one side longer"),
        pytest.param(b"@@ -1,0 +1 @@\n a\n", 4, 1, "does not fit", id="context where no old line may be"),
        pytest.param(b"@@ -1,0 +1,0 @@\n", 3, 1, "counts are 0", id="empty hunk"),
        pytest.param(b"@@ -5 +5 @@\n-a\n+b\n" + HUNK, 6, 2, "out of order", id="order"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -2 +2 @@\n-b\n+d\n", 7, 2, "overlaps", id="overlap"),
        pytest.param(b"@@ -1 1 @@\n-a\n+b\n", 3, 1, "cannot be read", id="@@ line"),
        pytest.param(HUNK + b"@@ -x @@\n", 6, 2, "cannot be read", id="second @@ line"),
    ],
)
def test_malformed_hunks_name_patch_file_hunk_and_line(hunks: bytes, line: int, hunk: int, problem: str) -> None:
    content = plain(b"a/d/f.c", b"b/d/f.c", hunks)
    with pytest.raises(MalformedError, match=problem) as caught:
        parse(content, name="x.patch")
    error = caught.value
    assert (error.patch, error.hunk, error.line) == ("x.patch", hunk, line)
    assert error.place == f"x.patch:{line}"
    assert error.path == ("d/f.c" if hunk else "")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"diff --git a/x b/x\n", "no hunk, mode or rename"),
        (b"diff --git a/x b/x\nindex 1..2 100644\n" + ONE[:0], "no hunk, mode or rename"),
        (b"*** a/f\n--- b/f\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n", "context diff"),
        (b"diff --cc f\nindex 1,2..3\n--- a/f\n+++ b/f\n@@@ -1,1 -1,1 +1,1 @@@\n", "combined diff"),
        (b"diff --git a/i.png b/i.png\nindex 1..2 100644\nGIT binary patch\nliteral 3\nabc\n", "binary"),
        (b"diff --git a/i.png b/i.png\nindex 1..2\nBinary files a/i.png and b/i.png differ\n", "binary"),
        (b"diff -r a/i b/i\nBinary files a/i and b/i differ\n", "binary"),
        (ONE + b"Binary files a/i.png and b/i.png differ\n", "binary"),
        (b"diff --git a/m b/m\nindex 1..2 160000\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-S 1\n+S 2\n", "submodule"),
        (b"2c\nfoo\n.\n", "ed script"),
        (b"2c2\n< a\n---\n> b\n", "without context lines"),
        (b"@@ -1 +1 @@\n-a\n+b\n", "without a file header"),
        (b"<html>404</html>\n", "no unified diff"),
        (plain(b"f.c", b"f.c"), "no file at strip level -p1"),
        (plain(b"/dev/null", b"/dev/null"), "no file"),
    ],
)
def test_refused(content: bytes, problem: str) -> None:
    with pytest.raises(PatchError, match=problem):
        parse(content, name="x.patch")


@pytest.mark.parametrize(
    ("name", "strip"),
    [
        (b"a/../../etc/x", 1),
        (b"../x", 0),
        (b"/abs", 0),
        (b"/abs", 1),
        (b"a/.git/config", 1),
        (b"a/d/.GIT/hooks/x", 1),
        (b'"a/x\\000y"', 1),
        (b"a/d/", 1),
        (b"a/.", 1),
    ],
)
def test_unsafe_paths_are_refused(name: bytes, strip: int) -> None:
    with pytest.raises(UnsafePathError) as caught:
        parse(plain(name, name), name="x.patch", strip=strip)
    assert caught.value.place == "x.patch:1"


@pytest.mark.parametrize("content", [b"", b"\n", b"Subject: to be filled\nForwarded: no\n\nWhy.\n"])
def test_a_header_alone_is_a_patch_without_files(content: bytes) -> None:
    patch = parse(content, name="x.patch")
    assert patch.files == ()
    assert patch.to_bytes() == content


def test_tolerant_reading_loses_only_what_is_at_fault() -> None:
    content = (
        b"Subject: x\n\n"
        + plain(b"a/1", b"b/1")
        + plain(b"a/2", b"b/2", HUNK + b"+longer\n")
        + b"diff --git a/i b/i\nindex 1..2\nGIT binary patch\nliteral 3\nabc\n\n"
        + plain(b"a/../4", b"b/../4")
        + plain(b"a/5", b"b/5")
    )
    parsed = parse_tolerant(content, name="x.patch")
    assert [file.path for file in parsed.patch.files] == ["1", "5"]
    assert [type(fault) for fault in parsed.faults] == [MalformedError, MalformedError, UnsafePathError]
    assert parsed.patch.to_bytes() == content


@pytest.mark.parametrize(
    "refused",
    [
        b"diff --git a/m b/m\nindex 1..2 160000\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-S 1\n+S 2\n",
        b"diff --git a/m b/m\nindex 1..2 100644\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\n+b\n+longer\n",
        b"diff -u a/../m b/../m\n--- a/../m\n+++ b/../m\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_one_file_at_fault_is_one_fault(refused: bytes) -> None:
    parsed = parse_tolerant(ONE + refused + ONE, name="x.patch")
    assert (len(parsed.faults), len(parsed.patch.files)) == (1, 2)
    assert parsed.patch.to_bytes() == ONE + refused + ONE


def test_what_is_refused_first_stays_in_the_header() -> None:
    content = plain(b"a/../4", b"b/../4") + ONE
    parsed = parse_tolerant(content, name="x.patch")
    assert [file.path for file in parsed.patch.files] == ["f.c"]
    assert parsed.patch.to_bytes() == content


@pytest.mark.parametrize(
    "content",
    [
        b"1a\n" * 100_000,
        b"--- a" + b" " * 100_000 + b"b\n+++ b\n" + HUNK,
        b"diff --git " + b"a " * 100_000 + b"\n",
        b"diff --git a/x b/x\n" * 5_000,
        b'--- "' + b"\\" * 100_000 + b"\n+++ b\n" + HUNK,
        b"*** a\n" * 100_000,
        b"--- a\n" * 100_000,
        b"Index: f\n" * 20_000,
        b"@@ -1 +1 @@\n" * 50_000,
        b"--- a/f\n+++ b/f\n@@ -1,100000 +1,100000 @@\n" + b" \n" * 99_999,
        b"[" * 100_000,
        b"--- a/f\n+++ b/f\n" + HUNK + b"\n" * 100_000 + b"+",
    ],
)
def test_hostile_input_is_refused_in_time(content: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(PatchError):
        parse(content, name="x.patch")
    assert time.process_time() - begun < 2


def test_hunks_know_their_lines_and_section() -> None:
    patch = parse(b"Subject: x\n\n" + plain(b"a/f", b"b/f", b"@@ -3,0 +4,1 @@ int f(void)\n+b\n"), name="x.patch")
    (hunk,) = patch.files[0].hunks
    assert (hunk.at, hunk.section, patch.files[0].at) == (5, b"int f(void)", 3)
    assert (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count) == (3, 0, 4, 1)
    assert (hunk.old, hunk.new) == ((), (b"b\n",))
