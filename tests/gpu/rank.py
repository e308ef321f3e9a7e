"""One rank of a group: runs cases from a file over CUDA IPC and writes what came out, one JSON line each.

Usage: rank.py SPEC RANK LOG, with the build to test first on PYTHONPATH. A program, not a test: ranks.py starts it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

EPS = 1e-6
LAMPORT_TOKENS = 16  # trtllm_custom_all_reduce takes its lamport kernel up to here (kLamportTokenNumThreshold)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def filled(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal random numbers that every rank can make again from *seed*."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


class Inputs:
    """One call's inputs on every rank, and what fp32 makes of them."""

    def __init__(self, case: dict[str, Any], world: int, turn: int) -> None:
        tokens, hidden, dtype = case["tokens"], case["hidden"], DTYPES[case["dtype"]]
        seed = case["seed"] * 1009 + turn * 101
        self.of_rank = [filled((tokens, hidden), seed + rank, dtype) for rank in range(world)]
        for tensor in self.of_rank:
            if case.get("negative_zero"):
                tensor.view(-1)[:: case["negative_zero"]] = -0.0
        self.residual = filled((tokens, hidden), seed + 50, dtype)
        self.weight = filled((hidden,), seed + 51, dtype)
        self.bias = filled((hidden,), seed + 52, dtype)
        self.sum = torch.zeros((tokens, hidden), device="cuda")
        for tensor in self.of_rank:
            self.sum += tensor.float()

    def normed(self, *, bias: bool) -> tuple[torch.Tensor, torch.Tensor]:
        total = self.sum + self.residual.float()
        if bias:
            total = total + self.bias.float()
        scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + EPS)
        return total, total * scale * self.weight.float()


class Fusion:
    """trtllm_allreduce_fusion: what SGLang calls."""

    def __init__(self, comm: Any, rank: int, world: int, tokens: int, hidden: int) -> None:
        self.comm, self.rank, self.world = comm, rank, world
        self.handles, self.workspace = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(
            rank, world, tokens, hidden, group=dist.group.WORLD
        )[:2]

    def __call__(self, case: dict[str, Any], inputs: Inputs) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        shape, dtype = (case["tokens"], case["hidden"]), DTYPES[case["dtype"]]
        plain = case["op"] == "sum"
        patterns = self.comm.AllReduceFusionPattern
        summed, residual_out, norm_out = (poisoned(shape, dtype) for _ in range(3))
        self.comm.trtllm_allreduce_fusion(
            allreduce_in=inputs.of_rank[self.rank].clone(),
            world_size=self.world,
            world_rank=self.rank,
            token_num=shape[0],
            hidden_dim=shape[1],
            workspace_ptrs=self.workspace,
            launch_with_pdl=case["pdl"],
            trigger_completion_at_end=case.get("trigger_at_end", True),
            fp32_acc=True,
            pattern_code=patterns.kAllReduce if plain else patterns.kARResidualRMSNorm,
            use_oneshot=case["shot"] == 1,
            allreduce_out=summed if plain else None,
            residual_in=None if plain else inputs.residual.clone(),
            residual_out=None if plain else residual_out,
            norm_out=None if plain else norm_out,
            quant_out=None,
            scale_out=None,
            rms_gamma=None if plain else inputs.weight,
            rms_eps=None if plain else EPS,
            scale_factor=None,
            layout_code=None,
        )
        if plain:
            return [("sum", summed, inputs.sum)]
        total, normed = inputs.normed(bias=False)
        return [("residual", residual_out, total), ("norm", norm_out, normed)]


