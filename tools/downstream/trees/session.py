"""The one edge to the network and the cache that every tree is opened through."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

from downstream.errors import DigestError, NetworkError, OfflineError
from downstream.progress import SILENT, Progress
from downstream.trees.cache import Cache
from downstream.trees.pipconf import PipConfiguration, configuration, file_path, redact
from downstream.trees.wire import CHUNK, Reply, Wire

ONLINE = "run the same command once without --offline"

_T = TypeVar("_T")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Bytes *start* up to *stop* of a file of *total* bytes, and what marks its version on the server."""

    start: int
    stop: int
    total: int
    validator: str  # a strong ETag or a Last-Modified date; empty where the server gives none
    content: bytes


class Session:
    """Network and cache for one command. Nothing is imported or opened before it is needed.

    *cache* is a folder (see cache.default_folder); *offline* forbids every
    request. *timeout* (seconds) goes before pip's setting.
    """

    def __init__(
        self,
        cache: Path,
        offline: bool = False,
        progress: Progress = SILENT,
        *,
        timeout: float | None = None,
        retries: int = 3,
        backoff: float = 0.5,
    ) -> None:
        self.cache = Cache(cache)
        self.offline = offline
        self.progress = progress
        self._timeout, self._retries, self._backoff = timeout, retries, backoff
        self._pip: PipConfiguration | None = None
        self._wire: Wire | None = None
        self._rangeless: set[str] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    @property
    def fetched(self) -> int:
        """Body bytes that came over the network so far."""
        return self._wire.fetched if self._wire else 0

    @property
    def requests(self) -> int:
        """Requests made so far."""
        return self._wire.requests if self._wire else 0

    @property
    def pip(self) -> PipConfiguration:
        if self._pip is None:
            self._pip = configuration()
        return self._pip

    def get(self, url: str, headers: Mapping[str, str], take: Callable[[Reply], _T]) -> _T:
        """GET *url* and return what *take* makes of the reply (see Wire.get).

        Raises NetworkError, and OfflineError where no request may be made.
        """
        if self.offline:
            raise OfflineError(redact(url), "is not in the cache, and --offline forbids fetching it", ONLINE)
        return self._connection.get(url, headers, take)

    def span(self, url: str, start: int, stop: int, *, total: int | None, validator: str = "") -> Span | None:
        """Fetch bytes *start* up to *stop* of *url*; *start* may be negative (from the end) where *total* is unknown.

        None where the server has no ranges, answers with others than were
        asked for, or has another file than the one that *total* and
        *validator* speak of: the whole file is to be fetched then.
        """
        if urlsplit(url).netloc in self._rangeless:
            return None
        wanted = f"bytes={start}-{stop - 1}" if start >= 0 else f"bytes={start}"
        # If-Range: a changed file is answered whole (200), never in pieces of two files (RFC 9110, 13.1.5).
        headers = {"Range": wanted, "Accept-Encoding": "identity", **({"If-Range": validator} if validator else {})}
        return self.get(url, headers, lambda reply: self._taken(reply, url, start, stop, total))

    def _taken(self, reply: Reply, url: str, start: int, stop: int, total: int | None) -> Span | None:
        if reply.status == 200 and not reply.headers.get("ETag"):
            self._rangeless.add(urlsplit(url).netloc)  # with an ETag it may have ranges, and another file now
        said = _CONTENT_RANGE.fullmatch(reply.headers.get("Content-Range", "").strip())
        if reply.status in (200, 416) or (reply.status == 206 and said is None):
            return None
        if reply.status != 206 or said is None:
            raise self._connection.refused(url, reply.status, reply.reason)
        first, last, size = (int(number) for number in said.groups())
        begin = start if start >= 0 else max(0, size + start)
        if first != begin or (total is not None and size != total) or (start >= 0 and last != min(stop, size) - 1):
            return None
        if reply.headers.get("Content-Encoding", "identity") != "identity":
            return None
        name = redact(url).rpartition("/")[2]
        with self._announced.task(f"fetch parts of {name}", last - first + 1, "bytes") as task:
            pieces = []
            for piece in reply.chunks():
                pieces.append(piece)
                task.advance(len(piece))
        content = b"".join(pieces)
        if len(content) != last - first + 1:
            return None
        tag = reply.headers.get("ETag", "")
        mark = tag if tag and not tag.startswith("W/") else reply.headers.get("Last-Modified", "")
        return Span(start=first, stop=last + 1, total=size, validator=mark, content=content)

    def download(self, url: str, path: Path, *, sha256: str, size: int | None = None, label: str = "") -> str:
        """Fetch the whole of *url* into *path*, atomically, and return its sha256 (hex).

        Where *sha256* is not empty and differs, nothing is kept and DigestError
        is raised. Two processes that want one file fetch it once.
        """
        if (local := file_path(url)) is not None:
            return self._copied(local, url, path, sha256)

        def take(reply: Reply) -> str:
            if reply.status != 200:
                raise self._connection.refused(url, reply.status, reply.reason)
            length = reply.headers.get("Content-Length", "")
            expected = int(length) if length.isdigit() else size
            digest, received = hashlib.sha256(), 0
            with (
                self._announced.task(label or f"fetch {path.name}", expected, "bytes") as task,
                self.cache.replacing(path) as stream,
            ):
                for chunk in reply.chunks():
                    stream.write(chunk)
                    digest.update(chunk)
                    received += len(chunk)
                    task.advance(len(chunk))
                if size is not None and received != size:
                    problem = f"has {received} bytes, the index says {size}: it was cut, or replaced by another file"
                    raise DigestError(redact(url), problem, "try again; if it stays so, do not use it: tell the index")
                _verify(digest.hexdigest(), sha256, redact(url))
            return digest.hexdigest()

        return self.get(url, {"Accept-Encoding": "identity"}, take)

    def _copied(self, local: Path, url: str, path: Path, sha256: str) -> str:
        digest = hashlib.sha256()
        try:
            source = local.open("rb")
        except OSError as exc:
            step = "check pip's index (pip config list)"
            raise NetworkError(redact(url), f"cannot be read: {exc.strerror}", step) from exc
        with source, self.cache.replacing(path) as stream:
            while chunk := source.read(CHUNK):
                stream.write(chunk)
                digest.update(chunk)
            _verify(digest.hexdigest(), sha256, redact(url))
        return digest.hexdigest()

    @property
    def _announced(self) -> Progress:
        # Work on another thread is announced by who began it: a terminal has one bar.
        return self.progress if threading.current_thread() is threading.main_thread() else SILENT

    @property
    def _connection(self) -> Wire:
        with self._lock:
            if self._wire is None:
                self._wire = Wire(self.pip, timeout=self._timeout, retries=self._retries, backoff=self._backoff)
            return self._wire


def _verify(found: str, expected: str, place: str) -> None:
    if expected and found != expected:
        raise digest_error(place, found, expected)


def digest_error(place: str, found: str, expected: str) -> DigestError:
    """The error for a file that is not the expected one."""
    step = "do not use the file; compare with the digest that the upstream project published"
    return DigestError(place, f"has sha256 {found}, expected {expected}", step)
