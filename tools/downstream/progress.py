"""How the core tells that long work advances, without knowing any terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Task(Protocol):
    """One piece of long work."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count *amount* units (bytes, files, releases) done; *note* names the current one."""


class Progress(Protocol):
    """Where long work is announced. Implementations decide whether anybody sees it."""

    def task(self, label: str, total: int | None = None, unit: str = "") -> AbstractContextManager[Task]:
        """Announce work of *total* units (None: not known), to be used in a ``with``."""


class _SilentTask:
    def advance(self, amount: int = 1, note: str = "") -> None:
        return None


class _Silent:
    @contextmanager
    def task(self, label: str, total: int | None = None, unit: str = "") -> Iterator[Task]:
        yield _SilentTask()


SILENT: Progress = _Silent()
