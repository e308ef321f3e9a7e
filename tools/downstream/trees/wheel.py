"""A wheel as a tree, read member by member.

Members outside the layout (``.dist-info``, a stray top-level package) have no
repository path: ``paths()`` leaves them out, ``members()`` and ``member()``
give them by their name in the wheel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from downstream.errors import OfflineError, TreeError, WheelError
from downstream.trees import directory
from downstream.trees.directory import Directory
from downstream.trees.layout import Layout
from downstream.trees.session import ONLINE, Session


class Source(Protocol):
    """The bytes of one zip file."""

    def directory(self) -> Directory: ...

    def spans(self, wanted: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the bytes *start* up to *stop* for each pair of *wanted*, which ascend."""

    def distrust(self) -> bool:
        """Read from now on something more trustworthy, if there is such a thing."""


class FileSource:
    """A zip file on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def directory(self) -> Directory:
        from downstream.trees.central import read  # late: a warm cache reads no zip file, and saves 15 ms

        try:
            with self.path.open("rb") as stream:
                return read(stream, name=str(self.path))
        except OSError as exc:
            raise TreeError(str(self.path), f"cannot be read: {exc.strerror}") from exc

    def spans(self, wanted: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as stream:
                for start, stop in wanted:
                    stream.seek(start)
                    yield stream.read(stop - start)
        except OSError as exc:
            raise TreeError(str(self.path), f"cannot be read: {exc.strerror}") from exc

    def distrust(self) -> bool:
        return False


class WheelTree:
    """A wheel read by repository path through *layout*.

    *identity* names its entries in the cache of *session* (the wheel's
    sha256); without a session nothing is kept.
    """

    def __init__(
        self, source: Source, layout: Layout, name: str, *, identity: str = "", session: Session | None = None
    ) -> None:
        self.name = name
        self.identity = identity
        self._source = source
        self._layout = layout
        self._session = session if identity else None
        self._entry = f"wheels/{identity}"
        self._directory: Directory | None = None
        self._paths: list[str] | None = None

    @property
    def directory(self) -> Directory:
        if self._directory is None:
            kept = self._session.cache.read(f"{self._entry}/directory") if self._session else None
            self._directory = Directory.from_bytes(kept) if kept is not None else None
        return self._directory if self._directory is not None else self._listed()

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
        kept = self._kept(name)  # asked first: what is kept needs no directory
        if kept is not None or name not in self.directory:
            return kept
        return self._fetch([name]).get(name)

    def prefetch(self, paths: Iterable[str]) -> None:
        """Read these files in as few requests as their places allow, so that read() finds them in the cache."""
        if not self._session:
            return
        cache = self._session.cache
        members = {member for path in paths if (member := self._layout.to_wheel(path)) is not None}
        wanted = [name for name in sorted(members) if not cache.holds(self._key(name)) and name in self.directory]
        if wanted:
            self._fetch(wanted)

    def _listed(self) -> Directory:
        try:
            found = self._source.directory()
        except OfflineError as exc:
            raise self._offline("its list of files") from exc
        if self._session:
            self._session.cache.write(f"{self._entry}/directory", found.to_bytes())
        self._directory, self._paths = found, None
        return found

    def _kept(self, name: str) -> bytes | None:
        return self._session.cache.read(self._key(name)) if self._session else None

    def _fetch(self, names: list[str]) -> dict[str, bytes]:
        try:
            found = self._extract(names)
        except OfflineError as exc:
            raise self._offline(", ".join(names)) from exc
        except WheelError:
            if not self._source.distrust():
                raise
            self._listed()
            found = self._extract(names)
        for name, content in found.items():
            if self._session:
                self._session.cache.write(self._key(name), content)
        return found

    def _extract(self, names: list[str]) -> dict[str, bytes]:
        listed = self._directory if self._directory is not None else self._listed()
        entries = sorted((entry, name) for name in names if (entry := listed.get(name)) is not None)
        spans = self._source.spans([(entry.start, entry.stop) for entry, _ in entries])
        return {
            name: directory.extract(name, entry, span, name=self.name)
            for (entry, name), span in zip(entries, spans, strict=True)
        }

    def _offline(self, what: str) -> OfflineError:
        return OfflineError(f"{self.name}: {what}", "is not in the cache, and --offline forbids fetching it", ONLINE)

    def _key(self, member: str) -> str:
        return f"{self._entry}/{hashlib.sha256(member.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"
