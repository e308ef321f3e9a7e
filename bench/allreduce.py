#!/usr/bin/env python3
"""All-reduce, residual add and RMSNorm of decode batches, in every way this host can do it.

    python bench/allreduce.py                            one rank a GPU of this host
    python bench/allreduce.py --world 8 --hidden 7168
    torchrun --nproc-per-node 8 bench/allreduce.py

Compared: NCCL and then add + norm (SGLang without fusion), FlashInfer's fused
kernel one-shot and two-shot (--enable-flashinfer-allreduce-fusion), and upstream's
all-reduce for PCIe and then add + norm (SGLANG_ENABLE_PCIE_IPC_ALLREDUCE), where
the installed FlashInfer has it. Each is first checked against fp32, then captured
in a CUDA graph, as SGLang decodes, and its replays timed: medians over rounds, of
the slowest rank. Where ranks share a GPU the times mean nothing, and it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EPS = 1e-6
SLOWEST = 900  # seconds until a group that hangs is ended
BASE = "nccl"
FLAGS = {
    "fused-1shot": "--enable-flashinfer-allreduce-fusion",
    "fused-2shot": "--enable-flashinfer-allreduce-fusion",
    "pcie-ipc": "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1",
}
COLOURS = {"nccl": "#8a8f98", "fused-1shot": "#2f8f5b", "fused-2shot": "#2b6cb0", "pcie-ipc": "#b7791f"}


@dataclass(frozen=True)
class Sample:
    """One way at one size: microseconds for one call."""

    way: str
    tokens: int
    median: float
    low: float  # 10th percentile
    high: float  # 90th


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--world", type=int, help="ranks (default: one a GPU, two where there is one)")
    options.add_argument("--hidden", type=int, default=6144)
    options.add_argument("--tokens", default="1,2,4,8,16,32,64,128,256", help="decode batches")
    options.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    options.add_argument("--calls", type=int, default=0, help="calls in one graph (default: 50; 4 on a shared GPU)")
    options.add_argument("--rounds", type=int, default=0, help="timed replays (default: 30; 7 on a shared GPU)")
    options.add_argument("--plot", type=Path, metavar="FILE", help="write an SVG")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the samples")
    return options


def main() -> int:
    options = parser().parse_args()
    if "RANK" in os.environ:
        return rank(options)
    import torch

    world = options.world or max(2, torch.cuda.device_count())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group: list[subprocess.Popen[bytes]] = []
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with tempfile.TemporaryFile() as quiet:
        for index in range(world):
            environment = os.environ | common | {"RANK": str(index), "LOCAL_RANK": str(index)}
            out = None if index == 0 else quiet
            command = [sys.executable, __file__, *sys.argv[1:]]
            group.append(subprocess.Popen(command, env=environment, stdout=out, stderr=None if index == 0 else out))
        end = time.monotonic() + SLOWEST
        try:
            while any(process.poll() is None for process in group) and time.monotonic() < end:
                if any(process.poll() not in (None, 0) for process in group):
                    time.sleep(5)
                    break
                time.sleep(0.2)
        finally:
            for process in group:
                process.kill()
        codes = [process.wait() for process in group]
        if any(codes):
            quiet.seek(0)
            sys.stderr.write(quiet.read().decode("utf-8", "replace")[-3000:])
            print(f"bench/allreduce.py: ranks ended with {codes}", file=sys.stderr)
    return max(map(abs, codes)) and 2


def rank(options: argparse.Namespace) -> int:
    """One rank's part; rank 0 tells."""
    import torch
    import torch.distributed as dist

    warnings.filterwarnings("ignore")
    mine, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gpus = torch.cuda.device_count()
    shared = world > gpus
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", mine)) % gpus)
    dist.init_process_group("gloo" if shared else "cpu:gloo,cuda:nccl")
    sys.stdout, told = open(os.devnull, "w"), sys.stdout  # noqa: SIM115, PTH123 - FlashInfer prints its pointers
    tokens = sorted({int(word) for word in options.tokens.split(",")})
    ways = Ways(options, mine, world, max(tokens), shared=shared)
    samples = []
    for count in tokens:
        for name, call in ways.at(count):
            problem = ways.wrong(name, call, count)
            if problem:
                ways.notes[name] = problem
                continue
            times = timed(
                call, calls=options.calls or (4 if shared else 50), rounds=options.rounds or (7 if shared else 30)
            )
            slowest: list[Any] = [None] * world
            dist.all_gather_object(slowest, times)
            joint = sorted(max(turn) for turn in zip(*slowest, strict=True))
            tenth = len(joint) // 10
            samples.append(Sample(name, count, statistics.median(joint), joint[tenth], joint[-1 - tenth]))
    dist.barrier()
    if mine == 0:
        sys.stdout = told
        tell(options, samples, ways, world, gpus)
        sys.stdout.flush()
    os._exit(0)  # IPC memory goes with the process


