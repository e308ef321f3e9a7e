"""Writing guards.toml: whole or not at all, and the same entries give the same bytes."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType

from downstream.errors import WriteError
from downstream.guards.ledger import SCHEMA, Entry, Ledger, hold
from downstream.guards.model import Guard
from downstream.queue.state import write_whole

HEAD = """\
# Guards that were looked at and may stay, each with its reason. tools/audit.py holds the patched
# release against it; `tools/audit.py review` adds entries, `review --prune` drops those whose guard is gone.
"""

TEMPLATE = """\
# Fill in each reason (and the hardware fact it rests on), then: review --from FILE. Where one reason
# holds for several, write paths = ["folder/*"] (and function, condition or kind, to narrow it) instead
# of fingerprint and where; how many that covers is counted for you. Entries without a reason are left out.
"""


def written(entries: Sequence[Entry], *, head: str = HEAD, notes: Mapping[str, str] = MappingProxyType({})) -> str:
    """A ledger file; the same entries give the same bytes. *notes* (by fingerprint) go before an entry."""
    parts = [head.rstrip("\n"), f"schema = {SCHEMA}"]
    for entry in entries:
        note = notes.get(entry.fingerprint, "")
        lines = ["", *(f"# {line}".rstrip() for line in note.splitlines()), "[[guard]]"]
        if entry.fingerprint:
            lines.append(f"fingerprint = {_quoted(entry.fingerprint)}")
        if entry.where:
            lines.append(f"where = {_quoted(entry.where)}")
        if entry.paths:
            lines.append(f"paths = [{', '.join(map(_quoted, entry.paths))}]")
        lines += [
            f"{key} = {_quoted(value)}"
            for key, value in (("condition", entry.condition), ("function", entry.function), ("kind", entry.kind))
            if value
        ]
        if entry.paths:
            lines.append(f"covers = {entry.covers}")
        lines.append(f"reason = {_quoted(entry.reason)}")
        if entry.hardware:
            lines.append(f"hardware = {_quoted(entry.hardware)}")
        lines += [f"reviewer = {_quoted(entry.reviewer)}", f"date = {entry.date.isoformat()}"]
        parts.append("\n".join(lines))
    return "\n".join(parts) + "\n"


def save(ledger: Ledger) -> None:
    """Write the ledger whole or not at all; the comment at its top stays. Raises WriteError."""
    try:
        old = ledger.path.read_text(encoding="utf-8")
    except FileNotFoundError:
        old = HEAD
    head = "".join(takewhile(lambda line: line.startswith("#"), old.splitlines(keepends=True)))
    write(ledger.path, written(ledger.entries, head=head or HEAD))


def counted(added: Sequence[Entry], before: Sequence[Entry], concerns: Iterable[Guard]) -> tuple[Entry, ...]:
    """*added* with the counts that patterns left out: of the *concerns* that no entry before them takes."""
    counts = dict(hold(Ledger(path=Path(), entries=(*before, *added)), concerns).miscounted)
    return tuple(entry if entry.covers else replace(entry, covers=counts.get(entry, 0)) for entry in added)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises WriteError."""
    try:
        write_whole(path, text.encode("utf-8", "surrogateescape"))
    except OSError as exc:
        raise WriteError(str(path), exc.strerror or str(exc), "make room or give the right to write there") from exc


def template(
    guards: Iterable[Guard], *, reviewer: str, date: datetime.date, notes: Mapping[str, str] = MappingProxyType({})
) -> str:
    """An entry for each of *guards*, its reason to be filled in; *notes* by fingerprint go before."""
    entries = [
        Entry(fingerprint=guard.fingerprint, where=guard.where, reason="", reviewer=reviewer, date=date)
        for guard in guards
    ]
    return written(entries, head=TEMPLATE, notes=notes)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
