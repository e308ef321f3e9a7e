"""The cache folder: entries that prove themselves, written whole, shared by processes.

An entry is one line (``sm120 <sha256 of the rest>``) and its content. What
does not prove itself is treated as absent, so that it is fetched again.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from downstream.errors import TreeError, WriteError

VARIABLE = "SM120_OVERLAY_CACHE"
GENERATION = "v1"  # changes when old entries can no longer be read

_MAGIC = b"sm120 "
_HEADER = len(_MAGIC) + 64 + 1
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}


def default_folder() -> Path:
    """Return the cache folder: ``$SM120_OVERLAY_CACHE``, else one in the user's cache folder.

    Raises TreeError where neither can be told (no HOME and no such user).
    """
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    import platformdirs

    try:
        folder = platformdirs.user_cache_path("sm120-overlay", appauthor=False)
    except RuntimeError:
        folder = Path()  # older platformdirs answer with the tilde instead
    if not folder.is_absolute():
        raise TreeError("cache", "this user has no home folder", f"name a folder in {VARIABLE}")
    return folder


class Cache:
    """Entries by relative name below one folder.

    ``fault`` is the sentence about the first write that failed, empty while all
    is well: a cache that cannot be written costs the next command speed, never
    this one its answer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / GENERATION
        self.fault = ""
        self._held: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """Return the content of entry *name*, or None where it is absent or damaged."""
        if name in self._held:
            return self._held[name]
        try:
            with open(self.folder / name, "rb") as stream:  # noqa: PTH123 - a third faster than Path.read_bytes
                raw = stream.read()
        except OSError:
            return None
        content = raw[_HEADER:]
        if raw[:_HEADER] != _header(content):
            return None
        return content

    def holds(self, name: str) -> bool:
        """Whether there is an entry *name*; only ``read`` tells whether it is whole."""
        return name in self._held or os.path.lexists(self.folder / name)

    def write(self, name: str, content: bytes) -> None:
        """Keep *content* as entry *name*, atomically; where that fails, in memory, and ``fault`` says why."""
        try:
            with self.replacing(self.folder / name) as stream:
                stream.write(_header(content))
                stream.write(content)
            self._held.pop(name, None)
        except WriteError as exc:
            self.fault = self.fault or f"{exc.place}: {exc.problem}"
            self._held[name] = content

    def forget(self, name: str) -> None:
        """Remove every entry below *name*."""
        import shutil

        shutil.rmtree(self.folder / name, ignore_errors=True)
        self._held = {held: content for held, content in self._held.items() if not held.startswith(f"{name}/")}

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold *name* against other processes. Raises WriteError where the folder cannot be written."""
        import filelock  # late: 70 ms that only a download or a clone pays

        path = self.folder / f"{name}.lock"
        try:
            self._folder(path.parent)
            lock = filelock.FileLock(path)
            lock.acquire()
        except OSError as exc:
            raise WriteError(str(path), f"cannot be written: {exc.strerror}", _advice(exc)) from exc
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def replacing(self, path: Path) -> Iterator[IO[bytes]]:
        """Yield a stream whose content becomes *path* when the block ends well, and vanishes otherwise.

        Raises WriteError with the file and the system's reason.
        """
        part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
        try:
            self._folder(path.parent)
            with part.open("xb") as stream:
                yield stream
            part.replace(path)
        except OSError as exc:
            # A network error that passes through here is an OSError too; it names no errno of ours.
            if exc.errno is None or type(exc).__module__ != "builtins":
                raise
            raise WriteError(str(path), f"cannot be written: {exc.strerror}", _advice(exc)) from exc
        finally:
            with suppress(OSError):  # its folder is gone or read-only: nothing was left there
                part.unlink(missing_ok=True)

    def _folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        tag = self.folder.parent / "CACHEDIR.TAG"
        if folder.is_relative_to(self.folder) and not tag.exists():
            # https://bford.info/cachedir/: backup programs skip folders that bear it.
            tag.write_bytes(b"Signature: 8a477f597d28d172789f06886806bc55\n# the cache of sm120-overlay\n")


def _header(content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n"


def _advice(exc: OSError) -> str:
    if exc.errno in _UNWRITABLE:
        return f"make the folder writable, or name another one in {VARIABLE}"
    if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"make room there, or name another folder in {VARIABLE}"
    return f"name another folder in {VARIABLE}"
