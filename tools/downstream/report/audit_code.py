"""A guard as a reviewer wants to see it: what the audit says of it, and its code."""

from __future__ import annotations

from downstream.guards.model import Guard
from downstream.report.audit_text import verdicts
from downstream.report.context import printable

AROUND = 4  # lines before and after
LONGEST = 24  # lines of a guard itself


def shown(guard: Guard, content: bytes | None) -> str:
    """What was found, and the lines of *content* around it."""
    where = f"in {guard.function}; " if guard.function else ""
    lines = [printable(f"{guard.verdict_class}, {guard.effect}: {where}{guard.evidence}; {verdicts(guard)}")]
    if content is not None:
        code = content.decode("utf-8", "replace").split("\n")
        last = min(len(code), min(guard.end_line, guard.line + LONGEST) + AROUND)
        lines += [
            f"{number:6} {printable(code[number - 1].rstrip())}".rstrip()
            for number in range(max(1, guard.line - AROUND), last + 1)
        ]
    return "\n".join(lines)
