"""The build environment: made once, with real pip, and a clear word where it cannot be."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from downstream.errors import OfflineError, ToolchainError
from downstream.kernels.environment import BuildEnvironment, interpreter
from downstream.kernels.modules import workspace
from downstream.progress import SILENT


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "constraints").mkdir()
    (tmp_path / "constraints" / "generator.txt").write_text("")
    (tmp_path / "links").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    return tmp_path


def test_offline_says_what_is_missing(root: Path, tmp_path: Path) -> None:
    with pytest.raises(OfflineError, match="--offline forbids"):
        interpreter(root, tmp_path / "cache", offline=True)


@pytest.mark.slow
def test_a_torch_that_no_index_has_leaves_nothing_that_looks_whole(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"torch==0\.0\.1: failed") as caught:
        interpreter(root, tmp_path / "cache", torch="torch==0.0.1")
    assert "--torch" in caught.value.next_step
    with pytest.raises(OfflineError):
        interpreter(root, tmp_path / "cache", torch="torch==0.0.1", offline=True)


def test_a_build_works_in_the_same_empty_folder_each_time_and_alone(tmp_path: Path) -> None:
    """nvcc puts a hash of a source's path into symbols: generated sources must lie where they lay before."""
    env = BuildEnvironment(python=tmp_path / "python", site=tmp_path / "wheel-0123", path="")
    begun: list[Path] = []
    with workspace(env, SILENT) as first:
        (first / "left behind").touch()
        second = threading.Thread(target=lambda: begun.append(enter(env)))
        second.start()
        second.join(timeout=0.2)
        assert begun == []  # waits
    second.join(timeout=10)
    assert begun == [first]
    assert not first.exists()


def enter(env: BuildEnvironment) -> Path:
    with workspace(env, SILENT) as folder:
        assert list(folder.iterdir()) == []
        return folder
