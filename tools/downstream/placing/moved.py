"""Where a file went that a release no longer has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from downstream.placing.side import Side

ALIKE = 0.5  # git's own bar for a rename: half of the content
NAMED = 12  # candidates read at the most


@dataclass(frozen=True, slots=True)
class Home:
    """A file's new path, or None and why none could be told."""

    path: str | None
    reason: str


def find_home(path: str, new: Side, base: Side) -> Home:
    """Say where *new* keeps what *base* has at *path*; the content decides, not the name.

    Only files that the old release did not have are looked at, those of the same name first.
    """
    old = base.lines(path)
    if not old:
        return Home(None, "the release does not have this file")
    known = set(base.tree.paths())
    name, suffix = _name(path), _suffix(path)
    arrived = [other for other in new.tree.paths() if other not in known and _suffix(other) == suffix]
    arrived.sort(key=lambda other: (_name(other) != name, -_shared_folders(path, other), other))
    scored = [(likeness(old, new.lines(other) or ()), other) for other in arrived[:NAMED]]
    alike = sorted((entry for entry in scored if entry[0] >= ALIKE), reverse=True)
    if not alike:
        return Home(None, "the release does not have this file, nor a new one like it")
    if len(alike) > 1 and alike[0][0] == alike[1][0]:
        both = f"{alike[0][1]} and {alike[1][1]}"
        return Home(None, f"the release does not have this file, and {both} are equally like it")
    return Home(alike[0][1], f"{round(alike[0][0] * 100)}% of it is now {alike[0][1]}")


def likeness(old: Sequence[bytes], new: Sequence[bytes]) -> float:
    """Return the share (0 to 1) of the longer text's bytes that stand, as lines in any order, in both."""
    theirs = Counter(new)
    common = sum(len(line) * min(times, theirs[line]) for line, times in Counter(old).items())
    return common / max(sum(map(len, old)), sum(map(len, new)), 1)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _suffix(path: str) -> str:
    return _name(path).rpartition(".")[2] if "." in _name(path) else ""


def _shared_folders(one: str, other: str) -> int:
    shared = 0
    for mine, theirs in zip(one.split("/")[:-1], other.split("/")[:-1], strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared
