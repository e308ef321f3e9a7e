from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from downstream.errors import UsageError, WheelError, WriteError
from downstream.patched import PatchedTree
from downstream.pins import Line
from downstream.wheels import build as building
from downstream.wheels.build import build, build_line, check_pairing, narrowed
from downstream.wheels.rules import RefusedError
from downstream.wheels.writer import EPOCH

LineOf = Callable[..., Line]
Patched = Callable[..., PatchedTree]
INFO = "attend-1.0+sm120.1.dist-info"

PLATFORMS = [
    f"cp3{minor}-cp3{minor}-manylinux_2_34_{machine}" for minor in (11, 12) for machine in ("aarch64", "x86_64")
]


@pytest.fixture
def per_platform(published: Callable[..., Any]) -> Callable[..., list[Path]]:
    """One wheel per platform, alike but for a compiled module; *odd* replaces files in the last."""

    def make(odd: dict[str, bytes] | None = None) -> list[Path]:
        wheels = []
        for tags in PLATFORMS:
            base = published(tags=tags)
            base.wheel = base.wheel.replace(b"py3-none-any", tags.encode()).replace(b"true", b"false")
            base.files[f"attend/_C.{tags}.so"] = tags.encode()
            if tags == PLATFORMS[-1]:
                base.files |= odd or {}
            wheels.append(base.write())
        return wheels

    return make


