#!/usr/bin/env python3
"""What the matrix costs, against the same question asked with the tools at hand.

The peer unpacks each release into its repository's layout and runs
``patch --dry-run -F0`` once per patch. Whole process against whole process,
the same series on the same releases in one run; what is printed are seconds
and ratios, for growing numbers of releases and of hunks.

    python bench/matrix.py                    FlashInfer 0.5.0 to 0.6.9 (18 wheels, 130 MB), and a series made longer
    python bench/matrix.py --cold             also with an empty cache: seconds and bytes over the network
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from packaging.version import Version  # noqa: E402

from downstream import pins as pinned  # noqa: E402
from downstream.patches.series import load_series  # noqa: E402
from downstream.patches.unified import unified  # noqa: E402
from downstream.trees.cache import VARIABLE, default_folder  # noqa: E402
from downstream.trees.open import digests, open_pin, wheel_files  # noqa: E402
from downstream.trees.releases import releases  # noqa: E402
from downstream.trees.session import Session  # noqa: E402
from downstream.trees.tree import Tree  # noqa: E402
from downstream.trees.wheel import FileSource, WheelTree  # noqa: E402

RELEASES = (
    *("0.5.0", "0.5.1", "0.5.2", "0.5.3", "0.6.0", "0.6.1", "0.6.2", "0.6.3", "0.6.4", "0.6.5", "0.6.6", "0.6.7"),
    *("0.6.7.post1", "0.6.7.post2", "0.6.7.post3", "0.6.8", "0.6.8.post1", "0.6.9"),
)
HEADER = (
    "Subject: mark {path}\nAuthor: bench <bench@localhost>\nForwarded: not-needed\nLast-Update: 2026-01-01\n\n---\n"
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--releases", nargs="+", default=RELEASES, metavar="VERSION", help="of FlashInfer")
    options.add_argument("--made", type=int, default=100, help="patches of the longer series (0: leave it out)")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--cold", action="store_true", help="also measure with an empty cache")
    asked = options.parse_args()
    versions = sorted(map(Version, asked.releases))
    session = Session(default_folder())
    pin = pinned.load(ROOT, satisfied=False).pin("stable", "flashinfer")
    trees = {}
    for version in versions:
        moved = replace(pin, version=version, sha256=digests(pin.upstream, version, session))
        trees[version] = WheelTree(FileSource(wheel_files(moved, session)[0]), pin.upstream.layout, str(version))
    with tempfile.TemporaryDirectory() as scratch:
        _compare(ROOT, "the series of line stable", versions, trees, asked, Path(scratch))
        if asked.made:
            overlay = _made(open_pin(pin, session), asked.made, Path(scratch))
            _compare(overlay, f"{asked.made} made patches", versions[:2], trees, asked, Path(scratch))
        if asked.cold:
            _cold(Path(scratch) / "cache", versions)
    return 0


def _compare(
    overlay: Path, title: str, versions: Sequence[Version], trees: dict[Version, WheelTree], asked: argparse.Namespace,
    scratch: Path,
) -> None:  # fmt: skip
    """Time both on one, some and all of the releases and print the ratios."""
    series = load_series(overlay / "patches/stable/flashinfer")
    hunks = sum(len(file.hunks) for patch in series.patches() for file in patch.files)
    print(f"{title}: {len(series.entries)} patches, {hunks} hunks; median of {asked.runs}")
    print("  releases   ours, warm  ours, anew   dry runs  unpacking + dry runs", flush=True)
    unpacking: list[float] = []
    patching: list[float] = []
    for count in sorted({1, len(versions) // 3, len(versions)} - {0}):
        command = _command(overlay, versions[:count])
        _run(command)  # both start warm: our cache, and the page cache under the wheels
        warm = [_timed(lambda command=command: _run(command)) for _ in range(asked.runs)]
        anew = []
        for _ in range(asked.runs):
            for kept in ("verdicts", "elsewhere"):
                shutil.rmtree(default_folder() / "v1" / kept, ignore_errors=True)
            anew.append(_timed(lambda command=command: _run(command)))
        # The peer knows nothing of its last answer: each release costs what it costs alone.
        for version in versions[len(unpacking) : count]:
            folder = scratch / "unpacked"
            names = [entry.name for entry in series.entries]
            unpacking.append(_timed(lambda version=version, folder=folder: _unpack(trees[version], folder)))
            patching.append(_timed(lambda names=names, folder=folder: _dry_run(series.folder, names, folder)))
            shutil.rmtree(folder)
        mine, judged = statistics.median(warm), statistics.median(anew)
        peer = sum(unpacking) + sum(patching)
        print(f"  {count:8} {mine:10.2f} s {judged:9.2f} s {sum(patching):8.2f} s {peer:8.2f} s", end="")
        print(f"   {peer / mine:6.1f} x warm, {peer / judged:6.1f} x anew", flush=True)


def _command(overlay: Path, versions: Sequence[Version], *extra: str) -> list[str]:
    """The door on exactly *versions*: the others between them are excluded one by one."""
    others = [
        release.version
        for release in releases("flashinfer-python", session=Session(default_folder()))
        if versions[0] < release.version < versions[-1] and release.version not in versions
    ]
    asked = ",".join([f">={versions[0]}", f"<={versions[-1]}", *(f"!={version}" for version in others)])
    door = [sys.executable, str(ROOT / "tools/matrix.py"), "--root", str(overlay), "--upstream", "flashinfer"]
    return [*door, "--line", "stable", "--json", "--releases", asked, *extra]


def _cold(cache: Path, versions: Sequence[Version]) -> None:
    """Every final release since 0.5.0 with nothing in the cache, then again."""
    del versions
    door = [sys.executable, str(ROOT / "tools/matrix.py"), "--releases", ">=0.5.0", "--json", "-v"]
    for word in ("cold", "warm"):
        began = time.perf_counter()
        ended = subprocess.run(
            door, env={**os.environ, VARIABLE: str(cache)}, capture_output=True, check=False, text=True
        )
        seconds = time.perf_counter() - began
        note = re.search(r"note: (.* requests)", ended.stderr)
        print(f"both upstreams, all releases since 0.5.0, {word}: {seconds:.1f} s, {note[1] if note else ended.stderr}")


def _made(tree: Tree, count: int, scratch: Path) -> Path:
    """Make an overlay with *count* one-hunk patches that apply to *tree*."""
    overlay = scratch / "overlay"
    folder = overlay / "patches/stable/flashinfer"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "VERSIONS.toml", overlay)
    names: list[str] = []
    for path in tree.paths():
        content = tree.read(path) if path.startswith(("include/", "csrc/", "flashinfer/")) else None
        if content is None or content.count(b"\n") < 40 or b"\r" in content:
            continue
        lines = content.split(b"\n")
        middle = len(lines) // 2
        changed = b"\n".join([*lines[:middle], b"// marked by the benchmark", *lines[middle:]])
        names.append(f"{len(names):04}.patch")
        (folder / names[-1]).write_bytes(HEADER.format(path=path).encode() + unified(path, path, content, changed))
        if len(names) == count:
            break
    (folder / "series").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return overlay


def _unpack(release: WheelTree, folder: Path) -> None:
    """Lay the release out in its repository's layout, which the patches are written for."""
    for path in release.paths():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(release.read(path) or b"")


def _dry_run(series: Path, names: Sequence[str], folder: Path) -> None:
    for name in names:
        command = ["patch", "--dry-run", "--force", "-F0", "-p1", "-i", str(series / name)]
        subprocess.run(command, cwd=folder, capture_output=True, check=False)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
