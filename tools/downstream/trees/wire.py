"""HTTP as the trees need it: kept-alive, retried, counted, its errors in our words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from downstream.errors import NetworkError
from downstream.trees.pipconf import PipConfiguration, credentials, redact

if TYPE_CHECKING:
    import requests

AGENT = "sm120-overlay"
TIMEOUT = 15.0  # seconds, pip's default
CHUNK = 1 << 16  # bytes
POOL = 8  # connections kept alive per host

_RETRIED = (429, 500, 502, 503, 504)
_T = TypeVar("_T")


class Reply:
    """One answer: its status, its headers, and a body that has not been read yet."""

    def __init__(self, response: requests.Response, count: Callable[[int], None]) -> None:
        self._response = response
        self._count = count
        self.status = response.status_code
        self.reason = response.reason or ""
        self.headers: Mapping[str, str] = response.headers
        self.url = response.url

    def chunks(self) -> Iterator[bytes]:
        """Yield the body piece by piece; bytes are counted as they came over the wire."""
        counted = 0
        for chunk in self._response.iter_content(CHUNK):
            now = self._response.raw.tell()
            self._count(now - counted)
            counted = now
            yield chunk

    def body(self) -> bytes:
        return b"".join(self.chunks())


class Wire:
    """Everything that leaves this machine goes through here.

    ``fetched`` counts body bytes, ``requests`` the requests made (retries that
    urllib3 makes by itself are one request).
    """

    def __init__(
        self, pip: PipConfiguration, *, timeout: float | None = None, retries: int = 3, backoff: float = 0.5
    ) -> None:
        self._pip = pip
        self._timeout = timeout or pip.timeout or TIMEOUT
        self._retries = retries
        self._backoff = backoff
        self._session: requests.Session | None = None
        self._logins = {_host(url): login for url in pip.indexes if (login := credentials(url))}
        self._lock = threading.Lock()
        self.fetched = 0
        self.requests = 0

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def get(self, url: str, headers: Mapping[str, str], take: Callable[[Reply], _T]) -> _T:
        """GET *url* and return what *take* makes of the reply.

        A body that breaks off is asked for again, so *take* may be called more
        than once. Raises NetworkError; 5xx and 429 are retried, other statuses
        are for *take* to judge.
        """
        import requests

        for attempt in range(self._retries + 1):
            began = False
            try:
                with self._connected().get(
                    url,
                    headers=dict(headers),
                    stream=True,
                    timeout=self._timeout,
                    auth=self._logins.get(_host(url)),
                    verify=self._verify(url),
                    proxies={"http": self._pip.proxy, "https": self._pip.proxy} if self._pip.proxy else None,
                ) as response:
                    began = True
                    with self._lock:
                        self.requests += 1
                    if response.status_code in _RETRIED:
                        raise self.refused(url, response.status_code, response.reason or "")
                    return take(Reply(response, self._add))
            except (OSError, ValueError) as exc:  # requests' own errors are OSErrors
                if not isinstance(exc, requests.RequestException) and began:
                    raise
                if not began or attempt == self._retries:
                    raise self._failed(url, exc, began=began) from None
            time.sleep(self._backoff * 2**attempt)
        raise AssertionError("unreachable")

    def refused(self, url: str, status: int, reason: str) -> NetworkError:
        """The error for an answer that is none."""
        step = "try again later"
        if status in (401, 403, 407):
            step = "check the login in pip's index-url or in ~/.netrc (pip config list)"
        elif status in (404, 410):
            step = "check the name, and which index pip is configured with (pip config list)"
        return NetworkError(redact(url), f"the server answered {status} {reason}".rstrip(), step)

    def _add(self, amount: int) -> None:
        with self._lock:
            self.fetched += amount

    def _connected(self) -> requests.Session:
        with self._lock:
            if self._session is None:
                self._session = self._made()
            return self._session

    def _made(self) -> requests.Session:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        session = requests.Session()
        retry = Retry(
            total=self._retries,
            backoff_factor=self._backoff,
            status_forcelist=_RETRIED,
            allowed_methods={"GET"},
            raise_on_status=False,
            respect_retry_after_header=False,  # it may say an hour; a person is waiting
        )
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(max_retries=retry, pool_maxsize=POOL))
        session.headers["User-Agent"] = AGENT
        session.cert = self._pip.client_certificate or None
        return session

    def _verify(self, url: str) -> bool | str | None:
        host = _host(url)
        if host in self._pip.trusted_hosts or host.rpartition(":")[0] in self._pip.trusted_hosts:
            import urllib3

            # The user has said so in pip's configuration; a warning per request adds nothing.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            return False
        return self._pip.certificates or None

    def _failed(self, url: str, exc: Exception, *, began: bool) -> NetworkError:
        """Put a failure in our words: a library's own text may hold logins and query strings."""
        import requests
        from urllib3 import exceptions as urllib3

        place = redact(url)
        inner = exc.args[0] if exc.args else None
        reason = getattr(inner, "reason", None) or inner
        if began:
            return NetworkError(
                place, "the answer broke off", "try again; if it stays so, the server or a proxy cuts it"
            )
        if isinstance(exc, requests.exceptions.ProxyError):
            return NetworkError(place, "the proxy did not answer", "check pip's proxy setting and HTTPS_PROXY")
        if isinstance(exc, requests.exceptions.SSLError):
            step = "name your CA file: pip config set global.cert FILE, or PIP_CERT"
            return NetworkError(place, "the server's certificate was not accepted", step)
        if isinstance(reason, urllib3.NameResolutionError):
            step = "check the network and pip's index-url (pip config list), or use --offline"
            return NetworkError(place, "the host name cannot be resolved", step)
        if isinstance(exc, requests.Timeout) or (
            isinstance(reason, urllib3.TimeoutError) and not isinstance(reason, urllib3.NewConnectionError)
        ):
            step = "check the network, or use --offline with what the cache holds"
            return NetworkError(place, f"no answer within {self._timeout:g} s", step)
        if isinstance(exc, requests.ConnectionError):
            step = "check the network, or use --offline with what the cache holds"
            return NetworkError(place, f"cannot be reached ({_cause(reason)})", step)
        if isinstance(exc, requests.TooManyRedirects):
            return NetworkError(place, "redirects in a circle", "check pip's index-url (pip config list)")
        if isinstance(exc, OSError) and not isinstance(exc, requests.RequestException):
            step = "check pip's cert setting (pip config list), PIP_CERT and REQUESTS_CA_BUNDLE"
            return NetworkError(place, "cannot be asked: the CA file that is configured is not there", step)
        return NetworkError(place, "is no address that can be fetched", "check pip's index-url (pip config list)")


def _cause(reason: object) -> str:
    """Name the system's reason below a connection error, never its text with addresses in it."""
    seen: BaseException | None = reason if isinstance(reason, BaseException) else None
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror.lower()
        seen = seen.__cause__ or seen.__context__
    return "connection failed"


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()
