from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from downstream.errors import OfflineError, TreeError, UsageError, WheelError
from downstream.pins import Pin, Upstream
from downstream.trees.layout import Layout
from downstream.trees.open import (
    digests,
    near_versions,
    open_pin,
    open_release,
    prefetch,
    prefetch_all,
    reading_wheel,
)
from downstream.trees.session import Session
from downstream.trees.spec import open_spec
from downstream.trees.tree import MemoryTree

PACKAGE = "flashinfer-python"


def name(version: str, tags: str = "py3-none-any") -> str:
    return f"flashinfer_python-{version}-{tags}.whl"


@pytest.mark.parametrize(
    ("version", "near"),
    [
        ("0.6.4", ["0.6.2", "0.6.3", "0.6.3.post1", "0.6.5", "0.6.6", "0.7.0"]),
        ("0.66.3", ["0.6.3", "0.6.6", "0.7.0", "0.7.2"]),
        ("0.1", ["0.6.1", "0.6.2", "0.6.3"]),
        ("9", ["0.6.6", "0.7.0", "0.7.2"]),
    ],
)
def test_near_versions(version: str, near: list[str]) -> None:
    known = map(Version, ["0.7.2", "0.7.0", "0.6.6", "0.6.5", "0.6.3.post1", "0.6.3", "0.6.2", "0.6.1"])
    assert [str(other) for other in near_versions(Version(version), known)] == near


def test_an_unknown_version_names_the_near_ones(
    upstream: Upstream, session: Callable[..., Session], index: Any
) -> None:
    index.publish(PACKAGE, {name("0.6.3"): b"", name("0.6.5"): b""})
    with pytest.raises(TreeError) as caught:
        open_release(upstream, Version("0.6.4"), session())
    assert str(caught.value) == (
        "flashinfer 0.6.4: is not published on the configured index\n  next: the nearest are 0.6.3, 0.6.5"
    )
    with pytest.raises(OfflineError) as caught:
        open_release(upstream, Version("0.6.4"), session(offline=True))
    assert caught.value.problem == "is not in the cached listing"
    assert "without --offline" in caught.value.next_step


def test_a_version_published_since_the_listing_was_kept_is_found(
    upstream: Upstream, session: Callable[..., Session], index: Any, make_wheel: Callable[..., bytes], files: Any
) -> None:
    index.publish(PACKAGE, {name("0.6.4"): make_wheel(files)})
    open_release(upstream, Version("0.6.4"), session())
    index.publish(PACKAGE, {name("0.6.5"): make_wheel(files)})
    assert open_release(upstream, Version("0.6.5"), session()).read("setup.py") == files["setup.py"]


def test_a_release_without_a_wheel_is_told(upstream: Upstream, session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, {"flashinfer-python-0.6.4.tar.gz": b""})
    with pytest.raises(TreeError, match=r"has no wheel on the index, only flashinfer-python-0.6.4.tar.gz"):
        open_release(upstream, Version("0.6.4"), session())


def test_a_pin_without_a_wheel_is_told(make_pin: Callable[..., Pin], session: Callable[..., Session]) -> None:
    with pytest.raises(TreeError, match="pins no wheel"):
        open_pin(make_pin("0.6.4"), session())


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        (["cp311-cp311-manylinux_2_34_x86_64", "py3-none-any"], "py3-none-any"),
        (
            ["cp311-cp311-manylinux_2_34_aarch64", "cp311-cp311-manylinux_2_34_x86_64"],
            "cp311-cp311-manylinux_2_34_x86_64",
        ),
        (
            ["cp312-cp312-manylinux_2_34_x86_64", "cp311-cp311-manylinux_2_34_x86_64"],
            "cp311-cp311-manylinux_2_34_x86_64",
        ),
        (["cp310-cp310-linux_x86_64", "cp39-cp39-linux_x86_64"], "cp39-cp39-linux_x86_64"),
        (["cp310-cp310-macosx_11_0_arm64", "cp313-cp313-manylinux_2_34_x86_64"], "cp313-cp313-manylinux_2_34_x86_64"),
        (["cp311-cp311-manylinux_2_34_aarch64"], "cp311-cp311-manylinux_2_34_aarch64"),
    ],
)
def test_the_wheel_a_release_is_read_from(tags: list[str], chosen: str) -> None:
    assert reading_wheel(name("0.5.23", tag) for tag in tags) == name("0.5.23", chosen)


