"""Progress on stderr: a bar where a person waits, nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from downstream.progress import SILENT, Progress, Task

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PATIENCE = 0.7  # seconds before a bar appears


def progress(*, quiet: bool) -> Progress:
    """The progress for this process: silent when stderr is no terminal."""
    return SILENT if quiet or not sys.stderr.isatty() else TerminalProgress()


class TerminalProgress:
    """A bar that appears only once the work has taken PATIENCE seconds."""

    @contextmanager
    def task(self, label: str, total: int | None = None, unit: str = "") -> Iterator[Task]:
        bar = _Bar(label, total, unit)
        try:
            yield bar
        finally:
            bar.close()


class _Bar:
    def __init__(self, label: str, total: int | None, unit: str) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._done = 0
        self._began = time.monotonic()
        self._rich: RichProgress | None = None
        self._id: TaskID | None = None

    def advance(self, amount: int = 1, note: str = "") -> None:
        self._done += amount
        if self._rich is None and time.monotonic() - self._began > PATIENCE:
            self._show()
        if self._rich is not None and self._id is not None:
            self._rich.update(self._id, completed=self._done, note=note)

    def _show(self) -> None:
        # Imported late: 90 ms that a quick command must not pay.
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        amount = DownloadColumn() if self._unit == "bytes" else MofNCompleteColumn()
        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            amount,
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._rich.start()
        self._id = self._rich.add_task(self._label, total=self._total, completed=self._done, note="")

    def close(self) -> None:
        if self._rich is not None:
            self._rich.stop()
