"""The barrier between ranks: a block's flag follows every write of the block, in the order of the PTX."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from downstream import pins
from downstream.kernels.toolchain import pinned, run
from downstream.patches.series import load_series
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session

pytestmark = [pytest.mark.network, pytest.mark.nvcc]

ROOT = Path(__file__).resolve().parents[2]
HEADER = "include/flashinfer/comm/trtllm_allreduce.cuh"
FUNCTIONS = ("void st_flag_release(", "uint32_t ld_flag_acquire(", "void block_barrier(")
KERNEL = """
#include <cstdint>
%s
__global__ void kernel(int4* shared, int4 const* input, uint32_t** signals, uint32_t flag) {
  shared[threadIdx.x] = input[threadIdx.x];
  block_barrier(signals, flag, 0, 2, threadIdx.x, blockIdx.x, gridDim.x);
}
"""


def function(source: str, name: str) -> str:
    """Return a function of *source* from the start of its declaration to the brace that ends it."""
    start = source.rindex("\n\n", 0, source.index(name))
    return source[start : source.index("\n}\n", start) + 3]


@dataclass(frozen=True)
class Compiler:
    nvcc: Path
    folder: Path
    stock: str
    patched: str

    def steps(self, header: str, target: str) -> list[str]:
        """Compile the header's barrier behind a copy; return what it does, in the order of the PTX."""
        source, ptx = self.folder / "barrier.cu", self.folder / "barrier.ptx"
        (blocks,) = re.findall(r"^constexpr size_t MAX_ALL_REDUCE_BLOCKS = \d+;$", header, re.MULTILINE)
        parts = [blocks, *(function(header, name) for name in FUNCTIONS)]
        source.write_text(KERNEL % "".join(parts), encoding="utf-8")
        gencode = f"-gencode=arch=compute_{target},code=compute_{target}"
        run([str(self.nvcc), "-std=c++17", "-ptx", gencode, str(source), "-o", str(ptx)])
        found = re.findall(r"(?:bar|barrier)\.sync|st\.global\.v4|st\.global\.release\.sys", ptx.read_text())
        return ["sync" if "sync" in step else "write" if "v4" in step else "flag" for step in found]


@pytest.fixture(scope="module", params=["stable", "next"])
def compiler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    with Session(default_folder()) as session:
        release = open_pin(pins.load(ROOT, satisfied=False).pin(request.param, "flashinfer"), session)
        series = load_series(ROOT / "patches" / request.param / "flashinfer")
        patched = push(series.patches(), release, base=release).changes[HEADER]
        stock = release.read(HEADER)
    assert stock is not None
    assert patched is not None
    folder = tmp_path_factory.mktemp("barrier")
    return Compiler(pinned(ROOT, default_folder()).nvcc, folder, stock.decode(), patched.decode())


@pytest.mark.parametrize("target", ["90a", "100a", "120a", "121a"])
def test_the_whole_block_arrives_before_its_flag_is_released(compiler: Compiler, target: str) -> None:
    assert compiler.steps(compiler.patched, target) == ["write", "sync", "flag", "sync"]


def test_stock_releases_the_flag_from_the_first_warp_alone(compiler: Compiler) -> None:
    """Where this fails upstream has it, and let-a-block-arrive-before-its-flag.patch can go."""
    assert compiler.steps(compiler.stock, "90a") == ["write", "flag", "sync"]
