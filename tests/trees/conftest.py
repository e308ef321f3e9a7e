"""An index on the loopback, with the faults that servers have; wheels zipped by hand; sessions that are closed."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from downstream.pins import Pin, Upstream
from downstream.trees.layout import Layout
from downstream.trees.session import Session

LAYOUT = Layout((("flashinfer/", "flashinfer/"), ("include/", "flashinfer/data/include/"), ("setup.py", "setup.py")))

FILES = {
    "flashinfer/__init__.py": b"# flashinfer\n",
    "flashinfer/aot.py": b"".join(b"line %d\n" % n for n in range(400)),
    "include/a.cuh": b"#pragma once\n" * 30,
    "setup.py": b"import setuptools\n",
}


@dataclass
class Asked:
    """One request as the server saw it."""

    path: str
    headers: dict[str, str]


@dataclass
class Index:
    """A simple index and file server whose faults are listed per path: the first is spent on the next request."""

    address: str = ""
    pages: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # path -> content type, body
    etags: dict[str, str] = field(default_factory=dict)
    extra: dict[str, dict[str, str]] = field(default_factory=dict)  # headers per path
    faults: dict[str, list[str]] = field(default_factory=dict)
    always: dict[str, str] = field(default_factory=dict)  # a fault that is never spent
    asked: list[Asked] = field(default_factory=list)
    login: str = ""  # the Authorization header that is demanded
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.address}/simple/"

    def publish(self, package: str, files: Mapping[str, bytes], **fields: dict[str, Any]) -> None:
        """Put *files* on the server and on the page of *package*; *fields* are added to an entry by file name."""
        entries = []
        for name, content in files.items():
            self.pages[f"/files/{name}"] = ("application/octet-stream", content)
            self.etags[f"/files/{name}"] = f'"{hashlib.sha256(content).hexdigest()[:8]}"'
            entry: dict[str, Any] = {
                "filename": name,
                "url": f"../../files/{name}",
                "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
                "size": len(content),
                "upload-time": "2026-02-19T07:33:34.820465Z",
                "yanked": False,
            }
            entries.append(entry | fields.get(name, {}))
        page = {"meta": {"api-version": "1.1"}, "name": package, "files": entries, "versions": []}
        self.pages[f"/simple/{package}/"] = ("application/vnd.pypi.simple.v1+json", json.dumps(page).encode())

    def count(self, path: str) -> int:
        return sum(asked.path == path for asked in self.asked)


def _handler(index: Index) -> type[http.server.BaseHTTPRequestHandler]:
    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

        def do_GET(self) -> None:
            index.asked.append(Asked(self.path, {key.lower(): value for key, value in self.headers.items()}))
            spent = index.faults.get(self.path)
            fault = spent.pop(0) if spent else index.always.get(self.path, "")
            if index.login and self.headers.get("Authorization") != index.login:
                return self.answer(401, b"", {})
            if fault.isdigit():
                return self.answer(int(fault), b"sorry", {})
            if fault == "stall":
                index.released.wait(5)
                self.close_connection = True
                return None
            if fault.startswith("redirect "):
                return self.answer(302, b"", {"Location": fault.partition(" ")[2]})
            if self.path not in index.pages:
                return self.answer(404, b"nothing here", {})
            kind, body = index.pages[self.path]
            headers = {"Content-Type": kind, **index.extra.get(self.path, {})}
            if tag := index.etags.get(self.path):
                headers["ETag"] = tag
                if self.headers.get("If-None-Match") == tag:
                    return self.answer(304, b"", headers)
            span = self.headers.get("Range", "").removeprefix("bytes=")
            stale = self.headers.get("If-Range", headers.get("ETag")) != headers.get("ETag")
            if not span or fault == "no ranges" or stale:
                return self.answer(200, body, headers, cut=fault == "cut")
            first, last = span.split("-")
            start = int(first) if first else max(0, len(body) - int(last))
            stop = min(int(last) + 1, len(body)) if first else len(body)
            if start >= len(body):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            piece = body[start:stop]
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            if fault == "wrong range":
                headers["Content-Range"] = f"bytes {start + 1}-{stop}/{len(body)}"
            if fault == "no content range":
                del headers["Content-Range"]
            if fault == "wrong bytes":
                piece = bytes(byte ^ 1 for byte in piece)
            if fault == "short":
                piece = piece[:-1]
            return self.answer(206, piece, headers, cut=fault == "cut")

        def answer(self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if cut else body)
            if cut:
                self.close_connection = True

    return Answer


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has read enough may hang up."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An empty index that pip's environment points to."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    found = Index()
    server = Server(("127.0.0.1", 0), _handler(found))
    found.address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", found.url)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield found
    found.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Make sessions on one cache: session(offline=True), session(timeout=0.2)."""
    made: list[Session] = []

    def make(offline: bool = False, *, cache: Path | None = None, **options: Any) -> Session:
        options = {"timeout": 5, "retries": 2, "backoff": 0.01} | options
        made.append(Session(cache or tmp_path / "cache", offline, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def zipped(files: Mapping[str, bytes], *, modes: Mapping[str, int] | None = None, comment: bytes = b"") -> bytes:
    """Zip *files* by their name in the archive, deflated; *modes* by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = comment
        for name, content in files.items():
            member = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            member.external_attr = (modes or {}).get(name, 0o100644) << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def wheel_of(files: Mapping[str, bytes], *, version: str = "0.6.4", metadata: str = "") -> bytes:
    """Zip repository *files* as FlashInfer's wheel keeps them, with a dist-info."""
    members = {LAYOUT.to_wheel(path) or path: content for path, content in files.items()}
    info = f"flashinfer_python-{version}.dist-info"
    head = f"Metadata-Version: 2.4\nName: flashinfer-python\nVersion: {version}\n{metadata}\n"
    return zipped(members | {f"{info}/METADATA": head.encode(), f"{info}/RECORD": b""})


@pytest.fixture
def make_zip() -> Callable[..., bytes]:
    return zipped


@pytest.fixture
def make_wheel() -> Callable[..., bytes]:
    return wheel_of


@pytest.fixture
def files() -> dict[str, bytes]:
    """The repository files that a wheel made by make_wheel(files) holds."""
    return dict(FILES)


@pytest.fixture(scope="session")
def far_apart() -> bytes:
    """A wheel with FILES at both ends and 600 kB between them that nobody reads."""
    noise = {f"flashinfer/data/noise/{n}": os.urandom(100_000) for n in range(6)}
    early = {path: FILES[path] for path in ("flashinfer/__init__.py", "setup.py")}
    return wheel_of(early | noise | FILES)


@pytest.fixture
def upstream() -> Upstream:
    return Upstream(
        name="flashinfer",
        package="flashinfer-python",
        repository="https://example.org/flashinfer",
        tag="v{version}",
        layout=LAYOUT,
        version_file="flashinfer/_build_meta.py",
    )


@pytest.fixture
def make_pin(upstream: Upstream) -> Callable[..., Pin]:
    def make(version: str, **sha256: str) -> Pin:
        return Pin(line="stable", upstream=upstream, version=Version(version), revision=1, sha256=sha256)

    return make
