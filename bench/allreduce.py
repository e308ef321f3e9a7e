#!/usr/bin/env python3
"""All-reduce, residual add and RMSNorm of decode batches, in every way this host can do it.

    python bench/allreduce.py                            one rank a GPU of this host
    python bench/allreduce.py --world 8 --hidden 6144,7168 --plot allreduce.svg
    torchrun --nproc-per-node 8 bench/allreduce.py

Compared: NCCL and then add + norm (SGLang without fusion), FlashInfer's fused
kernel one-shot and two-shot (--enable-flashinfer-allreduce-fusion), and upstream's
all-reduce for PCIe and then add + norm (SGLANG_ENABLE_PCIE_IPC_ALLREDUCE), where
the installed FlashInfer has it. What writes into other GPUs' memory takes part only
where the preflight (the doctor of the SM120 build, with --copy) finds that every byte
arrives. Each way is first checked against fp32, then captured in a CUDA graph, as
SGLang decodes; the graphs are replayed in turn and timed: medians over rounds, of the
slowest rank. Where ranks share a GPU the times mean nothing, and it says so.
"""

from __future__ import annotations

import argparse
import json
import math
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
from typing import Any, Protocol

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
    hidden: int
    tokens: int
    median: float
    low: float  # 10th percentile
    high: float  # 90th


class Call(Protocol):
    """One way to do it, in place unless *fresh*: gives (residual, normed)."""

    def __call__(self, fresh: bool = ...) -> tuple[Any, Any]: ...


def numbers(text: str) -> list[int]:
    return sorted({int(word) for word in text.split(",")})


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--world", type=int, help="ranks (default: one a GPU, two where there is one)")
    options.add_argument("--hidden", type=numbers, default=[6144], help="sizes, with commas (default: 6144)")
    options.add_argument(
        "--tokens", type=numbers, default=[1, 2, 4, 8, 16, 32, 64, 128, 256], help="decode batches, with commas"
    )
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
    ways = Ways(options, mine, world, shared=shared)
    calls, rounds = options.calls or (4 if shared else 50), options.rounds or (7 if shared else 30)
    samples = []
    for hidden in options.hidden:
        for tokens in options.tokens:
            graphs = {}
            for name, call in ways.at(tokens, hidden):
                problem = ways.wrong(call)
                if problem:
                    ways.notes[name] = f"wrong at {tokens} tokens, hidden {hidden}: {problem}"
                else:
                    graphs[name] = captured(call, calls=calls)
            times = timed(graphs, calls=calls, rounds=rounds)
            slowest: list[Any] = [None] * world
            dist.all_gather_object(slowest, times)
            for name in graphs:
                joint = sorted(max(turn) for turn in zip(*(one[name] for one in slowest), strict=True))
                tenth = len(joint) // 10
                low, high = joint[tenth], joint[-1 - tenth]
                samples.append(Sample(name, hidden, tokens, statistics.median(joint), low, high))
    dist.barrier()
    if mine == 0:
        sys.stdout = told
        tell(options, samples, ways, world, gpus)
        sys.stdout.flush()
    os._exit(0)  # IPC memory goes with the process


