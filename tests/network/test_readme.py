"""What the README shows is what the tools print, on the real releases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from downstream import pins as pinned

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.network


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=False, text=True)


def test_the_main_job_of_the_quick_start_has_an_answer() -> None:
    (words,) = re.findall(r"&& (tools/rebase\.py [^\n]*--check)\n", README)
    ended = run(*words.split(), "--json")
    document = json.loads(ended.stdout)
    assert (document["schema"], document["command"]) == (1, "check")
    assert ended.returncode == (0 if document["ok"] else 1)
    assert document["patches"]


def test_the_rebase_day_shows_the_lines_the_tool_prints() -> None:
    (shown,) = re.findall(r"\$ (tools/rebase\.py --upstream \S+ --check)\n(.*?)```", README, re.DOTALL)
    command, block = shown
    title, *lines = [line for line in block.splitlines() if line != "…"]
    pin = pinned.load(ROOT).pin("stable", "flashinfer")
    if not title.startswith(f"flashinfer {pin.version} "):
        pytest.skip(f"the README tells of another pin than {pin}")
    # Columns are as wide as the longest name of the day.
    printed = [" ".join(line.split()) for line in run(*command.split()).stdout.splitlines()]
    assert printed[0] == title
    assert [line for line in lines if " ".join(line.split()) not in printed] == []
