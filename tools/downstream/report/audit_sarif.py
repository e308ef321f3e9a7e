"""Guards as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from downstream.guards.ledger import Covered
from downstream.guards.model import CONCERNS, Class, Guard
from downstream.report.audit_json import listed
from downstream.report.audit_text import MEANING, verdicts
from downstream.report.sarif import log, result

_LEVELS = {Class.SUSPECT: "error", Class.UNKNOWN: "warning", Class.OVER_INCLUSIVE: "warning"}


def render(reports: Sequence[tuple[str, Covered]]) -> str:
    """A log with a result per finding; reviewed ones are notes."""
    found = [
        _result(guard, upstream)
        for upstream, covered in reports
        for guard in listed(covered.audit.guards, everything=False)
    ]
    return log(found, rules={each.value: MEANING[each] for each in Class})


def _result(guard: Guard, upstream: str) -> dict[str, Any]:
    assert guard.verdict_class is not None
    open_question = guard.verdict_class in CONCERNS and guard.covered_by is None
    effect = f" ({guard.effect.value})" if guard.effect else ""
    told = (
        f"{MEANING[guard.verdict_class]}{effect}",
        guard.evidence,
        guard.condition,
        verdicts(guard),
        guard.covered_by,
    )
    return result(
        rule=guard.verdict_class.value,
        level=_LEVELS.get(guard.verdict_class, "note") if open_question else "note",
        message="; ".join(part for part in told if part),
        path=guard.path,
        line=guard.line,
        end_line=guard.end_line,
        identity=(guard.fingerprint,),
        upstream=f"{upstream + ':' if upstream else ''}{guard.function or guard.path}",
    )
