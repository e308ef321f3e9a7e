"""GPU architectures: compute capabilities and nvcc's target suffixes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from downstream.errors import UsageError


class Suffix(StrEnum):
    """What nvcc allows beyond the baseline (CUDA programming guide, 5.1.3)."""

    PLAIN = ""
    ARCHITECTURE = "a"  # this capability only
    FAMILY = "f"  # this capability's family


@dataclass(frozen=True, slots=True, order=True)
class ComputeCapability:
    """A device's ``major.minor``, e.g. 12.0 for an RTX PRO 6000."""

    major: int
    minor: int

    @property
    def number(self) -> int:
        """The number in ``sm_120``."""
        return self.major * 10 + self.minor

    @property
    def cuda_arch(self) -> int:
        """The value of ``__CUDA_ARCH__``: 1200 for 12.0."""
        return self.number * 10

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """What nvcc compiles for: a capability and a suffix, e.g. ``sm_120f``."""

    capability: ComputeCapability
    suffix: Suffix = Suffix.PLAIN

    def __str__(self) -> str:
        return f"sm_{self.capability.number}{self.suffix.value}"


_TARGET = re.compile(r"(?:sm_?|compute_)?(?:(\d{1,2})\.(\d)|(\d{2,3}))([af]?)", re.IGNORECASE)


def parse_target(text: str) -> Target:
    """Read ``sm_120``, ``120a``, ``12.0f`` or ``compute_90a``.

    Raises UsageError for anything else.
    """
    found = _TARGET.fullmatch(text.strip())
    if not found:
        raise UsageError(text, "is no GPU architecture", "write it as sm_120, 120a or 12.0f")
    major, minor, number, suffix = found.groups()
    if number:
        major, minor = number[:-1], number[-1]
    return Target(ComputeCapability(int(major), int(minor)), Suffix(suffix.lower()))


def parse_targets(text: str) -> tuple[Target, ...]:
    """Read a list of targets separated by commas or blanks, in its order."""
    return tuple(dict.fromkeys(parse_target(word) for word in re.split(r"[,\s]+", text) if word))
