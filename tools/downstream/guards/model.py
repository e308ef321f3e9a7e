"""What the audit says about one guard."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from downstream.arches import Target
from downstream.guards.macros import suffixes


class Verdict(StrEnum):
    """A guard on one architecture; for Python and host code, active means that it admits it."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    PREPROCESSOR = "preprocessor"
    HOST = "host"
    PYTHON = "python"


class Class(StrEnum):
    """Why a guard that tells the target from a reference is, or is not, a concern."""

    SUSPECT = "suspect"  # nothing found that the target lacks
    OVER_INCLUSIVE = "over-inclusive"  # sends the target into code made for others
    UNKNOWN = "unknown"  # depends on a name that nobody defines
    HARDWARE = "hardware"  # the guarded code needs what the target lacks
    SERVED = "served"  # another branch is active on the target


CONCERNS = frozenset({Class.SUSPECT, Class.OVER_INCLUSIVE, Class.UNKNOWN})


class Effect(StrEnum):
    """What the exclusion does."""

    EMPTY_KERNEL = "empty-kernel"  # the guard is the whole body of a __global__ function
    NO_SYNC = "no-sync"  # a dependency wait or trigger is dropped
    FALLBACK = "fallback"  # another branch, or what follows, serves
    BUILD_REFUSED = "build-refused"
    FEATURE_OFF = "feature-off"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which architectures to compare: admitted on a *reference*, excluded on a *target*."""

    references: tuple[Target, ...]
    targets: tuple[Target, ...]
    variants: bool = True  # whether suffixed builds (sm_100a, sm_120f) are asked about, too

    @cached_property
    def requested(self) -> tuple[Target, ...]:
        return tuple(dict.fromkeys((*self.references, *self.targets)))

    @cached_property
    def rounds(self) -> tuple[tuple[tuple[Target, ...], tuple[Target, ...]], ...]:
        """Like is compared with like: as requested, then the suffixed builds of each."""
        plain = (self.references, self.targets)
        if not self.variants:
            return (plain,)
        return (plain, (_suffixed(self.references), _suffixed(self.targets)))

    @cached_property
    def variants_of(self) -> tuple[tuple[Target, tuple[Target, ...]], ...]:
        """Each requested target with the suffixed builds that are asked about because of it."""
        return tuple(
            (plain, tuple(t for t in self.asked if t.capability == plain.capability and t not in self.requested))
            for plain in self.requested
        )

    @cached_property
    def asked(self) -> tuple[Target, ...]:
        return tuple(dict.fromkeys(target for pair in self.rounds for side in pair for target in side))


def _suffixed(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    return tuple(variant for target in targets for variant in (suffixes(target) or (target,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One branch of a conditional chain, one host condition or one Python gate.

    *line* is the first line of the directive or expression; *end_line* the last
    line of the branch (the line before the next #elif, #else or #endif) or of
    the expression.
    """

    path: str  # in the repository
    wheel_path: str | None = None
    line: int
    end_line: int
    kind: Kind
    condition: str
    arches: Mapping[str, Verdict]
    excluded: bool
    whole_kernel: bool = False
    verdict_class: Class | None = None
    effect: Effect | None = None
    function: str | None = None
    unknown: tuple[str, ...] = ()  # names that nobody defines
    evidence: str = ""  # what decided the class
    because: tuple[str, ...] = ()  # how the tree's own macros came to be what they are
    ordinal: int = 0  # among equal guards of the same function
    covered_by: str | None = None

    @property
    def concern(self) -> bool:
        """Whether somebody has to have looked at it."""
        return self.verdict_class in CONCERNS

    @property
    def where(self) -> str:
        """For a reader: the place and the condition."""
        condition = self.condition if len(self.condition) <= 100 else f"{self.condition[:99]}…"
        return f"{self.path}:{self.line} {condition}"

    @property
    def fingerprint(self) -> str:
        """A name that survives moved lines and changed spacing: 12 hex digits."""
        return fingerprint(self.path, self)

    @property
    def shape(self) -> str:
        """The fingerprint without the path: for guards whose file moved."""
        return fingerprint("", self)


def fingerprint(path: str, guard: Guard) -> str:
    condition = "".join(guard.condition.split())
    parts = (path, guard.kind.value, guard.function or "", condition, str(guard.ordinal))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was read, and what could not be understood."""

    files: int = 0
    scanned: int = 0  # files that hold anything to judge
    problems: tuple[str, ...] = ()  # path:line: what could not be understood
    partial: bool = False  # not all of the tree, or another question than a ledger answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All guards of one tree, by path and line."""

    tree: str
    question: Question
    guards: tuple[Guard, ...]
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def concerns(self) -> tuple[Guard, ...]:
        return tuple(guard for guard in self.guards if guard.concern)
