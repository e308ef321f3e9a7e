"""Both lines in one index: each SGLang is resolved to its own FlashInfer, and nothing crosses over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from uv import find_uv_bin

from downstream.cli import door
from downstream.pins import load
from downstream.trees import pipconf
from downstream.trees.cache import default_folder
from downstream.trees.published import kept_whole
from downstream.trees.session import Session

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
PINS = load(ROOT)
LINES = ("stable", "next")
SGLANG = {line: PINS.pin(line, "sglang") for line in LINES}
FLASHINFER = {line: PINS.pin(line, "flashinfer") for line in LINES}

every_line = pytest.mark.parametrize("line", LINES)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of each line; of those with compiled parts one interpreter and platform."""
    folders = {line: tmp_path_factory.mktemp(line) for line in LINES}
    for line, folder in folders.items():
        words = ["build", "--line", line, "--out", str(folder), "--python", "cp311", "--platform", "x86_64", "-q"]
        assert door("wheels", words) == 0
    return folders


@pytest.fixture(scope="module")
def url(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("index")
    for folder in wheels.values():
        assert door("index", ["publish", str(folder), str(root), "-q"]) == 0
    assert door("index", ["verify", str(root), "-q"]) == 0
    command = [sys.executable, str(ROOT / "tools" / "index.py"), "serve", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


def compiled(url: str, wanted: str, folder: Path) -> dict[str, str]:
    """Resolve *wanted* with uv for the platform of the wheels; return the version of each package."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    certificates = pipconf.configuration().certificates
    trust = {"SSL_CERT_FILE": certificates} if certificates else {}
    (folder / "wanted.in").write_text(f"{wanted}\n")
    done = subprocess.run(
        [
            find_uv_bin(), "pip", "compile", "--index-url", url, "--python-version", "3.11", "--no-header",
            "--python-platform", "x86_64-manylinux_2_39", "--cache-dir", folder / "cache", folder / "wanted.in",
        ],
        env=kept | trust | {"UV_NO_CONFIG": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", done.stdout, re.MULTILINE))


@every_line
def test_each_sglang_takes_its_own_flashinfer(url: str, line: str, tmp_path: Path) -> None:
    resolved = compiled(url, f"sglang=={SGLANG[line].version}", tmp_path)
    ours = {name: version for name, version in resolved.items() if "+sm120" in version}
    assert ours == {
        "sglang": str(SGLANG[line].local_version),
        "flashinfer-python": str(FLASHINFER[line].local_version),
    }
    assert len(resolved) > 100


def test_no_version_asked_for_gets_the_newest_pair(url: str, tmp_path: Path) -> None:
    resolved = compiled(url, "sglang", tmp_path)
    newest = max(LINES, key=lambda line: SGLANG[line].version)
    assert resolved["sglang"] == str(SGLANG[newest].local_version)
    assert resolved["flashinfer-python"] == str(FLASHINFER[newest].local_version)


def requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return [Requirement(line) for line in message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])]


@every_line
def test_the_extra_that_upstream_asks_for_survives(wheels: dict[str, Path], line: str) -> None:
    (wheel,) = wheels[line].glob("sglang-*.whl")
    (wanted,) = [one for one in requirements(wheel) if one.name in ("flashinfer-python", "flashinfer_python")]
    assert wanted.extras == ({"cu13"} if line == "next" else set())
    assert str(wanted.specifier) == f"=={FLASHINFER[line].local_version}"
    assert not wanted.specifier.contains(Version(str(FLASHINFER[line].version)))


def test_the_extra_still_brings_what_it_brought(wheels: dict[str, Path]) -> None:
    (wheel,) = wheels["next"].glob("flashinfer_python-*.whl")
    brought = {one.name for one in requirements(wheel) if one.marker and one.marker.evaluate({"extra": "cu13"})}
    assert any(name.startswith("nvidia-cutlass-dsl") for name in brought)


def test_the_compiled_extensions_are_upstreams_bytes(wheels: dict[str, Path]) -> None:
    (ours,) = wheels["next"].glob("sglang-*cp311*x86_64.whl")
    with Session(default_folder()) as session:
        name, digest = next(
            (name, digest)
            for name, digest in SGLANG["next"].sha256.items()
            if "cp311-cp311" in name and "x86_64" in name
        )
        theirs = kept_whole(digest, session)
    assert theirs is not None, name
    with zipfile.ZipFile(ours) as built, zipfile.ZipFile(theirs) as published:
        extensions = [name for name in published.namelist() if name.endswith(".so")]
        assert extensions
        assert all(built.read(name) == published.read(name) for name in extensions)
