"""A wheel on an index: whole in the cache, or piece by piece from its server.

A server is asked for byte ranges: the zip's directory once, then only the
members that are read. What can be verified of pieces is verified: the index
advertises the expected sha256 for the file, its size and its ETag or date stay
the same, and each member's length and CRC-32 agree. The sha256 of the whole
cannot be had from pieces, so a file whose pieces cannot be trusted (no ranges,
other ranges than asked for, another file, a wrong checksum, no advertised
digest) is fetched whole; a whole file is always checked against its sha256.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from downstream.errors import DigestError, NetworkError, OfflineError, WheelError
from downstream.trees.directory import Directory
from downstream.trees.pipconf import file_path
from downstream.trees.releases import ReleaseFile
from downstream.trees.session import ONLINE, Session, digest_error
from downstream.trees.wheel import FileSource

GAP = 1 << 16  # bytes fetched in vain rather than making another request
TAIL = 1 << 16  # bytes: the least that is fetched of a file's end
AT_ONCE = 4  # requests side by side: a server is shared
SHARE = 32  # a wheel's directory is about a thirty-second of it


class PublishedSource:
    """A wheel that an index has published and whose sha256 is to be *sha256*.

    *locate* is called once something is to be fetched, since a warm cache needs no address.
    """

    def __init__(self, locate: Callable[[], ReleaseFile], sha256: str, session: Session) -> None:
        self._locate = locate
        self._sha256 = sha256
        self._session = session
        self._file: ReleaseFile | None = None
        self._validator = ""
        self._size: int | None = None
        self._local: FileSource | None = None

    @property
    def file(self) -> ReleaseFile:
        if self._file is None:
            self._file = self._locate()
        return self._file

    def directory(self) -> Directory:
        local = self._at_hand()
        if local is not None:
            return local.directory()
        from downstream.trees.central import parse

        name, url, size = self.file.name, self.file.url, self.file.size
        guess = max(TAIL, size // SHARE) if size else TAIL
        begin = max(0, size - guess) if size else -guess
        found = self._session.span(url, begin, size or 0, total=size)
        if found is None:
            return self._whole().directory()
        self._validator, self._size, tail = found.validator, found.total, found.content
        try:
            parsed = parse(found.total, tail, name=name)
            if isinstance(parsed, int):
                more = self._session.span(url, parsed, found.start, total=self._size, validator=self._validator)
                if more is None:
                    return self._whole().directory()
                parsed = parse(found.total, more.content + tail, name=name)
        except WheelError:
            return self._whole().directory()  # where the sha256 tells a broken server from a broken wheel
        return self._whole().directory() if isinstance(parsed, int) else parsed

    def spans(self, wanted: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        pairs = list(wanted)
        local = self._at_hand()
        if local is not None:
            yield from local.spans(pairs)
            return
        groups = list(_near(pairs))
        for number, (group, content) in enumerate(zip(groups, self._contents(groups), strict=True)):
            if content is None:
                yield from self._whole().spans([pair for group in groups[number:] for pair in group])
                return
            start = group[0][0]
            yield from (content[first - start : last - start] for first, last in group)

    def _contents(self, groups: list[list[tuple[int, int]]]) -> Iterator[bytes | None]:
        """Fetch each group's bytes, several groups side by side; None for one that was not answered as asked."""
        name = self.file.name  # located here, once
        alone = len(groups) == 1 or threading.current_thread() is not threading.main_thread()
        if alone:
            yield from map(self._content, groups)
            return
        from concurrent.futures import ThreadPoolExecutor

        total = sum(group[-1][1] - group[0][0] for group in groups)
        progress = self._session.progress.task(f"fetch parts of {name}", total, "bytes")
        with progress as task, ThreadPoolExecutor(AT_ONCE) as threads:
            for content in threads.map(self._content, groups):
                task.advance(len(content or b""))
                yield content

    def _content(self, group: list[tuple[int, int]]) -> bytes | None:
        start, stop = group[0][0], max(stop for _, stop in group)
        total = self._size or self.file.size
        found = self._session.span(self.file.url, start, stop, total=total, validator=self._validator)
        if found is None or len(found.content) < stop - start:
            return None
        self._validator = self._validator or found.validator
        return found.content

    def distrust(self) -> bool:
        if self._local is not None:
            return False
        self._whole()
        return True

    def _at_hand(self) -> FileSource | None:
        """Return the whole file where no server has to be asked for pieces, or where pieces would prove nothing."""
        if self._local is None and (path := kept_whole(self._sha256, self._session)) is not None:
            self._local = FileSource(path)
        if self._local is None and (file_path(self.file.url) is not None or not self.file.sha256):
            self._whole()
        return self._local

    def _whole(self) -> FileSource:
        path = file_path(self.file.url)
        if path is None:
            path = fetch_whole(self.file, self._sha256, self._session)
        elif (found := _digest(path)) != self._sha256:
            raise digest_error(str(path), found, self._sha256)
        self._local = FileSource(path)
        return self._local


def _near(pairs: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Group what is cheaper to fetch in one request."""
    group: list[tuple[int, int]] = []
    for pair in pairs:
        if group and pair[0] - group[-1][1] > GAP:
            yield group
            group = []
        group.append(pair)
    if group:
        yield group


def kept_whole(sha256: str, session: Session) -> Path | None:
    """Return the cached whole file with this digest, verified now; None where there is none (any more)."""
    folder = session.cache.folder / "files" / sha256
    for path in sorted(folder.glob("*.whl")) if folder.is_dir() else ():
        if _digest(path) == sha256:
            return path
    return None


def fetch_whole(file: ReleaseFile, sha256: str, session: Session) -> Path:
    """Return the whole of *file* from the cache, fetched if need be; its sha256 is verified each time.

    Two processes that want one file fetch it once. Raises DigestError,
    NetworkError, OfflineError, WriteError.
    """
    folder = session.cache.folder / "files" / sha256
    path = folder / file.name
    if path.is_file() and _digest(path) == sha256:
        return path
    if session.offline and file_path(file.url) is None:
        raise OfflineError(file.name, "is not in the cache, and --offline forbids fetching it", ONLINE)
    with session.cache.lock(f"files/{sha256}"):
        if not (path.is_file() and _digest(path) == sha256):
            for left in folder.glob(".*.part"):  # of a download that was killed: the lock says nobody writes now
                left.unlink(missing_ok=True)
            session.download(file.url, path, sha256=sha256, size=file.size, label=f"fetch {file.name}")
            session.cache.forget(f"wheels/{sha256}")  # pieces on trust; from now on they come from what is verified
    return path


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as exc:
        raise NetworkError(str(path), f"cannot be read: {exc.strerror}", "check the file and its folder") from exc


def check_digest(file: ReleaseFile, expected: str) -> ReleaseFile:
    """Return *file* unless the index advertises another sha256 for it than *expected*. Raises DigestError."""
    if file.sha256 and file.sha256 != expected:
        step = "somebody replaced the file, or the index is not the one the pin was made from (pip config list)"
        raise DigestError(file.name, f"the index advertises sha256 {file.sha256}, the pin says {expected}", step)
    return file
