from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downstream.trees.layout import IDENTITY, Layout

LAYOUT = Layout(
    (
        ("flashinfer/", "flashinfer/"),
        ("include/", "flashinfer/data/include/"),
        ("3rdparty/cutlass/", "flashinfer/data/cutlass/"),
        ("build_backend.py", "build_backend.py"),
    )
)


@pytest.mark.parametrize(
    ("repository", "wheel"),
    [
        ("flashinfer/aot.py", "flashinfer/aot.py"),
        ("include/flashinfer/a.cuh", "flashinfer/data/include/flashinfer/a.cuh"),
        ("3rdparty/cutlass/include/cute/x.hpp", "flashinfer/data/cutlass/include/cute/x.hpp"),
        ("build_backend.py", "build_backend.py"),
        ("flashinfer/data/other.py", "flashinfer/data/other.py"),
    ],
)
def test_a_path_maps_both_ways(repository: str, wheel: str) -> None:
    assert LAYOUT.to_wheel(repository) == wheel
    assert LAYOUT.to_repository(wheel) == repository


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_x.py",  # outside every pair
        "README.md",
        "flashinfer/data/include/a.cuh",  # there the wheel keeps the repository's include/a.cuh
    ],
)
def test_a_repository_path_without_a_member_has_no_counterpart(path: str) -> None:
    assert LAYOUT.to_wheel(path) is None


@pytest.mark.parametrize("member", ["flashinfer_python-0.6.3.dist-info/METADATA", "b12x/__init__.py"])
def test_a_member_outside_the_layout_has_no_repository_path(member: str) -> None:
    assert LAYOUT.to_repository(member) is None


def test_the_empty_prefix_puts_a_folder_away() -> None:
    sglang = Layout((("python/", ""),))
    assert sglang.to_wheel("python/sglang/srt/server_args.py") == "sglang/srt/server_args.py"
    assert sglang.to_repository("sglang/srt/server_args.py") == "python/sglang/srt/server_args.py"
    assert sglang.to_wheel("docs/index.md") is None


WORDS = st.sampled_from(["flashinfer", "include", "data", "3rdparty", "cutlass", "a.py", "build_backend.py"])


@given(st.lists(WORDS, min_size=1, max_size=5).map("/".join))
def test_what_has_a_counterpart_comes_back(path: str) -> None:
    member = LAYOUT.to_wheel(path)
    assert member is None or LAYOUT.to_repository(member) == path
    assert IDENTITY.to_wheel(path) == path
