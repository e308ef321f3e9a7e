"""One URL: our projects shadow, all other names are the public index's, and nothing else leaks."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import requests

from downstream.errors import UsageError
from downstream.index.pages import JSON
from downstream.index.public import PublicIndex, Route, configured
from downstream.index.publish import publish, reserve, yank

Wheel = Callable[..., Path]
Serving = Callable[..., AbstractContextManager[str]]
OURS = "flashinfer_python-0.6.3+sm120.1-py3-none-any.whl"
QUOTED = OURS.replace("+", "%2B")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, wheel: Wheel) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    publish([wheel(folder, "flashinfer-python", "0.6.3+sm120.1")], folder / "index")
    reserve(folder / "index", ["flashinfer-jit-cache"])
    return folder / "index"


@pytest.fixture(scope="module")
def alone(root: Path, serving: Serving) -> Iterator[str]:
    """The URL of our index with nobody behind it."""
    with serving(root) as url:
        yield url


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory, wheel: Wheel) -> Path:
    """A public index that has stock FlashInfer, a name we reserved, and a project with a local version."""
    folder = tmp_path_factory.mktemp("theirs")
    wheels = [
        wheel(folder, "flashinfer-python", "0.6.3"),
        wheel(folder, "flashinfer-jit-cache", "9.9"),
        wheel(folder, "torch", "2.9.1+cu130", requires_python=">=3.10"),
    ]
    publish(wheels, folder / "index")
    yank(folder / "index", "torch", "2.9.1+cu130", reason='a "reason"')
    return folder / "index"


def get(url: str, accept: str = "", **headers: str) -> requests.Response:
    return requests.get(url, headers={"Accept": accept} | headers, timeout=10)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (JSON, JSON),
        ("text/html", "text/html; charset=utf-8"),
        ("application/vnd.pypi.simple.v1+html", "application/vnd.pypi.simple.v1+html"),
        ("", "text/html; charset=utf-8"),
    ],
)
def test_one_url_has_both_forms_and_says_so_to_caches(alone: str, accept: str, kind: str) -> None:
    for path in ("", "flashinfer-python/"):
        answer = get(alone + path, accept)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == kind
        assert answer.headers["Vary"] == "Accept"
        assert answer.headers["Cache-Control"] == "no-cache"
        again = get(alone + path, accept, **{"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["Vary"] == "Accept"


def test_the_two_forms_have_tags_of_their_own(alone: str) -> None:
    tags = {get(f"{alone}flashinfer-python/", accept).headers["ETag"] for accept in (JSON, "text/html")}
    assert len(tags) == 2


def test_wheels_and_metadata_are_for_ever(root: Path, alone: str) -> None:
    for name in (QUOTED, f"{QUOTED}.metadata", OURS):
        answer = get(f"{alone}flashinfer-python/{name}")
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    content = (root / "simple" / "flashinfer-python" / OURS).read_bytes()
    assert get(f"{alone}flashinfer-python/{QUOTED}").content == content
    part = get(f"{alone}flashinfer-python/{QUOTED}", Range="bytes=-22")
    assert (part.status_code, part.content) == (206, content[-22:])


@pytest.mark.parametrize(
    "path",
    [
        "flashinfer-python/index.json",
        "flashinfer-python/../../.lock",
        "flashinfer-python/..%2F..%2F.lock",
        "flashinfer-python/.tmp-half",
        "flashinfer-python/x-1-py3-none-any.whl",
        "flashinfer-python/a/b",
        "..%2F/",
        "%2e%2e/",
        "torch/",
        "../resources/torch/torch-1-py3-none-any.whl",
        "../anything",
    ],
)
def test_nothing_but_what_pages_name_is_served(alone: str, path: str) -> None:
    # As it stands: a client library would tidy the path.
    request = requests.Request("GET", alone).prepare()
    request.url = alone + path
    with requests.Session() as session:
        assert session.send(request, timeout=10).status_code == 404


def test_a_name_is_normalized_before_anybody_is_asked(root: Path, public: Path, serving: Serving) -> None:
    with serving(public) as theirs, serving(root, PublicIndex(url=theirs, route=Route.REDIRECT)) as url:
        for name in ("FlashInfer_Python/", "flashinfer.python/", "flashinfer-python", "Flashinfer--python"):
            answer = get(url + name, JSON)
            assert answer.url == f"{url}flashinfer-python/"
            assert answer.json()["versions"] == ["0.6.3+sm120.1"]


def test_only_reading_is_allowed(alone: str) -> None:
    assert requests.post(alone, data=b"x", timeout=10).status_code == 405
    assert requests.head(f"{alone}flashinfer-python/", timeout=10).status_code == 200


@pytest.mark.parametrize("route", list(Route))
def test_our_names_shadow_and_other_names_are_the_public_indexs(
    root: Path, public: Path, serving: Serving, route: Route
) -> None:
    with serving(public) as theirs, serving(root, PublicIndex(url=theirs, route=route)) as url:
        assert get(f"{url}flashinfer-python/", JSON).json()["versions"] == ["0.6.3+sm120.1"]
        assert get(f"{url}flashinfer-jit-cache/", JSON).json()["files"] == []
        stock = "flashinfer_python-0.6.3-py3-none-any.whl"
        assert get(f"{url}flashinfer-python/{stock}").status_code == 404
        assert get(f"{url}../resources/flashinfer-python/{stock}").status_code == 404
        assert get(f"{url}torch/", JSON).json()["versions"] == ["2.9.1+cu130"]
        assert get(f"{url}torch/", "text/html").text.count("torch-2.9.1%2Bcu130-py3-none-any.whl#sha256=") == 1
        assert get(f"{url}no-such-project/", JSON).status_code == 404
        assert get(url, JSON).json()["projects"] == [{"name": "flashinfer-jit-cache"}, {"name": "flashinfer-python"}]


def test_a_redirect_names_the_public_indexs_page(root: Path, serving: Serving) -> None:
    public = PublicIndex(url="http://public.invalid/simple/", route=Route.REDIRECT)
    with serving(root, public) as url:
        answer = requests.get(f"{url}torch/", timeout=10, allow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (307, "http://public.invalid/simple/torch/")
    assert answer.headers["Vary"] == "Accept"


def test_a_relayed_page_keeps_all_it_says_but_the_addresses(root: Path, public: Path, serving: Serving) -> None:
    with serving(public) as theirs, serving(root, PublicIndex(url=theirs, route=Route.PROXY)) as url:
        original, relayed = (get(f"{base}torch/", JSON).json() for base in (theirs, url))
        (file,) = relayed["files"]
        assert file.pop("url") == "../../resources/torch/torch-2.9.1%2Bcu130-py3-none-any.whl"
        del original["files"][0]["url"]
        assert relayed == original
        assert 'data-yanked="a &quot;reason&quot;"' in get(f"{url}torch/").text
        assert get(f"{url}torch/").headers["Vary"] == "Accept"


def test_a_relayed_file_and_its_metadata_arrive_whole_or_in_parts(root: Path, public: Path, serving: Serving) -> None:
    name = "torch-2.9.1+cu130-py3-none-any.whl"
    content = (public / "simple" / "torch" / name).read_bytes()
    with serving(public) as theirs, serving(root, PublicIndex(url=theirs, route=Route.PROXY)) as url:
        address = f"{url}../resources/torch/{name.replace('+', '%2B')}"
        assert get(address).content == content
        metadata = get(f"{address}.metadata").content
        digest = get(f"{url}torch/", JSON).json()["files"][0]["core-metadata"]["sha256"]
        assert hashlib.sha256(metadata).hexdigest() == digest
        part = get(address, Range="bytes=0-3")
        assert (part.status_code, part.content, part.headers["Content-Length"]) == (206, b"PK\x03\x04", "4")
        head = requests.head(address, timeout=10)
        assert (head.headers["Content-Length"], head.headers["Accept-Ranges"]) == (str(len(content)), "bytes")
        assert get(f"{url}../resources/torch/torch-1-py3-none-any.whl").status_code == 404


def test_a_silent_public_index_is_an_error_and_not_an_absence(root: Path, serving: Serving) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but nobody listens
        silent = PublicIndex(url=f"http://127.0.0.1:{unused.getsockname()[1]}/simple/", route=Route.PROXY)
        with serving(root, silent) as url:
            answer = get(f"{url}torch/", JSON)
            assert (answer.status_code, "did not answer" in answer.text) == (502, True)
            assert get(f"{url}flashinfer-python/", JSON).status_code == 200


def test_the_public_index_is_the_one_pip_is_configured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    assert configured().url == "https://index.example/simple/"
    assert configured().route is Route.REDIRECT
    assert configured("http://other.example/s/").url == "http://other.example/s/"
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret@index.example/simple")
    assert configured().route is Route.PROXY
    with pytest.raises(UsageError, match="would give away") as caught:
        configured(route=Route.REDIRECT)
    assert "secret" not in str(caught.value)
    with pytest.raises(UsageError, match="no http"):
        configured("file:///srv/simple")
