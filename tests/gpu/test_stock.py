"""The published release fails where DOMAIN says, in the way it says: the reason for the series, kept alive."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.gpu.builds import Build
from tests.gpu.cases import cases
from tests.gpu.ranks import Runner

pytestmark = pytest.mark.gpu

FAULT = ("illegal memory access", "misaligned address")


@pytest.fixture(scope="module")
def capability() -> int:
    """The GPU's major compute capability, asked in a process of its own."""
    code = "import torch; print(torch.cuda.get_device_capability()[0])"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def test_stock_has_no_comm_module_for_sm12x(stock: Build, capability: int) -> None:
    """F1: the architecture list. Elsewhere the module loads."""
    if capability == 12:
        assert "No supported CUDA architectures found" in stock.problem
    else:
        assert stock.problem == ""


@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize("tokens", [1, 8, 16])
def test_stock_faults_in_the_lamport_kernel(
    world: int, tokens: int, stock: Build, run: Runner, capability: int
) -> None:
    """F5: the host packs pointers at the group's size, the kernel reads them at 16."""
    if capability == 12:
        pytest.skip("there the module is not even built: see test_stock_has_no_comm_module_for_sm12x")
    wanted = cases(
        "custom", world, tokens=(tokens,), hidden=(4096,), dtypes=("bf16",), shots=(1,), pdls=(True,), repeat=4
    )
    (outcome,) = run(stock, world, wanted, restarts=0)
    assert any(word in outcome.ended for word in FAULT), outcome


def test_stock_is_right_above_the_lamport_threshold_and_in_the_fusion(
    stock: Build, run: Runner, capability: int
) -> None:
    """T14: upstream's own tests use 64 and 128 tokens, and see nothing."""
    if capability == 12:
        pytest.skip("there the module is not even built: see test_stock_has_no_comm_module_for_sm12x")
    wanted = cases("custom", 2, tokens=(64, 128), hidden=(4096,), dtypes=("bf16",))
    wanted += cases("fusion", 2, tokens=(1, 8, 16, 128), hidden=(4096,), dtypes=("bf16",))
    assert [outcome.ended for outcome in run(stock, 2, wanted)] == [""] * len(wanted)


def test_stock_races_in_two_shot_where_a_rank_s_share_is_no_whole_warp(
    stock: Build, run: Runner, capability: int
) -> None:
    """F17: blocks overlap and add sums to sums. A race: many tries, one failure is enough."""
    if capability == 12:
        pytest.skip("there the module is not even built: see test_stock_has_no_comm_module_for_sm12x")
    wanted = cases("custom", 8, tokens=(9, 17, 19, 33, 65), hidden=(9216,), shots=(2,), repeat=12)
    outcomes = run(stock, 8, wanted)
    assert any(outcome.off for outcome in outcomes)
