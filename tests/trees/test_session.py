from __future__ import annotations

import base64
import hashlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from downstream.errors import DigestError, NetworkError, OfflineError
from downstream.trees.session import Session

BODY = bytes(range(256)) * 40
DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def address(index: Any) -> str:
    index.pages["/files/a.whl"] = ("application/octet-stream", BODY)
    index.etags["/files/a.whl"] = '"one"'
    return f"{index.address}/files/a.whl"


def taken(reply: Any) -> bytes:
    body: bytes = reply.body()
    return bytes([reply.status // 100]) + body


def test_bytes_and_requests_are_counted(session: Callable[..., Session], address: str) -> None:
    one = session()
    assert (one.fetched, one.requests) == (0, 0)
    found = one.span(address, 10, 20, total=len(BODY))
    assert found is not None
    assert (found.content, found.start, found.stop, found.total) == (BODY[10:20], 10, 20, len(BODY))
    assert found.validator == '"one"'
    assert (one.fetched, one.requests) == (10, 1)


def test_the_end_of_a_file_of_unknown_size(session: Callable[..., Session], address: str) -> None:
    found = session().span(address, -5, 0, total=None)
    assert found is not None
    assert (found.content, found.start, found.total) == (BODY[-5:], len(BODY) - 5, len(BODY))


@pytest.mark.parametrize("fault", ["no ranges", "wrong range", "no content range"])
def test_ranges_that_lie_are_no_answer(session: Callable[..., Session], index: Any, address: str, fault: str) -> None:
    index.always["/files/a.whl"] = fault
    assert session().span(address, 10, 20, total=len(BODY)) is None


def test_a_server_without_ranges_is_not_asked_twice(session: Callable[..., Session], index: Any, address: str) -> None:
    index.always["/files/a.whl"] = "no ranges"
    del index.etags["/files/a.whl"]
    one = session()
    assert one.span(address, 10, 20, total=len(BODY)) is None
    assert one.span(address, 30, 40, total=len(BODY)) is None
    assert index.count("/files/a.whl") == 1


def test_another_size_or_version_is_no_answer(session: Callable[..., Session], index: Any, address: str) -> None:
    assert session().span(address, 10, 20, total=len(BODY) + 1) is None
    assert session().span(address, 10, 20, total=len(BODY), validator='"older"') is None
    assert session().span(address, 10, 20, total=len(BODY), validator='"one"') is not None
    assert index.asked[-1].headers["if-range"] == '"one"'


def test_a_span_past_the_end_is_no_answer(session: Callable[..., Session], address: str) -> None:
    assert session().span(address, len(BODY) + 5, len(BODY) + 9, total=None) is None


@pytest.mark.parametrize("fault", ["cut", "500", "503", "429"])
def test_a_passing_fault_is_retried(session: Callable[..., Session], index: Any, address: str, fault: str) -> None:
    index.faults["/files/a.whl"] = [fault, fault]
    assert session().get(address, {}, taken) == b"\x02" + BODY


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("500", "the server answered 500 Internal Server Error"),
        ("cut", "the answer broke off"),
        ("stall", "no answer within 0.2 s"),
    ],
)
def test_a_lasting_fault_is_told(
    session: Callable[..., Session], index: Any, address: str, fault: str, problem: str
) -> None:
    index.always["/files/a.whl"] = fault
    began = time.monotonic()
    with pytest.raises(NetworkError) as caught:
        session(timeout=0.2).get(address, {}, taken)
    assert (caught.value.place, caught.value.problem) == (address, problem)
    assert caught.value.next_step
    assert time.monotonic() - began < 3


def test_nobody_listening_is_told(session: Callable[..., Session]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/x"
    with pytest.raises(NetworkError) as caught:
        session().get(address, {}, taken)
    assert "cannot be reached (connection refused)" in caught.value.problem
    assert "--offline" in caught.value.next_step


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("ftp://127.0.0.1/x", "is no address that can be fetched"),
        ("http://", "is no address that can be fetched"),
        ("nonsense", "is no address that can be fetched"),
        ("http://no-such-host.invalid/x", "the host name cannot be resolved"),
    ],
)
def test_an_address_that_leads_nowhere_is_told(
    session: Callable[..., Session], address: str, problem: str, index: Any
) -> None:
    with pytest.raises(NetworkError) as caught:
        session(retries=0).get(address, {}, taken)
    assert caught.value.problem == problem


