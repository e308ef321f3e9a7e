"""What the patched SGLang of line stable decides, per architecture, beside what it decided before."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Union

import pytest

from downstream import pins
from downstream.patches.series import load_series
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session
from downstream.trees.tree import LayeredTree, Tree

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
SRT = "python/sglang/srt"
MAJORS = (8, 9, 10, 11, 12)


@dataclass(frozen=True)
class Trees:
    before: Tree
    after: Tree


@pytest.fixture(scope="module")
def trees() -> Iterator[Trees]:
    with Session(default_folder()) as session:
        release = open_pin(pins.load(ROOT, satisfied=False).pin("stable", "sglang"), session)
        report = push(load_series(ROOT / "patches" / "stable" / "sglang").patches(), release, base=release)
        yield Trees(release, LayeredTree(release, report.changes, report.modes))


def parsed(tree: Tree, path: str) -> ast.Module:
    content = tree.read(f"{SRT}/{path}")
    assert content is not None, path
    return ast.parse(content)


def function(tree: Tree, path: str, name: str, names: Mapping[str, Any]) -> Any:
    """Compile one function of a module, without the module."""
    found = [node for node in ast.walk(parsed(tree, path)) if isinstance(node, ast.FunctionDef) and node.name == name]
    scope = dict(names)
    exec(compile(ast.Module(body=[found[0]], type_ignores=[]), path, "exec"), scope)
    return scope[name]


def predicates(major: int) -> dict[str, Any]:
    """SGLang's architecture predicates on a GPU of this compute capability, CUDA 13."""
    return {
        "is_sm90_supported": lambda: major == 9,
        "is_sm100_supported": lambda: major == 10,
        "is_sm120_supported": lambda: major == 12,
        "is_blackwell_supported": lambda: major in {10, 11, 12},
        "is_blackwell": lambda: major in {10, 11, 12},
    }


def fuses(tree: Tree, *, major: int, flag: bool, prepared: bool, dp_attention: bool, batch: int) -> bool:
    names = {
        "_is_sm90_supported": major == 9,
        "_is_sm100_supported": major == 10,
        "_is_sm120_supported": major == 12,
        "_is_flashinfer_available": True,
        "FUSE_ALLREDUCE_MAX_BATCH_SIZE": 2048,
        "is_dp_attention_enabled": lambda: dp_attention,
        "get_global_server_args": lambda: SimpleNamespace(enable_flashinfer_allreduce_fusion=flag),
        "_is_flashinfer_allreduce_fusion_prepared": lambda: prepared,
    }
    return bool(function(tree, "layers/communicator.py", "apply_flashinfer_allreduce_fusion", names)(batch))


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("batch", [0, 1, 2048, 2049])
def test_the_fusion_is_opt_in_and_prepared_on_sm12x_and_as_it_was_elsewhere(
    trees: Trees, major: int, batch: int
) -> None:
    for flag, prepared, dp_attention in itertools.product((False, True), repeat=3):
        row = functools.partial(
            fuses, major=major, flag=flag, prepared=prepared, dp_attention=dp_attention, batch=batch
        )
        on_sm12x = flag and prepared and not dp_attention and 0 < batch <= 2048
        assert row(trees.after) == (on_sm12x if major == 12 else row(trees.before)), row.keywords


def autotunes(tree: Tree, major: int, backend: str, *, disabled: bool = False) -> bool:
    torch = SimpleNamespace(cuda=SimpleNamespace(get_device_capability=lambda: (major, 0)))
    no = SimpleNamespace(is_eagle=bool, is_standalone=bool, is_ngram=bool)
    arguments = SimpleNamespace(disable_flashinfer_autotune=disabled, moe_runner_backend=backend)
    runner = SimpleNamespace(server_args=arguments, spec_algorithm=no, is_draft_worker=False)
    names = {"torch": torch, **predicates(major)}
    path = "model_executor/model_runner.py"
    return bool(function(tree, path, "_should_run_flashinfer_autotune", names)(runner))


@pytest.mark.parametrize("major", MAJORS)
def test_flashinfer_cutlass_is_autotuned_on_sm12x_only(trees: Trees, major: int) -> None:
    assert autotunes(trees.after, major, "flashinfer_cutlass") == (major == 12)
    assert not autotunes(trees.after, major, "flashinfer_cutlass", disabled=True)
    for backend in ("auto", "triton", "flashinfer_trtllm", "flashinfer_mxfp4"):
        assert autotunes(trees.after, major, backend) == autotunes(trees.before, major, backend), backend


