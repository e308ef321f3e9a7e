"""What to audit of a tree, and under which assumptions."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field

from downstream.guards.macros import Toolkit
from downstream.guards.model import Question
from downstream.guards.profile import THIRD_PARTY
from downstream.trees.layout import IDENTITY, Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The question, the layout of wheels, and which files it is about."""

    question: Question
    layout: Layout = IDENTITY
    paths: tuple[str, ...] = ()  # glob patterns on repository paths; none: all
    third_party: bool = False
    toolkit: Toolkit | None = field(default_factory=Toolkit)
    defines: Mapping[str, str] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        """Whether it shows less, or something else, than the audit that a ledger is kept for."""
        return bool(self.paths or self.defines) or not self.question.variants

    def judged(self, path: str) -> bool:
        """Whether the code at *path* is ours to judge at all."""
        return self.third_party or not THIRD_PARTY.search(path)

    def wanted(self, path: str) -> bool:
        """Whether the guards of *path* are asked for."""
        if not self.judged(path):
            return False
        return not self.paths or any(fnmatch.fnmatchcase(path, pattern) for pattern in self.paths)
