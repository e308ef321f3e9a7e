"""The series file, by quilt's rules and what people write into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from downstream.errors import PatchError, UnsafePathError
from downstream.patches.series import SeriesEntry, load_series, renamed

PATCH = b"Subject: x\n\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"


def series(folder: Path, content: bytes, *names: str) -> Path:
    (folder / "series").write_bytes(content)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(PATCH)
    return folder


@pytest.mark.parametrize(
    ("line", "name", "strip", "comment"),
    [
        (b"a.patch\n", "a.patch", 1, ""),
        (b"a.patch", "a.patch", 1, ""),
        (b"  a.patch \t\r\n", "a.patch", 1, ""),
        (b"a.patch # why: not yet\n", "a.patch", 1, "why: not yet"),
        (b"a.patch\t#why\n", "a.patch", 1, "why"),
        (b"a#1.patch\n", "a#1.patch", 1, ""),
        (b"a.patch -p0\n", "a.patch", 0, ""),
        (b"a.patch -p2 # deep\n", "a.patch", 2, "deep"),
        (b"a.patch -p 0\n", "a.patch", 0, ""),
        (b"a.patch -pab\n", "a.patch", 1, ""),
        (b"a.patch\x0c\n", "a.patch", 1, ""),
        (b"\x0ca.patch -p1\n", "a.patch", 1, ""),
        (b"my own.patch\n", "my own.patch", 1, ""),
        (b"my own.patch -p2\n", "my own.patch", 2, ""),
        (b'"my own # 2.patch" -p2 # odd\n', "my own # 2.patch", 2, "odd"),
        (b"sub/a.patch\n", "sub/a.patch", 1, ""),
        (b"\xe9.patch\n", "\udce9.patch", 1, ""),
        (b"\xef\xbb\xbfa.patch\n", "a.patch", 1, ""),
    ],
)
def test_lines(tmp_path: Path, line: bytes, name: str, strip: int, comment: str) -> None:
    (entry,) = load_series(series(tmp_path, line)).entries
    assert (entry.name, entry.strip, entry.comment, entry.line) == (name, strip, comment, 1)


@pytest.mark.parametrize("line", [b"\n", b"# a.patch\n", b"   # a.patch\n", b"#a.patch -p1\n", b"\x0c\n", b" \r\n"])
def test_lines_without_a_patch(tmp_path: Path, line: bytes) -> None:
    assert load_series(series(tmp_path, line)).entries == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"x\na.patch -R\n", "reversed"),
        (b"x\na.patch -p1 --reverse\n", "reversed"),
        (b"x\na.patch -Z\n", "not known: -Z"),
        (b'x\n"a b" c\n', "after the quoted name"),
    ],
)
def test_options_we_cannot_honour_are_refused(tmp_path: Path, line: bytes, problem: str) -> None:
    with pytest.raises(PatchError, match=problem) as caught:
        load_series(series(tmp_path, line))
    assert caught.value.place == f"{tmp_path.name}/series:2"


@pytest.mark.parametrize("name", [b"../x.patch", b"/x.patch", b"a/../../x.patch"])
def test_names_stay_in_the_folder(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(UnsafePathError):
        load_series(series(tmp_path, name))


def test_patches_are_read_in_order_with_their_strip_level(tmp_path: Path) -> None:
    folder = series(tmp_path, b"b.patch\nsub/a.patch -p0\n", "b.patch", "sub/a.patch")
    patches = load_series(folder).patches()
    assert [(patch.name, patch.files[0].path) for patch in patches] == [("b.patch", "f"), ("sub/a.patch", "b/f")]
    assert patches[0].to_bytes() == PATCH


def test_a_name_without_a_file_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="no such file") as caught:
        load_series(series(tmp_path, b"# x\ngone.patch\n")).patches()
    assert caught.value.place == f"{tmp_path.name}/series:2"


def test_no_series_file(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="no such file"):
        load_series(tmp_path)


RAW = b"# head\n\na.patch -p1 # one\n# about b\nb.patch\x0c\nc.patch"


@pytest.mark.parametrize(
    ("order", "written"),
    [
        (["a", "b", "c"], RAW + b"\n"),
        (["a", "c"], b"# head\n\na.patch -p1 # one\n# about b\nc.patch\n"),
        (["a", "b"], b"# head\n\na.patch -p1 # one\n# about b\nb.patch\x0c\n"),
        (["b", "a", "c"], b"# about b\nb.patch\x0c\n# head\n\na.patch -p1 # one\nc.patch\n"),
        ([], b"# head\n\n# about b\n"),
    ],
)
def test_comments_survive_a_rewrite(tmp_path: Path, order: list[str], written: bytes) -> None:
    loaded = load_series(series(tmp_path, RAW))
    assert loaded.with_entries([loaded.entry(name) for name in order]) == written


def test_new_entries_are_written_so_that_they_read_back(tmp_path: Path) -> None:
    loaded = load_series(series(tmp_path, RAW))
    added = [
        SeriesEntry(name="my own.patch", strip=0, comment="see #12"),
        SeriesEntry(name="odd #1.patch"),
        renamed(loaded.entry("a"), "z.patch"),
    ]
    again = load_series(series(tmp_path, loaded.with_entries([*loaded.entries, *added])))
    assert [(e.name, e.strip, e.comment) for e in again.entries[3:]] == [
        ("my own.patch", 0, "see #12"),
        ("odd #1.patch", 1, ""),
        ("z.patch", 1, "one"),
    ]


def test_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="has no patch 'nope'"):
        load_series(series(tmp_path, RAW)).entry("nope")


@pytest.mark.parametrize(
    ("folder", "place"),
    [("patches/stable/kernels", "patches/stable/kernels/series:1"), ("debian/patches", "patches/series:1")],
)
def test_a_line_s_own_series_is_named_from_patches_on(tmp_path: Path, folder: str, place: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "series").write_bytes(b"a.patch --what\n")
    with pytest.raises(PatchError) as caught:
        load_series(tmp_path / folder)
    assert caught.value.place == place
