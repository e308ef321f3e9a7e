"""Where a wheel keeps what the repository has elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Layout:
    """Pairs of prefixes (repository, wheel); the longest matching one decides.

    A path outside every pair has no counterpart on the other side.
    """

    prefixes: tuple[tuple[str, str], ...]

    def to_wheel(self, path: str) -> str | None:
        """Return the wheel's path of a repository path, or None where the wheel has none.

        A path that another pair's wheel prefix hides has none either: the
        member there is another repository file (``flashinfer/data/include/``).
        """
        member = _translate(path, self.prefixes)
        return member if member is not None and self.to_repository(member) == path else None

    def to_repository(self, path: str) -> str | None:
        """Return the repository's path of a wheel member, or None where the repository has none."""
        return _translate(path, _turned(self.prefixes))


IDENTITY = Layout((("", ""),))


@cache
def _turned(prefixes: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((wheel, repository) for repository, wheel in prefixes)


def _translate(path: str, prefixes: tuple[tuple[str, str], ...]) -> str | None:
    best = ""
    found = None
    for ours, theirs in prefixes:
        if path.startswith(ours) and (found is None or len(ours) > len(best)):
            best, found = ours, theirs
    return None if found is None else found + path[len(best) :]
