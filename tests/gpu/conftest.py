"""Builds once a session, groups once a world size; what each case gave goes to $GPU_TESTS_LOG as JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.builds import Build, install, patched_paths, stock_paths
from tests.gpu.cases import Case, title
from tests.gpu.ranks import Outcome, Runner, run_cases

Installing = Future[Build]


@pytest.fixture(scope="session")
def builds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Installing]]:
    """The builds that the chosen tests ask for, installed side by side: to compile one takes two minutes."""
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    paths = {"patched": patched_paths, "stock": stock_paths}
    with ThreadPoolExecutor() as pool:
        yield {
            name: pool.submit(install, name, paths[name](), tmp_path_factory.mktemp(name))
            for name in paths
            if name in asked
        }


@pytest.fixture(scope="session")
def patched(builds: dict[str, Installing]) -> Build:
    """The build under test: $FLASHINFER_PATCHED (wheels or a folder), else what lies below dist/."""
    if not patched_paths():
        pytest.fail("no patched build: run nox -s build_wheels, or name wheels in FLASHINFER_PATCHED", pytrace=False)
    build = builds["patched"].result()
    if build.problem:
        pytest.fail(f"the patched build does not load: {build.problem}", pytrace=False)
    return build


@pytest.fixture(scope="session")
def stock(builds: dict[str, Installing]) -> Build:
    """The published release: $FLASHINFER_STOCK, else the pinned wheel from the index."""
    return builds["stock"].result()


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