class Ways:
    """Every way to do it that this host and this FlashInfer have."""

    def __init__(self, options: argparse.Namespace, mine: int, world: int, *, shared: bool) -> None:
        import flashinfer
        import flashinfer.comm as comm
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.comm = torch, dist, comm
        self.mine, self.world, self.shared = mine, world, shared
        self.dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float16
        self.version = flashinfer.__version__
        self.notes: dict[str, str] = {}
        if shared:
            self.notes[BASE] = "NCCL refuses ranks that share a GPU"
        most, widest = max(options.tokens), max(options.hidden)
        self.norm, self.norm_name = self._norm(widest)
        refused = [preflight() if mine == 0 else ""]
        dist.broadcast_object_list(refused)
        self.reachable, self.pcie = not refused[0], None
        if not self.reachable:
            self.notes |= dict.fromkeys(FLAGS, refused[0])
            return
        made = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(mine, world, most, widest, group=dist.group.WORLD)
        self.handles, self.workspace = made[:2]
        self.pcie = self._pcie(most * widest)

    def at(self, tokens: int, hidden: int) -> list[tuple[str, Call]]:
        """Return the calls for a batch of *tokens*; each gives (residual, normed)."""
        torch = self.torch
        generator = torch.Generator(device="cuda")
        draw = [
            torch.randn(tokens, hidden, device="cuda", dtype=torch.float32, generator=generator.manual_seed(seed)).to(
                self.dtype
            )
            for seed in range(self.world + 2)
        ]
        self.inputs, self.residual, self.weight = draw[: self.world], draw[-2], draw[-1][0].contiguous()
        source, scratch, running = self.inputs[self.mine], self.inputs[self.mine].clone(), self.residual.clone()
        found: list[tuple[str, Call]] = []

        def unfused(reduce: Callable[[Any], Any]) -> Call:
            # In place, as SGLang does it: what is timed copies nothing, and lets the numbers grow.
            def call(fresh: bool = False) -> tuple[Any, Any]:
                tensor, residual = (source.clone(), self.residual.clone()) if fresh else (scratch, running)
                return self.norm(reduce(tensor), residual, self.weight)

            return call

        def fused(one: bool) -> Call:
            return lambda fresh=False: self._fused(source, tokens, one=one)

        if not self.shared:
            found.append((BASE, unfused(self._nccl)))
        if not self.reachable:
            return found
        found.append(("fused-1shot", fused(True)))
        if tokens > self.world:
            found.append(("fused-2shot", fused(False)))
        if self.pcie is not None and self.pcie.supports(source):
            found.append(("pcie-ipc", unfused(self.pcie.all_reduce)))
        return found

    def wrong(self, call: Call) -> str:
        """Return what is wrong with a call's answer, against fp32; nothing where it is right."""
        torch = self.torch
        total = sum(one.float() for one in self.inputs) + self.residual.float()
        wanted = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPS) * self.weight.float()
        residual, normed = call(fresh=True)
        torch.cuda.synchronize()
        errors = [float((out.float() - ref).norm() / ref.norm()) for out, ref in ((residual, total), (normed, wanted))]
        worst: list[Any] = [None] * self.world
        self.dist.all_gather_object(worst, max(errors))
        return "" if max(worst) < 2e-2 else f"relative error {max(worst):.2g}"

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
            hidden_dim=source.shape[-1],
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

    def _norm(self, hidden: int) -> tuple[Callable[[Any, Any, Any], tuple[Any, Any]], str]:
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

            probe = torch.ones(1, hidden, device="cuda", dtype=self.dtype)
            fused_add_rmsnorm(probe, probe.clone(), probe[0].contiguous(), EPS)
            failed = ""
        except Exception as exc:  # noqa: BLE001 - no compiler on the host, most often
            failed = type(exc).__name__
        answers: list[Any] = [None] * self.world
        self.dist.all_gather_object(answers, failed)
        return (plain, "torch operations") if any(answers) else (kernel, "flashinfer.norm.fused_add_rmsnorm")

    def _pcie(self, numbers: int) -> Any:
        workspace = getattr(self.comm, "PcieIpcAllReduceWorkspace", None)
        if workspace is None:
            self.notes["pcie-ipc"] = f"FlashInfer {self.version} has none (0.7.0 and later do)"
            return None
        try:
            return workspace(group=self.dist.group.WORLD, max_numel=numbers, dtype=self.dtype)
        except Exception as exc:  # noqa: BLE001 - raised on every rank together, its reason is the answer
            self.notes["pcie-ipc"] = str(exc).splitlines()[0][:200]
            return None


