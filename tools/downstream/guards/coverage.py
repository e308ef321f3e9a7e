"""Each finding of a pin: which patch changes it, which ledger entry explains it, or nobody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from downstream.guards.audit import Scope, audit
from downstream.guards.ledger import Entry, Ledger, Reading, hold
from downstream.guards.model import Audit, Guard
from downstream.patched import PatchedTree
from downstream.patches.parse import parse
from downstream.patches.text import Patch
from downstream.progress import SILENT, Progress

_ORIGIN = re.compile(r"\(([^()\s]+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """An audit with what is known about each of its concerns."""

    audit: Audit
    reading: Reading
    patched: tuple[Guard, ...] = ()  # findings of the release that its series takes away

    @property
    def fine(self) -> bool:
        """Whether somebody has looked at everything."""
        return not self.reading.unreviewed and not self.reading.miscounted


def without_series(found: Audit, ledger: Ledger) -> Covered:
    """Hold the audit of any tree against a ledger (an empty one: everything is unreviewed)."""
    reading = hold(ledger, found.concerns)
    return Covered(audit=replace(found, guards=_named(found.guards, reading.covered)), reading=reading)


def with_series(tree: PatchedTree, scope: Scope, ledger: Ledger, *, progress: Progress = SILENT) -> Covered:
    """Audit the patched tree, and say which findings of the release its series took away."""
    after = audit(tree.layered, scope, progress=progress)
    reading = hold(ledger, after.concerns)
    changed = tuple(path for path in tree.changed if path not in tree.overlay)
    before = audit(tree.base, replace(scope, paths=changed), progress=progress)
    left = {guard.fingerprint for guard in after.concerns}
    patches = [parse(content, name=name) for name, content in tree.patches.items()]
    patched = [
        replace(guard, covered_by=_patch_of(guard, patches))
        for guard in before.concerns
        if guard.fingerprint not in left
    ]
    return Covered(
        audit=replace(after, tree=f"{tree.pin} patched", guards=_named(after.guards, reading.covered)),
        reading=reading,
        patched=tuple(patched),
    )


def _named(guards: Iterable[Guard], covered: Mapping[str, Entry]) -> tuple[Guard, ...]:
    return tuple(
        replace(guard, covered_by=f"ledger: {covered[guard.fingerprint].name}")
        if guard.concern and guard.fingerprint in covered
        else guard
        for guard in guards
    )


def _patch_of(guard: Guard, patches: Iterable[Patch]) -> str | None:
    """The patch that changes the guard's lines, else those of a macro it depends on, else its file."""
    places = [(guard.path, guard.line, guard.end_line)]
    places += [(path, int(line), int(line)) for reason in guard.because for path, line in _ORIGIN.findall(reason)]
    known = list(patches)
    for path, first, last in places:
        for patch in known:
            for file in patch.files:
                if file.path == path and any(_changes(hunk.body, hunk.old_start, first, last) for hunk in file.hunks):
                    return patch.name
    for path, _, _ in places:
        for patch in known:
            if any(file.path == path for file in patch.files):
                return patch.name
    return None


def _changes(body: Iterable[tuple[str, bytes]], line: int, first: int, last: int) -> bool:
    for sign, _ in body:
        if sign != " " and first - 1 <= line <= last + 1:
            return True
        line += sign != "+"
    return False
