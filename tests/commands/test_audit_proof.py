"""The audit cites the kernels' fast proof: real gcc, a release of one kernel, CUDA's headers stood in for."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from downstream.cli import FINDINGS, OK
from downstream.trees.cache import default_folder
from downstream.trees.session import Session

STOCK = "attend-1.0-py3-none-any.whl"
INFO = "attend-1.0.dist-info"
PATH = "include/all_reduce.cuh"
HEADER = b"""\
__global__ void lamport_kernel(float* out) {
#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))
  cudaGridDependencySynchronize();
  out[0] = 1;
#endif
}
"""
FILES = {
    "attend/_version.py": b'__version__ = "1.0"\n',
    "attend/data/include/all_reduce.cuh": HEADER,
    "attend/data/csrc/trtllm_allreduce.cu": b'#include "all_reduce.cuh"\n',
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: attend\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: g (1)\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/RECORD": b"attend/_version.py,,\n",
}
PATCH = b"""\
Subject: open the guard
Author: A <a@example.org>
Forwarded: no
Last-Update: 2026-01-01
---
--- a/include/all_reduce.cuh
+++ b/include/all_reduce.cuh
@@ -1,6 +1,6 @@
 __global__ void lamport_kernel(float* out) {
-#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))
+#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900))
   cudaGridDependencySynchronize();
   out[0] = 1;
 #endif
 }
"""
# Opens the guard and takes the wait away with it: no guard is left, and the kernel races.
BROKEN = PATCH.replace(b"@@ -1,6 +1,6 @@", b"@@ -1,6 +1,5 @@").replace(b"\n   cudaGrid", b"\n-  cudaGrid")
VERSIONS = """\
schema = 1
[upstreams.attend]
package = "attend"
repository = "https://example.org/attend"
tag = "v{{version}}"
version-file = "attend/_version.py"
[upstreams.attend.layout]
"attend/" = "attend/"
"include/" = "attend/data/include/"
"csrc/" = "attend/data/csrc/"
[lines.stable.attend]
version = "1.0"
revision = 1
sha256 = {{ "{name}" = "{digest}" }}
"""
CUDA = """\
#define __global__ __attribute__((global))
void cudaGridDependencySynchronize();
"""
REQUIREMENTS = "nvidia-cuda-runtime==0\n"

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An overlay of one release and one patch; the release and the headers are already in the cache."""
    monkeypatch.setenv("SM120_OVERLAY_CACHE", str(tmp_path / "cache"))
    stock = tmp_path / STOCK
    with zipfile.ZipFile(stock, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    digest = hashlib.sha256(stock.read_bytes()).hexdigest()
    with Session(default_folder(), offline=True) as session:
        kept = session.cache.folder / "files" / digest
    kept.mkdir(parents=True)
    shutil.copyfile(stock, kept / STOCK)
    root = tmp_path / "overlay"
    series = root / "patches" / "stable" / "attend"
    series.mkdir(parents=True)
    (series / "series").write_bytes(b"open.patch\n")
    (series / "open.patch").write_bytes(PATCH)
    (root / "VERSIONS.toml").write_text(VERSIONS.format(name=STOCK, digest=digest))
    (root / "constraints").mkdir()
    (root / "constraints" / "cuda-13.0-headers.txt").write_text(REQUIREMENTS)
    (headers(tmp_path) / "cuda_runtime.h").write_text(CUDA)
    return root


def headers(tmp_path: Path) -> Path:
    name = f"cuda-13.0-headers-{hashlib.sha256(REQUIREMENTS.encode()).hexdigest()[:16]}"
    folder = tmp_path / "cache" / "cuda" / name / "site" / "nvidia" / "cu13" / "include"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def run(root: Path, ask: Callable[..., Any]) -> Run:
    def call(*words: str) -> tuple[int, str]:
        said = ask("audit", *words, "--offline", "--root", root)
        return said.code, said.out

    return call


def test_a_patch_in_device_code_is_cited_with_its_proof(run: Run) -> None:
    code, text = run()
    assert code == OK
    assert f"  open.patch: 1 guard\n    prove --fast holds: {PATH} (trtllm_allreduce.cu)\n" in text
    assert text.endswith("device text of 1 changed file: 1 proved; without the series 2 faults on the targets\n")


def test_json_and_markdown_say_the_same(run: Run) -> None:
    (found,) = json.loads(run("--json")[1])["audits"]
    words = {"holds": True, "words": "trtllm_allreduce.cu"}
    assert [guard["proof"] for guard in found["patched"]] == [words]
    assert found["proof"] == {"dead": 2, "files": [{"path": PATH, **words}], "problem": ""}
    text = run("--markdown")[1]
    assert "- prove --fast holds: include/all\\_reduce.cuh (trtllm\\_allreduce.cu)" in text
    assert "device text of 1 changed file: 1 proved" in text


def test_a_guard_that_is_gone_with_its_wait_is_not_fine(run: Run, root: Path) -> None:
    """The guards alone are fine: nothing shuts SM120 out any more."""
    (root / "patches" / "stable" / "attend" / "open.patch").write_bytes(BROKEN)
    code, text = run()
    assert code == FINDINGS
    assert f"PROVE --FAST FAILS: {PATH}" in text
    assert f"proof: {PATH}: {PATH}: sm_90a: lamport_kernel is changed by the series, which no patch declares" in text
    assert run("--markdown")[1].count("❌") == 2
    assert "lamport_kernel is changed" in run("--quiet")[1]


@pytest.mark.parametrize("missing", ["headers", "preprocessor"])
def test_without_a_preprocessor_it_says_so_and_goes_on(
    missing: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "headers":
        shutil.rmtree(tmp_path / "cache" / "cuda")
    else:
        monkeypatch.setenv("PATH", "")
    code, text = run()
    assert code == OK
    assert f"    not proved: {PATH} (" in text
    assert "\ndevice text: not proved here: " in text
    assert ("--offline forbids fetching it" if missing == "headers" else "g++: cannot be run") in text


def test_the_answer_is_remembered_by_content(run: Run, root: Path, tmp_path: Path) -> None:
    before = run()
    header = headers(tmp_path) / "cuda_runtime.h"
    header.write_text("#error nobody reads this again\n")
    assert run() == before
    patch = root / "patches" / "stable" / "attend" / "open.patch"
    patch.write_bytes(PATCH.replace(b"open the guard", b"open the one guard"))
    assert "not proved here: g++: failed with exit code 1" in run()[1]
    header.write_text(CUDA)
    assert run() == before


@pytest.mark.parametrize("words", [["--target", "sm_121"], ["-D", "X=1"]])
def test_another_question_cites_no_proof(words: list[str], run: Run) -> None:
    assert "prove" not in run(*words)[1]
