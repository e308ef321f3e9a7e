"""Giving wheels to an index that a team runs already: a real pypiserver, a real twine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from downstream.errors import NetworkError, PublishError
from downstream.index.publish import Outcome
from downstream.index.upload import upload

Wheel = Callable[..., Path]

pytestmark = pytest.mark.slow  # twine and pypiserver take a second each to start
NAME = "flashinfer_python-0.6.3+sm120.1-py3-none-any.whl"


@contextmanager
def running(folder: Path, *options: str) -> Iterator[str]:
    """Run pypiserver over *folder*; yields its URL, which ends in a slash."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pypiserver", "run", "-i", "127.0.0.1", "-p", str(port), "--disable-fallback"]
    log = folder.with_suffix(".log")
    with log.open("wb") as stream, subprocess.Popen([*command, *options, str(folder)], stderr=stream) as server:
        try:
            deadline = time.monotonic() + 30
            while True:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                try:
                    requests.get(f"http://127.0.0.1:{port}/", timeout=5)
                    break
                except requests.ConnectionError:
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[str]:
    with running(tmp_path / "team", "-P", ".", "-a", ".") as url:
        yield url


def test_an_upload_arrives_once_and_is_offered(tmp_path: Path, wheel: Wheel, open_server: str) -> None:
    path = wheel(tmp_path / "dist", "flashinfer-python", "0.6.3+sm120.1")
    (first,) = upload([path], open_server, index=f"{open_server}simple/")
    assert (first.filename, first.outcome) == (NAME, Outcome.PUBLISHED)
    assert (tmp_path / "team" / NAME).read_bytes() == path.read_bytes()
    (again,) = upload([path], open_server, index=f"{open_server}simple/")
    assert again.outcome is Outcome.UNCHANGED


def test_other_bytes_under_a_name_that_is_there_are_refused_before_anything_is_sent(
    tmp_path: Path, wheel: Wheel, open_server: str
) -> None:
    path = wheel(tmp_path / "dist", "flashinfer-python", "0.6.3+sm120.1")
    upload([path], open_server, index=f"{open_server}simple/")
    changed = wheel(tmp_path / "other", "flashinfer-python", "0.6.3+sm120.1", files={"x.py": b"# other"})
    another = wheel(tmp_path / "other", "sglang", "0.5.9+sm120.1")
    with pytest.raises(PublishError, match="other bytes") as caught:
        upload([another, changed], open_server, index=f"{open_server}simple/")
    assert caught.value.place == NAME
    assert [file.name for file in (tmp_path / "team").iterdir()] == [NAME]


def test_credentials_are_given_to_twine_and_shown_to_nobody(
    tmp_path: Path, wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fixed bcrypt line for team:secret would need htpasswd; pypiserver asks passlib, which reads plain sha1 too.
    passwords = tmp_path / "htpasswd"
    passwords.write_text("team:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n")
    path = wheel(tmp_path / "dist", "flashinfer-python", "0.6.3+sm120.1")
    said: list[str] = []
    with running(tmp_path / "team", "-P", str(passwords), "-a", "update") as url:
        secret = url.replace("http://", "http://team:secret@")
        with pytest.raises(NetworkError, match="did not take") as caught:
            upload([path], url.replace("http://", "http://team:wrong@"), index=f"{url}simple/", report=said.append)
        assert "wrong" not in str(caught.value)
        (done,) = upload([path], secret, index=f"{url}simple/", report=said.append)
    assert done.outcome is Outcome.PUBLISHED
    assert said
    assert not any("secret" in line or "wrong" in line for line in said)


def test_an_index_that_does_not_answer_is_named(tmp_path: Path, wheel: Wheel) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://user:secret@127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(NetworkError, match="did not say what it offers") as caught:
            upload([wheel(tmp_path, "x", "1")], url, index=f"{url}simple/")
    assert "secret" not in str(caught.value)