def test_the_digests_of_a_pin_to_be(upstream: Upstream, session: Callable[..., Session], index: Any) -> None:
    index.publish(PACKAGE, {name("0.6.4"): b"", "flashinfer-python-0.6.4.tar.gz": b"", name("0.6.5"): b""})
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digests(upstream, Version("0.6.4"), session()) == {name("0.6.4"): empty}


def test_an_index_that_tells_no_digest_makes_no_pin(
    upstream: Upstream, session: Callable[..., Session], index: Any
) -> None:
    index.publish(PACKAGE, {name("0.6.4"): b""}, **{name("0.6.4"): {"hashes": {}}})
    with pytest.raises(TreeError, match="no wheel with a sha256"):
        digests(upstream, Version("0.6.4"), session())


def test_several_releases_are_fetched_side_by_side(
    upstream: Upstream, session: Callable[..., Session], index: Any, make_wheel: Callable[..., bytes], files: Any
) -> None:
    versions = [f"0.6.{n}" for n in range(8)]
    index.publish(PACKAGE, {name(version): make_wheel(files, version=version) for version in versions})
    one = session()
    trees = [open_release(upstream, Version(version), one) for version in versions]
    prefetch_all([*trees, MemoryTree({})], files, one)
    asked = len(index.asked)
    assert [tree.read("setup.py") for tree in trees] == [files["setup.py"]] * 8
    assert len(index.asked) == asked


def test_a_release_that_cannot_be_fetched_is_told_where_it_is_read(
    upstream: Upstream, session: Callable[..., Session], index: Any, make_wheel: Callable[..., bytes], files: Any
) -> None:
    index.publish(PACKAGE, {name(f"0.6.{n}"): make_wheel(files, version=f"0.6.{n}") for n in range(3)})
    one = session(retries=0)
    trees = [open_release(upstream, Version(f"0.6.{n}"), one) for n in range(3)]
    index.always[f"/files/{name('0.6.1')}"] = "500"
    prefetch_all(trees, files, one)
    assert trees[2].read("setup.py") == files["setup.py"]
    with pytest.raises(TreeError, match="500"):
        trees[1].read("setup.py")


def test_trees_that_are_no_wheels_need_no_prefetch() -> None:
    prefetch(MemoryTree({}), ["a"])


def test_a_wheel_somebody_names(
    tmp_path: Path, make_wheel: Callable[..., bytes], files: Any, upstream: Upstream
) -> None:
    (tmp_path / "x y").mkdir()
    (tmp_path / "x y" / name("0.6.4")).write_bytes(make_wheel(files))
    plain = open_spec(f"x y/{name('0.6.4')}", base_dir=tmp_path)
    assert "flashinfer/data/include/a.cuh" in plain.paths()
    mapped = open_spec(f"x y/{name('0.6.4')}", base_dir=tmp_path, layout=upstream.layout)
    assert mapped.read("include/a.cuh") == files["include/a.cuh"]


def test_the_layout_is_for_unpacked_wheels_not_for_checkouts(tmp_path: Path) -> None:
    layout = Layout((("python/", ""),))
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "a.py").write_bytes(b"a")
    assert list(open_spec(str(tmp_path), layout=layout).paths()) == ["python/a.py"]
    (tmp_path / "python" / "sglang-0.5.9.dist-info").mkdir()
    assert list(open_spec("python", base_dir=tmp_path, layout=layout).paths()) == ["python/a.py"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no/such/thing", "does not exist"),
        ("git:", "names no repository and revision"),
        ("git:here", "names no repository and revision"),
        ("git:@v1", "names no repository and revision"),
        ("git:here@", "names no repository and revision"),
        ("git:nowhere@v1", "there is no folder"),
        ("git:https://one.example/x@v1", "a clone URL is not allowed here"),
    ],
)
def test_what_is_no_tree_is_told(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_spec(text, base_dir=tmp_path)
    assert caught.value.place == text
    assert problem in caught.value.problem
    assert caught.value.next_step


@pytest.mark.parametrize("broken", [b"", b"PK", b"PK\x03\x04 and no end"])
def test_a_file_that_is_no_wheel_is_told(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "x.whl").write_bytes(broken)
    with pytest.raises(WheelError, match="is no complete zip file"):
        open_spec("x.whl", base_dir=tmp_path).read("a")


def test_a_file_of_another_kind_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_bytes(b"")
    with pytest.raises(TreeError, match="is no archive that can be read"):
        open_spec("x.patch", base_dir=tmp_path)
