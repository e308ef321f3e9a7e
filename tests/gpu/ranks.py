"""Groups of ranks as processes of their own on one GPU (or one each, where there are enough)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("rank.py")
START_LIMIT = 240.0  # seconds until the first case: imports, a compile by the JIT, the workspace
CASE_LIMIT = 20.0  # seconds without a sign of life from any rank
RESTARTS = 6


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one case gave: the worst rank's relative error, or how it ended."""

    error: float = float("inf")
    off: int = 0
    ended: str = ""  # empty: every rank came back


Runner = Callable[..., list[Outcome]]  # conftest's fixture: (build, world, cases, **options)


@dataclass(kw_only=True)
class GroupRun:
    """One group's outcomes by case index, and what the group as a whole said."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    culprit: int | None = None  # the case that ended the group early
    ended: str = ""
    build: dict[str, Any] = field(default_factory=dict)


def run_cases(
    build: Mapping[str, str], world: int, cases: Sequence[Mapping[str, Any]], *, seed: int = 1, restarts: int = RESTARTS
) -> tuple[dict[int, Outcome], dict[str, Any]]:
    """Run *cases* in random order; a case that ends its group is recorded, and the rest go on in a new group.

    *build* holds the environment that selects the build. Returns outcomes by case index, and what was loaded.
    """
    outcomes: dict[int, Outcome] = {}
    loaded: dict[str, Any] = {}
    pending = list(range(len(cases)))
    for attempt in range(restarts + 1):
        run = _run_group(build, world, [cases[index] for index in pending], seed + attempt)
        loaded = run.build or loaded
        outcomes |= {pending[local]: outcome for local, outcome in run.outcomes.items()}
        if run.culprit is not None:
            outcomes[pending[run.culprit]] = Outcome(ended=run.ended)
        elif run.ended:  # before the first case: no other group would fare better
            return outcomes | {index: Outcome(ended=run.ended) for index in pending if index not in outcomes}, loaded
        pending = [index for index in pending if index not in outcomes]
        if not pending:
            return outcomes, loaded
    return outcomes | {index: Outcome(ended="not run: too many groups ended early") for index in pending}, loaded


def _run_group(build: Mapping[str, str], world: int, cases: Sequence[Mapping[str, Any]], seed: int) -> GroupRun:
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        spec = Path(folder) / "spec.json"
        spec.write_text(
            json.dumps({"world": world, "cases": list(cases), "seed": seed, "rendezvous": f"{folder}/rendezvous"})
        )
        logs = [Path(folder) / f"rank{rank}.jsonl" for rank in range(world)]
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank, log in enumerate(logs):
                with log.with_suffix(".out").open("wb") as out:
                    ranks.append(
                        subprocess.Popen(
                            [sys.executable, str(PROGRAM), str(spec), str(rank), str(log)],
                            env=os.environ | build,
                            stdin=subprocess.DEVNULL,
                            stdout=out,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                        )
                    )
            ended = _watch(ranks, logs)
        finally:
            for process in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            for process in ranks:
                process.wait()
        return _summary(logs, ended)


def _watch(ranks: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path]) -> str:
    """Wait for the ranks; return why they had to be ended, or nothing."""
    sizes: list[int] = []
    last = time.monotonic()
    failed_at: float | None = None
    while any(process.poll() is None for process in ranks):
        now = time.monotonic()
        current = [log.stat().st_size if log.exists() else 0 for log in logs]
        if current != sizes:
            sizes, last = current, now
        started = any(b'"start"' in log.read_bytes()[:4000] for log in logs if log.exists())
        limit = CASE_LIMIT if started else START_LIMIT
        if now - last > limit:
            return f"hung: no sign of life for {limit:.0f} s"
        if any(process.poll() not in (None, 0) for process in ranks):
            failed_at = failed_at or now
            if now - failed_at > 5:  # peers may have their own error to tell
                return "a rank failed"
        time.sleep(0.05)
    return "" if all(process.returncode == 0 for process in ranks) else "a rank failed"


def _summary(logs: Sequence[Path], ended: str) -> GroupRun:
    run = GroupRun(ended=ended)
    results: dict[int, list[dict[str, Any]]] = {}
    started: dict[int, int] = {}
    failures = []
    for rank, log in enumerate(logs):
        for text in log.read_text().splitlines() if log.exists() else ():
            line = json.loads(text)
            if "version" in line:
                run.build = line
            elif "start" in line:
                started[rank] = line["start"]
            elif "done" in line:
                results.setdefault(line["done"], []).append(line)
            elif "failed" in line:
                failures.append(line["failed"])
        out = log.with_suffix(".out")
        if ended and rank not in started and not failures and out.exists():
            failures.append(out.read_text(errors="replace")[-1500:])
    for index, lines in results.items():
        if len(lines) == len(logs):
            worst = max(lines, key=lambda line: float(line["error"]))
            run.outcomes[index] = Outcome(error=worst["error"], off=sum(line["off"] for line in lines))
    if ended:
        # Memory faults name themselves; a peer's "connection closed" is only their echo.
        telling = sorted(failures, key=lambda text: "CUDA" not in text and "cuda" not in text)
        run.ended = f"{ended}: {telling[0]}" if telling else ended
        unfinished = [index for index in started.values() if index not in run.outcomes]
        if unfinished:
            run.culprit = max(set(unfinished), key=unfinished.count)
    return run
