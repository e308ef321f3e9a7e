"""Which published packages FlashInfer of line next takes beside it, on the real files."""

from __future__ import annotations

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
OURS = "0.7.2+sm120.1"


@pytest.fixture(scope="module")
def patched() -> Iterator[LayeredTree]:
    with Session(default_folder()) as session:
        release = open_pin(pins.load(ROOT).pin("next", "flashinfer"), session)
        report = push(load_series(ROOT / "patches/next/flashinfer").patches(), release, base=release)
        yield LayeredTree(release, report.changes, report.modes)


@pytest.fixture
def package(patched: LayeredTree, tmp_path: Path) -> Path:
    """As much of the package as importing ``flashinfer.jit.env`` takes, torch standing empty."""
    (tmp_path / "flashinfer" / "jit").mkdir(parents=True)
    for path in (
        "flashinfer/jit/env.py",
        "flashinfer/jit/_cuda_architecture.py",
        "flashinfer/jit/cpp_ext.py",
        "flashinfer/compilation_context.py",
    ):
        content = patched.read(path)
        assert content is not None, path
        (tmp_path / path).write_bytes(content)
    for path in ("torch.py", "flashinfer/__init__.py", "flashinfer/jit/__init__.py"):
        (tmp_path / path).write_text("")
    return tmp_path


def answer(package: Path, flashinfer: str, expression: str) -> tuple[str, str]:
    """Return what *expression* is after the import beside a flashinfer of this version, and what was said."""
    (package / "flashinfer/version.py").write_text(f"__version__ = {flashinfer!r}\n")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLASHINFER_")}
    done = subprocess.run(
        [sys.executable, "-c", f"import flashinfer.jit.env as env\nprint({expression})"],
        env={**inherited, "PYTHONPATH": str(package), "FLASHINFER_CUDA_ARCH_LIST": "12.0f"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize(
    ("flashinfer", "cubin", "fits"),
    [
        (OURS, "0.7.2", True),  # the published cubins
        (OURS, OURS, True),
        (OURS, "0.7.2+sm120.2", False),
        (OURS, "0.7.2+sm120.10", False),
        (OURS, "0.7.2.post1", False),
        (OURS, "0.7.20", False),
        (OURS, "0.7.4", False),
        ("0.7.2", "0.7.2", True),
        ("0.7.2", OURS, False),
        ("0.0.0+unknown", "0.7.2", True),  # upstream's editable installs
    ],
)
def test_cubins_fit_by_the_public_version(package: Path, flashinfer: str, cubin: str, fits: bool) -> None:
    (package / "flashinfer_cubin.py").write_text(
        f"__version__ = {cubin!r}\ndef get_cubin_dir():\n    return 'theirs'\n"
    )
    folder, said = answer(package, flashinfer, "env.FLASHINFER_CUBIN_DIR")
    assert (folder == "theirs") == fits
    refusal = f"flashinfer-cubin version ({cubin}) does not match flashinfer version ({flashinfer})."
    assert said == "" if fits else refusal in said


@pytest.mark.parametrize(
    ("flashinfer", "cache", "fits"),
    [
        (OURS, OURS, True),
        (OURS, f"{OURS}.cu130", True),
        (OURS, "0.7.2", False),  # stock: without the repairs of the series
        (OURS, "0.7.2+cu130", False),
        (OURS, "0.7.2+sm120.10", False),
        (OURS, "0.7.2+sm120.10.cu130", False),
        (OURS, "0.7.2+sm120.2.cu130", False),
        ("0.7.2+sm120.10", f"{OURS}.cu130", False),
        ("0.7.2", "0.7.2", True),
        ("0.7.2", "0.7.2+cu130", True),
        ("0.7.2", "0.7.20+cu130", False),
        ("0.7.2", "0.7.2.post1+cu130", False),
    ],
)
def test_compiled_modules_fit_by_the_exact_version(package: Path, flashinfer: str, cache: str, fits: bool) -> None:
    (package / "flashinfer_jit_cache.py").write_text(f"""\
from types import SimpleNamespace
__version__ = {cache!r}
def get_jit_cache_providers():
    return [SimpleNamespace(provider_id="sm120", distribution="flashinfer-jit-cache-sm120", version=__version__,
            jit_cache_dir="theirs", cuda_architectures=["sm120f"], modules=["trtllm_comm"])]
""")
    found, said = answer(package, flashinfer, "len(env.FLASHINFER_AOT_PROVIDERS)")
    assert found == ("1" if fits else "0")
    assert said == "" if fits else f"flashinfer-jit-cache version ({cache}) does not match" in said
