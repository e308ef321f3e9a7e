"""What the proof of the kernels says about device code that a series changes, as the audit cites it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """One changed file. *holds* is None where nothing was proved; then *words* say why."""

    holds: bool | None
    words: str  # the units that were read, else what fails or why nothing was read


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """The proof's fast form over one series: the device text of each touched unit, before and after.

    *problem* is why it could not be done here at all; then every file is unproved.
    """

    files: Mapping[str, Proved] = field(default_factory=dict)  # by repository path: the series' device files
    dead: int = 0  # faults that the release has on the targets without the series
    problem: str = ""

    @property
    def fails(self) -> bool:
        return any(file.holds is False for file in self.files.values())

    def about(self, path: str) -> Proved | None:
        """What is said of *path*; None for a file that is no device code or that the series leaves alone."""
        return self.files.get(path)
