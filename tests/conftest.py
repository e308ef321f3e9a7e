"""A sealed environment: no user's git, pip or colour settings reach a test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

KEPT = ("GIT_EXEC_PATH",)


@pytest.fixture(autouse=True)
def sealed_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No ``GIT_*``, no user config, fixed dates, NO_COLOR unset (STYLE, habits)."""
    for name in list(os.environ):
        if name.startswith("GIT_") and name not in KEPT:
            monkeypatch.delenv(name)
    for name in ("NO_COLOR", "SOURCE_DATE_EPOCH", "QUILT_PATCHES", "QUILT_PC"):
        monkeypatch.delenv(name, raising=False)
    home: Path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z")
