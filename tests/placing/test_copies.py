"""Copies and renames within one patch: of the file as the whole patch found it, as ``git apply`` has it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from downstream.patches.parse import parse
from downstream.placing.push import push
from downstream.placing.verdict import PatchStatus
from downstream.trees.tree import MemoryTree


def text(changed: dict[int, str] | None = None) -> bytes:
    return "".join(f"{(changed or {}).get(number, f'line {number}')}\n" for number in range(1, 31)).encode()


def git(folder: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, check=True).stdout


def difference(folder: Path, old: dict[str, bytes], new: dict[str, bytes], *how: str) -> bytes:
    """Return what git writes of *old* and *new*, copies and renames found."""
    git(folder, "init", "-q")
    for files in (old, new):
        git(folder, "rm", "-rqf", "--cached", "--ignore-unmatch", ".")
        for name, content in files.items():
            (folder / name).write_bytes(content)
        git(folder, "add", *files)
        if files is old:
            tree = git(folder, "write-tree").decode().strip()
    return git(folder, "diff", "--cached", *how, tree)


def applied(folder: Path, old: dict[str, bytes], patch: bytes) -> dict[str, bytes]:
    """Return what ``git apply`` makes of *old*."""
    for name, content in old.items():
        (folder / name).write_bytes(content)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patch, check=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


EDITED, TARGET = text({3: "three", 10: "zehn"}), text({10: "TEN"})
LONG, OTHER = (b"".join(b"%s line %d of a file\n" % (word, n) for n in range(60)) for word in (b"an old", b"ein neu"))
CASES = [
    pytest.param({"a": text()}, {"a": EDITED, "b": text()}, ("-C",), id="edited, copied as it was"),
    pytest.param({"a": text()}, {"a": EDITED, "b": TARGET}, ("-C",), id="edited, copied with another edit"),
    pytest.param({"b": text()}, {"a": TARGET, "b": EDITED}, ("-C",), id="copied, then edited"),
    pytest.param({"a": text()}, {"b": text(), "c": TARGET}, ("-C",), id="copied and renamed"),
    pytest.param({"a": text()}, {"b": TARGET}, ("-M",), id="renamed with an edit"),
    pytest.param({"a": LONG}, {"a": OTHER, "b": LONG}, ("-B", "-M"), id="written anew and renamed"),
]


@pytest.mark.parametrize("with_base", [False, True])
@pytest.mark.parametrize(("old", "new", "how"), CASES)
def test_a_copy_is_of_the_file_before_the_patch(
    tmp_path: Path, old: dict[str, bytes], new: dict[str, bytes], how: tuple[str, ...], with_base: bool
) -> None:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    patch = difference(tmp_path / "from", old, new, *how)
    assert b"copy from" in patch or b"rename from" in patch
    assert applied(tmp_path / "to", old, patch) == new
    tree = MemoryTree(old)
    report = push([parse(patch, name="p.patch")], tree, base=MemoryTree(old) if with_base else None)
    assert report.results[0].status is PatchStatus.UNMODIFIED
    left = {**old, **report.changes}
    assert {name: content for name, content in left.items() if content is not None} == new


def test_the_next_patch_copies_what_the_one_before_left(tmp_path: Path) -> None:
    first = difference(tmp_path, {"a": text()}, {"a": EDITED})
    shutil.rmtree(tmp_path / ".git")
    second = difference(tmp_path, {"a": EDITED}, {"a": TARGET, "b": EDITED}, "-C")
    patches = [parse(content, name=name) for name, content in (("1.patch", first), ("2.patch", second))]
    report = push(patches, MemoryTree({"a": text()}))
    assert [result.status for result in report.results] == [PatchStatus.UNMODIFIED] * 2
    assert report.changes == {"a": TARGET, "b": EDITED}
