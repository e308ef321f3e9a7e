"""What the doctor says: one sentence, how bad it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Level(str, Enum):
    """How a finding counts; only PROBLEM changes the exit code."""

    OK = "ok"
    NOTE = "note"  # may be right, worth knowing
    PROBLEM = "problem"
    UNKNOWN = "unknown"  # could not be found out here


@dataclass(frozen=True)
class Finding:
    """One answer. *facts* are what a machine would want of it; JSON values only."""

    check: str
    level: Level
    text: str
    advice: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
