"""The matrix of the small overlay of the queue's tests, with names that try to break a format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ...queue.conftest import Overlay, overlay, story

__all__ = ["Overlay", "overlay", "story"]

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
