"""What the benchmark says of its samples: which flag pays, and when it says nothing."""

from __future__ import annotations

import importlib.util
import json
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


def samples(bench: Any, **ways: dict[int, tuple[float, float, float]]) -> list[Any]:
    return [
        bench.Sample(way.replace("_", "-"), hidden, tokens, *numbers)
        for hidden in (4096, 7168)
        for way, by_tokens in ways.items()
        for tokens, numbers in by_tokens.items()
    ]


def test_a_flag_pays_only_where_its_spread_is_clear_of_nccl_s(bench: Any) -> None:
    found = samples(
        bench,
        nccl={1: (20, 19, 21), 8: (20, 19, 21), 64: (20, 19, 21)},
        fused_1shot={1: (5, 4, 6), 8: (18, 16, 19.5), 64: (60, 50, 70)},
        fused_2shot={64: (40, 30, 50)},
    )
    assert bench.advice(found, shared=False) == [
        f"--enable-flashinfer-allreduce-fusion, hidden {hidden}: pays at 1 tokens, costs at 64"
        for hidden in (4096, 7168)
    ]


@pytest.mark.parametrize(
    ("names", "shared"), [(["nccl", "fused_1shot"], True), (["fused_1shot"], False), (["nccl"], False)]
)
def test_no_advice_without_a_gpu_for_each_rank_and_two_ways(bench: Any, names: list[str], shared: bool) -> None:
    found = samples(bench, **{name: {1: (20.0, 19.0, 21.0)} for name in names})
    (line,) = bench.advice(found, shared=shared)
    assert line.startswith("No advice")


def test_nccl_p2p_disable_refuses_before_anything_is_copied(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert bench.preflight() == "refused by the preflight: NCCL_P2P_DISABLE is set"


def test_without_the_sm120_build_s_doctor_nothing_is_said_to_be_safe(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "no flashinfer.sm120" in bench.preflight()


@pytest.mark.parametrize(
    ("level", "refused"),
    [("ok", ""), ("note", "refused by the preflight: said so"), ("problem", "refused by the preflight: said so")],
)
def test_the_doctor_s_word_on_peers_decides(
    bench: Any, level: str, refused: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    doctor = tmp_path / "flashinfer" / "sm120"
    doctor.mkdir(parents=True)
    answer = json.dumps({"findings": [{"check": "peers", "level": level, "text": "said so"}]})
    (doctor.parent / "__init__.py").touch()
    (doctor / "__init__.py").touch()
    (doctor / "__main__.py").write_text(
        f"import sys\nassert sys.argv[1:] == ['doctor', '--copy', '--json']\nprint({answer!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert bench.preflight() == refused


def test_the_plot_is_an_image_that_says_when_ranks_share_a_gpu(bench: Any) -> None:
    found = samples(bench, nccl={1: (20.0, 19.0, 21.0), 64: (25.0, 24.0, 26.0)})
    for shared in (True, False):
        text = bench.plot(found, 2, shared=shared)
        ET.fromstring(text)
        assert ("SHARING A GPU" in text) == shared
