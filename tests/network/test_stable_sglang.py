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
CAPABILITIES = ((8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1))


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


@functools.cache
def tree_of(content: bytes) -> ast.Module:
    return ast.parse(content)


def parsed(tree: Tree, path: str) -> ast.Module:
    content = tree.read(f"{SRT}/{path}")
    assert content is not None, path
    return tree_of(content)


def function(tree: Tree, path: str, name: str, names: Mapping[str, Any]) -> Any:
    """Compile one function of a module, without the module."""
    found = [node for node in ast.walk(parsed(tree, path)) if isinstance(node, ast.FunctionDef) and node.name == name]
    scope = dict(names)
    exec(compile(ast.Module(body=[found[0]], type_ignores=[]), path, "exec"), scope)
    return scope[name]


def gpu(capability: tuple[int, int]) -> SimpleNamespace:
    """As much of torch as the predicates ask: a GPU of this compute capability, CUDA 13."""
    cuda = SimpleNamespace(is_available=lambda: True, get_device_capability=lambda *_: capability)
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0"))


def predicates(tree: Tree, capability: tuple[int, int]) -> dict[str, Any]:
    """SGLang's own architecture predicates on such a GPU."""
    names = {"torch": gpu(capability), "lru_cache": functools.lru_cache, "partial": functools.partial}
    scope: dict[str, Any] = {**names, "List": list, "Tuple": tuple}
    found: list[ast.stmt] = [
        node
        for node in parsed(tree, "utils/common.py").body
        if (isinstance(node, ast.FunctionDef) and node.name in {"is_cuda", "_check_cuda_device_version"})
        or (isinstance(node, ast.Assign) and "_check_cuda_device_version" in ast.unparse(node.value))
    ]
    exec(compile(ast.Module(body=found, type_ignores=[]), "common.py", "exec"), scope)
    assert "is_sm120_supported" in scope
    return {name: value for name, value in scope.items() if name.startswith("is_")}


