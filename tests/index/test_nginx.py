"""The shipped nginx configuration, under Debian's nginx."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import requests

from downstream.index.pages import JSON
from downstream.index.publish import publish, reserve

pytestmark = pytest.mark.slow

TEMPLATE = Path(__file__).resolve().parents[2] / "docs" / "serving" / "nginx.conf.template"
OURS = "flashinfer_python-0.6.3%2Bsm120.1-py3-none-any.whl"
AROUND = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/index.conf;
}}
"""


@pytest.fixture(scope="module")
def url(
    tmp_path_factory: pytest.TempPathFactory,
    wheel: Callable[..., Path],
    serving: Callable[..., AbstractContextManager[str]],
) -> Iterator[str]:
    """Our index behind nginx, in front of a public index that has stock FlashInfer and cubin."""
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    assert nginx, "this test needs nginx: apt-get install nginx"
    folder = tmp_path_factory.mktemp("nginx")
    requires = ["flashinfer_python==0.6.3+sm120.1", "flashinfer_cubin==0.6.3"]
    ours = [
        wheel(folder, "flashinfer-python", "0.6.3+sm120.1"),
        wheel(folder, "sglang", "0.5.9+sm120.1", requires=requires),
    ]
    theirs = [wheel(folder, "flashinfer-python", "0.6.3"), wheel(folder, "flashinfer-cubin", "0.6.3")]
    publish(ours, folder / "ours")
    reserve(folder / "ours", ["flashinfer-jit-cache"])
    publish(theirs, folder / "public")
    with serving(folder / "public") as public:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {
            "INDEX_ROOT": str(folder / "ours"),
            "PUBLIC_INDEX": public.rstrip("/"),
            "LISTEN": f"127.0.0.1:{port}",
        }
        text = TEMPLATE.read_text(encoding="utf-8")
        for name, value in settings.items():
            assert f"${{{name}}}" in text
            text = text.replace(f"${{{name}}}", value)
        (folder / "index.conf").write_text(text)
        (folder / "nginx.conf").write_text(AROUND.format(folder=folder))
        command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
        subprocess.run([*command, "-t"], check=True, capture_output=True)
        for readable in (folder, *folder.parents):
            if readable.stat().st_uid == os.getuid() and readable != Path("/"):
                readable.chmod(readable.stat().st_mode | 0o055)
        with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
            try:
                _wait(port, server)
                yield f"http://127.0.0.1:{port}/simple/"
            finally:
                server.terminate()


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        assert server.poll() is None
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("nginx does not listen")


def get(url: str, accept: str = "", *, follow: bool = False) -> requests.Response:
    return requests.get(url, headers={"Accept": accept}, timeout=10, allow_redirects=follow)


PIP = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (PIP, JSON),
        (JSON, JSON),
        ("application/vnd.pypi.simple.latest+json", JSON),
        (f"{JSON};q=0, text/html", "text/html; charset=utf-8"),
        ("text/html", "text/html; charset=utf-8"),
        ("", "text/html; charset=utf-8"),
    ],
)
def test_one_url_has_both_forms_and_says_so_to_caches(url: str, accept: str, kind: str) -> None:
    for path in ("", "flashinfer-python/"):
        answer = get(url + path, accept)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, kind)
        assert answer.headers["Vary"] in {"Accept", "Accept-Encoding, Accept"}
        assert answer.headers["Cache-Control"] == "no-cache"


def test_ours_shadow_and_other_names_are_sent_on(url: str) -> None:
    assert get(f"{url}flashinfer-python/", JSON).json()["versions"] == ["0.6.3+sm120.1"]
    assert get(f"{url}flashinfer-jit-cache/", JSON).json()["files"] == []
    answer = get(f"{url}flashinfer-cubin/", JSON)
    assert answer.status_code == 307
    assert answer.headers["Vary"] == "Accept"
    assert get(f"{url}flashinfer-cubin/", JSON, follow=True).json()["versions"] == ["0.6.3"]
    assert get(f"{url}no-such-project/", JSON, follow=True).status_code == 404


def test_wheels_and_metadata_are_for_ever(url: str) -> None:
    for name in (OURS, f"{OURS}.metadata"):
        answer = get(f"{url}flashinfer-python/{name}")
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["Content-Type"] == "application/octet-stream"
    part = requests.get(f"{url}flashinfer-python/{OURS}", headers={"Range": "bytes=0-3"}, timeout=10)
    assert (part.status_code, part.content) == (206, b"PK\x03\x04")


@pytest.mark.parametrize(
    "path",
    [
        "FlashInfer_Python/",
        "flashinfer.python/",
        "flashinfer--python/",
        "flashinfer-python/index.json",
        "flashinfer-python/.tmp-half",
        "flashinfer-python/x-1-py3-none-any.whl",
        "../.lock",
        "../anything",
    ],
)
def test_nothing_else_is_served_or_sent_on(url: str, path: str) -> None:
    request = requests.Request("GET", url).prepare()
    request.url = url + path
    with requests.Session() as session:
        assert session.send(request, timeout=10, allow_redirects=False).status_code == 404


@pytest.mark.parametrize("client", ["pip", "uv"])
def test_both_clients_install_the_pair(
    url: str, client: str, installed: Callable[[], dict[str, str]], request: pytest.FixtureRequest
) -> None:
    done = request.getfixturevalue(client)("install", "--index-url", url, "sglang")
    assert done.returncode == 0, done.stderr
    pair = {"flashinfer-python": "0.6.3+sm120.1", "sglang": "0.5.9+sm120.1", "flashinfer-cubin": "0.6.3"}
    assert installed() == pair
