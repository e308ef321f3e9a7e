"""A published wheel as a tree, on disk or on a server, read member by member.

A server is asked for byte ranges: the zip's directory once, then only the
members that are read. What can be verified of pieces is verified: the index
advertises the pinned sha256 for the file, its size and ETag stay the same, and
each member's length and CRC-32 agree. The sha256 of the whole cannot be had
from pieces; a file that is fetched whole is always checked against it.

Members outside the layout (``.dist-info``, a stray top-level package) have no
repository path: ``paths()`` leaves them out, ``members()`` and ``member()``
give them by their name in the wheel.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from downstream.errors import DigestError, OfflineError, TreeError, WheelError
from downstream.trees import directory
from downstream.trees.directory import Directory
from downstream.trees.layout import Layout
from downstream.trees.pipconf import file_path
from downstream.trees.releases import ReleaseFile
from downstream.trees.session import ONLINE, Session

GAP = 1 << 16  # bytes fetched in vain rather than making another request
TAIL = 1 << 16  # bytes: the least that is fetched of a file's end
SHARE = 32  # a wheel's directory is about a thirty-second of it


class Source(Protocol):
    """The bytes of one zip file."""

    def directory(self) -> Directory: ...

    def spans(self, wanted: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the bytes *start* up to *stop* for each pair of *wanted*, which ascend."""


