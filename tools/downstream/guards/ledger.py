"""guards.toml: which guards somebody has looked at, and why they may stay.

An entry names one guard by its fingerprint, or several by path pattern (and,
to narrow it, condition, function or kind); then it says how many it covers,
and a change of that number asks for another look.
"""

from __future__ import annotations

import datetime
import fnmatch
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from downstream.errors import GuardError
from downstream.guards.citation import Citation
from downstream.guards.model import Audit, Guard

FILE = "guards.toml"
SCHEMA = 1
_TEXTS = ("reason", "hardware", "reviewer", "where", "fingerprint", "condition", "function", "kind")
_NEEDED = ("reason", "reviewer", "date")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One judgement. Either *fingerprint* or *paths* says about which guards."""

    reason: str
    reviewer: str
    date: datetime.date
    hardware: str = ""  # the fact about SM12x that it rests on, where there is one
    fingerprint: str = ""
    where: str = ""  # for the reader: path:line and condition, as they were
    paths: tuple[str, ...] = ()
    condition: str = ""
    function: str = ""
    kind: str = ""
    covers: int = 1

    @property
    def name(self) -> str:
        return self.fingerprint or ", ".join(self.paths)

    def about(self, guard: Guard) -> bool:
        """Whether the entry speaks of *guard*."""
        if self.fingerprint:
            return self.fingerprint == guard.fingerprint
        return (
            any(fnmatch.fnmatchcase(guard.path, pattern) for pattern in self.paths)
            and (not self.condition or "".join(self.condition.split()) == "".join(guard.condition.split()))
            and (not self.function or fnmatch.fnmatchcase(guard.function or "", self.function))
            and (not self.kind or self.kind == guard.kind.value)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The entries of one guards.toml, in its order."""

    path: Path
    entries: tuple[Entry, ...] = ()

    def entry(self, guard: Guard) -> Entry | None:
        """The entry that speaks of *guard*: one for it alone before a pattern."""
        found = [entry for entry in self.entries if entry.about(guard)]
        return next((entry for entry in found if entry.fingerprint), found[0] if found else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The ledger held against the guards of a tree."""

    covered: Mapping[str, Entry] = field(default_factory=dict)  # by the guard's fingerprint
    unreviewed: tuple[Guard, ...] = ()
    gone: tuple[Entry, ...] = ()  # entries whose guard vanished
    miscounted: tuple[tuple[Entry, int], ...] = ()  # patterns that cover another number than they say


def load(path: Path) -> Ledger:
    """Read a ledger; a missing file is an empty one. Raises GuardError with the entry at fault."""
    return _loaded(path, counted=True) if path.exists() else Ledger(path=path)


def load_filled(path: Path) -> Ledger:
    """Read entries that somebody filled in: a pattern may leave its count to be taken (0). Raises GuardError."""
    return _loaded(path, counted=False)


def _loaded(path: Path, *, counted: bool) -> Ledger:
    try:
        return read(path.read_text(encoding="utf-8"), path, counted=counted)
    except (OSError, UnicodeDecodeError) as exc:
        raise GuardError(str(path), str(exc)) from exc


def read(text: str, path: Path, *, counted: bool = True) -> Ledger:
    """The ledger that *text* holds; *path* is for messages. Raises GuardError."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise GuardError(str(path), str(exc)) from exc
    if raw.get("schema") != SCHEMA:
        raise GuardError(str(path), f"schema is {raw.get('schema')!r}, this tool reads {SCHEMA}")
    tables = raw.get("guard", [])
    if not isinstance(tables, list):
        raise GuardError(str(path), "[[guard]] must be a list of tables")
    entries = tuple(_entry(path, number, table, counted=counted) for number, table in enumerate(tables, 1))
    return Ledger(path=path, entries=entries)


def _entry(path: Path, number: int, table: Any, *, counted: bool) -> Entry:
    place = f"{path}: [[guard]] {number}"
    if not isinstance(table, dict):
        raise GuardError(place, "is no table")
    unknown = set(table) - {*_TEXTS, "date", "paths", "covers"}
    if unknown:
        raise GuardError(place, f"has unknown fields: {', '.join(sorted(unknown))}")
    for key in _NEEDED:
        if not table.get(key) and (counted or key != "reason"):
            raise GuardError(place, f"lacks '{key}'", "every entry has a reason, a reviewer and a date")
    for key in _TEXTS:
        if not isinstance(table.get(key, ""), str):
            raise GuardError(place, f"'{key}' must be a text")
    paths, covers = table.get("paths", []), table.get("covers", 1)
    if not isinstance(table["date"], datetime.date):
        raise GuardError(place, f"'date' must be a date, it is {table['date']!r}")
    if not (isinstance(paths, list) and all(isinstance(each, str) for each in paths)):
        raise GuardError(place, "'paths' must be a list of patterns")
    if bool(paths) == bool(table.get("fingerprint")):
        raise GuardError(place, "needs either a fingerprint or paths")
    if paths and not counted and "covers" not in table:
        covers = 0
    elif paths and not (isinstance(covers, int) and covers > 0 and "covers" in table):
        raise GuardError(place, "covers a pattern, so it says how many guards: covers = N")
    texts = {key: table[key] for key in _TEXTS if key in table}
    return Entry(**texts, date=table["date"], paths=tuple(paths), covers=covers)


def hold(ledger: Ledger, guards: Iterable[Guard]) -> Reading:
    """Hold *ledger* against the guards that somebody has to have looked at."""
    covered: dict[str, Entry] = {}
    unreviewed: list[Guard] = []
    used: dict[Entry, int] = {}
    for guard in guards:
        entry = ledger.entry(guard)
        if entry is None:
            unreviewed.append(guard)
        else:
            covered[guard.fingerprint] = entry
            used[entry] = used.get(entry, 0) + 1
    return Reading(
        covered=covered,
        unreviewed=tuple(unreviewed),
        gone=tuple(entry for entry in ledger.entries if entry not in used),
        miscounted=tuple((entry, count) for entry, count in used.items() if entry.paths and count != entry.covers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """An audit with what is known about each of its concerns."""

    audit: Audit
    reading: Reading
    patched: tuple[Guard, ...] = ()  # findings of the release that its series takes away
    proof: Citation | None = None  # what the kernels' proof says of the device code that the series changes

    @property
    def fine(self) -> bool:
        """Whether somebody has looked at everything, and no proof speaks against what was done about it."""
        return not (self.reading.unreviewed or self.reading.miscounted or (self.proof and self.proof.fails))


def covered(found: Audit, ledger: Ledger) -> Covered:
    """Hold an audit against a ledger (an empty one: everything is unreviewed)."""
    reading = hold(ledger, found.concerns)
    if found.coverage.partial:  # what was not looked for is not gone
        reading = replace(reading, gone=(), miscounted=())
    guards = tuple(
        replace(guard, covered_by=f"ledger: {reading.covered[guard.fingerprint].name}")
        if guard.concern and guard.fingerprint in reading.covered
        else guard
        for guard in found.guards
    )
    return Covered(audit=replace(found, guards=guards), reading=reading)
