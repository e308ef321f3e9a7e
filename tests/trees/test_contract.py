"""Every kind of tree answers alike."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.pins import Upstream
from downstream.trees.archive import open_archive
from downstream.trees.folder import FolderTree
from downstream.trees.installed import open_installed
from downstream.trees.spec import open_spec
from downstream.trees.tree import EXECUTABLE, REGULAR, LayeredTree, MemoryTree, Tree

FILES = {
    "flashinfer/aot.py": b"old\r\nline\x0cfeed\n",
    "flashinfer/empty.py": b"",
    "flashinfer/run.sh": b"#!/bin/sh\n",
    "include/a.cuh": b"no newline at the end",
}
MODES = {"flashinfer/run.sh": EXECUTABLE}


def unpack(folder: Path, prefix: str = "") -> Path:
    for path, content in FILES.items():
        place = folder / prefix / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o755 if path in MODES else 0o644)
    return folder


def memory(_: Path, __: Upstream) -> Tree:
    return MemoryTree(FILES, modes=MODES)


def layered(_: Path, __: Upstream) -> Tree:
    base = MemoryTree({"flashinfer/aot.py": b"older", "gone.py": b"", "include/a.cuh": FILES["include/a.cuh"]})
    return LayeredTree(base, {**FILES, "gone.py": None}, MODES)


def folder(tmp: Path, _: Upstream) -> Tree:
    return FolderTree(unpack(tmp))


def commit(tmp: Path, _: Upstream) -> Tree:
    unpack(tmp)
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp, check=True)
    return open_spec(f"git:{tmp}@HEAD")


def tar(tmp: Path, _: Upstream) -> Tree:
    unpack(tmp, "flashinfer-0.6.4")
    with tarfile.open(tmp / "sdist.tar.gz", "w:gz") as archive:
        archive.add(tmp / "flashinfer-0.6.4", "flashinfer-0.6.4")
    return open_archive(tmp / "sdist.tar.gz")


def zipped(tmp: Path, _: Upstream, make_zip: Callable[..., bytes]) -> Tree:
    members = {f"top/{path}": content for path, content in FILES.items()}
    (tmp / "a.zip").write_bytes(make_zip(members, modes={f"top/{path}": mode for path, mode in MODES.items()}))
    return open_spec("a.zip", base_dir=tmp)


def wheel(tmp: Path, upstream: Upstream, make_zip: Callable[..., bytes]) -> Tree:
    to_wheel = upstream.layout.to_wheel
    members = {str(to_wheel(path)): content for path, content in FILES.items()}
    content = make_zip(
        members | {"x.dist-info/METADATA": b""}, modes={str(to_wheel(path)): MODES[path] for path in MODES}
    )
    (tmp / "x-1-py3-none-any.whl").write_bytes(content)
    return open_spec("x-1-py3-none-any.whl", layout=upstream.layout, base_dir=tmp)


def installed(tmp: Path, upstream: Upstream) -> Tree:
    venv.EnvBuilder(symlinks=True).create(tmp / "env")
    site = tmp / "env" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    rows = []
    for path, content in FILES.items():
        member = str(upstream.layout.to_wheel(path))
        (site / member).parent.mkdir(parents=True, exist_ok=True)
        (site / member).write_bytes(content)
        (site / member).chmod(0o755 if path in MODES else 0o644)
        rows.append(f"{member},,")
    info = site / "flashinfer_python-0.6.4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.4\n")
    (info / "RECORD").write_text(
        "\n".join([*rows, f"{info.name}/METADATA,,", f"{info.name}/RECORD,,", "../../bin/x,,"])
    )
    return open_installed(upstream, tmp / "env" / "bin" / "python")


@pytest.fixture(params=[memory, layered, folder, commit, tar, zipped, wheel, installed], ids=lambda kind: kind.__name__)
def tree(request: pytest.FixtureRequest, tmp_path: Path, upstream: Upstream, make_zip: Callable[..., bytes]) -> Tree:
    more = [make_zip] if request.param in (zipped, wheel) else []
    found: Tree = request.param(tmp_path, upstream, *more)
    return found


def test_a_tree_lists_and_reads_its_files(tree: Tree) -> None:
    assert isinstance(tree, Tree)
    assert tree.name
    assert list(tree.paths()) == sorted(FILES)
    assert {path: tree.read(path) for path in tree.paths()} == FILES
    assert {path: tree.mode(path) for path in FILES} == {path: MODES.get(path, REGULAR) for path in FILES}


@pytest.mark.parametrize(
    "path",
    ["", "flashinfer", "flashinfer/", "/flashinfer/aot.py", "flashinfer/../flashinfer/aot.py", "no", "no/file", "./x"],
)
def test_what_is_no_file_has_neither_content_nor_mode(tree: Tree, path: str) -> None:
    assert tree.read(path) is None
    assert tree.mode(path) is None
