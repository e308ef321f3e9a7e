"""What the benchmark says of its samples: which flag pays, and when it says nothing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

FILE = Path(__file__).parents[2] / "bench" / "allreduce.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    spec = importlib.util.spec_from_file_location("bench_allreduce", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def table(bench: Any, **ways: dict[int, tuple[float, float, float]]) -> dict[tuple[str, int], Any]:
    return {
        (way.replace("_", "-"), tokens): bench.Sample(way.replace("_", "-"), tokens, *numbers)
        for way, by_tokens in ways.items()
        for tokens, numbers in by_tokens.items()
    }


def test_a_flag_pays_only_where_its_spread_is_clear_of_nccl_s(bench: Any) -> None:
    samples = table(
        bench,
        nccl={1: (20, 19, 21), 8: (20, 19, 21), 64: (20, 19, 21)},
        fused_1shot={1: (5, 4, 6), 8: (18, 16, 19.5), 64: (60, 50, 70)},
        fused_2shot={64: (40, 30, 50)},
    )
    names = ["nccl", "fused-1shot", "fused-2shot"]
    assert bench.advice(samples, [1, 8, 64], names, shared=False) == [
        "--enable-flashinfer-allreduce-fusion: pays at 1 tokens, costs at 64"
    ]


@pytest.mark.parametrize(("names", "shared"), [(["nccl", "fused-1shot"], True), (["fused-1shot"], False)])
def test_no_advice_without_a_gpu_for_each_rank_and_nccl(bench: Any, names: list[str], shared: bool) -> None:
    samples = table(bench, nccl={1: (20, 19, 21)}, fused_1shot={1: (5, 4, 6)})
    assert bench.advice(samples, [1], names, shared=shared) == ["No advice: it takes a GPU for each rank."]


def test_the_plot_is_an_image_that_says_when_ranks_share_a_gpu(bench: Any) -> None:
    samples = [bench.Sample("nccl", 1, 20.0, 19.0, 21.0), bench.Sample("nccl", 64, 25.0, 24.0, 26.0)]
    for shared in (True, False):
        text = bench.plot(samples, 4096, 2, shared=shared)
        ET.fromstring(text)
        assert ("SHARING A GPU" in text) == shared
