"""What needs the compiler itself: the pinned toolchain, the macro table, the flags, and machine code."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from downstream.arches import parse_target, parse_targets
from downstream.commands.kernels import main
from downstream.kernels.check import checks
from downstream.kernels.compile import FLAGS, gencode, machine_code
from downstream.kernels.environment import installed_wheel, interpreter, specs
from downstream.kernels.preprocess import LANGUAGE, architecture_macros
from downstream.kernels.proof import Fault, prove_unit
from downstream.kernels.sources import ROOTS, Sources
from downstream.kernels.toolchain import Toolchain, pinned, run, system
from downstream.kernels.units import Unit
from downstream.pins import load
from downstream.trees.cache import default_folder
from downstream.trees.open import wheel_files
from downstream.trees.session import Session
from downstream.trees.tree import MemoryTree

# The toolchain is kept in the user's cache, which tests marked network see.
pytestmark = [pytest.mark.nvcc, pytest.mark.network]

ROOT = Path(__file__).parents[2]
UNIT = Unit(source="csrc/k.cu")
SOURCE = """\
__global__ void whole(int* x) {
#if __CUDA_ARCH__ >= 900 GUARD
  cudaGridDependencySynchronize();
  *x += 1;
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
"""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return pinned(ROOT, default_folder())


def test_the_pinned_toolchain_does_what_the_build_asks(toolchain: Toolchain) -> None:
    found = checks(toolchain, parse_targets("90a,100a,120,120a,120f,121a"))
    assert [(check.what, check.problem) for check in found if check.problem] == []


def test_the_toolchain_laid_out_passes_as_a_system_s(toolchain: Toolchain) -> None:
    """What --cuda-home takes: our own layout, as a toolkit installed elsewhere looks."""
    found = system(toolchain.home)
    assert (found.origin, found.version, found.host) == ("system", toolchain.version, toolchain.host)


@pytest.mark.parametrize("target", ["90a", "100a", "100f", "120", "120a", "120f", "121a", "121f"])
def test_the_macros_are_those_that_nvcc_passes(target: str, toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    command = [str(toolchain.nvcc), "--dryrun", "-cubin", gencode(parse_target(target)), *FLAGS, "k.cu", "-o", "k"]
    said = "\n".join(_said(command, tmp_path))
    (device,) = [line for line in said.splitlines() if "-D__CUDA_ARCH__=" in line and " -E " in line]
    passed = set(re.findall(r'-D ?"?([^"\s]+)"?', device))
    ours = {f"{name}={value}" if value else name for name, value in architecture_macros(parse_target(target)).items()}
    ours |= {flag[2:] for flag in LANGUAGE} | {flag[2:] for flag in FLAGS if flag.startswith("-D")}
    assert passed == ours


def test_machine_code_shows_the_dead_kernel_and_the_living(toolchain: Toolchain, tmp_path: Path) -> None:
    """The whole proof in small: compile, disassemble, judge."""
    closed = Sources(MemoryTree({UNIT.source: SOURCE.replace("GUARD", "&& __CUDA_ARCH__ < 1200").encode()}))
    opened = Sources(MemoryTree({UNIT.source: SOURCE.replace("GUARD", "").encode()}))
    both = parse_targets("90a,120a,121a")

    def listed(sources: Sources) -> dict[object, object]:
        return {to: machine_code(toolchain, [], sources, UNIT, to, tmp_path) for to in both}

    before, after = listed(closed), listed(opened)
    dead = prove_unit("k", before, before, references=both[:1], targets=both[1:], allowed={})  # type: ignore[arg-type]
    assert [(finding.fault, finding.target) for finding in dead.findings] == [
        (Fault.EMPTY, "sm_120a"),
        (Fault.EMPTY, "sm_121a"),
    ]
    alive = prove_unit("k", before, after, references=both[:1], targets=both[1:], allowed={})  # type: ignore[arg-type]
    assert alive.holds
    assert alive.equal == (("k", "sm_90a", 1),)
    assert listed(opened) == after  # from the cache


@pytest.mark.slow
def test_the_flags_are_those_of_flashinfer_s_own_ninja_file(toolchain: Toolchain, tmp_path: Path) -> None:
    pins = load(ROOT)
    with Session(default_folder()) as session:
        (wheel,) = wheel_files(pins.pin("stable", "flashinfer"), session)
    variables = {
        "CUDA_HOME": str(toolchain.home),
        "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
        "FLASHINFER_WORKSPACE_BASE": str(tmp_path),
    }
    env = installed_wheel(interpreter(ROOT, default_folder()), wheel, default_folder())
    _, (spec,) = specs(env, ["trtllm_comm"], variables)
    text = spec.ninja.read_text().replace("$\n", "")
    values = dict(re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE))
    words = shlex.split(values["cuda_cflags"].replace("$common_cflags", values["common_cflags"]))
    folders = [words[at + 1] for at, word in enumerate(words) if word == "-isystem"]
    package = str(env.site / "flashinfer" / "data") + "/"
    inside = [folder.removeprefix(package) for folder in folders if folder.startswith(package)]
    flags = {word for word in words if word.startswith("-") and word not in ("-isystem", "--threads=1")}
    assert {flag for flag in flags if not flag.startswith("-gencode")} == set(FLAGS)
    assert tuple(inside) == tuple(root.removeprefix("3rdparty/") for root in ROOTS)


@pytest.mark.slow
def test_generated_units_are_proved_with_the_flags_of_their_module(
    toolchain: Toolchain, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the twenty that gen_gemm_sm120_module writes: the flag that the series adds gives its kernels a wait."""
    words = ["--units", "gemm_groupwise_e4m3_bf16_majorfalse_sm120.cu", "--targets", "120a", "--jobs", "2"]
    assert main(["prove", "--root", str(ROOT), "--modules", "gemm_sm120", *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    counts = {row["tree"]: (row["kernels"], row["empty"], row["waits"]) for row in answer["rows"]}
    assert counts == {"unpatched": (2, 0, 0), "patched": (2, 0, 2)}
    assert "group_gemm_sm120_binding.cu" in " ".join(answer["unproved"])


def _said(command: list[str], folder: Path) -> list[str]:
    """nvcc tells its plan on stderr."""
    return run(["sh", "-c", f"{shlex.join(command)} 2>&1"], cwd=folder).splitlines()
