"""A foreign series on a foreign tree: ours against quilt, git apply and a plain loop of GNU patch.

    .venv/bin/python bench/check.py grub2=FOLDER glibc=FOLDER      unpacked source packages, series not applied
    .venv/bin/python bench/check.py --made    series of 10 to 1,000 patches on trees of 1k to 100k files

Whole processes, all in one run, each peer on a tree of hard links of its own.
Both clocks are printed: the wall, and CPU of the whole process tree, which a
busy machine disturbs less. Needs quilt, git, GNU patch. FOLDER is what
``dpkg-source --skip-patches -x`` makes.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from downstream.patches.series import load_series  # noqa: E402 (after the path)

LOOP = 'while read -r name strip; do patch "$strip" -s -f --fuzz=0 --no-backup-if-mismatch -i "$1/$name"; done'
APPLY = 'while read -r name strip; do git apply "$strip" "$1/$name"; done'


@dataclass(frozen=True)
class Cost:
    """Seconds on the wall and of CPU, and the largest process's memory in bytes."""

    wall: float
    cpu: float
    memory: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--made", action="store_true", help="series and trees of growing size")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for words in asked.packages:
            name, _, place = words.partition("=")
            against_peers(name, Path(place).resolve(), Path(folder), asked.runs)
        if asked.made:
            growing(Path(folder), asked.runs)
        start_up(asked.runs)
    return 0


def against_peers(name: str, tree: Path, scratch: Path, runs: int) -> None:
    patches = tree / "debian/patches"
    entries = load_series(patches).entries
    listed = "".join(f"{entry.name} -p{entry.strip}\n" for entry in entries).encode()
    packed = scratch / "tree.tar"
    subprocess.run(["tar", "-cf", str(packed), "-C", str(tree), "."], check=True)
    quiet = {"QUILT_PATCHES": str(patches), "QUILT_PATCH_OPTS": "--fuzz=0"}

    def fresh(work: Callable[[Path], Cost]) -> Cost:
        """Run on a tree of hard links, which making is not counted."""
        place = scratch / "work"
        subprocess.run(["cp", "-al", str(tree), str(place)], check=True)
        cost = work(place)
        shutil.rmtree(place)
        return cost

    def unpacked() -> Cost:
        place = scratch / "unpacked"
        place.mkdir()
        cost = timed(["tar", "-xf", str(packed), "-C", str(place)])
        shutil.rmtree(place)
        return cost

    out = scratch / "out"
    rows = {
        "pq.py check": [timed(check(patches, tree)) for _ in range(runs)],
        "pq.py check --out": [timed([*check(patches, tree), "--out", str(out)]) for _ in range(runs)],
        "patch -p1, each": [fresh(lambda at: timed(["sh", "-c", LOOP, "-", str(patches)], cwd=at, stdin=listed))
                            for _ in range(runs)],
        "git apply, each": [fresh(lambda at: timed(["sh", "-c", APPLY, "-", str(patches)], cwd=at, stdin=listed))
                            for _ in range(runs)],
        "quilt push -a": [fresh(lambda at: timed(["quilt", "push", "-a", "-q"], cwd=at, more=quiet))
                          for _ in range(runs)],
    }  # fmt: skip
    unpacking = [unpacked() for _ in range(runs)]
    for title in ("patch -p1, each", "quilt push -a"):
        rows[f"unpacking + {title}"] = [both(a, b) for a, b in zip(unpacking, rows[title], strict=True)]
    count = sum(len(result) for result in _hunks(patches))
    print(f"{name}: {len(entries)} patches, {count} hunks, median of {runs}")
    report(rows)
    shutil.rmtree(out, ignore_errors=True)
    packed.unlink()


def _hunks(patches: Path) -> list[bytes]:
    return [b"x" * (patches / entry.name).read_bytes().count(b"\n@@ -") for entry in load_series(patches).entries]


