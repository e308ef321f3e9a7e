from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from downstream.errors import TreeError
from downstream.trees.folder import FolderTree
from downstream.trees.layout import Layout
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK


def test_symlinks_are_read_as_links_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to("../outside")
    (root / "file").symlink_to("../outside/secret")
    (root / "gone").symlink_to("nowhere")
    tree = FolderTree(root)
    assert list(tree.paths()) == ["file", "folder", "gone"]
    assert tree.read("file") == b"../outside/secret"
    assert tree.read("folder") == b"../outside"
    assert tree.read("gone") == b"nowhere"
    assert tree.mode("folder") == SYMLINK
    assert tree.read("folder/secret") is None
    assert tree.mode("folder/secret") is None


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "a/../../outside", "a//b", "a/./b", ".git/config", "a\0b"]
)
def test_nothing_outside_or_of_git_is_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "config").write_bytes(b"x")
    (root / "a").mkdir()
    (root / "a" / "b").write_bytes(b"x")
    (root / "a" / ".git").write_bytes(b"gitdir: elsewhere")
    tree = FolderTree(root)
    assert list(tree.paths()) == ["a/b"]
    assert tree.read(path) is None
    assert tree.mode(path) is None


def test_a_name_that_is_no_utf8_comes_back(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "wb") as stream:  # noqa: PTH123
        stream.write(b"\xe9")
    tree = FolderTree(tmp_path)
    assert list(tree.paths()) == ["caf\udce9.txt"]
    assert tree.read("caf\udce9.txt") == b"\xe9"


def test_pipes_and_sockets_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
        tree = FolderTree(tmp_path)
        assert list(tree.paths()) == []
        assert tree.read("pipe") is None
        assert tree.mode("socket") is None


@pytest.mark.parametrize(
    ("mode", "expected"), [(0o644, REGULAR), (0o700, EXECUTABLE), (0o655, REGULAR), (0o600, REGULAR)]
)
def test_the_owners_x_bit_makes_it_executable(tmp_path: Path, mode: int, expected: int) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "a").chmod(mode)
    assert FolderTree(tmp_path).mode("a") == expected


def test_an_unpacked_wheel_is_read_through_its_layout(tmp_path: Path) -> None:
    place = tmp_path / "flashinfer" / "data" / "include" / "a.cuh"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x")
    (tmp_path / "other.py").write_bytes(b"")
    tree = FolderTree(tmp_path, layout=Layout((("include/", "flashinfer/data/include/"),)))
    assert list(tree.paths()) == ["include/a.cuh"]
    assert tree.read("include/a.cuh") == b"x"
    assert tree.read("flashinfer/data/include/a.cuh") is None


def test_a_folder_that_vanishes_is_told(tmp_path: Path) -> None:
    tree = FolderTree(tmp_path / "gone", name="gone")
    assert tree.read("a") is None
    with pytest.raises(TreeError, match="cannot be listed: No such file or directory"):
        list(tree.paths())


def test_a_name_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="cannot be read: File name too long"):
        FolderTree(tmp_path).read("n" * 300)
