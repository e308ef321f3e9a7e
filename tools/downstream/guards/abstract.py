"""The values that Python conditions are evaluated to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from downstream.arches import ComputeCapability

_ARCH_TEXT = re.compile(r"(?:sm_?|compute_)?(\d{2,3})[af]?", re.IGNORECASE)
_DOTTED = re.compile(r"(\d{1,2})\.(\d)[af]?")


# Where a host or Python gate must make a difference to be one.
RANGE = tuple(
    ComputeCapability(*pair) for pair in ((8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1))
)


@dataclass(frozen=True, slots=True)
class Abstract:
    """Some value; by itself one that may be anything and has nothing to do with the architecture."""

    def truths(self) -> tuple[frozenset[bool], frozenset[str]]:
        """What ``bool(value)`` may be, and the names of the architecture that are to blame."""
        return frozenset({True, False}), frozenset()

    def negated(self) -> Abstract:
        return self

    def joined_with(self, other: Abstract, *, is_and: bool) -> Abstract:
        """``self and other``, or ``self or other``, as far as truth goes."""
        mine, my_names = self.truths()
        theirs, their_names = other.truths()
        decides = not is_and  # False decides an and, True an or
        if mine == {decides} or theirs == {decides}:
            return Const(decides)
        if mine == {not decides}:
            return other
        if theirs == {not decides}:
            return self
        names = my_names | their_names
        return Open(names) if names else BOTH


@dataclass(frozen=True, slots=True)
class Const(Abstract):
    """A known value."""

    value: Any

    def truths(self) -> tuple[frozenset[bool], frozenset[str]]:
        return frozenset({bool(self.value)}), frozenset()

    def negated(self) -> Abstract:
        return Const(not self.value)


@dataclass(frozen=True, slots=True)
class Open(Abstract):
    """Something of the architecture that could not be worked out."""

    names: frozenset[str]

    def truths(self) -> tuple[frozenset[bool], frozenset[str]]:
        return frozenset({True, False}), self.names


@dataclass(frozen=True, slots=True)
class Arch(Abstract):
    """The capability itself: a tuple, a number or a text, as whatever it is compared with wants it."""

    capability: ComputeCapability

    def truths(self) -> tuple[frozenset[bool], frozenset[str]]:
        return frozenset({True}), frozenset()

    def negated(self) -> Abstract:
        return Const(value=False)

    def like(self, other: Any) -> Any:
        """The capability in the form of *other*, or None where that is no form of one."""
        capability = self.capability
        if isinstance(other, tuple) and other and all(isinstance(part, int) for part in other):
            return (capability.major, capability.minor)[: max(len(other), 1)]
        if isinstance(other, bool):
            return None
        if isinstance(other, int):
            if other < 20:
                return capability.major
            return capability.cuda_arch if other >= 500 else capability.number
        if isinstance(other, str):
            if _DOTTED.fullmatch(other):
                return other if other.rstrip("af") == str(capability) else str(capability)
            found = _ARCH_TEXT.fullmatch(other)
            if found:
                return other if int(found[1]) == capability.number else str(capability.number)
        return None


FREE = Abstract()
BOTH = FREE


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call."""

    positional: tuple[Abstract, ...] = ()
    keywords: Mapping[str, Abstract] = field(default_factory=dict)
    method: bool = False


@dataclass(frozen=True, slots=True)
class Assigned:
    """An expression that a name was given, or the *index*-th part of it."""

    value: ast.expr
    index: int | None = None


@dataclass(slots=True)
class Scope:
    """What names mean where a condition stands."""

    values: dict[str, Abstract] = field(default_factory=dict)
    assigned: Mapping[str, list[Assigned]] = field(default_factory=dict)  # in the enclosing function and class


def names_architecture(text: str) -> bool:
    """Whether *text* is how an architecture is written: ``100``, ``sm_100a``, ``10.0``."""
    return bool(_ARCH_TEXT.fullmatch(text) or _DOTTED.fullmatch(text))


def joined(results: Iterable[Abstract]) -> Abstract:
    """One of *results*, it is not known which."""
    known = list(dict.fromkeys(results))
    if len(known) == 1:
        return known[0]
    names = frozenset(name for each in known for name in each.truths()[1])
    if names:
        return Open(names)
    truths = {truth for each in known for truth in each.truths()[0]}
    if len(truths) == 1 and all(isinstance(each, Const) and isinstance(each.value, bool) for each in known):
        return Const(truths.pop())
    return FREE


def subscript(value: Abstract, index: Any) -> Abstract:
    """``value[index]``"""
    if isinstance(value, Arch) and index in (0, 1):
        return Const(value.capability.major if index == 0 else value.capability.minor)
    if isinstance(value, Const) and isinstance(value.value, tuple) and isinstance(index, int):
        return Const(value.value[index]) if -len(value.value) <= index < len(value.value) else FREE
    return FREE


def binary(operator: ast.operator, left: Abstract, right: Abstract) -> Abstract:
    """``left operator right`` for the arithmetic that makes 120 of 12 and 0, or 12 of 120."""
    a, b = _number(left), _number(right)
    if a is None or b is None:
        return FREE
    try:
        match operator:
            case ast.Add():
                return Const(a + b)
            case ast.Sub():
                return Const(a - b)
            case ast.Mult():
                return Const(a * b)
            case ast.FloorDiv():
                return Const(a // b)
            case ast.Mod():
                return Const(a % b)
    except (TypeError, ZeroDivisionError, ValueError):
        pass
    return FREE


def _number(value: Abstract) -> Any:
    """What arithmetic sees of *value*; the architecture as a number, as in ``get_device_sm() // 10``."""
    if isinstance(value, Arch):
        return value.capability.number
    return value.value if isinstance(value, Const) else None


def compare(operator: ast.cmpop, left: Abstract, right: Abstract) -> Abstract:
    """``left operator right``: decided where one side is the architecture and the other a constant."""
    if isinstance(left, Open) or isinstance(right, Open):
        names = frozenset(name for side in (left, right) if isinstance(side, Open) for name in side.names)
        return Open(names)
    if isinstance(operator, ast.In | ast.NotIn):
        return _member(left, right, wanted=isinstance(operator, ast.In))
    a, b = _matched(left, right)
    if a is None or b is None:
        return FREE
    try:
        match operator:
            case ast.Eq():
                return Const(a == b)
            case ast.NotEq():
                return Const(a != b)
            case ast.Lt():
                return Const(a < b)
            case ast.LtE():
                return Const(a <= b)
            case ast.Gt():
                return Const(a > b)
            case ast.GtE():
                return Const(a >= b)
    except TypeError:
        pass
    return FREE


def _matched(left: Abstract, right: Abstract) -> tuple[Any, Any]:
    if isinstance(left, Const) and isinstance(right, Const):
        return left.value, right.value
    if isinstance(left, Arch) and isinstance(right, Const):
        return left.like(right.value), right.value
    if isinstance(left, Const) and isinstance(right, Arch):
        return left.value, right.like(left.value)
    return None, None


def _member(left: Abstract, right: Abstract, *, wanted: bool) -> Abstract:
    if not isinstance(right, Const) or not isinstance(right.value, tuple):
        return FREE
    if isinstance(left, Const):
        return Const((left.value in right.value) is wanted)
    if isinstance(left, Arch):
        return Const(any(left.like(each) == each for each in right.value) is wanted)
    return FREE