def preflight() -> str:
    """Return why this host must not run what writes into other GPUs' memory; nothing where it may.

    The SM120 build's doctor copies between all pairs and compares; the environment is asked as SGLang's own
    preflight asks it.
    """
    if os.environ.get("NCCL_P2P_DISABLE", "").strip() not in ("", "0"):
        return "refused by the preflight: NCCL_P2P_DISABLE is set"
    command = [sys.executable, "-m", "flashinfer.sm120", "doctor", "--copy", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SLOWEST, check=False)
    try:
        findings = {finding["check"]: finding for finding in json.loads(ran.stdout)["findings"]}
    except ValueError:
        return "refused: no preflight, this FlashInfer has no flashinfer.sm120"
    peers = findings["peers"]
    return "" if peers["level"] == "ok" else f"refused by the preflight: {peers['text']}"


def captured(call: Callable[[], Any], *, calls: int) -> Any:
    """Return a CUDA graph of *calls* calls, replayed once."""
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
    return graph


def timed(graphs: dict[str, Any], *, calls: int, rounds: int) -> dict[str, list[float]]:
    """Return microseconds of one call for each of *rounds* replays of each graph, in turn."""
    import torch

    found: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found[name].append(begin.elapsed_time(end) * 1000 / calls)
    return found


def tell(options: argparse.Namespace, samples: Sequence[Sample], ways: Ways, world: int, gpus: int) -> None:
    import torch

    gpu = torch.cuda.get_device_name()
    print(f"{gpu} x {gpus}, {world} ranks, {options.dtype}, driver {driver()}")
    print(f"FlashInfer {ways.version}, torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    print(f"add + norm by {ways.norm_name}; times in microseconds: median (10th-90th percentile), against {BASE}")
    if ways.shared:
        print(f"!! {world} ranks share {gpus} GPU: this shows that it runs and is right. The times mean nothing.")
    names = list(dict.fromkeys(sample.way for sample in samples))
    for hidden in options.hidden:
        table = {(sample.way, sample.tokens): sample for sample in samples if sample.hidden == hidden}
        print(f"\n{'tokens':>6} {'KiB':>8}  " + "".join(f"{name:>28}" for name in names) + f"   hidden {hidden}")
        for tokens in options.tokens:
            cells = "".join(f"{cell(table, name, tokens):>28}" for name in names)
            print(f"{tokens:6} {tokens * hidden * 2 / 1024:8.0f}  {cells}")
    print()
    for name, note in ways.notes.items():
        print(f"{name}: {note}")
    for line in advice(samples, shared=ways.shared):
        print(line)
    if options.json:
        facts = {
            "gpu": gpu,
            "gpus": gpus,
            "driver": driver(),
            "flashinfer": ways.version,
            "torch": torch.__version__,
            "world": world,
            "dtype": options.dtype,
            "shared": ways.shared,
            "notes": ways.notes,
        }
        rows = [sample.__dict__ for sample in samples]
        options.json.write_text(json.dumps(facts | {"samples": rows}, indent=1) + "\n")
    if options.plot and samples:
        options.plot.write_text(plot(samples, world, shared=ways.shared))


def driver() -> str:
    """Return the kernel driver's version, as it tells it."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[:1].isdigit() and "." in word), "unknown")


def cell(table: dict[tuple[str, int], Sample], name: str, tokens: int) -> str:
    sample, base = table.get((name, tokens)), table.get((BASE, tokens))
    if sample is None:
        return "-"
    text = f"{sample.median:.1f} ({sample.low:.1f}-{sample.high:.1f})"
    return f"{text} {sample.median / base.median:.2f}x" if base and name != BASE else text


def advice(samples: Sequence[Sample], *, shared: bool) -> list[str]:
    """Say which flags pay: where a way's 90th percentile is below the base's 10th."""
    table = {(sample.way, sample.hidden, sample.tokens): sample for sample in samples}
    names = {sample.way for sample in samples}
    if shared or BASE not in names or names == {BASE}:
        return ["No advice: it takes a GPU for each rank, and a way to compare with NCCL."]
    found = []
    for flag in dict.fromkeys(FLAGS[name] for name in FLAGS if name in names):
        mine = [name for name in names if FLAGS.get(name) == flag]
        for hidden in dict.fromkeys(sample.hidden for sample in samples):
            wins, losses = [], []
            for tokens in sorted({sample.tokens for sample in samples}):
                base = table[BASE, hidden, tokens]
                ours = [table[name, hidden, tokens] for name in mine if (name, hidden, tokens) in table]
                if ours and min(one.high for one in ours) < base.low:
                    wins.append(tokens)
                elif ours and min(one.low for one in ours) > base.high:
                    losses.append(tokens)
            words = f"pays at {', '.join(map(str, wins))} tokens" if wins else "pays nowhere"
            words += f", costs at {', '.join(map(str, losses))}" if losses else ""
            found.append(f"{flag}, hidden {hidden}: {words}")
    return found


PANEL, HEIGHT, LEFT, BOTTOM, LEGEND = 340, 400, 60, 50, 120


def plot(samples: Sequence[Sample], world: int, *, shared: bool) -> str:
    """Return an SVG, a panel for each hidden size: microseconds over tokens, both axes logarithmic."""
    sizes = list(dict.fromkeys(sample.hidden for sample in samples))
    lowest = math.floor(math.log10(max(0.1, min(sample.low for sample in samples))))
    highest = math.ceil(math.log10(max(sample.high for sample in samples)))
    width = LEFT + PANEL * len(sizes) + LEGEND
    caption = f"all-reduce + add + RMSNorm, {world} ranks" + (" SHARING A GPU" if shared else "")
    parts = [f'<text x="{LEFT}" y="20" font-size="14">{caption}</text>']
    for index, hidden in enumerate(sizes):
        mine = [sample for sample in samples if sample.hidden == hidden]
        parts += panel(mine, LEFT + PANEL * index, lowest, highest, first=index == 0)
    for index, name in enumerate(dict.fromkeys(sample.way for sample in samples)):
        colour = COLOURS[name]
        parts.append(f'<text x="{width - LEGEND + 8}" y="{70 + 20 * index}" fill="{colour}">{name}</text>')
    font = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" {font}>'
    return head + f'<rect width="{width}" height="{HEIGHT}" fill="white"/>' + "\n".join(parts) + "</svg>\n"


def panel(samples: Sequence[Sample], left: int, lowest: int, highest: int, *, first: bool) -> list[str]:
    tokens = sorted({sample.tokens for sample in samples})
    spread = max(1.0, math.log2(tokens[-1]) - math.log2(tokens[0]))

    def at(count: int, micro: float) -> tuple[float, float]:
        x = left + 12 + (math.log2(count) - math.log2(tokens[0])) / spread * (PANEL - 40)
        y = HEIGHT - BOTTOM - (math.log10(max(micro, 0.1)) - lowest) / max(1, highest - lowest) * (HEIGHT - BOTTOM - 60)
        return round(x, 1), round(y, 1)

    parts = [f'<text x="{left + 12}" y="44">hidden {samples[0].hidden}</text>']
    parts.append(f'<text x="{left + PANEL / 2}" y="{HEIGHT - 10}" text-anchor="middle">tokens</text>')
    parts += [
        f'<text x="{at(count, 1)[0]}" y="{HEIGHT - BOTTOM + 18}" font-size="10" text-anchor="middle">{count}</text>'
        for count in tokens
    ]
    for power in range(lowest, highest + 1):
        y = at(tokens[0], 10**power)[1]
        parts.append(f'<path d="M{left} {y}h{PANEL - 16}" stroke="#ddd"/>')
        if first:
            parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{10**power:g} µs</text>')
    for name in dict.fromkeys(sample.way for sample in samples):
        mine = sorted((sample for sample in samples if sample.way == name), key=lambda sample: sample.tokens)
        points = " ".join("{},{}".format(*at(sample.tokens, sample.median)) for sample in mine)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        for sample in mine:
            (x, low), (_, high) = at(sample.tokens, sample.low), at(sample.tokens, sample.high)
            parts.append(f'<path d="M{x} {low}V{high}" stroke="{COLOURS[name]}"/>')
    return parts


if __name__ == "__main__":
    sys.exit(main())
