"""Guards over the releases: which shut the target out, since when and until when."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from downstream.guards.audit import Scope, audit
from downstream.guards.difference import difference
from downstream.guards.kept import read, rules, written
from downstream.guards.ledger import Ledger
from downstream.guards.model import Audit, Guard, Question
from downstream.trees.session import Session
from downstream.trees.tree import MemoryTree, Tree

_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One guard on each release: None where it is not there, or the release could not be read."""

    cells: tuple[Guard | None, ...]

    @property
    def guard(self) -> Guard:
        """The guard as the newest release that has it shows it."""
        return next(guard for guard in reversed(self.cells) if guard is not None)


def named(ledger: Ledger) -> tuple[str, ...]:
    """Return the paths that a ledger names outright; its patterns are left to a full audit."""
    paths = {path for entry in ledger.entries for path in entry.paths if not _GLOB & set(path)}
    paths |= {entry.where.partition(":")[0] for entry in ledger.entries if entry.where}
    return tuple(sorted(paths))


def concerns(tree: Tree, scope: Scope, session: Session, *, paths: Iterable[str] | None = None) -> tuple[Guard, ...]:
    """Return the guards of *tree* that somebody has to have looked at, kept by content.

    With *paths* only those files are read and judged, by themselves: a macro
    that another file defines is unknown then. Without, every file of the
    release is; the answer is kept where the tree has an identity.
    """
    if paths is None:
        identity = getattr(tree, "identity", "")
        return _kept(f"all\n{identity}" if identity else "", tree, scope, session)
    files = {path: content for path in sorted(set(paths)) if (content := tree.read(path)) is not None}
    contents = "\n".join(f"{path} {hashlib.sha256(content).hexdigest()}" for path, content in files.items())
    return _kept(f"part\n{contents}", MemoryTree(files, name=tree.name), scope, session)


def rows(columns: Sequence[tuple[Guard, ...] | None], question: Question) -> tuple[Row, ...]:
    """Return a row per guard, in order of file and line; one that moved to another file stays the same row."""
    cells: dict[str, list[Guard | None]] = {}
    known: dict[str, str] = {}  # fingerprint -> the row's name: the fingerprint it was first seen with
    before: tuple[Guard, ...] = ()
    for number, column in enumerate(columns):
        if column is None:
            continue
        old, new = (Audit(tree="", question=question, guards=guards) for guards in (before, column))
        for was, now in difference(old, new).moved:
            known.setdefault(now.fingerprint, known.get(was.fingerprint, was.fingerprint))
        for guard in column:
            name = known.setdefault(guard.fingerprint, guard.fingerprint)
            cells.setdefault(name, [None] * len(columns))[number] = guard
        before = column
    found = [Row(cells=tuple(row)) for row in cells.values()]
    return tuple(sorted(found, key=lambda row: (row.guard.path, row.guard.line, row.guard.condition)))


def _kept(content: str, tree: Tree, scope: Scope, session: Session) -> tuple[Guard, ...]:
    key = hashlib.sha256("\n".join([rules(), repr(scope), content]).encode("utf-8", "surrogateescape")).hexdigest()
    name = f"guards/{key}.json"
    kept = session.cache.read(name) if content else None
    if kept is None:
        found = audit(tree, scope, progress=session.progress, store=session.cache).concerns
        kept = json.dumps([written(guard) for guard in found], separators=(",", ":")).encode()
        if content:
            session.cache.write(name, kept)
    return tuple(read(row) for row in json.loads(kept))
