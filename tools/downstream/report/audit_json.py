"""Guards as JSON, schema 1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from downstream.guards.citation import Citation
from downstream.guards.difference import Difference
from downstream.guards.ledger import Covered, Entry
from downstream.guards.model import Guard
from downstream.report.json import SCHEMA, dumps


def render(reports: Sequence[tuple[str, Covered]], *, everything: bool) -> str:
    """One document about the audits of several upstreams; *everything* lists guards that are no findings, too."""
    guards: list[dict[str, Any]] = []
    audits = []
    for upstream, covered in reports:
        extra = {"upstream": upstream} if upstream else {}
        guards += [guard_document(guard) | extra for guard in listed(covered.audit.guards, everything=everything)]
        audits.append(_audit(covered) | extra)
    return dumps(
        {
            "schema": SCHEMA,
            "command": "audit",
            "ok": all(covered.fine for _, covered in reports),
            "guards": guards,
            "audits": audits,
        }
    )


def listed(guards: Iterable[Guard], *, everything: bool) -> list[Guard]:
    """The findings of *guards*: what was given a class."""
    return [guard for guard in guards if everything or guard.verdict_class is not None]


def guard_document(guard: Guard) -> dict[str, Any]:
    """One guard; the keys up to covered_by are those of the issue, the others explain."""
    return {
        "path": guard.path,
        "wheel_path": guard.wheel_path,
        "line": guard.line,
        "end_line": guard.end_line,
        "kind": guard.kind.value,
        "condition": guard.condition,
        "arches": {arch: verdict.value for arch, verdict in guard.arches.items()},
        "excluded": guard.excluded,
        "whole_kernel": guard.whole_kernel,
        "class": guard.verdict_class.value if guard.verdict_class else None,
        "effect": guard.effect.value if guard.effect else None,
        "function": guard.function,
        "covered_by": guard.covered_by,
        "fingerprint": guard.fingerprint,
        "evidence": guard.evidence,
        "unknown": list(guard.unknown),
        "because": list(guard.because),
    }


def render_difference(difference: Difference, *, ok: bool) -> str:
    """New, gone and moved guards between two releases."""
    return dumps(
        {
            "schema": SCHEMA,
            "command": "audit",
            "ok": ok,
            "old": difference.old,
            "new": difference.new,
            "guards": [guard_document(guard) for guard in difference.appeared],
            "gone": [guard_document(guard) for guard in difference.gone],
            "moved": [_pair(old, new) for old, new in difference.moved],
            "changed": [_pair(old, new) for old, new in difference.changed],
            "kept": difference.kept,
        }
    )


def _pair(old: Guard, new: Guard) -> dict[str, Any]:
    return {"from": {"path": old.path, "line": old.line}, **guard_document(new)}


def _audit(covered: Covered) -> dict[str, Any]:
    audit, reading = covered.audit, covered.reading
    return {
        "tree": audit.tree,
        "references": [str(target) for target in audit.question.references],
        "targets": [str(target) for target in audit.question.targets],
        "files": audit.coverage.files,
        "scanned": audit.coverage.scanned,
        "total": len(audit.guards),
        "not_understood": list(audit.coverage.problems),
        "unreviewed": [guard.fingerprint for guard in reading.unreviewed],
        "patched": [_patched(guard, covered.proof) for guard in covered.patched],
        "proof": _proof(covered.proof) if covered.proof else None,
        "gone": [_entry(entry) for entry in reading.gone],
        "miscounted": [_entry(entry) | {"found": count} for entry, count in reading.miscounted],
    }


def _patched(guard: Guard, proof: Citation | None) -> dict[str, Any]:
    file = proof.about(guard.path) if proof else None
    said = {"holds": file.holds, "words": (proof.problem if proof else "") or file.words} if file else None
    return guard_document(guard) | {"proof": said}


def _proof(proof: Citation) -> dict[str, Any]:
    return {
        "problem": proof.problem,
        "dead": proof.dead,
        "files": [{"path": path, "holds": file.holds, "words": file.words} for path, file in proof.files.items()],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {"entry": entry.name, "where": entry.where, "reason": entry.reason, "covers": entry.covers}
