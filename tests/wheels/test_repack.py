from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from downstream.errors import WheelError
from downstream.patched import PatchedTree
from downstream.pins import Line
from downstream.trees.tree import EXECUTABLE
from downstream.wheels.archive import open_archive
from downstream.wheels.gate import verify
from downstream.wheels.repack import repack
from downstream.wheels.rules import RefusedError
from downstream.wheels.writer import EPOCH

LineOf = Callable[..., Line]
Patched = Callable[..., PatchedTree]
INFO = "attend-1.0+sm120.1.dist-info"


@pytest.fixture
def repacked(published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path) -> Callable[..., Path]:
    """Repack a published wheel with the given fields, patched as usual."""

    def make(edits: dict[str, bytes | None] | None = None, **fields: Any) -> Path:
        wheel = published(**fields).write()
        line = line_of(wheel)
        return repack(wheel, patched(line, wheel, edits), tmp_path / "out", line=line, epoch=EPOCH)

    return make


def test_the_name_says_the_local_version_everywhere(repacked: Callable[..., Path]) -> None:
    wheel = repacked()
    assert wheel.name == "attend-1.0+sm120.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert b"\nVersion: 1.0+sm120.1\n" in archive.read(f"{INFO}/METADATA")
        assert b'__version__ = "1.0+sm120.1"\n' in archive.read("attend/_version.py")
        assert {name.partition("/")[0] for name in archive.namelist()} == {"attend", INFO}


def test_a_data_folder_is_renamed_too(repacked: Callable[..., Path], published: Callable[..., Any]) -> None:
    files = dict(published().files) | {"attend-1.0.data/scripts/attend": b"#!python\n", "attend-1.0.database": b"x"}
    names = zipfile.ZipFile(repacked(files=files)).namelist()
    assert "attend-1.0+sm120.1.data/scripts/attend" in names
    assert "attend-1.0.database" in names


