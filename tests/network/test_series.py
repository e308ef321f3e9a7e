"""The series of every line on the pinned releases: quilt, git am and our own placing agree."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from downstream import pins
from downstream.patches.series import Series, load_series
from downstream.placing.push import push
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session
from downstream.trees.wheel import WheelTree

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
PINS = pins.load(ROOT)
SERIES = [f"{line}/{upstream}" for line in PINS.lines for upstream in PINS.line(line).pins]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(default_folder()) as session:
        yield session


@pytest.fixture(params=SERIES)
def series(request: pytest.FixtureRequest) -> Series:
    return load_series(ROOT / "patches" / request.param)


@pytest.fixture
def release(series: Series, session: Session) -> WheelTree:
    return open_pin(PINS.pin(series.folder.parent.name, series.folder.name), session)


@pytest.fixture
def unpacked(series: Series, release: WheelTree, tmp_path: Path) -> Path:
    """The touched files of the release, where the repository has them."""
    for path in touched(series):
        content = release.read(path)
        assert content is not None, path
        target = tmp_path / "tree" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return tmp_path / "tree"


def touched(series: Series) -> set[str]:
    return {file.new_path for patch in series.patches() for file in patch.files if file.new_path}


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def assert_pushed(series: Series, release: WheelTree, folder: Path) -> None:
    """*folder* holds what our own placing makes of the release."""
    report = push(series.patches(), release, base=release)
    assert set(report.changes) == touched(series)
    for path, content in report.changes.items():
        assert (folder / path).read_bytes() == content, path


def test_every_hunk_is_clean_on_the_pin(series: Series, release: WheelTree) -> None:
    report = push(series.patches(), release, base=release)
    verdicts = {(hunk.status, hunk.offset or 0) for patch in report.results for hunk in patch.hunks}
    assert verdicts == {("clean", 0)}


@pytest.mark.skipif(shutil.which("quilt") is None, reason="quilt is not installed")
def test_quilt_pushes_all_with_no_offset_and_no_fuzz(series: Series, release: WheelTree, unpacked: Path) -> None:
    done = subprocess.run(
        ["quilt", "--quiltrc=-", "push", "-a"],
        cwd=unpacked,
        env={"PATH": "/usr/bin:/bin", "QUILT_PATCHES": str(series.folder), "QUILT_PATCH_OPTS": "--fuzz=0"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.count("Applying patch ") == len(series.entries)
    assert "offset" not in done.stdout
    assert "fuzz" not in done.stdout
    assert_pushed(series, release, unpacked)


def test_git_am_takes_the_same_files(series: Series, release: WheelTree, unpacked: Path) -> None:
    git(unpacked, "init", "-q")
    git(unpacked, "add", "-Af", ".")
    git(unpacked, "commit", "-qm", "release")
    git(unpacked, "am", "-q", *(str(series.path(entry)) for entry in series.entries))
    subjects = git(unpacked, "log", "--reverse", "--format=%s").splitlines()
    assert len(subjects) == 1 + len(series.entries)
    assert git(unpacked, "status", "--porcelain") == ""
    assert_pushed(series, release, unpacked)
