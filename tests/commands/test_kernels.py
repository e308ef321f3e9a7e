"""tools/kernels.py at its edge: what it refuses, and shards joined to a wheel that FlashInfer can import."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from downstream.cli import FAILED, OK, door
from downstream.kernels.modules import Module, Shard
from downstream.kernels.parts import Part, write

WANTED = ("one", "two")


def shard(folder: Path, index: int, *, toolchain: str = "nvcc 13.0.88", libraries: tuple[str, ...] = ()) -> Path:
    """A part with real libraries: auditwheel reads them."""
    where = Shard(index=index, count=2)
    modules = []
    for name in where.of(WANTED):
        path = folder / name / f"{name}.so"
        path.parent.mkdir(parents=True)
        source = b"int answer(void) { return 42; }\n"
        command = ["cc", "-shared", "-fPIC", "-nostartfiles", "-o", str(path), "-x", "c", "-", "-x", "none", *libraries]
        subprocess.run(command, input=source, check=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        size = path.stat().st_size
        modules.append(Module(name=name, path=path, sha256=digest, size=size, kernels={"sm_120": 3, "sm_121a": 3}))
    part = Part(
        version="0.6.3+sm120.1",
        cuda="13.0.88",
        toolchain=toolchain,
        source="0" * 64,
        targets=("sm_120f", "sm_121a"),
        wanted=WANTED,
        machine="x86_64",
        shard=where,
        modules=tuple(modules),
    )
    write(part, folder)
    return folder


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["prove", "--targets", ""], "name at least one each"),
        (["prove", "--targets", "sm_oops"], "is no GPU architecture"),
        (["prove", "--line", "nowhere"], "has no line 'nowhere'"),
        (["toolchain", "--cuda-home", "/nowhere"], "holds no bin/nvcc"),
        (["toolchain", "--offline"], "--offline forbids fetching it"),
        (["build", "--shard", "3/2"], "is no part of a whole"),
        (["build", "--shard", "2/2"], "is nothing"),
        (["build", "--targets", "twelve"], "is no GPU architecture"),
        (["merge", "/nowhere"], "cannot be read"),
    ],
)
def test_what_cannot_be_done_says_why(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert door("kernels", argv) == FAILED
    assert said in capsys.readouterr().err


def test_merge_makes_a_wheel_with_upstream_s_import_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [str(shard(tmp_path / str(index), index)) for index in (1, 2)]
    assert door("kernels", ["merge", *parts, "--out", str(tmp_path / "dist"), "--json"]) == OK
    document = json.loads(capsys.readouterr().out)
    wheel = tmp_path / "dist" / document["wheel"]["file"]
    assert wheel.name.startswith("flashinfer_jit_cache-0.6.3+sm120.1.cu130-cp39-abi3-manylinux_")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True)
    code = (
        "import flashinfer_jit_cache as cache, pathlib\n"
        "folder = pathlib.Path(cache.get_jit_cache_dir())\n"
        "print(cache.__version__, *sorted(str(path.relative_to(folder)) for path in folder.rglob('*.so')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=site, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["0.6.3+sm120.1.cu130", "one/one.so", "two/two.so"]
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("flashinfer_jit_cache-0.6.3+sm120.1.cu130.dist-info/METADATA").decode()
    assert "Requires-Dist: flashinfer-python==0.6.3+sm120.1\n" in metadata


def test_merge_gives_the_same_bytes_whatever_the_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [str(shard(tmp_path / str(index), index)) for index in (1, 2)]
    digests = set()
    for place, order in (("a", parts), ("b", parts[::-1])):
        assert door("kernels", ["merge", *order, "--out", str(tmp_path / place), "-q"]) == OK
        wheel = Path(capsys.readouterr().out.strip())
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_merge_refuses_another_toolchain_s_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [str(shard(tmp_path / "1", 1)), str(shard(tmp_path / "2", 2, toolchain="nvcc 13.0.48"))]
    assert door("kernels", ["merge", *parts, "--out", str(tmp_path / "dist")]) == FAILED
    assert "toolchain is nvcc 13.0.48" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [str(shard(tmp_path / str(index), index)) for index in (1, 2)]
    (tmp_path / "file").touch()
    assert door("kernels", ["merge", *parts, "--out", str(tmp_path / "file" / "dist")]) == FAILED
    assert "cannot be written" in capsys.readouterr().err


def test_a_library_that_no_machine_brings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stranger = tmp_path / "libstranger.so"
    subprocess.run(["cc", "-shared", "-o", str(stranger), "-x", "c", "-"], input=b"int f;\n", check=True)
    needs = ("-Wl,--no-as-needed", str(stranger))
    parts = [str(shard(tmp_path / str(index), index, libraries=needs)) for index in (1, 2)]
    assert door("kernels", ["merge", *parts, "--out", str(tmp_path / "dist")]) == FAILED
    assert "libstranger.so" in capsys.readouterr().err
