"""What Python code answers on an architecture: expressions evaluated for one capability at a time.

What has nothing to do with the architecture may be anything; names are followed
to their assignments, calls to their definitions in the tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from downstream.arches import ComputeCapability
from downstream.guards.abstract import (
    FREE,
    Abstract,
    Arch,
    Assigned,
    Call,
    Const,
    Scope,
    binary,
    compare,
    joined,
    names_architecture,
    subscript,
)
from downstream.guards.names import (
    ARCHITECTURE,
    MAJOR,
    NAMED,
    NUMBER,
    PREDICATE,
    QUERY,
    Module,
    by_name,
    called,
    is_decision,
)

ASSIGNMENTS = 32  # to one name

_NOT_A_DEVICE = re.compile(r"version|python|cuda_ver|driver|toolkit|nvcc|release|triton", re.IGNORECASE)


class Answers(Protocol):
    """Who knows the files and the predicates of the tree."""

    @property
    def definitions(self) -> Mapping[str, Sequence[object]]:
        """What is defined in the tree, by name."""

    @property
    def attributes(self) -> Mapping[str, Sequence[object]]:
        """The attributes that ask for the architecture when they are read, by name."""

    def module(self, path: str) -> Module | None:
        """The parsed file."""

    def attribute(self, name: str, capability: ComputeCapability, depth: int) -> Abstract:
        """What reading the attribute *name* answers."""

    def call(self, name: str, capability: ComputeCapability, call: Call, depth: int) -> Abstract:
        """What calling *name* answers."""

    def judged(self, name: str) -> bool:
        """Whether the function *name* decides by conditions, which are judged where they stand."""


class Interpreter:
    """Evaluates the expressions of one file for one capability."""

    def __init__(self, predicates: Answers, path: str, capability: ComputeCapability, depth: int = 0) -> None:
        self.predicates = predicates
        self.path = path
        self.capability = capability
        self.depth = depth
        self._following: set[str] = set()
        self.asked = False  # whether anything of the architecture was met
        self.direct = False  # whether it was met outside what is judged by itself, where it is decided
        self.decided: set[str] = set()  # the names of what is

    def evaluate(self, node: ast.expr, scope: Scope) -> Abstract:
        """The value of *node*: a constant, the architecture, something open, or free."""
        match node:
            case ast.Constant():
                return Const(node.value)
            case ast.Name():
                return self._name(node.id, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Tuple() | ast.List() | ast.Set():
                parts = [self.evaluate(each, scope) for each in node.elts]
                known = tuple(part.value for part in parts if isinstance(part, Const))
                return Const(known) if len(known) == len(parts) else FREE
            case ast.Dict():
                return self.evaluate(ast.Tuple([key for key in node.keys if key is not None]), scope)
            case ast.UnaryOp(op=ast.Not()):
                return self.evaluate(node.operand, scope).negated()
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
                return Const(-number)
            case ast.BoolOp():
                is_and = isinstance(node.op, ast.And)
                result: Abstract = Const(is_and)
                for operand in node.values:
                    result = result.joined_with(self.evaluate(operand, scope), is_and=is_and)
                return result
            case ast.Compare():
                return self._compare(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Subscript():
                base = self.evaluate(node.value, scope)
                if isinstance(node.slice, ast.Slice):
                    return base if isinstance(base, Arch) else FREE
                index = self.evaluate(node.slice, scope)
                return subscript(base, index.value) if isinstance(index, Const) else FREE
            case ast.BinOp():
                return binary(node.op, self.evaluate(node.left, scope), self.evaluate(node.right, scope))
            case ast.JoinedStr():
                return self._text(node, scope)
            case ast.IfExp():
                possible, _ = self.evaluate(node.test, scope).truths()
                arms = ((True, node.body), (False, node.orelse))
                return joined(self.evaluate(arm, scope) for want, arm in arms if want in possible)
            case ast.NamedExpr():
                named = self.evaluate(node.value, scope)
                scope.values[node.target.id] = named
                return named
        return FREE

    def _name(self, name: str, scope: Scope) -> Abstract:
        if name in scope.values:
            return scope.values[name]
        module = self.predicates.module(self.path)
        for values in (scope.assigned.get(name), module.names.get(name) if module else None):
            if values and name not in self._following and len(values) <= ASSIGNMENTS:
                found, asked = self._followed(name, values, scope)
                # A constant list or number says what is compared with; a flag may be set elsewhere, too.
                plain = isinstance(found, Const) and not isinstance(found.value, bool | str | None)
                if plain or (asked and found != FREE):
                    return found
                if asked and not (MAJOR.match(name) or ARCHITECTURE.match(name)):
                    return FREE
        if MAJOR.match(name) and not _NOT_A_DEVICE.search(name):
            return self._met(Const(self.capability.major))
        if name == "minor":
            return Const(self.capability.minor)
        if ARCHITECTURE.match(name):
            return self._met(Arch(self.capability))
        if NAMED.match(name):
            return self._met(by_name(name, self.capability))
        if PREDICATE.match(name) and name in self.predicates.definitions:
            return self._met(self.predicates.call(name, self.capability, Call(), self.depth))
        return FREE

    def _met(self, value: Abstract, *, decided: str = "") -> Abstract:
        self.asked = True
        if decided:
            self.decided.add(decided)
        else:
            self.direct = True
        return value

    def _followed(self, name: str, values: Iterable[Assigned], scope: Scope) -> tuple[Abstract, bool]:
        """What the assignments of *name* make of it, and whether they ask for the architecture."""
        self._following.add(name)
        before, self.asked = self.asked, False
        results = []
        for value in values:
            direct, self.direct = self.direct, False
            decided = set(self.decided)
            result = self.evaluate(value.value, scope)
            results.append(result if value.index is None else subscript(result, value.index))
            if self.direct and is_decision(value.value) and not PREDICATE.match(name.removeprefix("self.")):
                self.decided = decided | {name}
                self.direct = False
            self.direct = self.direct or direct
        asked, self.asked = self.asked, self.asked or before
        self._following.discard(name)
        found = joined(results)
        if isinstance(found, Const) and isinstance(found.value, str) and not names_architecture(found.value):
            return FREE, asked  # a backend that was chosen earlier: the choice is the gate, not its use
        return found, asked

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Abstract:
        name = node.attr
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            full = f"self.{name}"
            values = scope.assigned.get(full)
            if values and full not in self._following:
                found, asked = self._followed(full, values, scope)
                if asked:
                    return found
        if name in self.predicates.attributes:
            return self._met(self.predicates.attribute(name, self.capability, self.depth))
        if name in ("major", "minor"):
            if _NOT_A_DEVICE.search(ast.unparse(node.value)):
                return FREE
            return self._met(Const(self.capability.major if name == "major" else self.capability.minor))
        if ARCHITECTURE.match(name) and name.lower() != "cc":
            return self._met(Arch(self.capability))
        return self._met(by_name(name, self.capability)) if NAMED.match(name) else FREE

    def _compare(self, node: ast.Compare, scope: Scope) -> Abstract:
        left = self.evaluate(node.left, scope)
        result: Abstract = Const(value=True)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator, scope)
            result = result.joined_with(compare(operator, left, right), is_and=True)
            left = right
        return result

    def _call(self, node: ast.Call, scope: Scope) -> Abstract:
        name = called(node)
        known = name in self.predicates.definitions
        if QUERY.match(name) or (NUMBER.match(name) and not known):
            return self._met(Arch(self.capability))
        if name in ("int", "str", "bool", "tuple", "list") and len(node.args) == 1:
            return _converted(name, self.evaluate(node.args[0], scope))
        if name in ("DeviceCapability", "ComputeCapability") and node.args:
            return self._met(Arch(self.capability))
        if not known:
            found = by_name(name, self.capability)
            return found if found == FREE and not NAMED.match(name) else self._met(found)
        call = Call(
            tuple(self.evaluate(each, scope) for each in node.args if not isinstance(each, ast.Starred)),
            {each.arg: self.evaluate(each.value, scope) for each in node.keywords if each.arg},
            method=isinstance(node.func, ast.Attribute),
        )
        found = self.predicates.call(name, self.capability, call, self.depth)
        # Where the tree's own query has several answers (no device, another vendor), its name says what it asks for.
        if found == FREE and NUMBER.match(name):
            return self._met(Arch(self.capability))
        truth = found == FREE or (isinstance(found, Const) and isinstance(found.value, bool | None))
        judged = truth and not PREDICATE.match(name) and self.predicates.judged(name)
        return self._met(found, decided=f"{name}()" if judged else "")

    def _text(self, node: ast.JoinedStr, scope: Scope) -> Abstract:
        parts = []
        for part in node.values:
            value = self.evaluate(part.value if isinstance(part, ast.FormattedValue) else part, scope)
            if not isinstance(value, Const):
                return FREE
            parts.append(str(value.value))
        return Const("".join(parts))


def _converted(name: str, value: Abstract) -> Abstract:
    if isinstance(value, Arch):
        return value if name in ("tuple", "list") else FREE
    if not isinstance(value, Const):
        return FREE
    try:
        return Const({"int": int, "str": str, "bool": bool}.get(name, tuple)(value.value))
    except (TypeError, ValueError):
        return FREE
