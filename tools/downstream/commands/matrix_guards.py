"""The guards of each release of a matrix: from the audit to the second map."""

from __future__ import annotations

from typing import Any

from downstream.arches import parse_targets
from downstream.commands.audit_options import REFERENCES, TARGETS
from downstream.errors import DownstreamError
from downstream.guards import ledger as ledgers
from downstream.guards.audit import Scope
from downstream.guards.coverage import patch_of
from downstream.guards.difference import Difference, difference
from downstream.guards.history import concerns, named, rows
from downstream.guards.ledger import Ledger
from downstream.guards.model import Audit, Guard, Question
from downstream.placing.push import push
from downstream.queue.judged import touched
from downstream.queue.matrix import Matrix
from downstream.queue.plan import Plan
from downstream.report.matrix import guards as writer
from downstream.report.matrix.guards import GuardMap
from downstream.trees.open import prefetch_all
from downstream.trees.tree import LayeredTree


def scope_of(plan: Plan) -> Scope:
    """What tools/audit.py asks by default."""
    question = Question(references=parse_targets(REFERENCES), targets=parse_targets(TARGETS))
    return Scope(question=question, layout=plan.pin.upstream.layout)


def changes(plan: Plan, *, whole: bool) -> tuple[Difference, tuple[Guard, ...]]:
    """What the target of *plan* does to the guards of the pin, and the new ones that the ledger does not explain."""
    scope, ledger, paths = _asked(plan, whole=whole)
    if paths is not None:
        prefetch_all([plan.base, plan.new], paths, plan.session)
    old, new = (
        Audit(tree=tree.name, question=scope.question, guards=concerns(tree, scope, plan.session, paths=paths))
        for tree in (plan.base, plan.new)
    )
    found = difference(old, new)
    return found, tuple(guard for guard in found.appeared if ledger.entry(guard) is None)


def _asked(plan: Plan, *, whole: bool) -> tuple[Scope, Ledger, tuple[str, ...] | None]:
    """The question, the ledger, and the files to read: those that the series and the ledger name, or None for all."""
    ledger = ledgers.load(plan.pins.series_folder(plan.pin) / ledgers.FILE)
    return scope_of(plan), ledger, None if whole else tuple(sorted({*touched(plan.patches), *named(ledger)}))


def document(plan: Plan, judged: Matrix, *, whole: bool) -> dict[str, Any]:
    """The guard map of the releases that *judged* could read."""
    scope, ledger, paths = _asked(plan, whole=whole)
    trees = {column.version: plan.open(column.version) for column in judged.columns if column.verdicts is not None}
    if paths is not None:
        prefetch_all([*trees.values(), plan.base], paths, plan.session)
    columns: list[tuple[Guard, ...] | None] = []
    with plan.session.progress.task(f"guards of {judged.upstream}", len(judged.columns), "releases") as task:
        for column in judged.columns:
            try:
                tree = trees.get(column.version)
                columns.append(None if tree is None else concerns(tree, scope, plan.session, paths=paths))
            except DownstreamError:
                columns.append(None)
            task.advance(1, str(column.version))
    return writer.document(
        GuardMap(
            rows=rows(columns, scope.question),
            skipped=tuple(column is None for column in columns),
            versions=tuple(str(column.version) for column in judged.columns),
            ledger=ledger,
            patched=_patched(plan, scope, paths),
            whole=whole,
        )
    )


def _patched(plan: Plan, scope: Scope, paths: tuple[str, ...] | None) -> dict[str, str]:
    """The guards of the pinned release that the series takes away, each with its patch."""
    report = push(plan.patches, plan.base)
    after = LayeredTree(plan.base, report.changes, report.modes)
    left = {guard.fingerprint for guard in concerns(after, scope, plan.session, paths=paths)}
    before = concerns(plan.base, scope, plan.session, paths=paths)
    return {
        guard.fingerprint: patch_of(guard, plan.patches) or "the series"
        for guard in before
        if guard.fingerprint not in left
    }
