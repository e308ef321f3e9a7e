"""Parts of a build: cut alike anywhere, joined only when everything that reaches the code is the same."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from downstream.arches import parse_targets
from downstream.errors import UsageError
from downstream.kernels.modules import Module, Shard, arch_list, parse_shard
from downstream.kernels.parts import Part, merge, read, write

WANTED = ("a", "b", "c", "d", "e")


def module(folder: Path, name: str) -> Module:
    path = folder / name / f"{name}.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(name.encode() * 10)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Module(name=name, path=path, sha256=digest, size=10, kernels={"sm_120": 3})


def shard(folder: Path, index: int, count: int = 2) -> Part:
    where = Shard(index=index, count=count)
    part = Part(
        version="0.6.3+sm120.1",
        cuda="13.0.88",
        toolchain="nvcc 13.0.88",
        source="0" * 64,
        targets=("sm_120f", "sm_121a"),
        wanted=WANTED,
        machine="x86_64",
        shard=where,
        modules=tuple(module(folder, name) for name in where.of(WANTED)),
    )
    write(part, folder)
    return part


def test_shards_are_disjoint_and_complete_whatever_the_order() -> None:
    pieces = [Shard(index=index, count=3).of(("d", "a", "c", "b", "e", "a")) for index in (1, 2, 3)]
    assert sorted(name for piece in pieces for name in piece) == list(WANTED)


def test_a_part_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    part = shard(tmp_path, 1)
    assert read(tmp_path) == part


def test_all_shards_make_the_whole(tmp_path: Path) -> None:
    parts = [shard(tmp_path / str(index), index) for index in (1, 2)]
    assert [one.name for one in merge(parts).modules] == list(WANTED)
    assert merge(parts) == merge(parts[::-1])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("toolchain", "nvcc 13.0.48"),
        ("source", "1" * 64),
        ("targets", ("sm_120a",)),
        ("wanted", ("a",)),
        ("machine", "aarch64"),
        ("version", "0.6.3+sm120.2"),
    ],
)
def test_a_part_of_another_build_is_refused(tmp_path: Path, field: str, value: object) -> None:
    first, second = shard(tmp_path / "1", 1), shard(tmp_path / "2", 2)
    with pytest.raises(UsageError, match=field):
        merge([first, replace(second, **{field: value})])  # type: ignore[arg-type]


@pytest.mark.parametrize("indexes", [(1,), (1, 1), (2, 2)])
def test_a_missing_or_doubled_shard_is_refused(tmp_path: Path, indexes: tuple[int, ...]) -> None:
    parts = [shard(tmp_path / str(at), index) for at, index in enumerate(indexes)]
    with pytest.raises(UsageError, match="give each of 1 to 2 once"):
        merge(parts)


def test_a_library_that_is_not_its_manifest_s_is_refused(tmp_path: Path) -> None:
    shard(tmp_path, 1)
    (tmp_path / "a" / "a.so").write_bytes(b"other")
    with pytest.raises(UsageError, match="not the file that its manifest names"):
        read(tmp_path)


@pytest.mark.parametrize("content", [None, "", "{}", '{"schema": 9}'])
def test_a_folder_that_is_no_part_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "kernels.json").write_text(content)
    with pytest.raises(UsageError, match=r"kernels\.json"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "a/b", "-1/2"])
def test_what_is_no_part_of_a_whole_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shard"):
        parse_shard(text)


def test_targets_are_written_as_flashinfer_reads_them() -> None:
    assert arch_list(parse_targets("sm_120f 121a 9.0a")) == "12.0f 12.1a 9.0a"
