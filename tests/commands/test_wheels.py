from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.cli import door
from downstream.trees.cache import default_folder
from downstream.trees.session import Session

STOCK = "attend-1.0-py3-none-any.whl"
OURS = "attend-1.0+sm120.1-py3-none-any.whl"
INFO = "attend-1.0.dist-info"
FILES = {
    "attend/_version.py": b'__version__ = "1.0"\n',
    "attend/gate.py": b"majors = [9, 10]\n",
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: attend\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: g (1)\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/RECORD": b"",
}
PATCH = b"""\
Subject: admit SM120
Author: A <a@example.org>
Forwarded: https://example.org/attend/pull/7
Last-Update: 2026-01-01
---
--- a/attend/gate.py
+++ b/attend/gate.py
@@ -1 +1 @@
-majors = [9, 10]
+majors = [9, 10, 12]
--- a/tests/test_gate.py
+++ b/tests/test_gate.py
@@ -0,0 +1 @@
+assert 12
"""
VERSIONS = """\
schema = 1
[upstreams.attend]
package = "attend"
repository = "https://example.org/attend"
tag = "v{{version}}"
version-file = "attend/_version.py"
[upstreams.attend.layout]
"attend/" = "attend/"
[lines.stable.attend]
version = "1.0"
revision = 1
sha256 = {{ "{name}" = "{digest}" }}
"""

Run = Callable[..., int]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An overlay of one line, its release already in the cache."""
    monkeypatch.setenv("SM120_OVERLAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    stock = tmp_path / STOCK
    with zipfile.ZipFile(stock, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    digest = hashlib.sha256(stock.read_bytes()).hexdigest()
    with Session(default_folder(), offline=True) as session:
        kept = session.cache.folder / "files" / digest
    kept.mkdir(parents=True)
    shutil.copyfile(stock, kept / STOCK)
    root = tmp_path / "overlay"
    series = root / "patches" / "stable" / "attend"
    series.mkdir(parents=True)
    (series / "series").write_bytes(b"admit.patch\n")
    (series / "admit.patch").write_bytes(PATCH.replace(b"--- a/tests/test_gate.py", b"--- /dev/null"))
    (root / "VERSIONS.toml").write_text(VERSIONS.format(name=STOCK, digest=digest))
    return root


@pytest.fixture
def run(root: Path) -> Run:
    return lambda *words: door("wheels", [*words, "--offline", "--root", str(root)])


@pytest.mark.parametrize("command", [[], ["build"], ["build", "--line", "stable", "--upstream", "attend"]])
def test_build_writes_the_wheels_of_the_line_into_dist(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run(*command) == 0
    out = tmp_path / "dist" / "stable"
    assert sorted(path.name for path in out.iterdir()) == [
        "SHA256SUMS",
        OURS,
        "constraints-stable.txt",
        "manifest.json",
    ]
    digest = hashlib.sha256((out / OURS).read_bytes()).hexdigest()
    assert capsys.readouterr().out == (
        f"dist/stable/{OURS}  sha256:{digest}\n"
        f"  from {STOCK}: 1 patch, 2 members changed; the gate found nothing else\n"
        "  not in a wheel: tests/test_gate.py\n"
        "beside: constraints-stable.txt, manifest.json, SHA256SUMS\n"
    )


def test_build_answers_in_json(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--out", str(tmp_path / "out")) == 0
    answer = json.loads(capsys.readouterr().out)
    digest = hashlib.sha256((tmp_path / "out" / OURS).read_bytes()).hexdigest()
    assert answer["schema"] == 1
    assert (answer["command"], answer["ok"], answer["line"]) == ("wheels build", True, "stable")
    assert answer["wheels"] == [
        {
            "file": OURS,
            "sha256": digest,
            "size": (tmp_path / "out" / OURS).stat().st_size,
            "from": STOCK,
            "members": ["attend/_version.py", "attend/gate.py"],
            "outside": ["tests/test_gate.py"],
        }
    ]


def test_verify_of_a_build_is_fine(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("build")
    capsys.readouterr()
    assert run("verify", f"dist/stable/{OURS}") == 0
    assert capsys.readouterr().out == f"{OURS}: differs from upstream only where series and overlay say\n"


def test_verify_names_member_and_rule_and_exits_1(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = tmp_path / OURS
    shutil.copyfile(tmp_path / STOCK, fake)
    assert run("verify", str(fake)) == 1
    assert f"{OURS}: {INFO}: dist-info: is not the file name's name and version\n" in capsys.readouterr().out
    assert run("verify", str(fake), "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    rules = {(one["member"], one["rule"]) for one in answer["wheels"][0]["violations"]}
    assert (INFO, "dist-info") in rules


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["build", "--line", "next"], "has no line 'next'"),
        (["build", "--upstream", "other"], "does not pin 'other'"),
        (["verify", "gone.whl"], "gone.whl: is no file"),
        (["verify", STOCK], f"{STOCK}: is the build of no pin\n  next: VERSIONS.toml has: attend 1.0+sm120.1"),
        (["verify"], "required: WHEEL"),
        (["bild"], "invalid choice: 'bild'"),
    ],
)
def test_what_cannot_be_done_exits_2_and_says_why(
    run: Run, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert run(*words) == 2
    assert problem in capsys.readouterr().err


def test_an_epoch_that_is_no_number_exits_2(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    assert run("build") == 2
    assert "SOURCE_DATE_EPOCH: 'today' is no number of seconds" in capsys.readouterr().err


def test_source_date_epoch_sets_every_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert run("build") == 0
    with zipfile.ZipFile(f"dist/stable/{OURS}") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2026, 1, 1, 0, 0, 0)}


def test_a_series_that_does_not_apply_writes_nothing(
    run: Run, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    patch = root / "patches" / "stable" / "attend" / "admit.patch"
    patch.write_bytes(patch.read_bytes().replace(b"-majors = [9, 10]", b"-majors = [9]"))
    assert run("build") == 2
    assert "admit.patch" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()
