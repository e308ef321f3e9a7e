from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from downstream.errors import TreeError, WheelError
from downstream.trees.archive import open_archive
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK


def packed(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w") -> Path:
    opened: Any = tarfile.open
    with opened(path, mode, format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, target, mode
    return made


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("a.tar", "w"),
        ("a.tar.gz", "w:gz"),
        ("a.tgz", "w:gz"),
        ("a.tar.bz2", "w:bz2"),
        ("a.tar.xz", "w:xz"),
        ("A.TAR.XZ", "w:xz"),
    ],
)
def test_each_compression_is_read(tmp_path: Path, name: str, mode: str) -> None:
    path = packed(tmp_path / name, [(member("top-1/a/b.py"), b"one\n"), (member("top-1/c"), b"")], mode)
    tree = open_archive(path)
    assert list(tree.paths()) == ["a/b.py", "c"]
    assert tree.read("a/b.py") == b"one\n"
    assert tree.name == name


def test_zst_is_read_or_told(tmp_path: Path) -> None:
    (tmp_path / "a.tar.zst").write_bytes(b"")
    reads = sys.version_info >= (3, 14) or importlib.util.find_spec("zstandard") is not None
    with pytest.raises(TreeError, match="is no complete archive" if reads else "this Python reads no zst archives"):
        open_archive(tmp_path / "a.tar.zst")


def test_every_kind_of_member(tmp_path: Path) -> None:
    path = packed(
        tmp_path / "a.tar",
        [
            (member("./top", tarfile.DIRTYPE), b""),
            (member("./top/run", mode=0o755), b"#!/bin/sh\n"),
            (member("./top/link", tarfile.SYMTYPE, "../../etc/passwd"), b""),
            (member("./top/hard", tarfile.LNKTYPE, "./top/run", 0o755), b""),
            (member("./top/pipe", tarfile.FIFOTYPE), b""),
            (member("./top/caf\udce9"), b"\xe9"),
            (member("./top/twice"), b"old"),
            (member("./top/twice"), b"new"),
        ],
    )
    tree = open_archive(path)
    assert list(tree.paths()) == ["caf\udce9", "hard", "link", "run", "twice"]
    assert tree.read("hard") == b"#!/bin/sh\n"
    assert tree.read("link") == b"../../etc/passwd"
    assert tree.read("twice") == b"new"
    assert tree.read("caf\udce9") == b"\xe9"
    assert [tree.mode(name) for name in ("run", "link", "twice", "pipe")] == [EXECUTABLE, SYMLINK, REGULAR, None]


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["top/a", "top/b/c"], ["a", "b/c"]),
        (["one/a", "two/a"], ["one/a", "two/a"]),
        (["top/a", "README"], ["README", "top/a"]),
        (["README"], ["README"]),
    ],
)
def test_the_one_top_folder_is_taken_off(
    tmp_path: Path, names: list[str], paths: list[str], make_zip: Callable[..., bytes]
) -> None:
    tar = packed(tmp_path / "a.tar", [(member(name), name.encode()) for name in names])
    (tmp_path / "a.zip").write_bytes(make_zip({name: name.encode() for name in names}))
    for tree in (open_archive(tar), open_archive(tmp_path / "a.zip")):
        assert list(tree.paths()) == paths
        assert [tree.read(path) for path in paths] == sorted(name.encode() for name in names)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x"])
def test_an_unsafe_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TreeError, match="unsafe path"):
        open_archive(packed(tmp_path / "a.tar", [(member(name), b"")]))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"])
@pytest.mark.parametrize("content", [b"not an archive" * 100, b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\0"])
def test_what_is_no_archive_is_told(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TreeError, match="is no complete archive") as caught:
        open_archive(tmp_path / name)
    assert caught.value.place == name


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_truncated_archive_is_told(tmp_path: Path, mode: str) -> None:
    content = b"".join(b"%d\n" % (n * n) for n in range(3000))
    path = packed(tmp_path / f"a.tar.{mode[2:]}", [(member("top/a"), content)], mode)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(TreeError, match="is no complete archive"):
        open_archive(path)


def test_a_broken_zip_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(WheelError, match="is no complete zip file"):
        open_archive(tmp_path / "a.zip")


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="cannot be unpacked: No such file"):
        open_archive(tmp_path / "gone.tar")


def test_what_git_archives_is_what_git_holds(tmp_path: Path) -> None:
    from downstream.trees.spec import open_spec

    (tmp_path / "repo" / "a").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "b.py").write_bytes(b"b\n")
    (tmp_path / "repo" / "link").symlink_to("a/b.py")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"],
        ["archive", "--prefix=p-1/", "-o", "../a.tar.gz", "HEAD"],
        ["archive", "--prefix=p-1/", "-o", "../a.zip", "HEAD"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path / "repo", check=True)
    commit = open_spec("git:repo@HEAD", base_dir=tmp_path)
    for name in ("a.tar.gz", "a.zip"):
        tree = open_spec(name, base_dir=tmp_path)
        assert list(tree.paths()) == list(commit.paths())
        for path in commit.paths():
            assert (tree.read(path), tree.mode(path)) == (commit.read(path), commit.mode(path))
