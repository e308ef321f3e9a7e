"""Verification finds every way in which an index can lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.index.publish import publish, yank
from downstream.index.verify import verify

FOLDER = "simple/x"
WHEEL = f"{FOLDER}/x-1.0+sm120.1-py3-none-any.whl"


@pytest.fixture
def root(tmp_path: Path, wheel: Callable[..., Path]) -> Path:
    publish([wheel(tmp_path, "x", "1.0+sm120.1", requires_python=">=3.10")], tmp_path / "index")
    yank(tmp_path / "index", "x", "1.0+sm120.1", reason="for the test")
    return tmp_path / "index"


def replace(old: bytes, new: bytes) -> Callable[[Path], object]:
    def edit(path: Path) -> object:
        content = path.read_bytes()
        assert old in content
        return path.write_bytes(content.replace(old, new, 1))

    return edit


def flip(path: Path) -> object:
    content = bytearray(path.read_bytes())
    content[40] ^= 1  # inside the first member, whose checksum nobody reads
    return path.write_bytes(content)


def create(path: Path) -> object:
    return path.write_bytes(b"?")


@pytest.mark.parametrize(
    ("path", "edit", "faulty", "problem"),
    [
        (WHEEL, flip, WHEEL, "has sha256"),
        (WHEEL, lambda path: path.write_bytes(b"no zip"), WHEEL, "cannot be read as a zip"),
        (WHEEL, Path.unlink, WHEEL, "is offered but not there"),
        (f"{WHEEL}.metadata", create, f"{WHEEL}.metadata", "is not the METADATA that the wheel holds"),
        (f"{WHEEL}.metadata", Path.unlink, f"{WHEEL}.metadata", "is announced but not there"),
        (f"{FOLDER}/index.html", replace(b"%2B", b"+"), f"{FOLDER}/index.html", "does not agree"),
        (f"{FOLDER}/index.html", Path.unlink, f"{FOLDER}/index.html", "does not agree"),
        (f"{FOLDER}/index.json", replace(b"}\n", b"}"), f"{FOLDER}/index.json", "does not agree"),
        (f"{FOLDER}/index.json", replace(b'"for the test"', b'""'), f"{FOLDER}/index.json", "yanked is ''"),
        (f"{FOLDER}/index.json", create, f"{FOLDER}/index.json", "is no project page of ours"),
        (f"{FOLDER}/index.json", replace(b">=3.10", b">=3.11"), WHEEL, "requires Python >=3.10, the page says >=3.11"),
        (f"{FOLDER}/index.json", replace(b'"size": ', b'"size": 1'), WHEEL, "bytes, the page says"),
        ("simple/index.json", replace(b'"x"', b'"y"'), "simple/index.json", "does not list the projects"),
        ("simple/index.html", Path.unlink, "simple/index.html", "does not list the projects"),
        ("simple/x/notes.txt", create, "simple/x/notes.txt", "is no part of the index"),
        ("simple/x/x-2.0-py3-none-any.whl", create, "simple/x/x-2.0-py3-none-any.whl", "was interrupted"),
    ],
)
def test_a_fault_is_found_and_named(
    root: Path, path: str, edit: Callable[[Path], object], faulty: str, problem: str
) -> None:
    assert verify(root).clean
    edit(root / path)
    found = verify(root)
    assert not found.clean
    assert any(fault.path == faulty and problem in fault.problem for fault in found.faults), found.faults
    assert all(fault.next_step for fault in found.faults)


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        (WHEEL, flip),
        (WHEEL, Path.unlink),
        (f"{WHEEL}.metadata", create),
        (f"{FOLDER}/index.html", Path.unlink),
        (f"{FOLDER}/index.json", replace(b">=3.10", b">=3.11")),
        (f"{FOLDER}/index.json", replace(b'"size": ', b'"size": 1')),
        ("simple/index.html", Path.unlink),
    ],
)
def test_publishing_the_wheel_again_repairs_the_index(
    root: Path, tmp_path: Path, path: str, edit: Callable[[Path], object]
) -> None:
    edit(root / path)
    publish([tmp_path / "x-1.0+sm120.1-py3-none-any.whl"], root)
    assert verify(root).clean


def test_what_was_looked_at_is_counted(root: Path) -> None:
    found = verify(root)
    assert (found.projects, found.wheels) == (1, 1)
