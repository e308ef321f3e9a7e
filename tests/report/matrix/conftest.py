"""The matrix of the small overlay of the queue's tests, with names that try to break a format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from ...queue.conftest import Overlay, overlay, story

__all__ = ["Overlay", "overlay", "story"]

FLAGS = [
    "--no-sandbox",  # a container's root cannot have one
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")

HOSTILE = "</script><b>&|`\x1b[31m\udcff"


@pytest.fixture
def document(story: Overlay) -> dict[str, Any]:
    """What ``tools/matrix.py --json`` prints for the story, the subject of one patch and a skip made hostile."""
    run = story.matrix("--json", "--releases", ">=0.1")
    assert run.code == 1, run.err
    found: dict[str, Any] = json.loads(run.out)
    matrix = found["matrices"][0]
    matrix["patches"][0]["subject"] = matrix["patches"][0]["header"] = HOSTILE
    next(one for one in matrix["releases"] if one["skipped"])["skipped"] = HOSTILE
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api", reason="pip install -e '.[browser]'")
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed")
    with sync.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield opened
        opened.close()
