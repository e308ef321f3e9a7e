"""Where a wheel keeps what the repository has elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """Pairs of prefixes (repository, wheel); the longest matching one decides.

    A path outside every pair has no counterpart on the other side.
    """

    prefixes: tuple[tuple[str, str], ...]

    def to_wheel(self, path: str) -> str | None:
        """Return the wheel's path of a repository path, or None where the wheel has none."""
        return _translate(path, self.prefixes)

    def to_repository(self, path: str) -> str | None:
        """Return the repository's path of a wheel member, or None where the repository has none."""
        return _translate(path, tuple((wheel, repository) for repository, wheel in self.prefixes))


IDENTITY = Layout((("", ""),))


def _translate(path: str, prefixes: tuple[tuple[str, str], ...]) -> str | None:
    fitting = [pair for pair in prefixes if path.startswith(pair[0])]
    if not fitting:
        return None
    ours, theirs = max(fitting, key=lambda pair: len(pair[0]))
    return theirs + path[len(ours) :]
