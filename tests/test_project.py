"""What README, CI and packaging say must stay true of the files beside them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from downstream import cli
from downstream.placing.verdict import HunkStatus, PatchStatus
from downstream.report.formats import FORMATS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = ROOT / ".ci/run"


def commands() -> list[str]:
    """Every line of README's shell blocks, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_ci_runs_the_readme_test_command_word_for_word() -> None:
    (command,) = [line for line in commands() if line.endswith("nox -s tests")]
    assert f'step tests bash -c "{command}"\n' in CI.read_text(encoding="utf-8")


def test_the_quick_start_sets_up_and_does_the_main_job_in_one_command() -> None:
    assert commands()[0] == (
        "python3 -m venv .venv && . .venv/bin/activate && pip install -e . && tools/rebase.py --upstream v0.6.4 --check"
    )


def test_ci_is_a_script_that_bash_can_read() -> None:
    assert os.access(CI, os.X_OK)
    subprocess.run(["bash", "-n", CI], check=True)


@pytest.mark.parametrize("code", [cli.OK, cli.FINDINGS, cli.FAILED, cli.BUG, cli.INTERRUPTED])
def test_every_exit_code_has_its_row(code: int) -> None:
    assert re.search(rf"^\| {code} \|", README, re.MULTILINE)


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_every_key_and_status_of_the_json_is_documented() -> None:
    golden = json.loads((ROOT / "tests/report/schema1.json").read_text(encoding="utf-8"))
    named = set(re.findall(r"`([\w-]+)`", README[README.index("### JSON, schema 1") :]))
    assert set(keys(golden)) <= named
    assert {status.value for status in (*HunkStatus, *PatchStatus)} <= named


@pytest.mark.parametrize("name", ["json", *FORMATS])
def test_every_format_is_in_the_readme(name: str) -> None:
    assert f"`--{name}`" in README


@pytest.mark.parametrize("door", sorted(path.name for path in (ROOT / "tools").glob("*.py")))
def test_every_door_is_in_the_readme(door: str) -> None:
    assert f"tools/{door}" in README


def test_every_nox_session_the_readme_names_exists() -> None:
    named = set(re.findall(r"nox -s (\w+)", README))
    defined = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= defined


def test_the_changelog_has_unreleased_on_top_with_its_four_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = text.split("\n## ")[1]
    assert first.startswith("Unreleased\n")
    assert re.findall(r"^### (.+)$", first, re.MULTILINE) == ["Added", "Changed", "Fixed", "Patches"]


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert text.rstrip().endswith("limitations under the License.")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"


def test_every_dependency_has_a_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    assert not [
        text
        for text in (*project["dependencies"], *extras)
        if not text.startswith("sm120-overlay[") and ">=" not in text
    ]


def test_hooks_are_pinned_to_one_version() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pinned = re.findall(r"additional_dependencies: \[(.*)\]", text)
    assert pinned
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", name) for names in pinned for name in names.split(", "))
