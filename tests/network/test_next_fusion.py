"""The fused all-reduce of line next: which GPUs, flags and topologies get it, rank by rank, on the real files."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from tests.network.gpus import FAULTS, Cudart, GPUs, run

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
FUSION = "sglang.srt.layers.flashinfer_comm_fusion"
ADD_NORM = "sglang.srt.layers.layer_boundary.residual.add_norm"
BFLOAT16, FLOAT32 = object(), object()
MIB = 1 << 20


@dataclass(frozen=True)
class Sources:
    """The files of a tree, compiled once."""

    fusion: Any
    add_norm: Any
    platform: Any  # of runtime_context.py, what get_platform() takes
    probes: Any  # of utils/common.py, the probes themselves


def sources(tree: Tree) -> Sources:
    def parsed(path: str) -> ast.Module:
        content = tree.read(f"{SRT}/{path}")
        assert content is not None, path
        return ast.parse(content)

    def part(path: str, *names: str) -> Any:
        body = [node for node in parsed(path).body if set(names) & named(node)]
        assert set().union(*map(named, body)) >= set(names)
        return compile(ast.Module(body=body, type_ignores=[]), path, "exec", dont_inherit=True)

    def named(node: ast.stmt) -> set[str]:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        return {str(getattr(target, "id", getattr(target, "name", ""))) for target in targets}

    return Sources(
        fusion=compile(parsed("layers/flashinfer_comm_fusion.py"), FUSION, "exec", dont_inherit=True),
        add_norm=compile(parsed("layers/layer_boundary/residual/add_norm.py"), ADD_NORM, "exec", dont_inherit=True),
        platform=part("runtime_context.py", "_PLATFORM_PROBES", "_PLATFORM_VALUES", "PlatformContext"),
        probes=part(
            "utils/common.py",
            *("_check_cuda_device_version", "is_sm90_supported", "is_sm100_supported", "is_sm120_supported"),
        ),
    )


@pytest.fixture(scope="module")
def before_and_after() -> Iterator[tuple[Sources, Sources]]:
    with Session(default_folder()) as session:
        release = open_pin(pins.load(ROOT).pin("next", "sglang"), session)
        report = push(load_series(ROOT / "patches/next/sglang").patches(), release, base=release)
        yield sources(release), sources(LayeredTree(release, report.changes, report.modes))


@pytest.fixture(scope="module")
def before(before_and_after: tuple[Sources, Sources]) -> Sources:
    return before_and_after[0]


@pytest.fixture(scope="module")
def after(before_and_after: tuple[Sources, Sources]) -> Sources:
    return before_and_after[1]


@dataclass
class Machine(GPUs):
    """GPUs of one kind on one or several hosts."""

    capability: tuple[int, int]
    world_size: int = 2
    flag: str | None = "auto"
    nodes: int = 1
    multicast: bool = False
    fault: tuple[str, int, int] | None = None
    tried: list[int] = field(default_factory=list)  # bytes of the allocations of rank 0's preflight


@dataclass(frozen=True)
class Group:
    """A process group, as the rank that holds it sees it."""

    machine: Machine = field(repr=False, compare=False, hash=False)
    rank: int
    what: str

    def gather(self, item: Any) -> list[Any]:
        return self.machine.gather(self.rank, item)


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


@dataclass
class Flag:
    """A tensor of one number."""

    value: int

    def item(self) -> int:
        return self.value


class AnyNumber:
    """An enumeration whose members do not matter."""

    def __getattr__(self, name: str) -> int:
        return 0


def driver(machine: Machine, rank: int) -> Any:
    """cuda.bindings.driver, as much as the memory preflight takes."""
    constants = AnyNumber()

    def create(size: int, *_: Any) -> tuple[int, object]:
        if rank == 0:
            machine.tried.append(size)
        return (2 if machine.has("no memory for the workspace", rank, rank) else 0), object()

    return SimpleNamespace(
        CUmemAllocationHandleType=constants, CUmemAllocationType=constants, CUmemLocationType=constants,
        CUmemAllocationGranularity_flags=constants, CUmulticastGranularity_flags=constants,
        CUresult=SimpleNamespace(CUDA_SUCCESS=0),
        CUmemAllocationProp=lambda: SimpleNamespace(allocFlags=SimpleNamespace()),
        CUmemLocation=SimpleNamespace, CUmulticastObjectProp=SimpleNamespace,
        cuMemGetAllocationGranularity=lambda *_: (0, 2 * MIB),
        cuMulticastGetGranularity=lambda *_: (0, 512 * MIB) if machine.multicast else (801, 0),
        cuMemCreate=create, cuMemRelease=lambda _: None,
    )  # fmt: skip


def platform(machine: Machine, files: Sources) -> Any:
    """get_platform() of the tree, over its own probes, over a GPU of the machine's capability with CUDA 13."""
    major, minor = machine.capability
    probes: dict[str, Any] = {
        "torch": SimpleNamespace(version=SimpleNamespace(cuda="13.0")),
        "is_cuda": lambda: True,
        "get_device_sm": lambda: 10 * major + minor,
        "lru_cache": lru_cache, "partial": partial, "List": list, "Tuple": tuple,
    }  # fmt: skip
    exec(files.probes, probes)
    scope: dict[str, Any] = {"Any": Any, "Dict": dict}
    exec(files.platform, scope)
    made = scope["PlatformContext"]()
    facts = {"is_sm90": "is_sm90_supported", "is_sm100": "is_sm100_supported", "is_sm120": "is_sm120_supported"}
    assert {fact: scope["_PLATFORM_PROBES"][fact] for fact in facts} == facts
    made._install(**{fact: probes[probe]() for fact, probe in facts.items()})
    return made


