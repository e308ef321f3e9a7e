"""One rank of a server's start: the patched SGLang's own preflight and fused all-reduce, on a real GPU.

Usage: serving.py FOLDER RANK WORLD RENDEZVOUS, where FOLDER holds the patched sglang. SGLang as a whole is
not imported: its fusion module and its wrapper of the CUDA runtime are, and what they import from the rest
of SGLang is replaced. One JSON line on stdout says what came of it.
"""

from __future__ import annotations

import ast
import json
import logging
import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

FUSION = "sglang/srt/layers/flashinfer_comm_fusion.py"
CUDART = "sglang/srt/distributed/device_communicators/cuda_wrapper.py"
EPS = 1e-6


class Coordinator:
    """SGLang's GroupCoordinator, as far as the preflight asks it, over all ranks."""

    def __init__(self) -> None:
        self.rank_in_group, self.world_size = dist.get_rank(), dist.get_world_size()
        self.device_group = dist.group.WORLD

    def all_gather_object(self, item: Any) -> list[Any]:
        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, item)
        return found

    def barrier(self) -> None:
        dist.barrier()


def loaded(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Run a module of SGLang with *given* for what it imports from SGLang; other names are there and useless."""
    tree = ast.parse(path.read_text())
    module = types.ModuleType(path.stem)
    scope = module.__dict__
    kept: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sglang":
            scope.update({name.asname or name.name: given.get(name.name) for name in node.names})
        else:
            kept.append(node)
    tree.body = kept
    sys.modules[path.stem] = module  # dataclasses look their module up
    exec(compile(tree, str(path), "exec"), scope)
    return scope


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def fused_error(module: dict[str, Any], hidden: int, tokens: int, rank: int, world: int) -> float:
    """Return the relative error of SGLang's fused call against fp32, the worse of its two outputs."""
    generator = torch.Generator(device="cuda")
    draw = [
        torch.randn(tokens, hidden, device="cuda", generator=generator.manual_seed(seed)).to(torch.bfloat16)
        for seed in range(world + 2)
    ]
    residual, weight = draw[-2], draw[-1][0].contiguous()
    normed, summed = module["flashinfer_allreduce_residual_rmsnorm"](
        draw[rank].clone(), residual.clone(), weight, eps=EPS, fp32_acc=True
    )
    total = sum((one.float() for one in draw[:world]), residual.float())
    wanted = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPS) * weight.float()
    torch.cuda.synchronize()
    return max(float((out.float() - ref).norm() / ref.norm()) for out, ref in ((summed, total), (normed, wanted)))


def main(folder: str, rank_text: str, world_text: str, rendezvous: str) -> None:
    rank, world = int(rank_text), int(world_text)
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.ones(1, device="cuda")  # the runtime is loaded, and its library found
    cudart = loaded(Path(folder) / CUDART, {"is_musa": lambda: False})
    old = "prepare_flashinfer_allreduce_fusion" in (Path(folder) / FUSION).read_text()
    given = {
        "CudaRTLibrary": cudart["CudaRTLibrary"],
        "GroupCoordinator": Coordinator,
        "get_tp_group": Coordinator,
        "get_tensor_model_parallel_rank": dist.get_rank,
        "get_tensor_model_parallel_world_size": dist.get_world_size,
        "register_custom_op": lambda **_: lambda decorated: decorated,
        "is_flashinfer_available": lambda: old,  # the newer module looks through FlashInfer's as it is loaded
    }
    module = loaded(Path(folder) / FUSION, given)
    told = Told()
    module["logger"].addHandler(told)
    free = torch.cuda.mem_get_info()[0]
    answer: dict[str, Any] = {"gpus": torch.cuda.device_count()}
    if old:
        module["prepare_flashinfer_allreduce_fusion"](4096, torch.bfloat16)
        answer["on"] = module["is_flashinfer_allreduce_fusion_prepared"]()
    else:
        answer["on"] = module["_preflight_check_peer_copies"](dist.group.WORLD)
    # No error of the preflight may wait for the next kernel, and nothing may stay allocated where it refused.
    answer["usable"] = bool((torch.ones(8, device="cuda") + 1 == 2).all())
    dist.barrier()
    answer["kept"] = max(0, free - torch.cuda.mem_get_info()[0])
    if old and answer["on"]:
        answer["error"] = max(fused_error(module, 4096, tokens, rank, world) for tokens in (1, 8, 100))
    answer["told"] = told.lines
    dist.barrier()
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # IPC memory goes with the process


if __name__ == "__main__":
    main(*sys.argv[1:])
