"""Each finding of a pin: which patch changes it, which ledger entry explains it, or nobody."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from downstream.guards.audit import Auditor, Scope
from downstream.guards.kept import Store
from downstream.guards.ledger import Covered, Ledger, covered
from downstream.guards.model import Guard
from downstream.patched import PatchedTree
from downstream.patches.parse import parse
from downstream.patches.text import Patch
from downstream.progress import SILENT, Progress

_ORIGIN = re.compile(r"\(([^()\s]+):(\d+)")


def with_series(
    tree: PatchedTree, scope: Scope, ledger: Ledger, *, progress: Progress = SILENT, store: Store | None = None
) -> Covered:
    """Audit the patched tree, and say which findings of the release its series took away."""
    auditor = Auditor(tree.layered, scope, progress=progress, store=store)
    after = auditor.audit()
    changed = tuple(path for path in tree.changed if path not in tree.overlay)
    before = Auditor(tree.base, replace(scope, paths=changed), progress=progress, like=auditor, store=store).audit()
    left = {guard.fingerprint for guard in after.guards if guard.verdict_class is not None}
    patches = [parse(content, name=name) for name, content in tree.patches.items()]
    patched = [
        replace(guard, covered_by=patch_of(guard, patches))
        for guard in before.guards
        if guard.verdict_class is not None and guard.fingerprint not in left
    ]
    after = replace(after, tree=f"{tree.pin} patched")
    return replace(covered(after, ledger), patched=tuple(patched))


def patch_of(guard: Guard, patches: Iterable[Patch]) -> str | None:
    """Return the patch that changes the guard's lines, else those of a macro it depends on, else its file."""
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