def test_unchanged_members_keep_their_compressed_bytes(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheel = published().write()
    line = line_of(wheel)
    ours = open_archive(repack(wheel, patched(line, wheel), tmp_path / "out", line=line, epoch=EPOCH))
    theirs = open_archive(wheel)
    kernel = "attend/data/csrc/kernel.cu"
    assert theirs.entries[kernel].compressed < theirs.entries[kernel].size
    assert ours.raw(ours.entries[kernel]) == theirs.raw(theirs.entries[kernel])
    assert ours.read("attend/gate.py") == b"majors = [9, 10, 12]\n"


def test_members_are_sorted_with_dist_info_and_record_last(repacked: Callable[..., Path]) -> None:
    names = zipfile.ZipFile(repacked()).namelist()
    assert names[-1] == f"{INFO}/RECORD"
    code = [name for name in names if not name.startswith(INFO)]
    assert names[: len(code)] == code == sorted(code)
    assert names[len(code) : -1] == sorted(names[len(code) : -1])


def test_the_series_adds_removes_and_moves_no_mode(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheel = published().write()
    line = line_of(wheel)
    tree = patched(
        line,
        wheel,
        {"csrc/new.cu": b"// new\n", "csrc/kernel.cu": None, "attend/tool.sh": b"#!/bin/bash\n", "tests/t.py": b"t\n"},
        overlay={"attend/sm120/__init__.py": b"", "attend/sm120/run.sh": b"#!/bin/sh\n"},
        modes={"attend/sm120/run.sh": EXECUTABLE},
    )
    wheel = repack(wheel, tree, tmp_path / "out", line=line, epoch=EPOCH)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read("attend/data/csrc/new.cu") == b"// new\n"
        modes = {name: archive.getinfo(name).external_attr >> 16 for name in names}
    assert "attend/data/csrc/kernel.cu" not in names
    assert not [name for name in names if "tests" in name]  # the wheel has no place for it
    assert modes["attend/tool.sh"] == 0o100755  # 775 upstream: the bit is kept, the rest normalised
    assert modes["attend/sm120/run.sh"] == 0o100755
    assert modes["attend/__init__.py"] == 0o100644


def test_stale_signatures_go_and_so_do_folder_entries(
    repacked: Callable[..., Path], published: Callable[..., Any]
) -> None:
    signed = {"RECORD.jws": b"{}", "RECORD.p7s": b"x", "licenses/LICENSE": b"Apache\n"}
    files = dict(published().files) | {"attend/empty/": b""}
    names = zipfile.ZipFile(repacked(more_info=signed, files=files, modes={"attend/empty/": 0o040755})).namelist()
    assert not [name for name in names if name.endswith((".jws", ".p7s", "/"))]


def test_the_notice_names_every_file_that_differs(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheel = published().write()
    line = line_of(wheel)
    edits = {"attend/gate.py": b"majors = [12]\n", "csrc/kernel.cu": None}
    tree = patched(line, wheel, edits, overlay={"attend/sm120.py": b""})
    with zipfile.ZipFile(repack(wheel, tree, tmp_path / "out", line=line, epoch=EPOCH)) as archive:
        notice = archive.read(f"{INFO}/licenses/NOTICE.sm120-overlay").decode()
        metadata = archive.read(f"{INFO}/METADATA")
    assert "Modified files:\n  attend/_version.py\n  attend/gate.py\n" in notice
    assert "Added files:\n  attend/sm120.py\n" in notice
    assert "Removed files:\n  attend/data/csrc/kernel.cu\n" in notice
    assert "  admit.patch\n" in notice
    assert b"License-File: NOTICE.sm120-overlay\n" in metadata


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tags": "py2.py3-none-any"}, "WHEEL: tags: says py3-none-any, the file name says py2.py3-none-any"),
        ({"info": "other-1.0.dist-info"}, "other-1.0.dist-info: dist-info: is not the file name's name and version"),
        ({"info": "attend-2.0.dist-info"}, "attend-2.0.dist-info: dist-info: is not the file name's name"),
        ({"files": {"attend/_version.py": b'__version__ = "1.1"\n'}}, "attend/_version.py: says 1.1, the pin is 1.0"),
        ({"files": {"attend/gate.py": b"x\n"}}, "attend/_version.py: version: is not in the wheel"),
        ({"wheel": b"Wheel-Version: 1.0\nTag: py3-none-any\n"}, "WHEEL: has 0 Generator lines"),
        ({"more_info": {"licenses/NOTICE.sm120-overlay": b"x"}}, "NOTICE.sm120-overlay: duplicate-member: upstream"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_an_upstream_wheel_that_contradicts_itself_is_refused(
    repacked: Callable[..., Path], fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(WheelError) as refused:
        repacked({}, **fields)
    assert problem in str(refused.value)


@pytest.mark.parametrize("member", ["attend/_C.abi3.so", "attend/lib/libx.so.1.2", "attend/x.pyd", "attend/libx.dylib"])
def test_native_code_in_a_wheel_for_any_platform_is_refused(
    repacked: Callable[..., Path], published: Callable[..., Any], member: str
) -> None:
    files = dict(published().files) | {member: b"\x7fELF"}
    with pytest.raises(RefusedError, match=f"{re.escape(member)}: native-code-in-pure-wheel"):
        repacked(files=files)
    tags = "cp311-cp311-manylinux_2_34_x86_64"
    wheel = b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: false\nTag: %s\n" % tags.encode()
    assert repacked(files=files, tags=tags, wheel=wheel).name == f"attend-1.0+sm120.1-{tags}.whl"


def test_a_file_that_is_not_the_pins_is_refused(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheel = published().write()
    line = line_of(wheel)
    tree = patched(line, wheel)
    other = wheel.rename(tmp_path / "attend-1.0-1-py3-none-any.whl")
    with pytest.raises(WheelError, match=r"attend-1\.0-1-py3-none-any\.whl: not-the-pinned-file"):
        repack(other, tree, tmp_path / "out", line=line, epoch=EPOCH)
    pin = replace(tree.pin, version=Version("1.1"), sha256={other.name: "0" * 64})
    with pytest.raises(WheelError, match=r"version: is version 1\.0, the pin is 1.1"):
        repack(other, replace(tree, pin=pin), tmp_path / "out", line=line, epoch=EPOCH)


def test_a_wheel_whose_touched_file_differs_from_the_placed_one_is_refused_by_name(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheel = published().write()
    other = published(files=dict(published().files) | {"attend/gate.py": b"majors = [9]\n"}).write()
    line = line_of(other)
    with pytest.raises(RefusedError, match=r"attend/gate\.py: not-the-pinned-file: is not the attend/gate\.py that"):
        repack(other, patched(line, wheel), tmp_path / "out", line=line, epoch=EPOCH)


BUILD = """
    import os, pickle, sys
    from pathlib import Path
    os.umask(int(sys.argv[4], 8))
    sys.path[:0] = sys.argv[5:]
    from downstream.wheels.repack import repack
    tree, line = pickle.loads(Path(sys.argv[1]).read_bytes())
    print(repack(Path(sys.argv[2]), tree, Path(sys.argv[3]), line=line, epoch=315532800).name)
"""


@pytest.fixture
def elsewhere(published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path) -> Callable[..., bytes]:
    """Build one and the same wheel in a process of its own, and return its bytes."""
    wheel = published().write()
    line = line_of(wheel)
    made = tmp_path / "tree"
    made.write_bytes(pickle.dumps((patched(line, wheel, overlay={"attend/sm120.py": b"x\n"}), line)))
    paths = [str(Path(__file__).resolve().parents[2] / "tools"), sysconfig.get_path("purelib")]

    def build(folder: str, umask: str, python: str = sys.executable, **environment: str) -> bytes:
        script = [python, "-c", textwrap.dedent(BUILD), str(made), str(wheel), str(tmp_path / folder), umask, *paths]
        found = subprocess.run(script, check=True, capture_output=True, text=True, env=os.environ | environment)
        return (tmp_path / folder / found.stdout.strip()).read_bytes()

    return build


def test_folder_umask_time_zone_and_hash_seed_leave_no_trace(elsewhere: Callable[..., bytes]) -> None:
    first = elsewhere("a", "022")
    assert first == elsewhere("b/c", "077", LC_ALL="C", TZ="Asia/Tokyo", PYTHONHASHSEED="7")


def other_pythons() -> dict[str, str]:
    """Find interpreters beside this one, pyenv's included, by version."""
    found = {}
    for minor in (11, 12, 13, 14):
        name = f"python3.{minor}"
        candidates = [shutil.which(name)]
        if pyenv := shutil.which("pyenv"):
            root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
            candidates += [str(path) for path in sorted(Path(root).glob(f"versions/3.{minor}.*/bin/{name}"))]
        for path in filter(None, candidates):
            works = subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
            if works and minor != sys.version_info.minor:
                found[f"3.{minor}"] = path
    return found


@pytest.mark.slow
def test_every_python_writes_the_same_bytes(elsewhere: Callable[..., bytes]) -> None:
    others = other_pythons()
    if not others:
        pytest.skip("no other Python from 3.11 on is installed")
    here = elsewhere("here", "022")
    assert {version: elsewhere(version, "077", path) == here for version, path in others.items()} == dict.fromkeys(
        others, True
    )


def test_record_is_rebuilt_where_upstreams_cannot_be_believed(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    def spoiled(text: bytes) -> bytes:
        lines = text.decode().splitlines()
        lines = [one for one in lines if not one.startswith(("attend/tool.sh", "attend/__init__"))]
        lines += [lines[0], "attend/ghost.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"]
        lines += ["attend/__init__.py,sha256=" + "ab" * 32 + ",40"]
        return "\n".join(lines).encode()

    files = dict(published().files) | {"attend/a,b.py": b"comma\n"}
    wheel = published(record=spoiled, files=files).write()
    line = line_of(wheel)
    tree = patched(line, wheel)
    ours = repack(wheel, tree, tmp_path / "out", line=line, epoch=EPOCH)
    assert verify(ours, wheel, tree, line=line).violations == ()
    with zipfile.ZipFile(ours) as archive:
        assert b'\n"attend/a,b.py",sha256=' in archive.read(f"{INFO}/RECORD")


def test_source_date_epoch_is_every_members_time(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheel = published().write()
    line = line_of(wheel)
    ours = repack(wheel, patched(line, wheel), tmp_path / "out", line=line, epoch=1767225600)
    assert {entry.date_time for entry in zipfile.ZipFile(ours).infolist()} == {(2026, 1, 1, 0, 0, 0)}
