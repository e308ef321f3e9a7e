"""docs/automation: files to copy, held to what their readers accept."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
AUTOMATION = ROOT / "docs" / "automation"


def test_the_workflow_passes_actionlint() -> None:
    program = shutil.which("actionlint", path=str(Path(sys.executable).parent)) or shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed")
    ended = subprocess.run(
        [program, "-no-color", str(AUTOMATION / "watch.yml")], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "")


def test_actionlint_would_have_found_a_fault(tmp_path: Path) -> None:
    program = shutil.which("actionlint", path=str(Path(sys.executable).parent)) or shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed")
    text = (AUTOMATION / "watch.yml").read_text(encoding="utf-8")
    broken = tmp_path / "watch.yml"
    broken.write_text(text.replace("steps.check.outputs", "steps.chekc.outputs"), encoding="utf-8")
    ended = subprocess.run([program, str(broken)], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert "chekc" in ended.stdout


def issue_step() -> str:
    """The shell of the step that opens and updates issues."""
    text = (AUTOMATION / "watch.yml").read_text(encoding="utf-8")
    block = text[text.index("name: One issue per release") :]
    body = block[block.index("run: |\n") + len("run: |\n") :]
    return re.sub(r"(?m)^ {10}", "", body)


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed")
def test_one_issue_per_release_is_opened_and_then_updated(tmp_path: Path) -> None:
    """The step's own shell against a gh that keeps issues in files."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch/stable-kernels-1.2.md").write_text("# kernels 1.2: line stable, pin 1.0\n\nfirst\n")
    (tmp_path / "watch/report.md").write_text("# all\n\nnot an issue\n")
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(
        """#!/bin/sh
case "$2" in
list) [ -e issue ] && printf '[{"number": 7, "title": "kernels 1.2: line stable, pin 1.0"}]' || printf '[]' ;;
create) echo "create $4" >> log; cp "$6" issue ;;
edit) echo "edit $3" >> log; cp "$5" issue ;;
esac
"""
    )
    gh.chmod(0o755)
    environment = {"PATH": f"{gh.parent}:/usr/bin:/bin", "RUN": "https://example.org/run/1"}
    for words in ("first", "second"):
        (tmp_path / "watch/stable-kernels-1.2.md").write_text(f"# kernels 1.2: line stable, pin 1.0\n\n{words}\n")
        subprocess.run(["bash", "-eo", "pipefail", "-c", issue_step()], cwd=tmp_path, env=environment, check=True)
        body = (tmp_path / "issue").read_text()
        assert body.startswith(f"{words}\n")
        assert "https://example.org/run/1" in body
    assert (tmp_path / "log").read_text() == "create kernels 1.2: line stable, pin 1.0\nedit 7\n"


def test_the_timer_starts_the_service_and_one_of_them_takes_exit_code_1() -> None:
    timer, service = configparser.RawConfigParser(), configparser.RawConfigParser()
    timer.read(AUTOMATION / "watch.timer", encoding="utf-8")
    service.read(AUTOMATION / "watch.service", encoding="utf-8")
    assert timer["Timer"]["OnCalendar"]
    assert service["Service"]["SuccessExitStatus"] == "1"
    assert service["Service"]["ExecStart"].endswith("tools/watch.py --quiet")


def test_the_cron_line_is_silent_on_a_good_morning_and_mails_the_report_on_another(tmp_path: Path) -> None:
    line = next(
        text for text in (AUTOMATION / "crontab").read_text(encoding="utf-8").splitlines() if text[:1].isdigit()
    )
    command = line.split(maxsplit=5)[5].replace("\\%", "%")  # as cron does
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    for code, said in ((0, ""), (1, "the report\n")):
        python.write_text(f"#!/bin/sh\necho the report\nexit {code}\n")
        python.chmod(0o755)
        ended = subprocess.run(
            ["sh", "-c", command], env={"OVERLAY": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert ended.stdout == said