class Custom:
    """trtllm_custom_all_reduce: deprecated, and the only user of the guarded kernels.

    Its lamport calls need flags of their own that follow each other, and fresh buffers when the
    message's shape changes (flashinfer#3903); its barrier calls alternate the two shared buffers.
    """

    def __init__(self, comm: Any, rank: int, world: int, tokens: int, hidden: int) -> None:
        self.comm, self.rank, self.world = comm, rank, world
        self.lamport_bytes = world * LAMPORT_TOKENS * world * hidden * 2
        self.handles = comm.trtllm_create_ipc_workspace_for_all_reduce(rank, world, tokens, hidden, dist.group.WORLD)
        self.barrier_flag = self.lamport_flag = 0
        self.shape: tuple[int, int, str] | None = None

    def __call__(self, case: dict[str, Any], inputs: Inputs) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        shape, dtype = (case["tokens"], case["hidden"]), DTYPES[case["dtype"]]
        plain, one = case["op"] == "sum", case["shot"] == 1
        # Vectors of 8 in whole warps: a hidden size that is none of those takes the kernel with barriers.
        if not plain and one and shape[0] <= LAMPORT_TOKENS and shape[1] % 256 == 0:
            if self.shape != (*shape, case["dtype"]):
                self._fresh()
                self.shape = (*shape, case["dtype"])
            self.lamport_flag += 1
            flag = self.lamport_flag
        else:
            self.barrier_flag += 1
            flag = self.barrier_flag
        strategies, operations = self.comm.AllReduceStrategyType, self.comm.AllReduceFusionOp
        out, total_out = (poisoned((shape[0] * shape[1],), dtype) for _ in range(2))
        pointers = [torch.tensor(handles, dtype=torch.int64) for handles in self.handles]
        self.comm.trtllm_custom_all_reduce(
            inp=inputs.of_rank[self.rank].clone().view(-1),
            out=out,
            tp_size=self.world,
            tp_rank=self.rank,
            token_num=shape[0],
            fusion_op_code=operations.NONE if plain else operations.RESIDUAL_RMS_NORM,
            strategy_code=strategies.ONESHOT if one else strategies.TWOSHOT,
            config_code=0,
            launch_with_pdl=case["pdl"],
            flag_value=flag,
            peer_comm_buffer_ptrs=pointers[flag % 2],
            peer_barrier_ptrs_in=pointers[2],
            peer_barrier_ptrs_out=pointers[3],
            bias=inputs.bias,
            residual=inputs.residual.clone().view(-1),
            weight=inputs.weight,
            weight_pre_residual_norm=None,
            eps=EPS,
            intermediate_buffer=total_out,
            lamport_peer_comm_buffer_ptrs_0=pointers[4],
            lamport_peer_comm_buffer_ptrs_1=pointers[5],
            lamport_peer_comm_buffer_ptrs_2=pointers[6],
        )
        if plain:
            return [("sum", out.view(shape), inputs.sum)]
        total, normed = inputs.normed(bias=True)
        return [("residual", total_out.view(shape), total), ("norm", out.view(shape), normed)]

    def _fresh(self) -> None:
        torch.cuda.synchronize()
        dist.barrier()  # no peer may still read what is about to be reset
        buffers = [self.handles[index][self.rank] for index in (4, 5, 6)]
        self.comm.trtllm_lamport_initialize_all(*buffers, self.lamport_bytes // 2, torch.float16)
        torch.cuda.synchronize()
        dist.barrier()


def distance(out: torch.Tensor, reference: torch.Tensor) -> tuple[float, int]:
    """Relative error in the 2-norm, and how many elements are not finite or off by more than a tenth of the scale."""
    out32 = out.float()
    scale = reference.norm() / reference.numel() ** 0.5
    off = ~torch.isfinite(out32) | ((out32 - reference).abs() > 0.1 * (scale + reference.abs()))
    error = (torch.nan_to_num(out32, nan=1e4, posinf=1e4, neginf=1e4) - reference).norm() / reference.norm()
    return float(error), int(off.sum())


def measured(call: Any, case: dict[str, Any], world: int) -> dict[str, Any]:
    """Run *case* its number of times back to back, then compare everything with fp32."""
    if case.get("hang_rank") == dist.get_rank():
        time.sleep(3600)  # for the test of the launcher: a rank that never comes
    turns = [Inputs(case, world, turn) for turn in range(case.get("repeat", 2))]
    torch.cuda.synchronize()
    outputs = [entry for inputs in turns for entry in call(case, inputs)]
    torch.cuda.synchronize()
    worst, off, where = 0.0, 0, ""
    for name, out, reference in outputs:
        error, count = distance(out, reference)
        if error >= worst:
            worst, where = error, name
        off += count
    return {"error": worst, "off": off, "output": where}


def main(spec_file: str, rank_text: str, log_file: str) -> int:
    spec, rank = json.loads(Path(spec_file).read_text()), int(rank_text)
    world, cases = spec["world"], spec["cases"]
    with Path(log_file).open("w", buffering=1) as log:

        def tell(**line: Any) -> None:
            log.write(json.dumps(line) + "\n")

        try:
            torch.cuda.set_device(rank % torch.cuda.device_count())
            dist.init_process_group("gloo", init_method=f"file://{spec['rendezvous']}", rank=rank, world_size=world)
            import flashinfer
            import flashinfer.comm as comm

            tell(
                version=flashinfer.__version__,
                path=flashinfer.__file__,
                device=torch.cuda.get_device_name(),
                torch=torch.__version__,
            )
            calls: dict[str, Any] = {}
            for api, kind in (("fusion", Fusion), ("custom", Custom)):
                used = [case for case in cases if case["api"] == api]
                if used:
                    tokens, hidden = (max(case[key] for case in used) for key in ("tokens", "hidden"))
                    calls[api] = kind(comm, rank, world, tokens, hidden)
            order = list(range(len(cases)))
            random.Random(spec["seed"]).shuffle(order)
            for index in order:
                tell(start=index)
                tell(done=index, **measured(calls[cases[index]["api"]], cases[index], world))
            dist.barrier()
            tell(finished=True)
        except BaseException as exc:  # noqa: BLE001 - told to the launcher, whatever it is
            tell(failed=f"{type(exc).__name__}: {exc}"[:2000], trace=traceback.format_exc()[-4000:])
            os._exit(1)  # a broken context must not linger in destructors
    os._exit(0)  # IPC memory goes with the process; an orderly teardown would need every peer alive


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
