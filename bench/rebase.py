#!/usr/bin/env python3
"""How long a check of a rebase takes, against what a maintainer would type without us.

The peer is ``quilt push -a`` in a tree of the new release, with and without
unpacking that release first. Whole process against whole process, the same
series on the same release, in turns; what is printed are medians and ratios.

    python bench/rebase.py                       the series of line stable, FlashInfer 0.6.4
    python bench/rebase.py --patches 120         and a series of 120 patches made for the purpose
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from packaging.version import Version  # noqa: E402

from downstream import pins as pinned  # noqa: E402
from downstream.patches.series import load_series  # noqa: E402
from downstream.patches.unified import unified  # noqa: E402
from downstream.trees.cache import default_folder  # noqa: E402
from downstream.trees.open import open_pin, open_release, wheel_files  # noqa: E402
from downstream.trees.session import Session  # noqa: E402
from downstream.trees.tree import Tree  # noqa: E402
from downstream.trees.wheel import FileSource, WheelTree  # noqa: E402

HEADER = (
    "Subject: mark {path}\nAuthor: bench <bench@localhost>\nForwarded: not-needed\nLast-Update: 2026-01-01\n\n---\n"
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--release", default="0.6.4", help="FlashInfer release to check against")
    options.add_argument("--patches", type=int, default=120, help="size of the made series (0: leave it out)")
    options.add_argument("--runs", type=int, default=5)
    asked = options.parse_args()
    if not shutil.which("quilt"):
        sys.exit("bench/rebase.py: quilt is not installed\n  next: apt install quilt")
    session = Session(default_folder())
    pins = pinned.load(ROOT)
    pin = pins.pin("stable", "flashinfer")
    version = Version(asked.release)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _whole(pins, version, session, Path(scratch))
        release = WheelTree(FileSource(wheel), pin.upstream.layout, f"flashinfer {version}")
        _series(ROOT, "line stable", release, asked, Path(scratch) / "stable")
        if asked.patches:
            overlay = _made(
                open_pin(pin, session), open_release(pin.upstream, version, session), asked.patches, Path(scratch)
            )
            _series(overlay, f"{asked.patches} made patches", release, asked, Path(scratch) / "made")
    return 0


def _series(overlay: Path, title: str, release: Tree, asked: argparse.Namespace, scratch: Path) -> None:
    """Time both on one series and print the ratios."""
    patches = overlay / "patches/stable/flashinfer"
    count = len(load_series(patches).entries)
    check = [sys.executable, str(ROOT / "tools/rebase.py"), "--root", str(overlay), "--check", "--quiet"]
    check += ["--upstream", f"flashinfer=v{asked.release}"]
    ours, unpacking, quilt = [], [], []
    _run(check)  # both start warm: our cache, and the page cache under quilt's tree
    for number in range(asked.runs):
        tree = scratch / str(number)
        ours.append(_timed(lambda: _run([*check, "--offline"])))
        unpacking.append(_timed(lambda tree=tree: _unpack(release, tree)))
        quilt.append(_timed(lambda tree=tree: _run(["quilt", "push", "-a", "-q"], cwd=tree, patches=patches)))
        shutil.rmtree(tree)
    mine, peer, both = (
        statistics.median(times) for times in (ours, quilt, [a + b for a, b in zip(unpacking, quilt, strict=True)])
    )
    print(f"{title}: {count} patches on flashinfer {asked.release}, median of {asked.runs}")
    print(f"  tools/rebase.py --check        {mine:7.3f} s")
    print(f"  quilt push -a                  {peer:7.3f} s   {peer / mine:5.1f} times ours")
    print(f"  unpacking + quilt push -a      {both:7.3f} s   {both / mine:5.1f} times ours")


def _made(old: Tree, new: Tree, count: int, scratch: Path) -> Path:
    """Make an overlay with *count* one-hunk patches that apply to *old* and to *new*."""
    overlay = scratch / "overlay"
    folder = overlay / "patches/stable/flashinfer"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "VERSIONS.toml", overlay)
    names = []
    for path in old.paths():
        content = old.read(path) if path.startswith(("include/", "csrc/", "flashinfer/")) else None
        if content is None or content != new.read(path) or content.count(b"\n") < 40 or b"\r" in content:
            continue
        lines = content.split(b"\n")
        middle = len(lines) // 2
        changed = b"\n".join([*lines[:middle], b"// marked by the benchmark", *lines[middle:]])
        names.append(f"{len(names):04}.patch")
        text = HEADER.format(path=path).encode() + unified(path, path, content, changed)
        (folder / names[-1]).write_bytes(text)
        if len(names) == count:
            break
    (folder / "series").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return overlay


def _whole(pins: pinned.Pins, version: Version, session: Session, scratch: Path) -> Path:
    """Download the release as a maintainer without us would have to."""
    from dataclasses import replace

    from downstream.trees.open import digests

    pin = pins.pin("stable", "flashinfer")
    moved = replace(pin, version=version, sha256=digests(pin.upstream, version, session))
    return shutil.copy(wheel_files(moved, session)[0], scratch / "release.whl")


def _unpack(release: Tree, folder: Path) -> None:
    """Lay the release out in its repository's layout, which the patches are written for."""
    for path in release.paths():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(release.read(path) or b"")


def _run(command: Sequence[str], *, cwd: Path | None = None, patches: Path | None = None) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    if patches is not None:
        environment |= {"QUILT_PATCHES": str(patches), "QUILT_SERIES": "series"}
    done = subprocess.run(command, cwd=cwd, env=environment if patches else None, capture_output=True, check=False)
    if done.returncode not in (0, 1) or (patches is not None and done.returncode):
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
