"""Builds once a session, groups once a world size; what each case gave goes to $GPU_TESTS_LOG as JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.builds import Build, install, named, newest_patched
from tests.gpu.cases import Case, title
from tests.gpu.ranks import Outcome, Runner, run_cases


@pytest.fixture(scope="session")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The build under test: $FLASHINFER_PATCHED (wheels or a folder), else what lies below dist/."""
    paths = named("FLASHINFER_PATCHED") or newest_patched()
    if not paths:
        pytest.fail("no patched build: run nox -s build_wheels, or name wheels in FLASHINFER_PATCHED", pytrace=False)
    build = install("patched", paths, tmp_path_factory.mktemp("patched"))
    if build.problem:
        pytest.fail(f"the patched build does not load: {build.problem}", pytrace=False)
    return build


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The published release: $FLASHINFER_STOCK, else the pinned wheel from the index."""
    paths = named("FLASHINFER_STOCK")
    if not paths:
        from downstream.pins import load
        from downstream.trees.cache import default_folder
        from downstream.trees.open import wheel_files
        from downstream.trees.session import Session

        with Session(default_folder()) as session:
            paths = list(wheel_files(load(Path(__file__).parents[2]).pin("stable", "flashinfer"), session))
    return install("stock", paths, tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="session")
def log() -> Iterator[Callable[[dict[str, Any]], None]]:
    folder = os.environ.get("GPU_TESTS_LOG")
    if not folder:
        yield lambda line: None
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "cases.jsonl").open("a", buffering=1) as stream:

        def tell(line: dict[str, Any]) -> None:
            stream.write(json.dumps(line) + "\n")

        yield tell


@pytest.fixture(scope="session")
def run(log: Callable[[dict[str, Any]], None]) -> Runner:
    """Run cases in a group of ranks, tell the log, return the outcomes in the order of the cases."""

    def runner(build: Build, world: int, wanted: Sequence[Case], **options: Any) -> list[Outcome]:
        outcomes, loaded = run_cases(build.environment, world, wanted, **options)
        log({"group": build.name, "world": world, "cases": len(wanted), **loaded})
        for index, case in enumerate(wanted):
            outcome = outcomes[index]
            told = {"error": outcome.error, "off": outcome.off, "ended": outcome.ended[:600]}
            log({"build": build.name, "world": world, "case": title(case), **told})
        return [outcomes[index] for index in range(len(wanted))]

    return runner
