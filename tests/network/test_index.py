"""The whole way, with the real pair: built, published, served, resolved and installed by pip and by uv."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from uv import find_uv_bin

from downstream.cli import door
from downstream.pins import load
from downstream.trees import pipconf

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
LINE = load(ROOT).line("stable")
PAIR = {pin.upstream.package: str(pin.local_version) for pin in LINE.pins.values()}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stable")
    assert door("wheels", ["build", "--line", "stable", "--out", str(folder), "-q"]) == 0
    return folder


@pytest.fixture(scope="module")
def url(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our index, with the configured public index behind it."""
    root = tmp_path_factory.mktemp("index")
    assert door("index", ["publish", str(wheels), str(root), "-q"]) == 0
    assert door("index", ["verify", str(root), "-q"]) == 0
    command = [sys.executable, str(ROOT / "tools" / "index.py"), "serve", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of a fresh virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    return tmp_path / "env" / "bin" / "python"


def run(*command: str | Path) -> str:
    """Run a client that knows no index but the one it is told, and trusts whom pip trusts."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    certificates = pipconf.configuration().certificates
    trust = {"PIP_CERT": certificates, "SSL_CERT_FILE": certificates} if certificates else {}
    sealed = kept | trust | {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run([str(word) for word in command], env=sealed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_uv_resolves_the_whole_tree_to_our_pair(url: str, python: Path, tmp_path: Path) -> None:
    (tmp_path / "wanted.in").write_text("sglang\n")
    text = run(
        find_uv_bin(), "pip", "compile", "--python", python, "--index-url", url, "--emit-index-annotation",
        "--cache-dir", tmp_path / "cache", tmp_path / "wanted.in",
    )  # fmt: skip
    resolved = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    assert {name: resolved[name] for name in PAIR} == PAIR
    assert len(resolved) > 100
    assert "torch" in resolved
    assert {name for name, version in resolved.items() if "+sm120" in version} == set(PAIR)


@pytest.mark.slow
def test_pip_resolves_the_whole_tree_to_our_pair(url: str, python: Path, tmp_path: Path) -> None:
    # fast-deps, lest an index without metadata files (PEP 658) makes it download torch and CUDA.
    report = tmp_path / "report.json"
    run(
        python, "-m", "pip", "install", "--dry-run", "--use-feature=fast-deps", "--quiet", "--report", report,
        "--index-url", url, "sglang",
    )  # fmt: skip
    chosen = {
        entry["metadata"]["name"].lower().replace("_", "-"): (
            entry["metadata"]["version"],
            entry["download_info"]["url"],
        )
        for entry in json.loads(report.read_bytes())["install"]
    }
    assert {name: chosen[name][0] for name in PAIR} == PAIR
    assert len(chosen) > 100
    host = url.removesuffix("simple/")
    assert {name for name, (_, address) in chosen.items() if address.startswith(host)} == set(PAIR)


@pytest.mark.parametrize("client", ["pip", "uv"])
def test_both_wheels_install_and_the_doctor_finds_them_sound(
    url: str, wheels: Path, python: Path, client: str, tmp_path: Path
) -> None:
    words = ["install", "--no-deps", "--index-url", url, "sglang", "flashinfer-python"]
    if client == "pip":
        run(python, "-m", "pip", *words)
    else:
        run(find_uv_bin(), "pip", *words, "--python", python, "--cache-dir", tmp_path / "cache")
    # No torch here: the package itself does not import, and the doctor answers all the same.
    assert subprocess.run([python, "-c", "import flashinfer"], capture_output=True, check=False).returncode == 1
    document = json.loads(run(python, "-m", "flashinfer.sm120", "doctor", "--json"))
    assert document["ok"] is True
    found = {finding["check"]: finding for finding in document["findings"]}
    build, files = found["build"]["facts"], found["files"]["facts"]
    assert build["version"] == PAIR["flashinfer-python"]
    (built,) = [
        one for one in json.loads((wheels / "manifest.json").read_bytes())["wheels"] if one["package"] != "sglang"
    ]
    assert build["patches"] == [f"patches/stable/flashinfer/{one['patch']}" for one in built["series"]]
    assert build["patches"]
    assert files["hashed"] > 1900
    assert (found["sglang"]["level"], found["sglang"]["facts"]["version"]) == ("ok", PAIR["sglang"])


def test_an_installed_file_that_was_edited_is_found(url: str, python: Path) -> None:
    run(python, "-m", "pip", "install", "--no-deps", "--index-url", url, "flashinfer-python")
    (header,) = python.parents[1].glob(
        "lib/python*/site-packages/flashinfer/data/include/flashinfer/comm/trtllm_allreduce.cuh"
    )
    header.write_bytes(header.read_bytes() + b"// edited in place\n")
    command = [str(python), "-m", "flashinfer.sm120", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (files,) = [finding for finding in json.loads(done.stdout)["findings"] if finding["check"] == "files"]
    assert files["facts"]["changed"] == ["flashinfer/data/include/flashinfer/comm/trtllm_allreduce.cuh"]
