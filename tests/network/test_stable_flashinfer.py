"""What the patched FlashInfer of line stable decides: versions, architectures, modules."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from downstream import pins
from downstream.patches.series import load_series
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session
from downstream.trees.tree import LayeredTree

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
OURS = "0.6.3+sm120.1"


@pytest.fixture(scope="module")
def patched() -> Iterator[LayeredTree]:
    with Session(default_folder()) as session:
        release = open_pin(pins.load(ROOT, satisfied=False).pin("stable", "flashinfer"), session)
        report = push(load_series(ROOT / "patches" / "stable" / "flashinfer").patches(), release, base=release)
        yield LayeredTree(release, report.changes, report.modes)


def read(tree: LayeredTree, path: str) -> bytes:
    content = tree.read(path)
    assert content is not None, path
    return content


@pytest.fixture
def package(patched: LayeredTree, tmp_path: Path) -> Path:
    """As much of the package as importing ``flashinfer.jit.env`` takes, torch standing empty."""
    (tmp_path / "flashinfer" / "jit").mkdir(parents=True)
    for path in ("flashinfer/jit/env.py", "flashinfer/compilation_context.py"):
        (tmp_path / path).write_bytes(read(patched, path))
    for path in ("torch.py", "flashinfer/__init__.py", "flashinfer/jit/__init__.py"):
        (tmp_path / path).write_text("")
    return tmp_path


def run(package: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLASHINFER_")}
    environment = {**inherited, "PYTHONPATH": str(package), **variables}
    return subprocess.run([sys.executable, "-c", program], env=environment, check=False, capture_output=True, text=True)


def imports(package: Path, flashinfer: str, sibling: str, version: str) -> str:
    """Import beside *sibling* of *version*; return what it complained of, in one line."""
    (package / "flashinfer" / "version.py").write_text(f"__version__ = {flashinfer!r}\n")
    (package / f"{sibling}.py").write_text(
        f"__version__ = {version!r}\ndef get_cubin_dir():\n    return 'here'\nget_jit_cache_dir = get_cubin_dir\n"
    )
    done = run(package, "import flashinfer.jit.env", FLASHINFER_CUDA_ARCH_LIST="12.0a")
    return done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize(
    ("flashinfer", "cubin", "fits"),
    [
        (OURS, "0.6.3", True),  # the published cubins
        (OURS, OURS, True),
        (OURS, "0.6.3+sm120.2", False),
        (OURS, "0.6.3+sm120.10", False),
        (OURS, "0.6.3.post1", False),
        (OURS, "0.6.30", False),
        (OURS, "0.6.4", False),
        ("0.6.3", "0.6.3", True),
        ("0.6.3", OURS, False),
        ("0.6.3", "0.6.4", False),
    ],
)
def test_cubins_fit_by_the_public_version(package: Path, flashinfer: str, cubin: str, fits: bool) -> None:
    complaint = imports(package, flashinfer, "flashinfer_cubin", cubin)
    refusal = f"RuntimeError: flashinfer-cubin version ({cubin}) does not match flashinfer version ({flashinfer})."
    assert complaint == "" if fits else complaint.startswith(refusal)


@pytest.mark.parametrize(
    ("flashinfer", "cache", "fits"),
    [
        (OURS, OURS, True),
        (OURS, f"{OURS}.cu130", True),
        (OURS, "0.6.3", False),  # stock: no SM120 code in its trtllm_comm.so
        (OURS, "0.6.3+cu130", False),
        (OURS, "0.6.3+sm120.10", False),
        (OURS, "0.6.3+sm120.10.cu130", False),
        (OURS, "0.6.3+sm120.2.cu130", False),
        (OURS, "0.6.4+sm120.1.cu130", False),
        ("0.6.3+sm120.10", f"{OURS}.cu130", False),
        ("0.6.3", "0.6.3", True),
        ("0.6.3", "0.6.3+cu130", True),
        ("0.6.3", "0.6.30+cu130", False),
        ("0.6.3", "0.6.3.post1+cu130", False),
        ("0.6.3", f"{OURS}.cu130", False),
    ],
)
def test_compiled_modules_fit_by_the_exact_version(package: Path, flashinfer: str, cache: str, fits: bool) -> None:
    complaint = imports(package, flashinfer, "flashinfer_jit_cache", cache)
    refusal = f"RuntimeError: flashinfer-jit-cache version ({cache}) does not match flashinfer version ({flashinfer})."
    assert complaint == "" if fits else complaint.startswith(refusal)


@pytest.mark.parametrize(
    ("listed", "targets"),
    [
        ("12.0", ["120a"]),
        ("12.1", ["121a"]),
        ("12.0f", ["120f"]),
        ("12.0a 12.1a", ["120a", "121a"]),
        ("8.0 9.0a 10.0a 12.0", ["80", "90a", "100a", "120a"]),
        ("9.0 10.0", ["90", "100"]),  # left as they were written
    ],
)
def test_12_without_a_suffix_gets_the_one_of_detection(package: Path, listed: str, targets: list[str]) -> None:
    program = (
        "from flashinfer.compilation_context import CompilationContext\n"
        "print(*(f'{major}{minor}' for major, minor in CompilationContext().TARGET_CUDA_ARCHS))\n"
    )
    done = run(package, program, FLASHINFER_CUDA_ARCH_LIST=listed)
    assert sorted(done.stdout.split()) == sorted(targets), done.stderr


@pytest.mark.parametrize(
    ("compiled_for", "comm", "mnnvl"),
    [
        ({"sm90"}, True, False),
        ({"sm100"}, True, True),
        ({"sm103"}, True, False),
        ({"sm120"}, True, False),
        ({"sm121"}, True, False),
        ({"sm110"}, False, False),
        (set(), False, False),
        ({"sm90", "sm120"}, True, False),
    ],
)
def test_the_ahead_of_time_list_has_the_all_reduce_where_it_compiles(
    patched: LayeredTree, compiled_for: set[str], comm: bool, mnnvl: bool
) -> None:
    tree = ast.parse(read(patched, "flashinfer/aot.py"))
    names = {f"has_{arch}": arch in compiled_for for arch in ("sm90", "sm100", "sm103", "sm110", "sm120", "sm121")}
    built: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            for module in ("gen_trtllm_comm_module", "gen_trtllm_mnnvl_comm_module"):
                if any(module in ast.dump(statement) for statement in node.body if isinstance(statement, ast.Expr)):
                    built[module] = eval(ast.unparse(node.test), names)
    assert built == {"gen_trtllm_comm_module": comm, "gen_trtllm_mnnvl_comm_module": mnnvl}


def test_grid_dependency_control_is_asked_for_in_the_sm120_modules_only(patched: LayeredTree) -> None:
    flagged = {
        function.name
        for path in ("flashinfer/jit/fused_moe.py", "flashinfer/jit/gemm/core.py")
        for function in ast.parse(read(patched, path)).body
        if isinstance(function, ast.FunctionDef) and "-DCUTLASS_ENABLE_GDC_FOR_SM100=1" in ast.unparse(function)
    }
    assert flagged - {"gen_tgv_gemm_sm10x_module"} == {  # upstream's own
        "gen_cutlass_fused_moe_sm120_module",
        "gen_gemm_sm120_module",
        "gen_gemm_sm120_module_cutlass_fp4",
    }