def growing(scratch: Path, runs: int) -> None:
    """Time in hunks, and in files of the tree."""
    tree = scratch / "made"
    made = 0
    for files in (1_000, 10_000, 100_000):
        for number in range(made, files):
            place = tree / f"d{number // 500}" / f"f{number}.c"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("".join(f"int a{number}_{line};\n" for line in range(20)), encoding="ascii")
        made = files
        rows = {}
        for patches in (10, 100, 1_000):
            series = _made(scratch / f"series{patches}", patches)
            rows[f"{patches} patches of a hunk"] = [timed(check(series, tree)) for _ in range(runs)]
        print(f"made: {files} files, median of {runs}")
        report(rows)


def _made(folder: Path, patches: int) -> Path:
    if folder.is_dir():
        return folder
    folder.mkdir()
    for number in range(patches):
        name = f"d{number // 500}/f{number}.c"
        lines = [f"int a{number}_{line};" for line in range(6, 13)]
        body = "".join(f" {line}\n" for line in lines[:3]) + f"-{lines[3]}\n+long a;\n"
        body += "".join(f" {line}\n" for line in lines[4:])
        text = f"Subject: {number}\n\n--- a/{name}\n+++ b/{name}\n@@ -7,7 +7,7 @@\n{body}"
        (folder / f"{number:04}.patch").write_text(text, encoding="ascii")
    (folder / "series").write_text("".join(f"{number:04}.patch\n" for number in range(patches)), encoding="ascii")
    return folder


def start_up(runs: int) -> None:
    doors = [path.stem for path in sorted((ROOT / "tools").glob("*.py"))]
    rows = {f"{door}.py --help": [timed([sys.executable, str(ROOT / "tools" / f"{door}.py"), "--help"])
                                  for _ in range(max(runs, 5))] for door in doors}  # fmt: skip
    rows["python -c pass"] = [timed([sys.executable, "-c", "pass"]) for _ in range(max(runs, 5))]
    rows["pq.py check (warm)"] = [timed([sys.executable, str(ROOT / "tools/pq.py"), "check", "--quiet", "--offline"])
                                  for _ in range(max(runs, 5))]  # fmt: skip
    print("start-up, the least of all runs")
    report(rows, least=True)


def check(patches: Path, tree: Path) -> list[str]:
    command = [sys.executable, str(ROOT / "tools/pq.py"), "check", "--series", str(patches), "--tree", str(tree)]
    return [*command, "--quiet", "--offline"]


def timed(
    command: list[str], *, cwd: Path | None = None, stdin: bytes | None = None, more: dict[str, str] | None = None
) -> Cost:
    """Run a command to its end and return what its process tree cost."""
    environment = {**os.environ, "LC_ALL": "C", **(more or {})}
    reading, writing = os.pipe()
    began, pid = time.perf_counter(), os.fork()
    if pid == 0:
        # A child of its own for each run: its resource usage is that of the command's whole tree.
        run = subprocess.run(command, cwd=cwd, input=stdin, env=environment, capture_output=True, check=False)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(writing, f"{used.ru_utime + used.ru_stime} {used.ru_maxrss * 1024} {run.returncode}".encode())
        if run.returncode not in (0, 1):
            os.write(2, run.stderr[-2000:])
        os._exit(0)
    os.waitpid(pid, 0)
    wall = time.perf_counter() - began
    cpu, memory, code = os.read(reading, 200).split()
    os.close(reading)
    os.close(writing)
    if code not in (b"0", b"1"):
        sys.exit(f"{' '.join(command)}: exit {code.decode()}")
    return Cost(wall, float(cpu), int(memory))


def both(one: Cost, other: Cost) -> Cost:
    return Cost(one.wall + other.wall, one.cpu + other.cpu, max(one.memory, other.memory))


def report(rows: dict[str, list[Cost]], *, least: bool = False) -> None:
    choose = min if least else statistics.median
    first: tuple[float, float] | None = None
    for title, costs in rows.items():
        wall, cpu = (choose([getattr(cost, what) for cost in costs]) for what in ("wall", "cpu"))
        memory = max(cost.memory for cost in costs) / 2**20
        ratio = f"{wall / first[0]:6.1f} {cpu / first[1]:6.1f} times" if first and not least else ""
        first = first or (wall, cpu)
        print(f"  {title:32} {wall:7.3f} s wall {cpu:7.3f} s CPU {memory:6.0f} MiB {ratio}")


if __name__ == "__main__":
    sys.exit(main())
