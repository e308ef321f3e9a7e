"""Where the wait of programmatic dependent launch is compiled, by header, flag and target (DOMAIN M2)."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from downstream import pins
from downstream.kernels.toolchain import pinned, run
from downstream.patches.series import load_series
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin, wheel_files
from downstream.trees.session import Session

pytestmark = [pytest.mark.network, pytest.mark.nvcc]

ROOT = Path(__file__).resolve().parents[2]
EXTENSIONS = "csrc/nv_internal/tensorrt_llm/cutlass_extensions/include"
COPY = f"{EXTENSIONS}/cutlass_extensions/arch/grid_dependency_control.h"
CUTLASS = "flashinfer/data/cutlass/include/"
KERNEL = """\
#include "%s/arch/grid_dependency_control.h"
__global__ void kernel(int* value) { cutlass::arch::wait_on_dependent_grids(); *value = 1; }
"""


@dataclass(frozen=True)
class Bench:
    nvcc: Path
    folder: Path

    def waits(self, header: str, flag: str, target: str) -> bool:
        """Compile a kernel that calls the header's wait to PTX; say whether the instruction is there."""
        source = self.folder / f"{header}.cu"
        source.write_text(KERNEL % header, encoding="ascii")
        includes = [f"-I{self.folder / EXTENSIONS}", "-isystem", str(self.folder / CUTLASS)]
        gencode = f"-gencode=arch=compute_{target},code=compute_{target}"
        ptx = self.folder / f"{header}.ptx"
        run([str(self.nvcc), "-std=c++17", "-ptx", *includes, flag, gencode, str(source), "-o", str(ptx)])
        return "griddepcontrol.wait" in ptx.read_text(encoding="ascii")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("gdc")
    pin = pins.load(ROOT, satisfied=False).pin("stable", "flashinfer")
    with Session(default_folder()) as session:
        release = open_pin(pin, session)
        report = push(load_series(ROOT / "patches" / "stable" / "flashinfer").patches(), release, base=release)
        (wheel,) = wheel_files(pin, session)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(CUTLASS)])
    header = report.changes[COPY]
    assert header is not None
    (folder / COPY).parent.mkdir(parents=True)
    (folder / COPY).write_bytes(header)
    return Bench(pinned(ROOT, default_folder()).nvcc, folder)


@pytest.mark.parametrize(
    ("header", "flag", "with_a_wait"),
    [
        # CUTLASS's own, which the GEMMs include: plain 120 is left out, hence normalise-sm12x-in-the-arch-list
        ("cutlass", "-DCUTLASS_ENABLE_GDC_FOR_SM100=1", {"100a", "120a", "120f", "121a"}),
        ("cutlass", "-DNOTHING", set()),
        # TensorRT-LLM's copy, patched
        ("cutlass_extensions", "-DCUTLASS_ENABLE_GDC_FOR_SM100=1", {"120", "120a", "120f", "121a"}),
        ("cutlass_extensions", "-DCUTLASS_ENABLE_GDC_FOR_SM90=1", {"90a"}),
        ("cutlass_extensions", "-DNOTHING", set()),
    ],
)
@pytest.mark.parametrize("target", ["90a", "100a", "120", "120a", "120f", "121a"])
def test_the_wait_is_compiled_where_the_flag_says_so(
    bench: Bench, header: str, flag: str, with_a_wait: set[str], target: str
) -> None:
    assert bench.waits(header, flag, target) == (target in with_a_wait)
