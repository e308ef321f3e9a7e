"""The second map as plain values: suspect guards appearing and vanishing, release by release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from downstream.guards.history import Row
from downstream.guards.ledger import Ledger
from downstream.guards.model import Class, Guard
from downstream.report.context import printable

# A letter for each state, from what needs a person most to what needs one least.
STATES: Mapping[str, tuple[str, str]] = {
    "suspect": ("S", "shuts SM12x out, and nothing says why; nobody has looked at it"),
    "over-inclusive": ("I", "sends SM12x into code made for others; nobody has looked at it"),
    "unknown": ("?", "depends on a name that nobody defines; nobody has looked at it"),
    "patched": ("P", "the series takes it away"),
    "reviewed": ("R", "the ledger says why it may stay"),
}
ABSENT = "·"
_UNREVIEWED = ("suspect", "over-inclusive", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardMap:
    """The guards of one upstream on the releases of its matrix, and what is known about them."""

    rows: tuple[Row, ...]
    skipped: tuple[bool, ...]  # per release: it could not be read
    versions: tuple[str, ...]
    ledger: Ledger
    patched: Mapping[str, str] = field(default_factory=dict)  # fingerprint on the pinned release -> patch
    whole: bool = False  # every file of each release, not only those that the series and the ledger name

    def covered(self, row: Row, guard: Guard) -> tuple[str, str]:
        """The state of a cell, and who answers for it."""
        for seen in row.cells:
            if seen is not None and seen.fingerprint in self.patched:
                return "patched", self.patched[seen.fingerprint]
        if (entry := self.ledger.entry(guard)) is not None:
            return "reviewed", entry.reason
        return (guard.verdict_class or Class.UNKNOWN).value, ""


def document(found: GuardMap) -> dict[str, Any]:
    """Return the map: rows of indices into a table of cells, None where there is no such guard."""
    cells: dict[tuple[Any, ...], int] = {}
    rows = [_row(row, found, cells) for row in found.rows]
    return {
        "scope": "all" if found.whole else "touched",
        "cells": [
            {"state": state, "line": line, "end_line": end, "class": kind, "effect": effect, "evidence": evidence,
             "arches": dict(arches), "covered_by": by}
            for state, line, end, kind, effect, evidence, arches, by in cells
        ],
        "rows": rows,
        "changes": list(_changes(found)),
    }  # fmt: skip


def _row(row: Row, found: GuardMap, cells: dict[tuple[Any, ...], int]) -> dict[str, Any]:
    numbers: list[int | None] = []
    for guard in row.cells:
        if guard is None:
            numbers.append(None)
            continue
        state, by = found.covered(row, guard)
        kind = guard.verdict_class.value if guard.verdict_class else None
        effect = guard.effect.value if guard.effect else None
        arches = tuple((arch, verdict.value) for arch, verdict in guard.arches.items())
        cell = (state, guard.line, guard.end_line, kind, effect, guard.evidence, arches, by)
        numbers.append(cells.setdefault(cell, len(cells)))
    return {
        "file": row.guard.path,
        "condition": row.guard.condition,
        "function": row.guard.function,
        "kind": row.guard.kind.value,
        "fingerprint": row.guard.fingerprint,
        "cells": numbers,
    }


def _changes(found: GuardMap) -> Iterator[dict[str, Any]]:
    """The releases that brought or removed a guard, each against the one read before it."""
    before: int | None = None
    for column, version in enumerate(found.versions):
        if found.skipped[column]:
            continue
        if before is not None:
            came = sum(row.cells[before] is None and row.cells[column] is not None for row in found.rows)
            went = sum(row.cells[before] is not None and row.cells[column] is None for row in found.rows)
            if came or went:
                yield {"version": version, "appeared": came, "gone": went}
        before = column


def by_file(guards: Mapping[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rows grouped by file, in order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in guards["rows"]:
        groups.setdefault(row["file"], []).append(row)
    return list(groups.items())


def states(rows: Sequence[Mapping[str, Any]], matrix: Mapping[str, Any]) -> list[str | None]:
    """Per release, the state among *rows* that needs a person most; "" for none, None for a skipped release."""
    order = list(STATES)
    table = matrix["guards"]["cells"]
    found: list[str | None] = []
    for column, release in enumerate(matrix["releases"]):
        here = [table[row["cells"][column]]["state"] for row in rows if row["cells"][column] is not None]
        found.append(None if release["skipped"] else min(here, key=order.index) if here else "")
    return found


def letters(found: Sequence[str | None]) -> str:
    return "".join("-" if state is None else STATES[state][0] if state else ABSENT for state in found)


def lines(matrix: Mapping[str, Any]) -> Iterator[str]:
    """The map in letters: a line per file, and one for each release that changed something."""
    guards = matrix["guards"]
    groups = by_file(guards)
    width = max((len(path) for path, _ in groups), default=0) + 2
    files = "all files" if guards["scope"] == "all" else "the files that the series and the ledger name"
    yield f"guards of {matrix['upstream']}, {files}:"
    for path, rows in groups:
        yield f"{printable(path):{width}}{letters(states(rows, matrix))}  {len(rows)}"
    for change in guards["changes"]:
        yield f"{change['version']}: {change['appeared']} appeared, {change['gone']} gone"
    seen = {cell["state"] for cell in guards["cells"]}
    yield "; ".join(f"{letter} {meaning}" for state, (letter, meaning) in STATES.items() if state in seen)
    newest = next(
        (at for at in reversed(range(len(matrix["releases"]))) if not matrix["releases"][at]["skipped"]), None
    )
    if newest is not None:
        left = [
            row for row in guards["rows"]
            if row["cells"][newest] is not None and guards["cells"][row["cells"][newest]]["state"] in _UNREVIEWED
        ]  # fmt: skip
        for row in left:
            cell = guards["cells"][row["cells"][newest]]
            place = f"{row['file']}:{cell['line']}"
            yield f"{place}: {cell['class']}: {printable(' '.join(row['condition'].split())[:100])}"
