"""What SGLang of line next decides about SM12x by itself: no new default, and what line stable had to patch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from downstream import pins
from downstream.patches.series import load_series
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session
from downstream.trees.tree import LayeredTree

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
SRT = "python/sglang/srt"
SILENT = SimpleNamespace(info=lambda *_: None, warning=lambda *_: None)


@pytest.fixture(scope="module")
def patched() -> Iterator[LayeredTree]:
    with Session(default_folder()) as session:
        release = open_pin(pins.load(ROOT).pin("next", "sglang"), session)
        report = push(load_series(ROOT / "patches/next/sglang").patches(), release, base=release)
        yield LayeredTree(release, report.changes, report.modes)


def parsed(tree: LayeredTree, path: str) -> ast.Module:
    content = tree.read(f"{SRT}/{path}")
    assert content is not None, path
    return ast.parse(content)


def defined(tree: LayeredTree, path: str, names: Mapping[str, Any], *wanted: str) -> dict[str, Any]:
    """Run the definitions of *wanted* (functions, undecorated, and constants) of a module, without the module."""
    body: list[ast.stmt] = []
    for node in parsed(tree, path).body:
        if isinstance(node, ast.FunctionDef) and node.name in wanted:
            node.decorator_list = []
            body.append(node)
        elif isinstance(node, ast.Assign) and any(getattr(target, "id", "") in wanted for target in node.targets):
            body.append(node)
    assert len(body) == len(wanted)
    scope = dict(names)
    exec(compile(ast.Module(body=body, type_ignores=[]), path, "exec"), scope)
    return scope


def platform(major: int) -> SimpleNamespace:
    facts = {f"is_sm{number}": major == number // 10 for number in (90, 100, 110, 120)}
    return SimpleNamespace(**facts, is_blackwell=major in (10, 11, 12), is_hip=False, is_musa=False)


@pytest.mark.parametrize("architecture", ["Qwen3MoeForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM"])
@pytest.mark.parametrize(("major", "gpus"), [(8, 2), (9, 2), (9, 8), (10, 4), (11, 2), (12, 2), (12, 4), (12, 8)])
def test_no_rule_turns_the_fusion_on_by_itself_on_sm12x(
    patched: LayeredTree, architecture: str, major: int, gpus: int
) -> None:
    model = SimpleNamespace(hf_config=SimpleNamespace(architectures=[architecture]), dtype="bfloat16")
    names = {
        "Any": Any,
        "get_platform": lambda: platform(major),
        "model_config_of": lambda _: model,
        "attn_dp_enabled_of": lambda _: False,
        "logger": SILENT,
        "__builtins__": __builtins__,
    }
    rule = "_flashinfer_allreduce_fusion_auto_enable"
    scope = defined(patched, "arg_groups/overrides.py", names, rule, "_FLASHINFER_ALLREDUCE_FUSION_ARCHS")
    view = SimpleNamespace(
        flashinfer_allreduce_fusion_backend=None, tp_size=gpus, nnodes=1, disable_custom_all_reduce=False,
        moe_a2a_backend="none",
    )  # fmt: skip
    assert bool(scope[rule](view)) == (major in (9, 10))


NVFP4, ASKED = "modelopt_fp4", "triton"


@pytest.mark.parametrize(
    ("major", "flag", "checkpoint", "backend", "taken"),
    [
        (12, None, NVFP4, "auto", "flashinfer_cutlass"),  # without the patch: auto, which ends in SM10x cubins
        (12, NVFP4, NVFP4, "auto", "flashinfer_cutlass"),
        (12, None, NVFP4, ASKED, ASKED),
        (12, "fp8", NVFP4, "auto", "auto"),
        (12, None, "fp8", "auto", "auto"),
        (12, None, None, "auto", "auto"),
        (11, None, NVFP4, "auto", "auto"),  # as upstream has it
        (11, NVFP4, NVFP4, "auto", "flashinfer_cutlass"),
        (10, None, NVFP4, "auto", "auto"),
        (10, NVFP4, NVFP4, "auto", "auto"),
        (9, None, NVFP4, "auto", "auto"),
        (8, NVFP4, NVFP4, "auto", "auto"),
    ],
)
def test_nvfp4_experts_run_on_flashinfer_cutlass_on_sm12x(
    patched: LayeredTree, major: int, flag: str | None, checkpoint: str | None, backend: str, taken: str
) -> None:
    asked: list[object] = []

    def model_config_of(view: object) -> SimpleNamespace:
        asked.append(view)
        return SimpleNamespace(quantization=checkpoint)

    names = {
        "Any": Any,
        "get_platform": lambda: platform(major),
        "model_config_of": model_config_of,
        "logger": SILENT,
        "__builtins__": __builtins__,
    }
    rule = "_moe_runner_backend_quant_constraints"
    scope = defined(patched, "arg_groups/overrides.py", names, rule)
    view = SimpleNamespace(moe_runner_backend=backend, quantization=flag)
    assert {"moe_runner_backend": backend, **scope[rule](view)} == {"moe_runner_backend": taken}
    assert not asked or major == 12  # other GPUs do not come past the new line


@pytest.mark.parametrize("major", [9, 10, 12])
def test_flashinfer_cutlass_is_autotuned(patched: LayeredTree, major: int) -> None:
    lists = [
        ast.literal_eval(node.value.comparators[0])
        for node in ast.walk(parsed(patched, "model_executor/runner/flashinfer_autotune.py"))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "moe_needs_autotune"
        and isinstance(node.value, ast.Compare)
    ]  # fmt: skip
    assert ["flashinfer_cutlass" in listed for listed in lists] == [True]
    floors = [
        node.test
        for node in ast.walk(parsed(patched, "model_executor/runner/flashinfer_autotune.py"))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "torch.cuda.get_device_capability()[0] < 9"
    ]
    torch = SimpleNamespace(cuda=SimpleNamespace(get_device_capability=lambda: (major, 0)))
    assert [eval(ast.unparse(test), {"torch": torch}) for test in floors] == [False]


@pytest.mark.parametrize(
    ("major", "backend"), [(9, "auto"), (10, "flashinfer_mxfp4"), (11, "auto"), (12, "flashinfer_mxfp4")]
)
def test_gpt_oss_gets_mxfp4_kernels_where_there_are_some(patched: LayeredTree, major: int, backend: str) -> None:
    """On SM12x flashinfer_mxfp4 is the CUTLASS backend by now, no longer the SM100 cubins."""
    rules = [
        node
        for node in ast.walk(parsed(patched, "arg_groups/model_overrides/gpt_oss.py"))
        if isinstance(node, ast.If) and ast.unparse(node.test).startswith("get_platform().is_sm100 and is_mxfp4")
    ]
    overrides: dict[str, str] = {}
    names = {
        "get_platform": lambda: platform(major), "is_mxfp4_quant_format": True, "overrides": overrides,
        "logger": SILENT, "cfg": SimpleNamespace(enable_piecewise_npu_graph_decode=False, ep_size=1),
        "is_triton_kernels_available": lambda: False,
    }  # fmt: skip
    exec(ast.unparse(rules[0]), names)
    assert overrides.get("moe_runner_backend", "auto") == backend


@pytest.mark.parametrize("backend", ["triton", "trtllm_mha", "flashinfer"])
def test_hybrid_gdn_models_may_use_flashinfer_on_sm12x(patched: LayeredTree, backend: str) -> None:
    (rule,) = [
        node
        for node in ast.walk(parsed(patched, "layers/attention/attention_registry.py"))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "is_blackwell()"
    ]
    runner = SimpleNamespace(prefill_attention_backend_str=backend, decode_attention_backend_str=backend)
    body = ast.Module(body=rule.body, type_ignores=[])
    exec(
        ast.unparse(body), {"get_platform": lambda: platform(12), "runner": runner, "HYBRID_GDN_SM100_BACKENDS": set()}
    )
