"""The patched build is right, on whatever GPU this is, for every shape and in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.gpu.builds import Build
from tests.gpu.cases import TOLERANCE, Case, cases, main_matrix, title
from tests.gpu.ranks import Outcome, Runner

pytestmark = pytest.mark.gpu

WORLDS = (2, 4, 8)
MATRIX = {world: main_matrix(world) for world in WORLDS}
_done: dict[int, list[Outcome]] = {}


def assert_right(case: Case, outcome: Outcome) -> None:
    assert outcome.ended == "", f"{title(case)}: {outcome.ended}"
    assert outcome.off == 0, f"{outcome.off} elements missing or wrong, relative error {outcome.error:.3g}"
    assert outcome.error <= TOLERANCE[case["dtype"]]


def assert_all_right(wanted: Sequence[Case], outcomes: Sequence[Outcome]) -> None:
    for case, outcome in zip(wanted, outcomes, strict=True):
        assert_right(case, outcome)


@pytest.mark.parametrize(
    ("world", "index"),
    [
        pytest.param(world, index, id=f"tp{world}-{title(case)}")
        for world, matrix in MATRIX.items()
        for index, case in enumerate(matrix)
    ],
)
def test_one_random_order_of_calls_with_changing_shapes_is_right(
    world: int, index: int, patched: Build, run: Runner
) -> None:
    if world not in _done:
        _done[world] = run(patched, world, MATRIX[world])
    assert_right(MATRIX[world][index], _done[world][index])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("api", ["fusion", "custom"])
def test_negative_zero_in_the_input_neither_hangs_nor_counts(api: str, world: int, patched: Build, run: Runner) -> None:
    wanted = cases(api, world, tokens=(1, 8, 16, 17), hidden=(4096, 9216), shots=(1,), negative_zero=997)
    assert_all_right(wanted, run(patched, world, wanted))


def test_the_lamport_kernel_covers_hidden_sizes_that_do_not_divide_evenly(patched: Build, run: Runner) -> None:
    wanted = cases("custom", 2, tokens=(1, 8, 16), hidden=(2880, 4160, 4608, 5120, 6656, 9216), shots=(1,))
    assert_all_right(wanted, run(patched, 2, wanted))


def test_two_shot_does_not_race_where_a_rank_s_share_is_no_whole_warp(patched: Build, run: Runner) -> None:
    """9216 at 8 ranks is 144 vectors a token: with an odd number of tokens blocks would overlap."""
    more: dict[str, Any] = {"tokens": (9, 17, 19, 33, 65), "hidden": (9216,), "shots": (2,), "repeat": 12}
    wanted = cases("custom", 8, **more)
    assert_all_right(wanted, run(patched, 8, wanted))


@pytest.mark.parametrize("world", [2, 4])
def test_no_flag_overtakes_the_writes_of_its_block(world: int, patched: Build, run: Runner) -> None:
    """A race, widest where blocks copy much; stock is wrong now and then, most where ranks share a GPU."""
    more: dict[str, Any] = {"tokens": (33, 512, 2048), "hidden": (7168,), "repeat": 8}
    wanted = cases("custom", world, **more)
    assert_all_right(wanted, run(patched, world, wanted))


@pytest.mark.parametrize("world", [6, 16])
def test_other_group_sizes_are_right_where_the_api_takes_them(world: int, patched: Build, run: Runner) -> None:
    few: dict[str, Any] = {"tokens": (1, 8, 16, 48, 128), "hidden": (6144, 9216), "dtypes": ("bf16",)}
    wanted = cases("custom", world, **few)
    if world == 16:  # trtllm_allreduce_fusion takes 2, 4, 8 and 16
        wanted += cases("fusion", world, **few)
    assert_all_right(wanted, run(patched, world, wanted))


def test_a_hanging_rank_ends_its_group_by_itself(patched: Build, run: Runner) -> None:
    wanted = cases("fusion", 2, tokens=(8,), hidden=(4096,), dtypes=("bf16",), shots=(1,), pdls=(False,), hang_rank=1)
    (outcome,) = run(patched, 2, wanted, restarts=0)
    assert "no sign of life" in outcome.ended