def surroundings(machine: Machine, rank: int, files: Sources) -> Mapping[str, ModuleType]:
    """What the two modules import, on *rank*: torch, SGLang's own heavy modules, and FlashInfer."""

    def gather(into: list[Any], item: Any, group: Group) -> None:
        into[:] = group.gather(item)

    def reduce(flag: Flag, op: Callable[..., int], group: Group) -> None:
        flag.value = op(group.gather(flag.value))

    dist = module(
        "torch.distributed", ProcessGroup=Group, ReduceOp=SimpleNamespace(BAND=min, MAX=max),
        get_rank=lambda group: group.rank, get_world_size=lambda group: group.machine.world_size,
        get_process_group_ranks=lambda group: list(range(group.machine.world_size)),
        all_gather_object=gather, all_reduce=reduce, barrier=lambda group: group.gather(None),
    )  # fmt: skip
    torch = module(
        "torch", Tensor=object, dtype=object, float32=FLOAT32, bfloat16=BFLOAT16, int32=object(), distributed=dist,
        tensor=lambda values, dtype: Flag(values[0]), cuda=SimpleNamespace(current_device=lambda: rank),
        device=lambda *_: rank,
    )  # fmt: skip

    def create(**asked: Any) -> Any:
        if machine.has("no workspace", rank, rank):
            raise RuntimeError("out of memory")
        machine.workspaces.append(asked)
        return SimpleNamespace(
            backend=asked["backend"], metadata={"use_fp32_lamport": False}, is_buffer_size_sufficient=lambda **_: True
        )

    group = SimpleNamespace(
        device_group=Group(machine, rank, "NCCL"), cpu_group=Group(machine, rank, "Gloo"), world_size=machine.world_size
    )
    parallel = SimpleNamespace(
        nnodes=machine.nodes, attn_tp_size=machine.world_size, attn_tp_rank=rank, attn_tp_group=group, tp_group=group
    )
    chosen = SimpleNamespace(comm=SimpleNamespace(flashinfer_allreduce_fusion_backend=machine.flag))
    probed, resources = platform(machine, files), SimpleNamespace(buffers={})
    no: Callable[..., Any] = lambda *_, **__: False  # noqa: E731
    base, layers = "sglang.srt.distributed", "sglang.srt.layers"
    comm = module("flashinfer.comm", allreduce_fusion=no, create_allreduce_fusion_workspace=create)
    return {
        "torch": torch,
        "torch.distributed": dist,
        "flashinfer": module("flashinfer", comm=comm),
        "flashinfer.comm": comm,
        "flashinfer.comm.mnnvl": module("flashinfer.comm.mnnvl", is_mnnvl_fabric_supported=no, CommBackend=object),
        f"{base}.device_communicators.cuda_wrapper": module("", CudaRTLibrary=lambda: Cudart(machine, rank)),
        f"{base}.device_communicators.custom_all_reduce_utils": module("", is_one_nvlink_clique=lambda **_: True),
        f"{base}.parallel_state": module(
            "", in_the_same_node_as=lambda *_, **__: [i * machine.nodes < machine.world_size for i in range(8)]
        ),
        "sglang.srt.runtime_context": module(
            "", get_exec=lambda: chosen, get_parallel=lambda: parallel, get_platform=lambda: probed,
            get_resources=lambda: resources,
        ),
        "sglang.srt.utils": module(
            "", ceil_align=lambda size, unit: -(-size // unit) * unit, is_flashinfer_available=lambda: True,
            get_cuda_driver_bindings=lambda: driver(machine, rank), is_cuda=lambda: True, is_hip=no,
            get_bool_env_var=no, is_gfx95_supported=no, is_gfx1250_supported=no,
        ),
        "sglang.srt.utils.custom_op": module("", register_custom_op=lambda **_: lambda decorated: decorated),
        f"{layers}.dp_attention": module("", is_dp_attention_enabled=no),
        f"{layers}.layer_boundary.adapters.attention": module(
            "", attn_tp_gather=no, attn_tp_slice=no, get_attn_tp_context=no
        ),
        f"{layers}.layer_boundary.residual": module("", LayerResidualOps=SimpleNamespace),
        f"{layers}.moe.utils": module("", post_experts_reduction_group=no),
        f"{layers}.quantization.fp8_utils": module(
            "", _use_aiter_bpreshuffle_gfx95=False, emit_transposed_bpreshuffle_scale=no,
            materialize_bpreshuffle_fp8_scale_tuple=no, view_aiter_fused_rms_transposed_fp8_scale_tuple=no,
        ),
        "sglang.srt.model_executor.forward_batch_info": module("", ForwardBatch=object, ForwardMode=object),
    }  # fmt: skip


@dataclass
class Rank:
    fusion: ModuleType
    add_norm: ModuleType
    error: str = ""

    def start(self) -> None:
        """What a server does before it captures graphs, with its attention group."""
        try:
            self.fusion.ensure_workspace_initialized(max_token_num=2048, hidden_dim=4096, dtype=BFLOAT16)
        except ValueError as error:
            self.error = str(error)

    def fuses(self, batch: int = 8) -> bool:
        return bool(self.add_norm.flashinfer_ar_fusion_applies(batch))


def started(machine: Machine, files: Sources) -> list[Rank]:
    """Import the modules on every rank, run every rank's start to its end, and return the ranks."""
    ranks = []
    with mock.patch.dict(sys.modules):
        for rank in range(machine.world_size):
            sys.modules.update(surroundings(machine, rank, files))
            fusion, add_norm = module(FUSION), module(ADD_NORM)
            exec(files.fusion, fusion.__dict__)
            sys.modules[FUSION] = fusion
            exec(files.add_norm, add_norm.__dict__)
            fusion.__dict__["logger"] = SimpleNamespace(
                warning=lambda text, *parts: machine.warnings.append(text % parts if parts else text),
                info=lambda *_: None, debug=lambda *_: None,
            )  # fmt: skip
            ranks.append(Rank(fusion, add_norm))
        run([rank.start for rank in ranks])
    return ranks


def outcome(machine: Machine, files: Sources) -> str:
    """The backend that fuses on every rank, "off" where none does, or the error that ends the start."""
    ranks = started(machine, files)
    assert len({(rank.error, rank.fuses()) for rank in ranks}) == 1, "the ranks do not agree"
    if ranks[0].error:
        return ranks[0].error
    if not ranks[0].fuses() or machine.flag == "cutedsl":
        assert machine.flag != "cutedsl" or not machine.workspaces
        return "off"
    assert [workspace["rank"] for workspace in sorted(machine.workspaces, key=lambda w: w["rank"])] == list(
        range(machine.world_size)
    )
    (backend,) = {workspace["backend"] for workspace in machine.workspaces}
    return str(backend)


AMPERE, ADA, HOPPER, B200, B300, THOR = (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0)
SM120, SM121 = (12, 0), (12, 1)
NO_KERNELS = "FlashInfer allreduce fusion requires SM90, SM10X or SM12X NVIDIA GPUs."
OLD_NO_KERNELS = "FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs."
ONE_NODE = "FlashInfer allreduce fusion on SM12X takes the backends auto and trtllm, on a single node."
MULTI_NODE = "FlashInfer allreduce fusion does not support multi-node on non-Blackwell systems."
TRTLLM = "FlashInfer allreduce fusion trtllm backend supports single-node only."
MNNVL = "FlashInfer allreduce fusion mnnvl backend requires a Blackwell system, or SM90 single-node."
CUTEDSL = "FlashInfer allreduce fusion cutedsl backend requires a Blackwell system."

TABLE = [
    # capability, flag, GPUs, nodes -> what comes of it
    *[(sm12x, None, gpus, 1, "off") for sm12x in (SM120, SM121) for gpus in (2, 4, 8)],
    *[(SM120, flag, gpus, 1, "trtllm") for flag in ("auto", "trtllm") for gpus in (2, 4, 8)],
    *[(SM121, flag, gpus, 1, "trtllm") for flag in ("auto", "trtllm") for gpus in (2, 4, 8)],
    *[(sm12x, "auto", gpus, 1, "off") for sm12x in (SM120, SM121) for gpus in (3, 6)],
    *[(sm12x, flag, 2, 2, ONE_NODE) for sm12x in (SM120, SM121) for flag in ("auto", "trtllm", "mnnvl")],
    *[(sm12x, "mnnvl", 2, 1, ONE_NODE) for sm12x in (SM120, SM121)],
    (HOPPER, None, 4, 1, "off"),
    (HOPPER, "auto", 4, 1, "trtllm"),
    (HOPPER, "trtllm", 8, 1, "trtllm"),
    (HOPPER, "mnnvl", 2, 1, "mnnvl"),
    (HOPPER, "auto", 4, 2, MULTI_NODE),
    (HOPPER, "trtllm", 4, 2, TRTLLM),
    (HOPPER, "mnnvl", 4, 2, MNNVL),
    *[(sm10x, None, 4, 1, "off") for sm10x in (B200, B300)],
    *[(sm10x, "auto", 4, nodes, "mnnvl") for sm10x in (B200, B300) for nodes in (1, 2)],
    *[(sm10x, "trtllm", 4, 1, "trtllm") for sm10x in (B200, B300)],
    *[(sm10x, "cutedsl", 4, 1, "off") for sm10x in (B200, B300)],  # its own path, no workspace of this one
    (B200, "trtllm", 4, 2, TRTLLM),
    *[(other, None, 2, 1, "off") for other in (AMPERE, ADA, THOR)],
    *[(other, flag, 2, 1, NO_KERNELS) for other in (AMPERE, ADA, THOR) for flag in ("auto", "trtllm", "mnnvl")],
]  # fmt: skip


@pytest.mark.parametrize(
    ("capability", "flag", "gpus", "nodes", "expected"),
    TABLE,
    ids=[f"sm{major}{minor}-{flag}-{gpus}x{nodes}" for (major, minor), flag, gpus, nodes, _ in TABLE],
)
def test_architecture_flag_and_topology_decide(
    before: Sources, after: Sources, capability: tuple[int, int], flag: str | None, gpus: int, nodes: int, expected: str
) -> None:
    nvlink = capability[0] in (9, 10)

    def machine() -> Machine:
        return Machine(capability, gpus, flag, nodes, multicast=nvlink)

    assert outcome(machine(), after) == expected
    was = outcome(machine(), before)
    if capability[0] == 12:
        assert was == ("off" if flag is None else OLD_NO_KERNELS)
    else:
        assert was == expected.replace(NO_KERNELS, OLD_NO_KERNELS)


@pytest.mark.parametrize("flag", ["mnnvl", "cutedsl"])
@pytest.mark.parametrize("capability", [SM120, SM121])
def test_what_needs_multicast_is_refused_by_name(after: Sources, capability: tuple[int, int], flag: str) -> None:
    (rank, _) = started(Machine(capability, 2, None), after)
    with pytest.raises(ValueError, match="takes the backends auto and trtllm"):
        rank.fusion._resolve_backend(flag)


@pytest.mark.parametrize(("batch", "fuses"), [(0, False), (1, True), (2048, True), (2049, False)])
def test_the_batch_bounds_are_upstreams(after: Sources, batch: int, fuses: bool) -> None:
    assert [rank.fuses(batch) for rank in started(Machine(SM120), after)] == [fuses] * 2


def test_one_gpu_alone_makes_no_workspace(after: Sources) -> None:
    machine = Machine(SM121, 1)
    started(machine, after)
    assert (machine.workspaces, machine.warnings, machine.copies) == ([], [], 0)


@pytest.mark.parametrize("capability", [HOPPER, B200])
def test_sm90_and_sm100_try_no_copies(after: Sources, capability: tuple[int, int]) -> None:
    machine = Machine(capability, 4, multicast=True, fault=("no access", 1, 0))
    assert outcome(machine, after) != "off"
    assert machine.copies == 0


def test_every_pair_is_tried_once_whatever_the_number_of_workspaces(after: Sources) -> None:
    machine = Machine(SM120, 4)
    ranks = started(machine, after)
    assert machine.copies == 4 * 3
    assert machine.memory == {}  # closed and freed
    assert all(rank.fusion._preflight_check_peer_copies(Group(machine, i, "Gloo")) for i, rank in enumerate(ranks))
    assert machine.copies == 4 * 3


@pytest.mark.parametrize(("fault", "told"), FAULTS)
def test_a_fault_of_one_rank_leaves_all_ranks_without_and_is_told_once(
    after: Sources, fault: tuple[str, int, int], told: str
) -> None:
    machine = Machine(SM120, 4, fault=fault)
    assert outcome(machine, after) == "off"
    assert machine.warnings == [f"FlashInfer allreduce fusion is off: {told}"]
    assert (machine.memory, machine.workspaces) == ({}, [])


@pytest.mark.parametrize("gpus", [3, 6])
def test_a_group_that_flashinfer_has_no_thresholds_for_goes_on_without(after: Sources, gpus: int) -> None:
    machine = Machine(SM120, gpus)
    assert outcome(machine, after) == "off"
    assert machine.warnings == [f"FlashInfer allreduce fusion is off: rank 0: it takes 2, 4 or 8 GPUs, not {gpus}"]
    assert machine.copies == 0


@pytest.mark.parametrize(("value", "off"), [("1", True), (" 2", True), ("0", False), ("", False)])
def test_nccl_p2p_disable_turns_it_off(after: Sources, value: str, off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", value)
    machine = Machine(SM120, 4)
    assert outcome(machine, after) == ("off" if off else "trtllm")
    told = ["FlashInfer allreduce fusion is off: rank 0: NCCL_P2P_DISABLE is set"]
    assert machine.warnings == (told if off else [])


@pytest.mark.parametrize("what", ["no memory for the workspace", "no workspace"])
def test_upstreams_own_faults_still_turn_it_off_everywhere(after: Sources, what: str) -> None:
    machine = Machine(SM120, 4, fault=(what, 2, 2))
    assert outcome(machine, after) == "off"
    assert len(machine.workspaces) == (3 if what == "no workspace" else 0)


def test_without_multicast_the_trtllm_workspace_is_tried_in_the_sizes_it_is_made_in(
    before: Sources, after: Sources
) -> None:
    pcie = Machine(HOPPER, 2, "trtllm", multicast=False)
    assert outcome(pcie, before) == "off"
    assert "cuMulticastGetGranularity failed" in pcie.warnings[0]
    pcie = Machine(HOPPER, 2, "trtllm", multicast=False)
    assert outcome(pcie, after) == "trtllm"
    assert pcie.tried == [34 * MIB, 4 * MIB, 98 * MIB]


@pytest.mark.parametrize(("flag", "tried"), [("trtllm", [34, 4, 98]), ("mnnvl", [512, 512, 512])])
def test_mnnvl_alone_rounds_up_to_what_multicast_wants(after: Sources, flag: str, tried: list[int]) -> None:
    machine = Machine(B200, 2, flag, multicast=True)
    assert outcome(machine, after) == flag
    assert machine.tried == [size * MIB for size in tried]


def test_mnnvl_without_multicast_stays_off(after: Sources) -> None:
    machine = Machine(B200, 2, "mnnvl", multicast=False)
    assert outcome(machine, after) == "off"
    assert "cuMulticastGetGranularity failed" in machine.warnings[0]