class Ways:
    """Every way to do it that this host and this FlashInfer have."""

    def __init__(self, options: argparse.Namespace, mine: int, world: int, most: int, *, shared: bool) -> None:
        import flashinfer
        import flashinfer.comm as comm
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.comm = torch, dist, comm
        self.mine, self.world, self.shared = mine, world, shared
        self.hidden = options.hidden
        self.dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float16
        self.version = flashinfer.__version__
        self.notes: dict[str, str] = {}
        if shared:
            self.notes[BASE] = "NCCL refuses ranks that share a GPU"
        made = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(
            mine, world, most, self.hidden, group=dist.group.WORLD
        )
        self.handles, self.workspace = made[:2]
        self.norm, self.norm_name = self._norm()
        self.pcie = self._pcie(most)

    def at(self, tokens: int) -> list[tuple[str, Callable[[], tuple[Any, Any]]]]:
        """Return the calls for a batch of *tokens*; each gives (residual, normed)."""
        torch = self.torch
        generator = torch.Generator(device="cuda")
        draw = [
            torch.randn(
                tokens, self.hidden, device="cuda", dtype=torch.float32, generator=generator.manual_seed(seed)
            ).to(self.dtype)
            for seed in range(self.world + 2)
        ]
        self.inputs, self.residual, self.weight = draw[: self.world], draw[-2], draw[-1][0].contiguous()
        source = self.inputs[self.mine]
        found: list[tuple[str, Callable[[], tuple[Any, Any]]]] = []

        def unfused(reduce: Callable[[Any], Any]) -> Callable[[], tuple[Any, Any]]:
            def call() -> tuple[Any, Any]:
                return self.norm(reduce(source.clone()), self.residual.clone(), self.weight)

            return call

        def fused(one: bool) -> Callable[[], tuple[Any, Any]]:
            def call() -> tuple[Any, Any]:
                return self._fused(source, tokens, one=one)

            return call

        if not self.shared:
            found.append((BASE, unfused(self._nccl)))
        found.append(("fused-1shot", fused(True)))
        if tokens > self.world:
            found.append(("fused-2shot", fused(False)))
        if self.pcie is not None and self.pcie.supports(source):
            found.append(("pcie-ipc", unfused(self.pcie.all_reduce)))
        return found

    def wrong(self, name: str, call: Callable[[], tuple[Any, Any]], tokens: int) -> str:
        """Return what is wrong with a call's answer, against fp32; nothing where it is right."""
        torch = self.torch
        total = sum(one.float() for one in self.inputs) + self.residual.float()
        wanted = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPS) * self.weight.float()
        residual, normed = call()
        torch.cuda.synchronize()
        errors = [float((out.float() - ref).norm() / ref.norm()) for out, ref in ((residual, total), (normed, wanted))]
        worst: list[Any] = [None] * self.world
        self.dist.all_gather_object(worst, max(errors))
        return "" if max(worst) < 2e-2 else f"wrong at {tokens} tokens: relative error {max(worst):.2g}"

    def _nccl(self, tensor: Any) -> Any:
        self.dist.all_reduce(tensor)
        return tensor

    def _fused(self, source: Any, tokens: int, *, one: bool) -> tuple[Any, Any]:
        residual, normed = self.torch.empty_like(source), self.torch.empty_like(source)
        self.comm.trtllm_allreduce_fusion(
            allreduce_in=source,
            world_size=self.world,
            world_rank=self.mine,
            token_num=tokens,
            hidden_dim=self.hidden,
            workspace_ptrs=self.workspace,
            launch_with_pdl=True,
            trigger_completion_at_end=False,
            fp32_acc=True,
            pattern_code=self.comm.AllReduceFusionPattern.kARResidualRMSNorm,
            use_oneshot=one,
            allreduce_out=None,
            residual_in=self.residual,
            residual_out=residual,
            norm_out=normed,
            quant_out=None,
            scale_out=None,
            rms_gamma=self.weight,
            rms_eps=EPS,
            scale_factor=None,
            layout_code=None,
        )
        return residual, normed

    def _norm(self) -> tuple[Callable[[Any, Any, Any], tuple[Any, Any]], str]:
        torch = self.torch

        def plain(tensor: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
            residual += tensor
            wide = residual.float()
            scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)
            return residual, (wide * scale * weight.float()).to(tensor.dtype)

        def kernel(tensor: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
            fused_add_rmsnorm(tensor, residual, weight, EPS)
            return residual, tensor

        try:
            from flashinfer.norm import fused_add_rmsnorm

            probe = torch.ones(1, self.hidden, device="cuda", dtype=self.dtype)
            fused_add_rmsnorm(probe, probe.clone(), probe[0].contiguous(), EPS)
            failed = ""
        except Exception as exc:  # noqa: BLE001 - no compiler on the host, most often
            failed = type(exc).__name__
        answers: list[Any] = [None] * self.world
        self.dist.all_gather_object(answers, failed)
        return (plain, "torch operations") if any(answers) else (kernel, "flashinfer.norm.fused_add_rmsnorm")

    def _pcie(self, most: int) -> Any:
        workspace = getattr(self.comm, "PcieIpcAllReduceWorkspace", None)
        if workspace is None:
            self.notes["pcie-ipc"] = f"FlashInfer {self.version} has none (0.7.0 and later do)"
            return None
        try:
            return workspace(group=self.dist.group.WORLD, max_numel=most * self.hidden, dtype=self.dtype)
        except Exception as exc:  # noqa: BLE001 - raised on every rank together, its reason is the answer
            self.notes["pcie-ipc"] = str(exc).splitlines()[0][:200]
            return None


def timed(call: Callable[[], Any], *, calls: int, rounds: int) -> list[float]:
    """Return microseconds of one call for each of *rounds* replays of a graph of *calls*."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                call()
        graph.replay()
        stream.synchronize()
        found = []
        for _ in range(rounds):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            found.append(begin.elapsed_time(end) * 1000 / calls)
    return found


def tell(options: argparse.Namespace, samples: Sequence[Sample], ways: Ways, world: int, gpus: int) -> None:
    import torch

    print(f"{torch.cuda.get_device_name()} x {gpus}, {world} ranks, hidden {options.hidden}, {options.dtype},")
    print(f"FlashInfer {ways.version}, torch {torch.__version__}; add + norm by {ways.norm_name}")
    if ways.shared:
        print(f"!! {world} ranks share {gpus} GPU: this shows that it runs and is right. The times mean nothing.")
    names = list(dict.fromkeys(sample.way for sample in samples))
    table = {(sample.way, sample.tokens): sample for sample in samples}
    tokens = sorted({sample.tokens for sample in samples})
    print(f"\n{'tokens':>6} {'KiB':>8}  " + "".join(f"{name + ' us (10-90%)':>30}" for name in names))
    for count in tokens:
        cells = ""
        for name in names:
            sample = table.get((name, count))
            base = table.get((BASE, count))
            text = f"{sample.median:.1f} ({sample.low:.1f}-{sample.high:.1f})" if sample else "-"
            if sample and base and name != BASE:
                text += f" {sample.median / base.median:.2f}x"
            cells += f"{text:>30}"
        print(f"{count:6} {count * options.hidden * 2 / 1024:8.0f}  {cells}")
    for name, note in ways.notes.items():
        print(f"{name}: {note}")
    print()
    for line in advice(table, tokens, names, shared=ways.shared):
        print(line)
    if options.json:
        rows = [sample.__dict__ | {"hidden": options.hidden, "world": world} for sample in samples]
        options.json.write_text(json.dumps({"shared": ways.shared, "samples": rows}, indent=1) + "\n")
    if options.plot:
        options.plot.write_text(plot(samples, options.hidden, world, shared=ways.shared))


def advice(
    table: dict[tuple[str, int], Sample], tokens: Sequence[int], names: Sequence[str], *, shared: bool
) -> list[str]:
    """Say which flags pay: where a way's 90th percentile is below the base's 10th."""
    if shared or BASE not in names:
        return ["No advice: it takes a GPU for each rank."]
    found = []
    for flag in dict.fromkeys(FLAGS[name] for name in names if name in FLAGS):
        mine = [name for name in names if FLAGS.get(name) == flag]
        wins, losses = [], []
        for count in tokens:
            base = table[BASE, count]
            ours = [table[name, count] for name in mine if (name, count) in table]
            if ours and min(one.high for one in ours) < base.low:
                wins.append(count)
            elif ours and min(one.low for one in ours) > base.high:
                losses.append(count)
        words = f"pays at {', '.join(map(str, wins))} tokens" if wins else "pays nowhere"
        words += f", costs at {', '.join(map(str, losses))}" if losses else ""
        found.append(f"{flag}: {words}")
    return found


def plot(samples: Sequence[Sample], hidden: int, world: int, *, shared: bool) -> str:
    """Return an SVG: microseconds over tokens, both logarithmic, a bar from the 10th to the 90th percentile."""
    import math

    width, height, left, bottom = 720, 420, 70, 50
    xs = [math.log2(sample.tokens) for sample in samples]
    ys = [math.log10(max(sample.low, 0.1)) for sample in samples] + [math.log10(sample.high) for sample in samples]
    x0, x1, y0, y1 = min(xs), max(*xs, min(xs) + 1), math.floor(min(ys)), math.ceil(max(ys))

    def at(tokens: int, micro: float) -> tuple[float, float]:
        x = left + (math.log2(tokens) - x0) / (x1 - x0) * (width - left - 160)
        y = height - bottom - (math.log10(max(micro, 0.1)) - y0) / (y1 - y0) * (height - bottom - 40)
        return round(x, 1), round(y, 1)

    caption = f"all-reduce + add + RMSNorm, hidden {hidden}, {world} ranks" + (" SHARING A GPU" if shared else "")
    parts = [f'<text x="{left}" y="20">{caption}</text>', f'<text x="{left}" y="{height - 8}">tokens</text>']
    parts += [
        f'<text x="{at(tokens, 10**y0)[0] - 6}" y="{height - bottom + 18}">{tokens}</text>'
        for tokens in sorted({sample.tokens for sample in samples})
    ]
    for power in range(y0, y1 + 1):
        y = at(1, 10**power)[1] if x0 == 0 else at(round(2**x0), 10**power)[1]
        parts.append(
            f'<path d="M{left} {y}H{width - 160}" stroke="#8884"/><text x="4" y="{y + 4}">{10**power:g} us</text>'
        )
    for index, name in enumerate(dict.fromkeys(sample.way for sample in samples)):
        mine = sorted((sample for sample in samples if sample.way == name), key=lambda sample: sample.tokens)
        points = " ".join("{},{}".format(*at(sample.tokens, sample.median)) for sample in mine)
        colour = COLOURS[name]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for sample in mine:
            (x, low), (_, high) = at(sample.tokens, sample.low), at(sample.tokens, sample.high)
            parts.append(f'<path d="M{x} {low}V{high}" stroke="{colour}"/>')
        parts.append(f'<text x="{width - 150}" y="{60 + 20 * index}" fill="{colour}">{name}</text>')
    font = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {font}>'
    return head + f'<rect width="{width}" height="{height}" fill="white"/>' + "".join(parts) + "</svg>\n"


if __name__ == "__main__":
    sys.exit(main())