class FileSource:
    """A zip file on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def directory(self) -> Directory:
        try:
            size = self._path.stat().st_size
            with zipfile.ZipFile(self._path) as archive:
                return directory.from_zip(archive, size, name=self._path.name)
        except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as exc:
            raise WheelError(str(self._path), f"is no complete zip file ({exc})", "fetch it again") from exc
        except OSError as exc:
            raise TreeError(str(self._path), f"cannot be read: {exc.strerror}") from exc

    def spans(self, wanted: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as stream:
                for start, stop in wanted:
                    stream.seek(start)
                    yield stream.read(stop - start)
        except OSError as exc:
            raise TreeError(str(self._path), f"cannot be read: {exc.strerror}") from exc


class PublishedSource:
    """A wheel that an index has published, in the cache, on disk, or on a server.

    *locate* is called once it is needed, since a warm cache needs no address.
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
        whole = self._kept()
        if whole is not None:
            return whole.directory()
        name, url = self.file.name, self.file.url
        if file_path(url) is not None:
            return self._whole().directory()
        size = self.file.size
        guess = max(TAIL, size // SHARE) if size else TAIL
        begin = max(0, size - guess) if size else -guess
        found = self._session.span(url, begin, size or 0, total=size)
        if found is None:
            return self._whole().directory()
        self._validator, self._size, tail = found.validator, found.total, found.content
        parsed = directory.parse(found.total, tail, name=name)
        if isinstance(parsed, int):
            more = self._session.span(url, parsed, found.start, total=self._size, validator=self._validator)
            if more is None:
                return self._whole().directory()
            parsed = directory.parse(found.total, more.content + tail, name=name)
        if isinstance(parsed, int):
            raise WheelError(name, "is no complete zip file", "the published file is broken; report it upstream")
        return parsed

    def spans(self, wanted: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        pairs = list(wanted)
        whole = self._kept()
        if whole is None and file_path(self.file.url) is not None:
            whole = self._whole()
        if whole is not None:
            yield from whole.spans(pairs)
            return
        for number, group in enumerate(groups := list(_near(pairs))):
            start, stop = group[0][0], max(stop for _, stop in group)
            found = self._session.span(
                self.file.url, start, stop, total=self._size or self.file.size, validator=self._validator
            )
            if found is None or len(found.content) < stop - start:
                rest = [pair for group in groups[number:] for pair in group]
                yield from self._whole().spans(rest)
                return
            self._validator = self._validator or found.validator
            yield from (found.content[first - start : last - start] for first, last in group)

    def _kept(self) -> FileSource | None:
        if self._local is None and (path := kept_whole(self._sha256, self._session)) is not None:
            self._local = FileSource(path)
        return self._local

    def _whole(self) -> FileSource:
        self._local = FileSource(fetch_whole(self.file, self._sha256, self._session))
        return self._local


def _near(pairs: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
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

    Raises DigestError, NetworkError, OfflineError, WriteError.
    """
    path = session.cache.folder / "files" / sha256 / file.name
    if path.is_file() and _digest(path) == sha256:
        return path
    if session.offline and file_path(file.url) is None:
        raise OfflineError(file.name, "is not in the cache, and --offline forbids fetching it", ONLINE)
    with session.cache.lock(f"files/{sha256}"):
        if not (path.is_file() and _digest(path) == sha256):
            session.download(file.url, path, sha256=sha256, size=file.size, label=f"fetch {file.name}")
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class WheelTree:
    """A wheel read by repository path through *layout*.

    *identity* names its entries in the cache of *session* (the wheel's
    sha256); without a session nothing is kept.
    """

    def __init__(
        self, source: Source, layout: Layout, name: str, *, identity: str = "", session: Session | None = None
    ) -> None:
        self.name = name
        self._source = source
        self._layout = layout
        self._session = session if identity else None
        self._entry = f"wheels/{identity}"
        self._directory: Directory | None = None
        self._paths: list[str] | None = None
        self._held: dict[str, bytes] = {}  # what a cache that cannot be written would have kept

    @property
    def directory(self) -> Directory:
        if self._directory is None:
            kept = self._session.cache.read(f"{self._entry}/directory") if self._session else None
            self._directory = Directory.from_bytes(kept) if kept is not None else None
        if self._directory is None:
            self._directory = self._source.directory()
            if self._session:
                self._session.cache.write(f"{self._entry}/directory", self._directory.to_bytes())
        return self._directory

    def read(self, path: str) -> bytes | None:
        member = self._layout.to_wheel(path)
        return None if member is None else self.member(member)

    def mode(self, path: str) -> int | None:
        member = self._layout.to_wheel(path)
        entry = None if member is None else self.directory.get(member)
        return None if entry is None else entry.mode

    def paths(self) -> Iterable[str]:
        if self._paths is None:
            mapped = (self._layout.to_repository(member) for member in self.directory)
            self._paths = sorted(path for path in mapped if path is not None)
        return iter(self._paths)

    def members(self) -> Iterable[str]:
        """Yield every member's name in the wheel, sorted; those without a repository path are among them."""
        return iter(self.directory)

    def member(self, name: str) -> bytes | None:
        """Return a member's content by its name in the wheel, or None where there is no such member."""
        if name not in self.directory:
            return None
        kept = self._kept(name)
        return kept if kept is not None else self._fetch([name])[name]

    def prefetch(self, paths: Iterable[str]) -> None:
        """Read these files in as few requests as their places allow, so that read() finds them in the cache."""
        if not self._session:
            return
        members = {member for path in paths if (member := self._layout.to_wheel(path)) is not None}
        wanted = [name for name in members if name in self.directory and self._kept(name) is None]
        if wanted:
            self._fetch(wanted)

    def _kept(self, name: str) -> bytes | None:
        if self._session is None or name in self._held:
            return self._held.get(name)
        return self._session.cache.read(self._key(name))

    def _fetch(self, names: Iterable[str]) -> dict[str, bytes]:
        found = {}
        entries = [(entry, name) for name in names if (entry := self.directory.get(name)) is not None]
        entries.sort()
        spans = self._source.spans([(entry.start, entry.stop) for entry, _ in entries])
        for (entry, name), span in zip(entries, spans, strict=True):
            content = directory.extract(name, entry, span, name=self.name)
            if self._session and not self._session.cache.write(self._key(name), content):
                self._held[name] = content
            found[name] = content
        return found

    def _key(self, member: str) -> str:
        return f"{self._entry}/{hashlib.sha256(member.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def check_digest(file: ReleaseFile, expected: str) -> ReleaseFile:
    """Return *file* if the index advertises the *expected* sha256 for it (or none). Raises DigestError."""
    if file.sha256 and file.sha256 != expected:
        step = "somebody replaced the file, or the index is not the one the pin was made from (pip config list)"
        raise DigestError(file.name, f"the index advertises sha256 {file.sha256}, the pin says {expected}", step)
    return file