def constants(tree: Tree, path: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """The module's own constants that hold an answer of the predicates."""
    scope = dict(names)
    for node in parsed(tree, path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith(("_is_cuda", "_is_sm", "FUSE_")):
            exec(ast.unparse(node), scope)
    return scope


def fuses(
    tree: Tree, *, capability: tuple[int, int], flag: bool, prepared: bool, dp_attention: bool, batch: int
) -> bool:
    path = "layers/communicator.py"
    names = {
        **constants(tree, path, predicates(tree, capability)),
        "_is_flashinfer_available": True,
        "is_dp_attention_enabled": lambda: dp_attention,
        "get_global_server_args": lambda: SimpleNamespace(enable_flashinfer_allreduce_fusion=flag),
        "_is_flashinfer_allreduce_fusion_prepared": lambda: prepared,
    }
    return bool(function(tree, path, "apply_flashinfer_allreduce_fusion", names)(batch))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("batch", [0, 1, 2048, 2049])
def test_the_fusion_is_opt_in_and_prepared_on_sm12x_and_as_it_was_elsewhere(
    trees: Trees, capability: tuple[int, int], batch: int
) -> None:
    for flag, prepared, dp_attention in itertools.product((False, True), repeat=3):
        row = functools.partial(
            fuses, capability=capability, flag=flag, prepared=prepared, dp_attention=dp_attention, batch=batch
        )
        on_sm12x = flag and prepared and not dp_attention and 0 < batch <= 2048
        assert row(trees.after) == (on_sm12x if capability[0] == 12 else row(trees.before)), row.keywords
        assert row(trees.before) == (capability[0] in {9, 10} and flag and not dp_attention and 0 < batch <= 2048)


def prepares(tree: Tree, *, capability: tuple[int, int], flag: bool, dp_attention: bool, draft: bool) -> bool:
    """Whether a model runner tries the GPUs out before it loads the model."""
    tests = [
        node.test
        for node in ast.walk(parsed(tree, "model_executor/model_runner.py"))
        if isinstance(node, ast.If) and "prepare_flashinfer_allreduce_fusion" in ast.unparse(node.body[-1])
    ]
    arguments = SimpleNamespace(enable_flashinfer_allreduce_fusion=flag, enable_dp_attention=dp_attention)
    names = {
        **predicates(tree, capability),
        "server_args": arguments,
        "self": SimpleNamespace(is_draft_worker=draft),
    }
    return any(eval(ast.unparse(test), names) for test in tests)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_gpus_are_tried_out_on_sm12x_only_and_when_asked(trees: Trees, capability: tuple[int, int]) -> None:
    for flag, dp_attention, draft in itertools.product((False, True), repeat=3):
        row = {"flag": flag, "dp_attention": dp_attention, "draft": draft}
        wanted = capability[0] == 12 and flag and not dp_attention and not draft
        assert prepares(trees.after, capability=capability, **row) == wanted, row
        assert not prepares(trees.before, capability=capability, **row)


def autotunes(tree: Tree, capability: tuple[int, int], backend: str, *, disabled: bool = False) -> bool:
    no = SimpleNamespace(is_eagle=bool, is_standalone=bool, is_ngram=bool)
    arguments = SimpleNamespace(disable_flashinfer_autotune=disabled, moe_runner_backend=backend)
    runner = SimpleNamespace(server_args=arguments, spec_algorithm=no, is_draft_worker=False)
    names = {"torch": gpu(capability), **predicates(tree, capability)}
    path = "model_executor/model_runner.py"
    return bool(function(tree, path, "_should_run_flashinfer_autotune", names)(runner))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_flashinfer_cutlass_is_autotuned_on_sm12x_only(trees: Trees, capability: tuple[int, int]) -> None:
    assert autotunes(trees.after, capability, "flashinfer_cutlass") == (capability[0] == 12)
    assert not autotunes(trees.after, capability, "flashinfer_cutlass", disabled=True)
    for backend in ("auto", "triton", "flashinfer_trtllm", "flashinfer_mxfp4"):
        assert autotunes(trees.after, capability, backend) == autotunes(trees.before, capability, backend), backend


def chooses_mxfp4(tree: Tree, capability: tuple[int, int], *, mxfp4: bool) -> bool:
    tests = [
        node.test
        for node in ast.walk(parsed(tree, "server_args.py"))
        if isinstance(node, ast.If) and ast.unparse(node.body[0]) == "self.moe_runner_backend = 'flashinfer_mxfp4'"
    ]
    names = {**predicates(tree, capability), "is_mxfp4_quant_format": mxfp4}
    return bool(eval(ast.unparse(tests[0]), names))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_gpt_oss_gets_the_sm100_kernels_on_sm10x_only(trees: Trees, capability: tuple[int, int]) -> None:
    assert chooses_mxfp4(trees.before, capability, mxfp4=True) == (capability[0] in {10, 11, 12})
    assert chooses_mxfp4(trees.after, capability, mxfp4=True) == (capability[0] == 10)
    assert not chooses_mxfp4(trees.after, capability, mxfp4=False)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_no_rule_turns_the_fusion_on_by_itself_on_sm12x(trees: Trees, capability: tuple[int, int]) -> None:
    found = [
        node.test
        for node in ast.walk(parsed(trees.after, "server_args.py"))
        if isinstance(node, ast.If) and ast.unparse(node.body[0]) == "self.enable_flashinfer_allreduce_fusion = True"
    ]
    arguments = SimpleNamespace(
        enable_flashinfer_allreduce_fusion=False, enable_dp_attention=False, nnodes=1, moe_a2a_backend="none"
    )
    probes = predicates(trees.after, capability)
    names = {**probes, "self": arguments, "model_arch": "Qwen3MoeForCausalLM", "is_h20_device": False}
    assert [bool(eval(ast.unparse(test), names)) for test in found] == [capability[0] in {9, 10}]


def admits(tree: Tree, capability: tuple[int, int], backend: str) -> bool:
    """Whether the rule for hybrid GDN models lets *backend* through."""
    rules = [
        node
        for node in ast.walk(parsed(tree, "layers/attention/attention_registry.py"))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "is_blackwell()"
    ]
    runner = SimpleNamespace(server_args=SimpleNamespace(attention_backend=backend))
    try:
        exec(ast.unparse(rules[0]), {**predicates(tree, capability), "runner": runner})
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("backend", ["triton", "trtllm_mha", "flashinfer", "fa3"])
def test_hybrid_gdn_models_may_use_flashinfer_on_sm12x(trees: Trees, capability: tuple[int, int], backend: str) -> None:
    wanted = admits(trees.before, capability, backend) or (capability[0] == 12 and backend == "flashinfer")
    assert admits(trees.after, capability, backend) == wanted


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
