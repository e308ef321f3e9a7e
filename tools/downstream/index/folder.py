"""An index on disk: ``simple/<project>/`` holds the pages, the wheels and their metadata beside each other."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from downstream.errors import PublishError, WriteError
from downstream.index import pages
from downstream.index.pages import Page

JSON_PAGE = "index.json"
HTML_PAGE = "index.html"
METADATA_SUFFIX = ".metadata"
LOCK = ".lock"
TEMPORARY = ".tmp-"
_READ_SIZE = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class IndexFolder:
    """The static tree under *root*. The JSON pages are its memory; all else follows from them and the wheels."""

    root: Path

    @property
    def simple(self) -> Path:
        return self.root / "simple"

    def project_folder(self, name: str) -> Path:
        return self.simple / canonicalize_name(name)

    def file(self, project: str, filename: str) -> Path:
        return self.project_folder(project) / filename

    def projects(self) -> tuple[str, ...]:
        """Return the normalized names that this index answers for, sorted."""
        return tuple(sorted(page.parent.name for page in self.simple.glob(f"*/{JSON_PAGE}")))

    def page(self, name: str) -> Page:
        """Return the page of project *name*, an empty one where the index has none."""
        path = self.project_folder(name) / JSON_PAGE
        try:
            return pages.parse_project(path.read_bytes(), place=str(path))
        except FileNotFoundError:
            return Page(name=canonicalize_name(name))

    def write_page(self, page: Page) -> bool:
        """Write both forms of *page*; True if any byte changed.

        JSON goes last: it is what a repeated publish starts from.
        """
        folder = self.project_folder(page.name)
        written = [
            write(folder / HTML_PAGE, pages.project_html(page)),
            write(folder / JSON_PAGE, pages.project_json(page)),
        ]
        return any(written)

    def write_root(self) -> bool:
        """Write the list of projects as it follows from the pages; True if any byte changed."""
        names = self.projects()
        written = [
            write(self.simple / HTML_PAGE, pages.root_html(names)),
            write(self.simple / JSON_PAGE, pages.root_json(names)),
        ]
        return any(written)

    @contextmanager
    def locked(self, *, patience: float = 600) -> Iterator[None]:
        """Hold the index against other publishers, waiting up to *patience* seconds for them."""
        from filelock import FileLock, Timeout

        try:
            _make(self.simple)
            with FileLock(self.root / LOCK, timeout=patience):
                self._sweep()
                yield
        except Timeout as exc:
            problem = f"another publisher has held the lock for {patience:.0f} seconds"
            raise PublishError(str(self.root), problem, "look for a process that hangs, then try again") from exc
        except PermissionError as exc:
            raise WriteError(str(self.root), str(exc.strerror)) from exc

    def _sweep(self) -> None:
        # What a killed publisher left. Nobody else writes while we hold the lock.
        for stale in [*self.simple.glob(f"{TEMPORARY}*"), *self.simple.glob(f"*/{TEMPORARY}*")]:
            stale.unlink()


def existing(root: Path) -> IndexFolder:
    """Return the index at *root*. Raises PublishError where there is none."""
    folder = IndexFolder(root)
    if not folder.simple.is_dir():
        raise PublishError(str(root), "holds no index", "publish into it first: tools/index.py publish WHEELS INDEX")
    return folder


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write(path: Path, content: bytes) -> bool:
    """Put *content* at *path* whole or not at all; True if that changed anything."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return False
    with _replacing(path) as temporary:
        temporary.write_bytes(content)
    return True


def copy(source: Path, path: Path) -> None:
    """Copy *source* to *path* whole or not at all."""
    with _replacing(path) as temporary, source.open("rb") as reader, temporary.open("wb") as writer:
        while chunk := reader.read(_READ_SIZE):
            writer.write(chunk)


def _make(folder: Path) -> None:
    """Make *folder*, and those above it, for a web server to read whatever the publisher's umask is."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        path.chmod(0o755)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    try:
        _make(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
        os.close(descriptor)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o644)  # mkstemp's 0600 would hide it from a web server
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        raise WriteError(
            str(path), exc.strerror or str(exc), "free space or fix permissions, then publish again"
        ) from exc
