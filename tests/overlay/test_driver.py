"""GPUs and peers, asked of a driver library that the test compiles: no machine here has what it pretends to have."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Device memory is malloc'ed; a copy between devices may be told to go wrong.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
static const char *setting(const char *name) { const char *value = getenv(name); return value ? value : ""; }
static long entered;
int cuInit(unsigned flags) { return strlen(setting("GPUS")) ? 0 : 100; }
int cuGetErrorName(int code, const char **text) {
    *text = code == 217 ? "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" : "CUDA_ERROR";
    return 0;
}
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = (strlen(setting("GPUS")) + 1) / 4; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Pretend %d", device); return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
    int number = atoi(setting("GPUS") + 4 * device);
    *value = which == 75 ? number / 10 : number % 10;
    return 0;
}
int cuDeviceCanAccessPeer(int *can, int reader, int owner) {
    char pair[8];
    snprintf(pair, sizeof pair, "%d>%d", reader, owner);
    *can = !strstr(setting("DENIED"), pair);
    return 0;
}
int cuDevicePrimaryCtxRetain(long *context, int device) { *context = device + 1; return 0; }
int cuCtxSetCurrent(long context) { entered = context; return 0; }
int cuCtxEnablePeerAccess(long context, unsigned flags) { return strcmp(setting("COPY"), "refused") ? 0 : 217; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(unsigned long *pointer, size_t size) { *pointer = (unsigned long)malloc(size); return 0; }
int cuMemFree_v2(unsigned long pointer) { free((void *)pointer); return 0; }
int cuMemsetD8_v2(unsigned long to, unsigned char value, size_t size) { memset((void *)to, value, size); return 0; }
int cuMemcpyHtoD_v2(unsigned long to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long from, size_t size) { memcpy(to, (void *)from, size); return 0; }
int cuMemcpyDtoD_v2(unsigned long to, unsigned long from, size_t size) {
    if (!strcmp(setting("COPY"), "hangs")) sleep(600);
    if (!strcmp(setting("COPY"), "dies")) abort();
    memcpy((void *)to, (void *)from, size);
    if (!strcmp(setting("COPY"), "corrupts")) ((char *)to)[size - 1] ^= 1;
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda.so.1 that pretends."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    command = [compiler, "-shared", "-fPIC", "-w", "-o", str(folder / "libcuda.so.1"), str(folder / "driver.c")]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def examine(tmp_path: Path, sm120: Path, library: Path) -> Any:
    """Run the doctor where FlashInfer is installed and GPUS, DENIED and COPY are what the driver pretends."""
    info = tmp_path / "site" / "flashinfer_python-0.6.3+sm120.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.3+sm120.1\n")

    def run(*arguments: str, patience: str = "", **pretended: str) -> dict[str, dict[str, Any]]:
        folder = sm120
        if patience:
            folder = Path(shutil.copytree(sm120, tmp_path / "sm120"))
            source = (folder / "hardware.py").read_text()
            assert "PATIENCE = 60" in source
            (folder / "hardware.py").write_text(source.replace("PATIENCE = 60", f"PATIENCE = {patience}"))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(tmp_path / "site"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": str(library),
            **pretended,
        }
        command = [sys.executable, "-S", str(folder), "doctor", "--json", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}

    return run


@pytest.mark.parametrize(
    ("gpus", "level", "says"),
    [
        ("120", "ok", "GPU 0 Pretend 0 (12.0); the driver supports CUDA 13.0"),
        ("120 121", "ok", "GPU 1 Pretend 1 (12.1)"),
        ("120 090", "note", "GPU 1 is no SM12x"),
        ("090", "note", "none is an SM12x"),
        ("", "unknown", "the driver finds no GPU"),
    ],
)
def test_gpus_are_named_with_their_architecture(examine: Any, gpus: str, level: str, says: str) -> None:
    finding = examine(GPUS=gpus)["gpus"]
    assert (finding["level"], says in finding["text"]) == (level, True), finding


@pytest.mark.parametrize(
    ("arguments", "pretended", "level", "says"),
    [
        ([], {"GPUS": "120"}, "ok", "one GPU has no peers"),
        (["--copy"], {"GPUS": "120"}, "ok", "copies on the GPU arrive unchanged"),
        ([], {"GPUS": "120 120 120"}, "ok", "peer access to all 6 GPU pairs; nothing was copied"),
        ([], {"GPUS": "120 120", "DENIED": "1>0"}, "note", "1 of 2 GPU pairs have no peer access: 1→0"),
        (["--copy"], {"GPUS": "120 120", "DENIED": "1>0"}, "note", "1 of 2 GPU pairs have no peer access: 1→0"),
        (["--copy"], {"GPUS": "120 120"}, "ok", "copies between all pairs arrive unchanged"),
        (["--copy"], {"GPUS": "120 120", "COPY": "corrupts"}, "problem", "0→1: the bytes that arrive are not those"),
        (["--copy"], {"GPUS": "120 120", "COPY": "refused"}, "problem", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)"),
        (["--copy"], {"GPUS": "120 120", "COPY": "dies"}, "problem", "the copy died with code -6"),
        (["--copy"], {"GPUS": "120", "COPY": "hangs", "patience": "1"}, "problem", "hangs (stopped after 1 s)"),
    ],
)
def test_peers_are_asked_for_and_with_copy_believed_only_when_seen(
    examine: Any, arguments: list[str], pretended: dict[str, str], level: str, says: str
) -> None:
    finding = examine(*arguments, **pretended)["peers"]
    assert (finding["level"], says in finding["text"]) == (level, True), finding


@pytest.mark.parametrize(
    ("arguments", "pretended", "fusion", "advice"),
    [
        ([], {"GPUS": "120"}, None, "all-reduce flags do nothing"),
        ([], {"GPUS": "120 120"}, "--enable-flashinfer-allreduce-fusion", "run the doctor with --copy first"),
        (["--copy"], {"GPUS": "120 120"}, "--enable-flashinfer-allreduce-fusion", "measure before you keep it"),
        (["--copy"], {"GPUS": "120 120", "COPY": "corrupts"}, None, "not every GPU reaches every other"),
        ([], {"GPUS": "120 120", "DENIED": "0>1"}, None, "leave out --enable-flashinfer-allreduce-fusion"),
        (["--copy"], {"GPUS": "120 120", "NCCL_P2P_DISABLE": "1"}, None, "NCCL_P2P_DISABLE is set"),
        ([], {"GPUS": "120 120", "NCCL_P2P_DISABLE": "0"}, "--enable-flashinfer-allreduce-fusion", "measure before"),
    ],
)
def test_fusion_is_advised_only_where_peers_reach_each_other(
    examine: Any, arguments: list[str], pretended: dict[str, str], fusion: str | None, advice: str
) -> None:
    finding = examine(*arguments, **pretended)["flags"]
    assert finding["facts"]["fusion"] == fusion
    assert advice in finding["advice"]
    assert "--moe-runner-backend flashinfer_cutlass" in finding["text"]


@pytest.mark.parametrize(("value", "noted"), [("1", True), ("0", False)])
def test_nccl_p2p_disable_is_a_note(examine: Any, value: str, noted: bool) -> None:
    finding = examine(GPUS="120 120", NCCL_P2P_DISABLE=value).get("environment")
    assert (finding is not None) is noted
    assert not noted or (finding["level"], "NCCL_P2P_DISABLE" in finding["text"]) == ("note", True)


def test_the_gpus_there_decide_what_modules_must_have_code_for(examine: Any, tmp_path: Path) -> None:
    assert examine(GPUS="120 121")["aot"]["level"] == "ok"
    path = tmp_path / "site" / "flashinfer" / "data" / "aot" / "k" / "k.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"?")
    assert examine(GPUS="120 121")["aot"]["level"] == "problem"
