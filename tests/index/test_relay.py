"""Public indexes as they are: HTML only, behind a password, with broken pages."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from downstream.index.folder import IndexFolder
from downstream.index.pages import JSON
from downstream.index.public import PublicIndex, Route

Serving = Callable[..., AbstractContextManager[str]]
Answers = dict[str, tuple[int, str, bytes]]  # path -> status, content type, body


@contextmanager
def answering(answers: Answers, *, password: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve *answers*; yields the index URL and the list of what was asked for."""
    asked: list[str] = []
    wanted = "Basic " + base64.b64encode(password.encode()).decode()

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, kind, body = answers.get(self.path, (404, "text/plain", b"?"))
            if password and self.headers.get("Authorization") != wanted:
                status, body = 401, b""
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            secret = f"{password}@" if password else ""
            yield f"http://{secret}127.0.0.1:{server.server_port}/simple/", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    index = IndexFolder(tmp_path / "index")
    with index.locked():
        index.write_root()
    return index.root


PAGE = b"""<!DOCTYPE html><html><body>
<a href="../../files/x-1.0%2Bcpu-py3-none-any.whl#sha256=aa" data-requires-python="&gt;=3.8"
   data-core-metadata="sha256=bb" data-yanked="old">x-1.0+cpu-py3-none-any.whl</a>
<a href="/files/x-1.1.tar.gz">x-1.1.tar.gz</a>
</body></html>"""


def test_an_index_that_speaks_only_html_is_relayed_as_json(empty: Path, serving: Serving) -> None:
    answers = {
        "/simple/x/": (200, "text/html", PAGE),
        "/files/x-1.0%2Bcpu-py3-none-any.whl": (200, "application/zip", b"the wheel"),
        "/files/x-1.0%2Bcpu-py3-none-any.whl.metadata": (200, "text/plain", b"the metadata"),
    }
    with answering(answers) as (theirs, asked), serving(empty, PublicIndex(url=theirs, route=Route.PROXY)) as url:
        document = requests.get(f"{url}x/", headers={"Accept": JSON}, timeout=10).json()
        address = f"{url}../resources/x/x-1.0%2Bcpu-py3-none-any.whl"
        assert requests.get(address, timeout=10).content == b"the wheel"
        assert requests.get(f"{address}.metadata", timeout=10).content == b"the metadata"
        assert requests.get(f"{url}../resources/x/x-1.1.tar.gz.metadata", timeout=10).status_code == 404
    assert document["files"] == [
        {
            "filename": "x-1.0+cpu-py3-none-any.whl",
            "url": "../../resources/x/x-1.0%2Bcpu-py3-none-any.whl",
            "hashes": {"sha256": "aa"},
            "requires-python": ">=3.8",
            "core-metadata": {"sha256": "bb"},
            "yanked": "old",
        },
        {"filename": "x-1.1.tar.gz", "url": "../../resources/x/x-1.1.tar.gz", "hashes": {}},
    ]
    assert asked.count("/simple/x/") == 1  # one fetch of the page serves the files that follow


def test_the_password_goes_to_the_index_and_nowhere_else(empty: Path, serving: Serving) -> None:
    elsewhere: Answers = {"/x-1.whl": (200, "application/zip", b"from the file host")}
    with answering(elsewhere) as (files, _):
        host = files.removesuffix("simple/").replace("127.0.0.1", "localhost")
        page = f'<a href="{host}x-1.whl">x-1-py3-none-any.whl</a>'.encode()
        secret: Answers = {"/simple/x/": (200, "text/html", page)}
        with (
            answering(secret, password="me:secret") as (theirs, _),
            serving(empty, PublicIndex(url=theirs, route=Route.PROXY)) as url,
        ):
            text = requests.get(f"{url}x/", timeout=10).text
            assert "secret" not in text
            assert (
                requests.get(f"{url}../resources/x/x-1-py3-none-any.whl", timeout=10).content == b"from the file host"
            )


@pytest.mark.parametrize(
    "answer",
    [
        (500, "text/plain", b""),
        (401, "text/plain", b""),
        (200, JSON, b"{"),
        (200, JSON, b'{"meta": {}}'),
        (200, JSON, b'{"files": [{"filename": "x"}]}'),
        (200, JSON, b"[]"),
    ],
    ids=["500", "401", "cut off", "no files", "no address", "a list"],
)
def test_a_page_that_cannot_be_passed_on_is_a_bad_gateway(
    empty: Path, serving: Serving, answer: tuple[int, str, bytes]
) -> None:
    with (
        answering({"/simple/x/": answer}) as (theirs, _),
        serving(empty, PublicIndex(url=theirs, route=Route.PROXY)) as url,
    ):
        for path in (f"{url}x/", f"{url}../resources/x/x-1-py3-none-any.whl"):
            relayed = requests.get(path, timeout=10)
            assert (relayed.status_code, "did not answer" in relayed.text) == (502, True)
