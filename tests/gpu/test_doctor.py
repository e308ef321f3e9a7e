"""The doctor's ctypes against a real driver: what it sees is what torch sees, and copies arrive."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

SM120 = Path(__file__).resolve().parents[2] / "overlay" / "flashinfer" / "flashinfer" / "sm120"
THEIRS = """
import json, torch
devices = range(torch.cuda.device_count())
print(json.dumps([[torch.cuda.get_device_name(n), "%d.%d" % torch.cuda.get_device_capability(n)] for n in devices]))
"""


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    site = tmp_path_factory.mktemp("site")
    info = site / "flashinfer_python-0.6.3+sm120.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.3+sm120.1\n")
    code = f"import sys; sys.path.insert(1, {str(site)!r}); sys.argv = ['sm120', 'doctor', '--json', '--copy']\n"
    code += f"import runpy; runpy.run_path({str(SM120)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_it_sees_the_gpus_that_torch_sees(findings: dict[str, dict[str, Any]]) -> None:
    theirs = json.loads(
        subprocess.run([sys.executable, "-c", THEIRS], capture_output=True, text=True, check=True).stdout
    )
    assert [[gpu["name"], gpu["capability"]] for gpu in findings["gpus"]["facts"]["gpus"]] == theirs


def test_copies_arrive_unchanged(findings: dict[str, dict[str, Any]]) -> None:
    assert findings["peers"]["facts"].get("copied") is True
    assert findings["peers"]["facts"]["failed"] == {}