def test_every_platforms_wheel_becomes_one_of_ours(
    per_platform: Callable[..., list[Path]], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheels = per_platform()
    line = line_of(*wheels)
    out = tmp_path / "dist" / "stable"
    built = build(wheels, patched(line, wheels[0]), out, line=line, epoch=EPOCH)
    assert [one.path.name for one in built] == [f"attend-1.0+sm120.1-{tags}.whl" for tags in PLATFORMS]
    assert sorted(path.name for path in out.iterdir()) == sorted(one.path.name for one in built)
    for one, tags in zip(built, PLATFORMS, strict=True):
        assert one.sha256 == hashlib.sha256(one.path.read_bytes()).hexdigest()
        assert zipfile.ZipFile(one.path).read(f"attend/_C.{tags}.so") == tags.encode()
        assert one.members == ("attend/_version.py", "attend/gate.py")


def test_a_touched_source_that_differs_between_platforms_fails_the_build_by_name(
    per_platform: Callable[..., list[Path]], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheels = per_platform({"attend/gate.py": b"majors = [9]\n"})
    line = line_of(*wheels)
    with pytest.raises(RefusedError, match=rf"{PLATFORMS[-1]}\.whl: attend/gate\.py: not-the-pinned-file"):
        build(wheels, patched(line, wheels[0]), tmp_path / "dist", line=line, epoch=EPOCH)
    assert list((tmp_path / "dist").iterdir()) == []  # not even the good ones


def test_a_wheel_for_every_platform_is_never_narrowed_away(published: Callable[..., Any], line_of: LineOf) -> None:
    pin = line_of(published().write()).pins["attend"]
    assert narrowed(pin, python="cp311", platform="x86_64") == ("attend-1.0-py3-none-any.whl",)


def test_an_untouched_source_may_differ(
    per_platform: Callable[..., list[Path]], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheels = per_platform({"attend/__init__.py": b"# of this platform\n"})
    line = line_of(*wheels)
    assert len(build(wheels, patched(line, wheels[0]), tmp_path, line=line, epoch=EPOCH)) == 4


@pytest.mark.parametrize(
    ("python", "platform", "tags"),
    [
        (None, None, PLATFORMS),
        ("cp311", None, PLATFORMS[:2]),
        (None, "x86_64", PLATFORMS[1::2]),
        ("cp312", "manylinux_2_34_aarch64", [PLATFORMS[2]]),
    ],
)
def test_python_and_platform_narrow_what_is_built(
    per_platform: Callable[..., list[Path]],
    line_of: LineOf,
    python: str | None,
    platform: str | None,
    tags: list[str],
) -> None:
    pin = line_of(*per_platform()).pins["attend"]
    assert narrowed(pin, python=python, platform=platform) == tuple(f"attend-1.0-{tag}.whl" for tag in sorted(tags))


@pytest.mark.parametrize(("python", "platform"), [("cp313", None), (None, "64"), ("cp311", "win_amd64")])
def test_narrowed_to_nothing_is_an_error_that_lists_what_there_is(
    per_platform: Callable[..., list[Path]], line_of: LineOf, python: str | None, platform: str | None
) -> None:
    pin = line_of(*per_platform()).pins["attend"]
    with pytest.raises(UsageError, match="cp311-cp311-manylinux_2_34_x86_64"):
        narrowed(pin, python=python, platform=platform)


def test_a_stale_row_of_upstreams_record_is_hashed_anew(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    """Well formed, right size, wrong digest: only reading the file can tell."""

    def stale(text: bytes) -> bytes:
        lines = text.splitlines(keepends=True)
        swapped = [
            line.split(b"sha256=")[0] + b"sha256=" + b"A" * 43 + line[-4:] for line in lines if b"tool.sh" in line
        ]
        return b"".join(swapped + [line for line in lines if b"tool.sh" not in line])

    wheel = published(record=stale).write()
    with zipfile.ZipFile(wheel) as archive:
        assert b"sha256=AAAA" in archive.read("attend-1.0.dist-info/RECORD")
    line = line_of(wheel)
    (built,) = build([wheel], patched(line, wheel), tmp_path / "out", line=line, epoch=EPOCH)
    with zipfile.ZipFile(built.path) as archive:
        assert b"sha256=AAAA" not in archive.read(f"{INFO}/RECORD")


def test_what_the_gate_refuses_is_not_left_behind(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    base = published()
    base.metadata = base.metadata.replace(b"Metadata-Version: 2.4", b"Metadata-Version: 2.3")  # with fields of 2.4
    wheel = base.write()
    line = line_of(wheel)
    with pytest.raises(RefusedError, match=r"METADATA: metadata: .*license"):
        build([wheel], patched(line, wheel), tmp_path / "out", line=line, epoch=EPOCH)
    assert list((tmp_path / "out").iterdir()) == []


def test_packages_that_nothing_ties_leave_no_wheel(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheel = published().write()
    own = line_of(wheel).pins["attend"]
    base = published(distribution="rest")
    base.metadata = base.metadata.replace(b"Name: attend", b"Name: rest")
    other = base.write()
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    upstream = replace(own.upstream, name="rest", package="rest")
    rest = replace(own, upstream=upstream, sha256={other.name: digest})
    line = Line(name="stable", pins={"attend": own, "rest": rest})
    tree = patched(line, wheel)
    jobs = [(tree, [wheel]), (replace(tree, pin=rest), [other])]
    with pytest.raises(WheelError, match="line stable: neither attend nor rest requires the other"):
        build_line(jobs, tmp_path / "out", line=line, epoch=EPOCH)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    wheel = published().write()
    line = line_of(wheel)
    (tmp_path / "dist").write_bytes(b"a file")
    with pytest.raises(WriteError, match="dist"):
        build([wheel], patched(line, wheel), tmp_path / "dist" / "stable", line=line, epoch=EPOCH)


def test_what_a_killed_build_left_is_swept_and_what_a_running_one_needs_is_not(
    published: Callable[..., Any], line_of: LineOf, patched: Patched, tmp_path: Path
) -> None:
    script = (
        "import sys, time; from pathlib import Path; from downstream.wheels import build\n"
        "with build._staging(Path(sys.argv[1])) as staging:\n"
        "    (staging / 'half.whl').write_bytes(b'half'); print(staging, flush=True); time.sleep(60)"
    )
    wheel, out = published().write(), tmp_path / "out"
    line = line_of(wheel)
    environment = dict(os.environ, PYTHONPATH=str(Path(building.__file__).parents[2]))
    command = [sys.executable, "-c", script, str(out)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        staging = Path(running.stdout.readline().strip())
        (built,) = build([wheel], patched(line, wheel), out, line=line, epoch=EPOCH)
        assert (staging / "half.whl").is_file()
        running.send_signal(signal.SIGKILL)
    assert {path.name for path in out.iterdir()} == {built.path.name, staging.name}
    build([wheel], patched(line, wheel), out, line=line, epoch=EPOCH)
    assert [path.name for path in out.iterdir()] == [built.path.name]


@pytest.mark.parametrize(
    ("requirement", "pairs"),
    [
        (b"rest==2.0", True),
        (b"rest[x]>=1", True),
        (b"click", False),
        (b'rest==2.0; extra == "all"', False),
        (b'rest==2.0; platform_machine == "x86_64"', False),
    ],
)
def test_two_packages_of_a_line_must_be_tied_without_a_marker(
    published: Callable[..., Any],
    line_of: LineOf,
    patched: Patched,
    tmp_path: Path,
    requirement: bytes,
    pairs: bool,
) -> None:
    base = published()
    base.metadata = base.metadata.replace(
        b"Requires-Dist: click", b"Provides-Extra: all\nRequires-Dist: " + requirement
    )
    wheel = base.write()
    own = line_of(wheel).pins["attend"]
    rest = replace(own, upstream=replace(own.upstream, name="rest", package="rest"), version=Version("2.0"))
    line = Line(name="stable", pins={"attend": own, "rest": rest})
    (built,) = build([wheel], patched(line, wheel), tmp_path / "out", line=line, epoch=EPOCH)
    other = replace(built, pin=rest, siblings=frozenset())
    check_pairing([built], line)  # alone, there is nothing to tie
    if pairs:
        check_pairing([built, other], line)
    else:
        with pytest.raises(WheelError, match="neither attend nor rest requires the other"):
            check_pairing([built, other], line)
