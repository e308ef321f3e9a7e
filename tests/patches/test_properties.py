"""Properties: no byte is lost, garbage is an error and never a crash, and git and GNU patch agree with us."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from downstream.errors import PatchError
from downstream.patches.crosscheck import crosscheck
from downstream.patches.parse import parse, parse_tolerant
from downstream.patches.series import load_series
from downstream.patches.unified import unified

LINES = st.sampled_from(
    [b"a", b"b", b"}", b"", b"-- x", b"++ y", b"\x0c", b"\r", b"\xe9", b"@@ -1 +1 @@", b"\\ no", b" "]
)
CONTENT = st.builds(
    lambda lines, end: b"\n".join(lines) + end, st.lists(LINES, max_size=25), st.sampled_from([b"", b"\n"])
)
NAME = st.sampled_from(["f", "my file", "é", "d/f.c", 'q"\\', "tab\tx", "x b/y"])
WORDS = """diff --git a/f b/f|diff --git a/f b/g|old mode 100644|new mode 100755|rename from f|rename to g
|index 1..2 100644|--- a/f|+++ b/f|--- /dev/null|@@ -1 +1 @@|@@ -1,2 +1,2 @@ x|@@ -0,0 +1 @@| a|-a|+b
|\\ No newline|prose|-- x|Subject: x|prose|Index: f|==="""
PIECES = st.lists(
    st.sampled_from([word.strip("\n").encode() + b"\n" for word in WORDS.split("|")])
    | st.sampled_from([b"\n", b"*** a\n***************\n", b"\r\n", b"GIT binary patch\n", b"\xff\x00", b"- x"]),
    max_size=30,
)


@given(PIECES)
@settings(max_examples=300, deadline=None)
def test_anything_is_read_or_refused_and_no_byte_is_lost(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    try:
        parsed = parse_tolerant(content, name="x.patch")
    except PatchError:
        return
    assert parsed.patch.to_bytes() == content
    crosscheck(parsed.patch)
    for file in parsed.patch.files:
        for hunk in file.hunks:
            assert (len(hunk.old), len(hunk.new)) == (hunk.old_count, hunk.new_count)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_a_series_of_garbage_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "series").write_bytes(content)
        try:
            series = load_series(Path(folder))
        except PatchError:
            return
        written = series.with_entries(series.entries)
        assert written in (content, content + b"\n")


@given(CONTENT, CONTENT, NAME, st.integers(0, 4))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_git_and_gnu_patch_make_the_new_file_of_what_we_write(old: bytes, new: bytes, name: str, context: int) -> None:
    patch = unified(name, name, old, new, context=context)
    if not patch:
        assert old == new
        return
    assert parse(patch, name="x").to_bytes() == patch
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for tool in (
            ["git", "apply", "-p1", "--unidiff-zero", "--whitespace=nowarn", "-"],
            ["patch", "-p1", "-s", "-f", "--fuzz=0", "--binary"],
        ):
            target = root / tool[0] / name
            target.parent.mkdir(parents=True)
            target.write_bytes(old)
            subprocess.run(
                tool,
                cwd=root / tool[0],
                input=patch,
                check=True,
                env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": folder},
            )
            # GNU patch removes a file that it empties unless told otherwise by the header; git keeps it.
            assert target.read_bytes() == new


@given(CONTENT, NAME)
@settings(max_examples=10, deadline=None)
def test_added_and_deleted_files_round_trip_through_git(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for patch in (unified(None, name, None, content, new_mode=0o100755), unified(name, None, content, None)):
            subprocess.run(["git", "apply", "-p1", "--whitespace=nowarn", "-"], cwd=folder, input=patch, check=True)
            target = Path(folder, name)
            if patch.count(b"new file mode 100755"):
                assert target.read_bytes() == content
                assert target.stat().st_mode & 0o100
        assert not target.exists()
