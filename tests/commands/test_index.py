"""tools/index.py as it is called: what it prints, how it exits, and how a server stops."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import requests

from downstream.cli import door
from downstream.commands.index import STATUSES
from downstream.index.pages import Status

TOOL = Path(__file__).resolve().parents[2] / "tools" / "index.py"
NAME = "flashinfer_python-0.6.3+sm120.1-py3-none-any.whl"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A folder with one wheel."""
    folder = tmp_path / "dist"
    folder.mkdir()
    inside = "flashinfer_python-0.6.3+sm120.1.dist-info"
    with zipfile.ZipFile(folder / NAME, "w") as archive:
        text = "Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.3+sm120.1\n"
        archive.writestr(zipfile.ZipInfo(f"{inside}/METADATA", date_time=(2026, 1, 1, 0, 0, 0)), text)
    return folder


@pytest.fixture
def root(dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert door("index", ["publish", str(dist), str(tmp_path / "index")]) == 0
    assert capsys.readouterr().out == f"{NAME}: published\n"
    return str(tmp_path / "index")


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_publish_says_what_it_did(dist: Path, root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert door("index", ["publish", str(dist), root, "--json"]) == 0
    (row,) = answer(capsys)["wheels"]  # type: ignore[misc]
    assert row["outcome"] == "unchanged"  # type: ignore[has-type]
    assert door("index", ["publish", str(dist), root, "-q"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["publish", "nowhere", "index"], 2, "nowhere: holds no wheels"),
        (["verify", "nowhere"], 2, "nowhere: holds no index"),
        (["list", "nowhere"], 2, "nowhere: holds no index"),
        (["serve", "nowhere", "--others", "none"], 2, "nowhere: holds no index"),
        (["serve", "nowhere", "--offline", "--others", "proxy"], 2, "makes no sense where other names are refused"),
        (["serve", "nowhere", "--upstream-index", "ftp://x/"], 2, "ftp://x/: is no http"),
        (["publish", "a", "b", "--uploaded", "soon"], 2, "'soon' is no ISO 8601 time"),
        ([], 2, "required: COMMAND"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert door("index", arguments) == code
    assert says in capsys.readouterr().err


def test_list_shows_versions_yanks_and_status(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert door("index", ["yank", root, "flashinfer-python", "0.6.3+sm120.1", "--reason", "bad kernels"]) == 0
    assert door("index", ["status", root, "flashinfer-python", "deprecated"]) == 0
    assert door("index", ["reserve", root, "flashinfer-jit-cache"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [f"{NAME}: yanked", "flashinfer-python: deprecated", "flashinfer-jit-cache: reserved"]
    assert door("index", ["list", root]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "flashinfer-jit-cache: nothing",
        f"flashinfer-python 0.6.3+sm120.1: {NAME} yanked: bad kernels (deprecated)",
    ]
    assert door("index", ["list", root, "--json"]) == 0
    projects = answer(capsys)["projects"]
    assert [project["project"] for project in projects] == [  # type: ignore[attr-defined]
        "flashinfer-jit-cache",
        "flashinfer-python",
    ]
    assert door("index", ["yank", root, "flashinfer-python", "0.6.3+sm120.1", "--undo"]) == 0
    assert capsys.readouterr().out == f"{NAME}: offered again\n"


def test_verify_exits_by_what_it_finds(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert door("index", ["verify", root]) == 0
    assert capsys.readouterr().out == "1 projects, 1 wheels, 0 faults\n"
    (Path(root) / "simple" / "flashinfer-python" / f"{NAME}.metadata").write_text("edited")
    assert door("index", ["verify", root]) == 1
    said = capsys.readouterr().out
    assert f"simple/flashinfer-python/{NAME}.metadata: is not the METADATA" in said
    assert "next: publish the wheel again" in said
    assert door("index", ["verify", root, "--json"]) == 1
    document = answer(capsys)
    assert (document["ok"], len(document["faults"])) == (False, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_server_prints_its_url_and_stops_when_told(root: str, stop: signal.Signals, code: int) -> None:
    command = [sys.executable, str(TOOL), "serve", root, "--others", "none", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        listed = requests.get(f"{url}flashinfer-python/", timeout=10)
        server.send_signal(stop)
        out, err = server.communicate(timeout=20)
    assert url.startswith("http://127.0.0.1:")
    assert NAME in listed.text
    assert (server.returncode, out) == (code, "")
    assert "Traceback" not in err
    assert "other names: refused" in err


def test_a_port_that_is_taken_is_said(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, str(TOOL), "serve", root, "--others", "none", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += server.stdout.readline()
        document = json.loads(text)
        try:
            port = document["url"].split(":")[2].split("/")[0]
            assert door("index", ["serve", root, "--others", "none", "--port", port]) == 2
        finally:
            server.terminate()
    assert document == {
        "schema": 1,
        "command": "index serve",
        "ok": True,
        "url": f"http://127.0.0.1:{port}/simple/",
        "others": None,
    }
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_the_parser_names_the_statuses_of_the_index() -> None:
    assert tuple(status.value for status in Status) == STATUSES
