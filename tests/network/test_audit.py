"""The audit on the real releases: what DOMAIN lists is found, and GNU cpp agrees on every header."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

from downstream import pins as pinned
from downstream.arches import parse_target, parse_targets
from downstream.cli import door
from downstream.commands.audit_options import REFERENCES, TARGETS
from downstream.guards.audit import Scope, audit
from downstream.guards.definitions import SUFFIXES, Definitions
from downstream.guards.ledger import Ledger, covered
from downstream.guards.macros import Toolkit
from downstream.guards.model import Question
from downstream.report.audit_json import render
from downstream.trees.cache import default_folder
from downstream.trees.open import open_release
from downstream.trees.session import Session

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
AR = "include/flashinfer/comm/trtllm_allreduce.cuh"
GDC = "csrc/nv_internal/tensorrt_llm/cutlass_extensions/include/cutlass_extensions/arch/grid_dependency_control.h"
LINES_063 = [417, 455, 485, 533, 711, 895, 950, 991, 1053, 1207, 1265, 1335, 1444]

Found = Callable[[str, str], dict[tuple[str, int], dict[str, Any]]]


@pytest.fixture(scope="module")
def found() -> Found:
    """(upstream, version) -> the guards of that release, unpatched, by path and line."""

    @cache
    def audited(upstream: str, version: str) -> dict[tuple[str, int], dict[str, Any]]:
        meant = pinned.load(ROOT).upstreams[upstream]
        question = Question(references=parse_targets(REFERENCES), targets=parse_targets(TARGETS))
        with Session(default_folder()) as session:
            tree = open_release(meant, Version(version), session)
            report = audit(tree, Scope(question=question, layout=meant.layout), store=session.cache)
        guards = json.loads(render([(upstream, covered(report, Ledger(path=Path("none"))))], everything=False))[
            "guards"
        ]
        return {(guard["path"], guard["line"]): guard for guard in guards}

    return audited


def classes(guards: Mapping[tuple[str, int], Mapping[str, Any]], path: str) -> dict[int, str]:
    return {line: guard["class"] for (where, line), guard in guards.items() if where == path}


def test_the_13_guards_of_the_all_reduce_header(found: Found) -> None:
    guards = found("flashinfer", "0.6.3")
    assert classes(guards, AR) == dict.fromkeys(LINES_063, "suspect")
    body = guards[AR, 711]
    assert (body["effect"], body["function"], body["whole_kernel"], body["end_line"]) == (
        "empty-kernel",
        "lamport_style_one_shot_all_reduce_norm_kernel",
        True,
        787,
    )
    assert {guards[AR, line]["effect"] for line in LINES_063 if line != 711} == {"no-sync"}


@pytest.mark.parametrize(
    ("upstream", "version", "path", "line", "verdict_class"),
    [
        ("flashinfer", "0.6.3", "flashinfer/jit/comm.py", 61, "suspect"),  # F1
        ("flashinfer", "0.6.3", "flashinfer/aot.py", 526, "suspect"),  # F2
        ("flashinfer", "0.6.3", GDC, 30, "unknown"),  # M2
        ("flashinfer", "0.6.3", GDC, 45, "unknown"),
        ("flashinfer", "0.6.3", GDC, 55, "unknown"),
        ("flashinfer", "0.6.3", "flashinfer/fused_moe/core.py", 868, "suspect"),  # M5
        ("flashinfer", "0.6.3", "flashinfer/jit/fused_moe.py", 238, "hardware"),  # M6
        ("flashinfer", "0.6.3", "csrc/trtllm_fused_moe_kernel_launcher.cu", 385, "hardware"),
        ("flashinfer", "0.6.3", "include/flashinfer/trtllm/fmha/fmhaRunner.cuh", 30, "hardware"),  # M7
        ("flashinfer", "0.6.3", "flashinfer/gemm/gemm_base.py", 210, "suspect"),  # M8
        ("flashinfer", "0.6.3", "flashinfer/gemm/gemm_base.py", 436, "suspect"),
        ("flashinfer", "0.6.3", "csrc/nv_internal/include/tensorrt_llm/common/cudaUtils.h", 772, "suspect"),
        ("flashinfer", "0.6.3", "flashinfer/jit/attention/modules.py", 1754, "over-inclusive"),  # T15
        ("flashinfer", "0.6.3", "flashinfer/jit/attention/fmha_v2/generator_utils.py", 2262, "suspect"),  # in a string
        ("flashinfer", "0.7.2", "flashinfer/jit/fused_moe.py", 386, "over-inclusive"),  # N8
        ("flashinfer", "0.7.2", "include/flashinfer/norm/ln_silu_headers.cuh", 291, "served"),  # N9
        ("sglang", "0.5.9", "python/sglang/srt/layers/communicator.py", 95, "suspect"),  # S1
        ("sglang", "0.5.9", "python/sglang/srt/layers/communicator.py", 604, "served"),  # decided at 95
        ("sglang", "0.5.9", "python/sglang/srt/server_args.py", 1681, "suspect"),  # S2: the condition of 1691
        ("sglang", "0.5.9", "python/sglang/srt/model_executor/model_runner.py", 1842, "suspect"),  # S6
        ("sglang", "0.5.9", "python/sglang/srt/server_args.py", 1371, "over-inclusive"),  # S7
        ("sglang", "0.5.9", "python/sglang/srt/layers/attention/attention_registry.py", 202, "over-inclusive"),  # S9
        ("sglang", "0.5.9", "python/sglang/srt/layers/moe/cutlass_moe.py", 147, "hardware"),  # S10: es_sm100
        ("sglang", "0.5.9", "python/sglang/srt/distributed/device_communicators/torch_symm_mem.py", 47, "hardware"),
    ],
)
def test_what_domain_lists_is_found(
    found: Found, upstream: str, version: str, path: str, line: int, verdict_class: str
) -> None:
    near = {number: kind for number, kind in classes(found(upstream, version), path).items() if abs(number - line) <= 2}
    assert verdict_class in near.values(), classes(found(upstream, version), path)


def test_upstream_opened_the_header_in_0_7_2(found: Found) -> None:
    guards = found("flashinfer", "0.7.2")
    assert classes(guards, AR) == {}
    assert ("flashinfer/jit/comm.py", 198) not in guards


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("python/sglang/srt/layers/layer_boundary/residual/add_norm.py", 146),  # G3
        ("python/sglang/srt/layers/flashinfer_comm_fusion.py", 48),  # G1
        ("python/sglang/srt/arg_groups/overrides.py", 991),  # G4
    ],
)
def test_the_gates_of_sglang_0_5_23(found: Found, path: str, line: int) -> None:
    lines = [number for number, kind in classes(found("sglang", "0.5.23"), path).items() if kind != "served"]
    assert any(abs(number - line) <= 25 for number in lines), lines


def test_line_stable_is_reviewed_and_its_series_takes_the_guards_away(capsys: pytest.CaptureFixture[str]) -> None:
    code = door("audit", ["--line", "stable", "--json", "-q"])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["ok"]) == (0, True)
    assert not [guard for guard in report["guards"] if guard["path"] == AR]
    patched = {guard["path"]: guard["covered_by"] for audit in report["audits"] for guard in audit["patched"]}
    assert patched[AR] == "open-allreduce-header-guards.patch"
    assert patched["flashinfer/jit/comm.py"] == "allow-sm120-in-comm-arch-list.patch"
    assert patched["python/sglang/srt/layers/communicator.py"] == "fuse-allreduce-on-sm12x-when-asked.patch"


@pytest.mark.parametrize("upstream", ["sglang", pytest.param("flashinfer", marks=pytest.mark.slow)])
def test_line_next_is_reviewed(upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = door("audit", ["--line", "next", "--upstream", upstream, "--json", "-q"])
    report = json.loads(capsys.readouterr().out)
    open_to_question = [
        guard for guard in report["guards"] if guard["class"] in {"suspect", "unknown", "over-inclusive"}
    ]
    unreviewed = [f"{guard['path']}:{guard['line']}" for guard in open_to_question if not guard["covered_by"]]
    assert (code, report["ok"], unreviewed) == (0, True, [])


def test_the_bump_to_0_7_2_reads_like_release_notes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--diff", "0.6.3", "0.6.4", "--upstream", "flashinfer", "--paths", "include/*", "-q"]
    assert door("audit", words) in (0, 1)
    assert re.match(
        r"flashinfer 0.6.3 -> flashinfer 0.6.4: \d+ new, \d+ gone, \d+ moved, \d+ ", capsys.readouterr().out
    )


def _oracle() -> ModuleType:
    name = "guards_oracle"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "guards" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def headers() -> Iterator[tuple[str, bytes]]:
    with Session(default_folder()) as session:
        tree = open_release(pinned.load(ROOT).upstreams["flashinfer"], Version("0.6.3"), session)
        for path in tree.paths():
            if path.startswith(("include/", "csrc/")) and path.endswith(SUFFIXES):
                content = tree.read(path) or b""
                if b"#" in content:
                    yield path, content


@pytest.mark.parametrize("target", ["sm_90a", "sm_100", "sm_120f"])
def test_gnu_cpp_agrees_on_every_branch_of_every_header(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    oracle = _oracle()
    cpp = oracle.gnu_cpp(tmp_path_factory.mktemp("cpp"))
    compared = unknown = 0
    for path, content in headers():
        definitions = Definitions({path: content}, toolkit=Toolkit())
        branches = list(definitions.source(path).branches())
        file = definitions.file(path, parse_target(target))
        values = [file.state(branch).value for branch in branches]
        names = {name for value in values for name in value.names if name.isidentifier()}
        conditions = "\n".join(branch.condition.replace("defined(", "defined ") for branch in branches)
        called = {name for name in names if re.search(rf"\b{name}\s*\(", conditions)}
        table = oracle.compiler_options(file.table)
        # Whatever the names are that we leave open, what we decided must stand.
        for given in (None, "1", "0"):
            extra = {(f"{name}(...)" if name in called else name): given for name in names} if given else {}
            kept = cpp(content.decode("utf-8", "replace"), table | extra)
            for number, value in enumerate(values):
                compared += 1
                unknown += value.truth is None
                assert value.truth is None or (number in kept) == value.truth, (path, branches[number].directive, given)
    assert compared > 3000
    assert unknown < compared * 0.6
