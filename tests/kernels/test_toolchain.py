"""The toolchain's wheels: installed whole or not at all, and laid out; and a system's toolkit, judged."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from downstream.errors import OfflineError, ToolchainError
from downstream.kernels.toolchain import environment, installed, pinned, run, system

NAME = "nvidia_cuda_stand_in-13.0-py3-none-any.whl"
SAYS = "Cuda compilation tools, release {release}, V{release}.88\n"


def script(path: Path, says: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'E'\n{says}E\n")
    path.chmod(0o755)


def toolkit(folder: Path, release: str = "13.0", without: str = "") -> Path:
    for name in ("nvcc", "cuobjdump", "nvdisasm"):
        if name != without:
            script(folder / "bin" / name, SAYS.format(release=release))
    return folder


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose constraints name one wheel with everything the real ones have, and pip told where it lies."""
    content = {f"nvidia/cu13/{name}": b"" for name in ("include/cuda.h", "nvvm/bin/cicc", "lib/libcudart.so.13")}
    content |= {
        f"nvidia/cu13/bin/{name}": f"#!/bin/sh\necho '{SAYS.format(release='13.0').strip()}'\n".encode()
        for name in ("nvcc", "cuobjdump", "nvdisasm")
    }
    info = "nvidia_cuda_stand_in-13.0.dist-info"
    content[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: nvidia-cuda-stand-in\nVersion: 13.0\n"
    content[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b'=').decode()},{len(raw)}"
        for name, raw in content.items()
    ]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / NAME, "w") as archive:
        for name, raw in content.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if "/bin/" in name else 0o100644) << 16
            archive.writestr(entry, raw)
    root = tmp_path / "checkout"
    (root / "constraints").mkdir(parents=True)
    digest = hashlib.sha256((links / NAME).read_bytes()).hexdigest()
    (root / "constraints" / "cuda-13.0.txt").write_text(f"nvidia-cuda-stand-in==13.0 --hash=sha256:{digest}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return root


def test_the_wheels_are_laid_out_as_flashinfer_s_ninja_files_expect(wheels: Path, tmp_path: Path) -> None:
    found = pinned(wheels, tmp_path / "cache")
    assert (found.origin, found.version) == ("pinned wheels", "13.0.88")
    for name in ("bin/nvcc", "include/cuda.h", "nvvm/bin/cicc", "lib64/libcudart.so", "lib64/stubs/libcuda.so"):
        assert (found.home / name).exists(), name
    assert "libcuda.so.1" in run(["readelf", "-d", str(found.home / "lib64" / "stubs" / "libcuda.so")])
    assert pinned(wheels, tmp_path / "cache", offline=True) == found


def test_wheels_of_another_digest_are_refused_and_leave_nothing(wheels: Path, tmp_path: Path) -> None:
    constraints = wheels / "constraints" / "cuda-13.0.txt"
    constraints.write_text(f"nvidia-cuda-stand-in==13.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ToolchainError, match="pip could not install it"):
        pinned(wheels, tmp_path / "cache")
    assert list((tmp_path / "cache" / "cuda").iterdir()) == []


def test_offline_says_what_is_missing(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(OfflineError, match="--offline forbids fetching it"):
        installed(wheels / "constraints" / "cuda-13.0.txt", tmp_path / "cache", offline=True)


def test_a_toolkit_of_13_0_is_taken(tmp_path: Path) -> None:
    found = system(toolkit(tmp_path))
    assert (found.origin, found.version, found.nvcc) == ("system", "13.0.88", tmp_path / "bin" / "nvcc")


@pytest.mark.parametrize(
    ("release", "without", "said"),
    [
        ("12.9", "", "is CUDA 12.9.88"),
        ("13.0", "nvcc", "holds no bin/nvcc"),
        ("13.0", "cuobjdump", "has no cuobjdump"),
        ("oops", "", "does not tell its version"),
    ],
)
def test_another_toolkit_is_refused(release: str, without: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=said):
        system(toolkit(tmp_path, release, without))


def test_two_toolchains_have_two_identities(tmp_path: Path, wheels: Path) -> None:
    assert system(toolkit(tmp_path / "t")).identity != pinned(wheels, tmp_path / "cache").identity


def test_what_would_change_a_compiler_s_meaning_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-O0")
    monkeypatch.setenv("CPATH", "/elsewhere")
    assert not {"NVCC_APPEND_FLAGS", "CPATH"} & set(environment())
    assert environment({"CPATH": "/asked"})["CPATH"] == "/asked"


def test_more_is_taken_out_by_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out, not emptied: FlashInfer reads an empty CC as a host compiler."""
    for name in ("CC", "CCACHE_DIR", "FLASHINFER_JIT_DEBUG"):
        monkeypatch.setenv(name, "1")
    found = environment({"FLASHINFER_NVCC": "asked"}, without=r"FLASHINFER_\w+|CC|CXX")
    assert not {"CC", "FLASHINFER_JIT_DEBUG"} & set(found)
    assert (found["CCACHE_DIR"], found["FLASHINFER_NVCC"]) == ("1", "asked")


def test_a_failing_tool_is_quoted() -> None:
    with pytest.raises(ToolchainError, match="exit code 3:\nlast words"):
        run(["sh", "-c", "echo last words >&2; exit 3"])
    with pytest.raises(ToolchainError, match="cannot be run"):
        run(["/nowhere/nvcc"])