def test_a_circle_of_redirects_is_told(session: Callable[..., Session], index: Any, address: str) -> None:
    index.always["/files/a.whl"] = "redirect /files/a.whl"
    with pytest.raises(NetworkError, match="redirects in a circle"):
        session().get(address, {}, taken)


def test_a_proxy_that_is_not_there_is_told_without_its_login(
    session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, index: Any
) -> None:
    monkeypatch.setenv("PIP_PROXY", "http://user:secret@127.0.0.1:9")
    with pytest.raises(NetworkError, match="the proxy did not answer") as caught:
        session(retries=0).get("http://one.example/x", {}, taken)
    assert "secret" not in str(caught.value)


def test_certificates_that_are_not_there_are_told(
    session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, index: Any
) -> None:
    monkeypatch.setenv("PIP_CERT", "/no/such/file.pem")
    with pytest.raises(NetworkError, match="the CA file"):
        session(retries=0).get("https://127.0.0.1:9/x", {}, taken)


def test_the_login_of_an_index_is_sent_to_its_host_and_shown_to_nobody(
    session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, index: Any, address: str
) -> None:
    index.login = "Basic " + base64.b64encode(b"user:p@ss").decode()
    host = index.address.removeprefix("http://")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:p%40ss@{host}/simple")
    assert session().get(address, {}, taken)[1:] == BODY
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:wrong-secret@{host}/simple")
    with pytest.raises(NetworkError) as caught:
        session().download(f"http://user:wrong-secret@{host}/files/a.whl?sig=hidden", Path("x"), sha256="")
    assert "401" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_offline_asks_nobody(session: Callable[..., Session], index: Any, address: str) -> None:
    with pytest.raises(OfflineError) as caught:
        session(offline=True).span(address, 0, 5, total=None)
    assert caught.value.place == address
    assert "without --offline" in caught.value.next_step
    assert index.asked == []


def test_a_download_is_whole_and_verified(session: Callable[..., Session], address: str, tmp_path: Path) -> None:
    assert session().download(address, tmp_path / "f" / "a.whl", sha256=DIGEST, size=len(BODY)) == DIGEST
    assert (tmp_path / "f" / "a.whl").read_bytes() == BODY


def test_a_download_with_another_digest_leaves_nothing(
    session: Callable[..., Session], address: str, tmp_path: Path
) -> None:
    with pytest.raises(DigestError) as caught:
        session().download(address, tmp_path / "f" / "a.whl", sha256="0" * 64)
    assert caught.value.problem == f"has sha256 {DIGEST}, expected {'0' * 64}"
    assert list((tmp_path / "f").iterdir()) == []


def test_a_download_that_breaks_off_is_told_and_leaves_nothing(
    session: Callable[..., Session], index: Any, address: str, tmp_path: Path
) -> None:
    index.always["/files/a.whl"] = "cut"
    with pytest.raises(NetworkError, match="the answer broke off"):
        session().download(address, tmp_path / "f" / "a.whl", sha256=DIGEST)
    assert list((tmp_path / "f").iterdir()) == []


def test_a_file_shorter_than_published_is_told(session: Callable[..., Session], address: str, tmp_path: Path) -> None:
    with pytest.raises(DigestError, match=f"has {len(BODY)} bytes, the index says {len(BODY) + 1}"):
        session().download(address, tmp_path / "a.whl", sha256=DIGEST, size=len(BODY) + 1)


def test_progress_is_told_in_bytes(session: Callable[..., Session], address: str, tmp_path: Path) -> None:
    told: list[tuple[str, int | None, str] | int] = []

    class Told:
        def task(self, label: str, total: int | None = None, unit: str = "") -> Self:
            told.append((label, total, unit))
            return self

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def advance(self, amount: int = 1, note: str = "") -> None:
            told.append(amount)

    session(progress=Told()).download(address, tmp_path / "a.whl", sha256=DIGEST)
    assert told[0] == ("fetch a.whl", len(BODY), "bytes")
    assert sum(amount for amount in told if isinstance(amount, int)) == len(BODY)
