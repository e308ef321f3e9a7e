#!/usr/bin/env python3
"""Repack a wheel, against `wheel unpack` + `wheel pack` and against a plain copy of the file.

    python bench/wheels.py flashinfer_python-0.7.2-py3-none-any.whl

Needs the `wheel` package. All on the same wheel, in one run, into fresh files on
the same disk; the median of the rounds counts (unpack and pack: one round). Ours
runs in this process after one round to warm up; interpreter start is not counted
for ours, and is lost in the seconds of the peer. Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from downstream import pins  # noqa: E402
from downstream.patched import PatchedTree  # noqa: E402
from downstream.pins import Line, Pin  # noqa: E402
from downstream.placing.verdict import PushReport  # noqa: E402
from downstream.trees.tree import MemoryTree  # noqa: E402
from downstream.wheels.gate import verify  # noqa: E402
from downstream.wheels.naming import parse_name  # noqa: E402
from downstream.wheels.repack import repack  # noqa: E402
from downstream.wheels.writer import EPOCH  # noqa: E402

COPY_GOAL = 3.0  # times a copy, at most
PEER_GOAL = 5.0  # times faster than unpack and pack, at least
TOUCHED = 10  # files that get a line more: about what a series touches


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="a published wheel of a package in VERSIONS.toml, any release")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where to write (default: the system's temporary folder)")
    options = parser.parse_args()
    tree, line = patched(options.wheel)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measured = measure(options.wheel, tree, line, Path(folder), options.rounds)
    size = options.wheel.stat().st_size / 1e6
    members = len(zipfile.ZipFile(options.wheel).infolist())
    print(f"{options.wheel.name}: {size:.1f} MB, {members} members, {len(tree.changed)} files changed")
    for name, seconds in measured.items():
        print(f"  {name:<22}{seconds * 1000:>9.0f} ms   {seconds / measured['copy']:>7.2f} x copy")
    to_copy = measured["repack"] / measured["copy"]
    to_peer = measured["unpack + pack"] / measured["repack"]
    print(f"repack / copy           {to_copy:6.2f}   goal: at most {COPY_GOAL:g}")
    print(f"unpack + pack / repack  {to_peer:6.2f}   goal: at least {PEER_GOAL:g}")
    return 0 if to_copy <= COPY_GOAL and to_peer >= PEER_GOAL else 1


def patched(wheel: Path) -> tuple[PatchedTree, Line]:
    """Return a tree that changes the runtime version and TOUCHED source files of *wheel*."""
    name = parse_name(wheel.name)
    upstreams = pins.load(ROOT).upstreams.values()
    upstream = next(one for one in upstreams if one.package.replace("-", "_") == name.distribution)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pin = Pin(line="bench", upstream=upstream, version=name.version, revision=1, sha256={wheel.name: digest})
    with zipfile.ZipFile(wheel) as archive:
        members = [one for one in sorted(archive.namelist()) if one.endswith((".py", ".cuh")) and "_version" not in one]
        step = max(1, len(members) // TOUCHED)
        paths = {upstream.layout.to_repository(member): member for member in members[::step][:TOUCHED]}
        base = {path: archive.read(member) for path, member in paths.items() if path is not None}
    tree = PatchedTree(
        pin=pin,
        base=MemoryTree(base),
        report=PushReport(results=()),
        patches={},
        changed={path: content + b"\n" for path, content in base.items()},
        modes={},
        overlay={},
    )
    return tree, Line(name="bench", pins={upstream.name: pin})


def measure(wheel: Path, tree: PatchedTree, line: Line, folder: Path, rounds: int) -> dict[str, float]:
    """Return the median seconds of each way, rounds interleaved so that none has the quiet minute to itself."""
    copies: list[float] = []
    repacks: list[float] = []
    built = repack(wheel, tree, folder / "warm", line=line, epoch=EPOCH)
    report = verify(built, wheel, tree, line=line)
    assert report.passed, report
    for number in range(rounds):
        target = folder / str(number)
        target.mkdir()
        copies.append(timed(lambda to=target / "copy.whl": shutil.copyfile(wheel, to)))  # type: ignore[misc]
        repacks.append(timed(lambda to=target: repack(wheel, tree, to, line=line, epoch=EPOCH)))  # type: ignore[misc]
        shutil.rmtree(target)
    return {
        "copy": statistics.median(copies),
        "repack": statistics.median(repacks),
        "gate": timed(lambda: verify(built, wheel, tree, line=line)),
        "unpack + pack": timed(lambda: unpack_and_pack(wheel, folder)),
    }


def unpack_and_pack(wheel: Path, folder: Path) -> None:
    name = parse_name(wheel.name)
    tool = [sys.executable, "-m", "wheel"]
    subprocess.run(
        [*tool, "unpack", "--dest", str(folder / "unpacked"), str(wheel)], check=True, stdout=subprocess.DEVNULL
    )
    unpacked = folder / "unpacked" / f"{name.distribution}-{name.version}"
    (folder / "packed").mkdir()
    subprocess.run(
        [*tool, "pack", "--dest-dir", str(folder / "packed"), str(unpacked)], check=True, stdout=subprocess.DEVNULL
    )


def timed(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