def chooses_mxfp4(tree: Tree, major: int, *, mxfp4: bool) -> bool:
    tests = [
        node.test
        for node in ast.walk(parsed(tree, "server_args.py"))
        if isinstance(node, ast.If) and ast.unparse(node.body[0]) == "self.moe_runner_backend = 'flashinfer_mxfp4'"
    ]
    names = {**predicates(major), "is_mxfp4_quant_format": mxfp4}
    return bool(eval(ast.unparse(tests[0]), names))


@pytest.mark.parametrize(("major", "before", "after"), [(9, False, False), (10, True, True), (12, True, False)])
def test_gpt_oss_gets_the_sm100_kernels_on_sm100_only(trees: Trees, major: int, before: bool, after: bool) -> None:
    assert chooses_mxfp4(trees.before, major, mxfp4=True) == before
    assert chooses_mxfp4(trees.after, major, mxfp4=True) == after
    assert not chooses_mxfp4(trees.after, major, mxfp4=False)


@pytest.mark.parametrize(("major", "auto"), [(9, True), (10, True), (12, False)])
def test_no_rule_turns_the_fusion_on_by_itself_on_sm12x(trees: Trees, major: int, auto: bool) -> None:
    found = [
        node.test
        for node in ast.walk(parsed(trees.after, "server_args.py"))
        if isinstance(node, ast.If) and ast.unparse(node.body[0]) == "self.enable_flashinfer_allreduce_fusion = True"
    ]
    arguments = SimpleNamespace(
        enable_flashinfer_allreduce_fusion=False, enable_dp_attention=False, nnodes=1, moe_a2a_backend="none"
    )
    names = {**predicates(major), "self": arguments, "model_arch": "Qwen3MoeForCausalLM", "is_h20_device": False}
    assert [bool(eval(ast.unparse(test), names)) for test in found] == [auto]


def admits(tree: Tree, major: int, backend: str) -> bool:
    """Whether the rule for hybrid GDN models lets *backend* through."""
    rules = [
        node
        for node in ast.walk(parsed(tree, "layers/attention/attention_registry.py"))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "is_blackwell()"
    ]
    runner = SimpleNamespace(server_args=SimpleNamespace(attention_backend=backend))
    try:
        exec(ast.unparse(rules[0]), {**predicates(major), "runner": runner})
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("backend", ["triton", "trtllm_mha", "flashinfer", "fa3"])
def test_hybrid_gdn_models_may_use_flashinfer_on_sm12x(trees: Trees, major: int, backend: str) -> None:
    wanted = admits(trees.before, major, backend) or (major == 12 and backend == "flashinfer")
    assert admits(trees.after, major, backend) == wanted


def symmetric_memory(tree: Tree, major: int) -> str:
    """Set the communicator up on two GPUs; return how far it came."""
    warnings: list[str] = []
    torch = SimpleNamespace(
        bfloat16=SimpleNamespace(itemsize=2),
        cuda=SimpleNamespace(set_device=lambda _: None, get_device_capability=lambda _: (major, 0)),
        device=object,
    )
    names = {
        "torch": torch,
        "dist": SimpleNamespace(get_world_size=lambda _: 2),
        "logger": SimpleNamespace(warning=lambda message, *_: warnings.append(message)),
        "torch_symm_mem_available": True,
        "TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES": {9: {2: 64}, 10: {2: 64}},
        "torch_symm_mem": SimpleNamespace(
            empty=lambda *_, **__: None, rendezvous=lambda *_: SimpleNamespace(multicast_ptr=1)
        ),
        "ProcessGroup": object,
        "Union": Union,
    }
    path = "distributed/device_communicators/torch_symm_mem.py"
    communicator = SimpleNamespace()
    init = function(tree, path, "__init__", names)
    try:
        init(communicator, SimpleNamespace(group_name="tp"), object())
    except KeyError as error:
        return f"KeyError: {error}"
    return "enabled" if not communicator.disabled else warnings[-1].split(", ")[0]


UNSUPPORTED = "TorchSymmMemCommunicator: Device capability %s not supported"


@pytest.mark.parametrize(
    ("major", "before", "after"),
    [
        (8, UNSUPPORTED, UNSUPPORTED),
        (9, "enabled", "enabled"),
        (10, "enabled", "enabled"),
        (11, "KeyError: 11", UNSUPPORTED),
        (12, "KeyError: 12", UNSUPPORTED),
    ],
)
def test_torch_symmetric_memory_steps_back_where_it_has_no_sizes(
    trees: Trees, major: int, before: str, after: str
) -> None:
    assert symmetric_memory(trees.before, major) == before
    assert symmetric_memory(trees.after, major) == after
