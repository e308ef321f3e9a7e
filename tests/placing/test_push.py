"""A series over a tree: files as a whole, several patches on one file, and how verdicts fold."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from downstream.patches.parse import parse, parse_tolerant
from downstream.patches.text import Patch
from downstream.patches.unified import unified
from downstream.placing.push import push
from downstream.placing.verdict import HunkStatus as S
from downstream.placing.verdict import PatchResult, PatchStatus, PushReport
from downstream.trees.tree import EXECUTABLE, MemoryTree


def numbered(first: int, last: int, changed: Mapping[int, str] | None = None) -> bytes:
    return "".join(f"{(changed or {}).get(n, f'line {n}')}\n" for n in range(first, last + 1)).encode()


def patch(old: Mapping[str, bytes], new: Mapping[str, bytes], name: str = "p.patch") -> Patch:
    """The patch between two sets of files."""
    parts = [unified(path, path, old.get(path), new.get(path)) for path in sorted(old.keys() | new.keys())]
    return parse(b"".join(parts), name=name)


def only(report: PushReport) -> tuple[PatchResult, S]:
    result = report.results[0]
    return result, result.files[0].status


BASE = numbered(1, 30)
OURS = numbered(1, 30, {15: "OURS"})


@pytest.mark.parametrize("with_base", [True, False])
@pytest.mark.parametrize(
    ("there", "status", "kept"),
    [
        (None, S.CLEAN, b"new\nfile\n"),
        (b"new\nfile\n", S.UPSTREAMED, b"new\nfile\n"),
        (b"theirs\n", S.CONFLICT, b"theirs\n"),
    ],
)
def test_a_file_that_the_patch_adds(there: bytes | None, status: S, kept: bytes, with_base: bool) -> None:
    adding = patch({}, {"n.txt": b"new\nfile\n"})
    tree = MemoryTree({} if there is None else {"n.txt": there})
    report = push([adding], tree, base=MemoryTree({}) if with_base else None)
    assert only(report)[1] is status
    assert report.changes.get("n.txt", there) == kept
    if status is S.CONFLICT:
        assert report.results[0].hunks[0].found == ((1, b"theirs\n"),), "both texts can be seen"


@pytest.mark.parametrize(
    ("there", "status", "kept"),
    [
        (BASE, S.CLEAN, None),
        (None, S.UPSTREAMED, None),
        (numbered(1, 31), S.CONFLICT, numbered(1, 31)),
        (numbered(2, 30), S.CONFLICT, numbered(2, 30)),
    ],
)
def test_a_file_that_the_patch_deletes(there: bytes | None, status: S, kept: bytes | None) -> None:
    deleting = patch({"f.txt": BASE}, {})
    tree = MemoryTree({} if there is None else {"f.txt": there})
    report = push([deleting], tree, base=MemoryTree({"f.txt": BASE}))
    assert only(report)[1] is status
    assert report.changes.get("f.txt", there) == kept


def test_a_file_that_is_gone_without_a_base_is_gone() -> None:
    report = push([patch({"f.txt": BASE}, {"f.txt": OURS})], MemoryTree({"other.txt": BASE}))
    result, status = only(report)
    assert status is S.FILE_GONE
    assert result.status is PatchStatus.CONFLICT
    assert result.hunks[0].reason


@pytest.mark.parametrize("content", [BASE, numbered(1, 30, {2: "two"})])
def test_a_file_that_upstream_moved_is_followed_if_its_content_says_so(content: bytes) -> None:
    tree = MemoryTree({"new/home/f.txt": content, "new/other.txt": b"nothing alike\n"})
    report = push([patch({"old/f.txt": BASE}, {"old/f.txt": OURS})], tree, base=MemoryTree({"old/f.txt": BASE}))
    result, status = only(report)
    assert status is S.FILE_MOVED
    assert result.files[0].moved_to == "new/home/f.txt"
    assert result.status is PatchStatus.REFRESHED
    assert b"OURS\n" in (report.changes["new/home/f.txt"] or b"")


def test_a_file_of_the_same_name_but_other_content_is_not_followed() -> None:
    tree = MemoryTree({"new/f.txt": numbered(100, 130)})
    report = push([patch({"old/f.txt": BASE}, {"old/f.txt": OURS})], tree, base=MemoryTree({"old/f.txt": BASE}))
    assert only(report)[1] is S.FILE_GONE
    assert report.changes == {}


def test_two_homes_equally_alike_are_not_chosen_from() -> None:
    tree = MemoryTree({"a/f.txt": BASE, "b/f.txt": BASE})
    report = push([patch({"old/f.txt": BASE}, {"old/f.txt": OURS})], tree, base=MemoryTree({"old/f.txt": BASE}))
    assert only(report)[1] is S.FILE_GONE
    assert "equally like it" in report.results[0].hunks[0].reason


@pytest.mark.parametrize(("mode", "word"), [(0o120000, "symlink"), (0o100644, "file")])
@pytest.mark.parametrize("with_base", [True, False])
def test_a_file_that_would_come_to_lie_below_a_file_or_symlink(mode: int, word: str, with_base: bool) -> None:
    tree = MemoryTree({"f.txt": BASE, "d": b"/etc"}, modes={"d": mode})
    rename = parse(RENAME.replace(b"to g.txt", b"to d/e/g.txt").replace(b"b/g.txt", b"b/d/e/g.txt"), name="p")
    for one in (patch({}, {"d/e/new.txt": b"new\n"}), rename):
        report = push([one], tree, base=tree if with_base else None)
        assert only(report)[1] is S.CONFLICT
        assert f"d is a {word} there, not a folder" in report.results[0].files[0].reason
        assert report.changes == {}


RENAME = b"diff --git a/f.txt b/g.txt\nsimilarity index 100%\nrename from f.txt\nrename to g.txt\n"


@pytest.mark.parametrize(
    ("tree", "status", "changes"),
    [
        ({"f.txt": BASE}, S.CLEAN, {"f.txt": None, "g.txt": BASE}),
        ({"g.txt": BASE}, S.UPSTREAMED, {}),
        ({"f.txt": BASE, "g.txt": b"x\n"}, S.CONFLICT, {}),
        ({}, S.FILE_GONE, {}),
    ],
)
def test_a_rename(tree: dict[str, bytes], status: S, changes: dict[str, bytes | None]) -> None:
    report = push([parse(RENAME, name="p")], MemoryTree(tree), base=MemoryTree({"f.txt": BASE}))
    assert only(report)[1] is status
    assert report.changes == changes


CHMOD = b"diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"


@pytest.mark.parametrize(
    ("mode", "status", "modes"),
    [(0o100644, S.CLEAN, {"run.sh": EXECUTABLE}), (EXECUTABLE, S.UPSTREAMED, {}), (0o120000, S.CONFLICT, {})],
)
def test_a_mode(mode: int, status: S, modes: dict[str, int]) -> None:
    tree = MemoryTree({"run.sh": b"true\n"}, modes={"run.sh": mode})
    report = push([parse(CHMOD, name="p")], tree, base=MemoryTree({"run.sh": b"true\n"}))
    assert only(report)[1] is status
    assert report.modes == modes


def test_an_empty_new_file_and_a_symlink() -> None:
    text = (
        b"diff --git a/empty b/empty\nnew file mode 100644\n"
        b"diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+target\n"
        b"\\ No newline at end of file\n"
    )
    report = push([parse(text, name="p")], MemoryTree({}))
    assert report.changes == {"empty": b"", "link": b"target"}
    assert report.modes == {"link": 0o120000}


def test_the_same_file_twice_in_one_patch_is_applied_in_sequence() -> None:
    middle, last = numbered(1, 30, {5: "FIVE"}), numbered(1, 30, {5: "five again"})
    both = unified("f.txt", "f.txt", BASE, middle) + unified("f.txt", "f.txt", middle, last)
    for base in (None, MemoryTree({"f.txt": BASE})):
        report = push([parse(both, name="p")], MemoryTree({"f.txt": BASE}), base=base)
        assert report.changes == {"f.txt": last}


def test_a_patch_is_judged_on_what_the_patches_before_it_left() -> None:
    first, second = numbered(1, 30, {5: "5a\n5b"}), numbered(1, 30, {5: "5a\n5b", 20: "TWENTY"})
    series = [patch({"f.txt": BASE}, {"f.txt": first}, "1"), patch({"f.txt": first}, {"f.txt": second}, "2")]
    report = push(series, MemoryTree({"f.txt": BASE}), base=MemoryTree({"f.txt": BASE}))
    assert [result.status for result in report.results] == [PatchStatus.UNMODIFIED, PatchStatus.UNMODIFIED]
    taken = push(series, MemoryTree({"f.txt": first}), base=MemoryTree({"f.txt": BASE}))
    assert [result.status for result in taken.results] == [PatchStatus.UPSTREAMED, PatchStatus.UNMODIFIED]
    assert taken.changes == {"f.txt": second}


def test_after_a_conflict_the_walk_goes_on_and_what_follows_is_tentative() -> None:
    first, second = numbered(1, 30, {5: "FIVE"}), numbered(1, 30, {5: "FIVE", 20: "TWENTY"})
    series = [patch({"f.txt": BASE}, {"f.txt": first}, "1"), patch({"f.txt": first}, {"f.txt": second}, "2")]
    report = push(series, MemoryTree({"f.txt": numbered(1, 30, {5: "theirs"})}), base=MemoryTree({"f.txt": BASE}))
    assert [result.status for result in report.results] == [PatchStatus.CONFLICT, PatchStatus.UNMODIFIED]
    assert [hunk.tentative for result in report.results for hunk in result.hunks] == [False, True]
    assert report.changes == {"f.txt": numbered(1, 30, {5: "theirs", 20: "TWENTY"})}


def test_one_run_names_every_failing_hunk() -> None:
    ours = numbered(1, 60, {10: "ten", 30: "thirty", 50: "fifty"})
    theirs = numbered(1, 60, {10: "moved", 50: "on"})
    report = push(
        [patch({"f": numbered(1, 60)}, {"f": ours})], MemoryTree({"f": theirs}), base=MemoryTree({"f": numbered(1, 60)})
    )
    assert [(hunk.number, hunk.status) for hunk in report.results[0].hunks] == [
        (1, S.CONFLICT),
        (2, S.CLEAN),
        (3, S.CONFLICT),
    ]


@pytest.mark.parametrize("with_base", [True, False])
def test_line_endings_are_told_and_never_converted(with_base: bool) -> None:
    crlf = BASE.replace(b"\n", b"\r\n")
    base = MemoryTree({"f.txt": BASE}) if with_base else None
    report = push([patch({"f.txt": BASE}, {"f.txt": OURS})], MemoryTree({"f.txt": crlf}), base=base)
    assert only(report)[1] is S.LINE_ENDINGS
    assert report.changes == {}


def test_carriage_returns_that_are_content_stay_content() -> None:
    crlf, ours = BASE.replace(b"\n", b"\r\n"), OURS.replace(b"\n", b"\r\n")
    report = push([patch({"f.txt": crlf}, {"f.txt": ours})], MemoryTree({"f.txt": crlf}))
    assert report.changes == {"f.txt": ours}


def test_context_comes_from_the_file_never_from_the_patch() -> None:
    theirs = numbered(1, 30, {13: "their context"})
    report = push(
        [patch({"f.txt": BASE}, {"f.txt": OURS})], MemoryTree({"f.txt": theirs}), base=MemoryTree({"f.txt": BASE})
    )
    assert report.changes == {"f.txt": numbered(1, 30, {13: "their context", 15: "OURS"})}


def test_a_hand_deleted_hunk_leaves_the_others_where_they_belong() -> None:
    ours = numbered(1, 60, {10: "10a\n10b\n10c", 40: "FORTY"})
    text = unified("f", "f", numbered(1, 60), ours)
    second = text[: text.index(b"@@ ")] + text[text.rindex(b"@@ -") :]
    report = push([parse(second, name="p")], MemoryTree({"f": numbered(1, 60)}))
    assert (report.results[0].hunks[0].offset, report.changes) == (0, {"f": numbered(1, 60, {40: "FORTY"})})


def test_a_malformed_file_is_a_verdict_and_the_others_are_still_judged() -> None:
    good = unified("g.txt", "g.txt", BASE, OURS)
    bad = b"diff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n@@ -1,9 +1,9 @@\n line 1\n"
    report = push([parse_tolerant(good + bad, name="p")], MemoryTree({"f.txt": BASE, "g.txt": BASE}))
    result = report.results[0]
    assert result.status is PatchStatus.MALFORMED
    assert {file.path: file.status for file in result.files} == {"g.txt": S.CLEAN, "f.txt": S.MALFORMED}
    assert report.changes == {"g.txt": OURS}


def test_unknown_text_without_a_base_warns_where_it_stands_twice() -> None:
    block = b"a\nb\nc\nd\ne\nf\ng\n"
    ours = block.replace(b"d\n", b"D\n")
    report = push([patch({"f": block}, {"f": ours})], MemoryTree({"f": b"top\n" + block + b"--\n" + block}))
    hunk = report.results[0].hunks[0]
    assert (hunk.status, hunk.candidates) == (S.AMBIGUOUS, (2, 10))
    assert report.changes == {}
