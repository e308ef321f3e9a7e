"""What Python code answers on an architecture: expressions evaluated for one capability at a time.

What has nothing to do with the architecture may be anything; names are followed
to their assignments, calls to their definitions in the tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from downstream.guards.names import MAJOR, NAMED, NUMBER, PREDICATE, QUERY, FunctionNode, Module, by_name, ends

RETURNS = 32  # of one function

_ARCH_NAME = re.compile(
    r"^_?(?:sm|sm_version|sm_arch|cuda_arch|gpu_arch|device_arch|compute_capability|device_capability|capability"
    r"|cuda_capability|cc|sm_ver|capability_tuple)$",
    re.IGNORECASE,
)
_NOT_A_DEVICE = re.compile(r"version|python|cuda_ver|driver|toolkit|nvcc|release|triton", re.IGNORECASE)
_WRAPPERS = frozenset({"cache", "lru_cache", "functools.cache"})


class Answers(Protocol):
    """Who knows the files and the predicates of the tree."""

    @property
    def definitions(self) -> Mapping[str, Sequence[object]]:
        """What is defined in the tree, by name."""

    def module(self, path: str) -> Module | None:
        """The parsed file."""

    def call(self, name: str, capability: ComputeCapability, call: Call, depth: int) -> Abstract:
        """What calling *name* answers."""


class Interpreter:
    """Evaluates the expressions of one file for one capability."""

    def __init__(self, predicates: Answers, path: str, capability: ComputeCapability, depth: int = 0) -> None:
        self._predicates = predicates
        self._path = path
        self._capability = capability
        self._depth = depth
        self._following: set[str] = set()
        self.asked = False  # whether anything of the architecture was met

    def define(self, node: FunctionNode | ast.expr, call: Call) -> Abstract:
        """The result of calling what *node* defines."""
        if isinstance(node, ast.expr):
            return self._wrapped(node, call)
        scope = Scope()
        arguments = [*node.args.posonlyargs, *node.args.args]
        if arguments and arguments[0].arg in ("self", "cls"):
            arguments = arguments[1:]
        for argument, value in zip(arguments, call.positional, strict=False):
            scope.values[argument.arg] = value
        scope.values.update(call.keywords)
        returned = []
        for value in self._returns(node.body, scope):
            returned.append(value)
            if len(returned) == RETURNS:
                return FREE
        return joined(returned) if returned else FREE

    def _wrapped(self, node: ast.expr, call: Call) -> Abstract:
        """``lru_cache(…)(partial(f, …))``, ``partial(f, …)`` or an expression."""
        if not isinstance(node, ast.Call):
            return self.evaluate(node, Scope())
        if called(node) == "partial" and node.args:
            keywords = {each.arg: self.evaluate(each.value, Scope()) for each in node.keywords if each.arg}
            positional = tuple(self.evaluate(each, Scope()) for each in node.args[1:])
            bound = Call((*positional, *call.positional), {**keywords, **call.keywords})
            return self._predicates.call(_last_name(node.args[0]), self._capability, bound, self._depth)
        if isinstance(node.func, ast.Call) or called(node) in _WRAPPERS:
            return self._wrapped(node.args[0], call) if node.args else FREE
        return self.evaluate(node, Scope())

    def _returns(self, body: Sequence[ast.stmt], scope: Scope) -> Iterator[Abstract]:
        """The values that *body* may return, given what its conditions may be."""
        for statement in body:
            match statement:
                case ast.Return():
                    yield self.evaluate(statement.value, scope) if statement.value else Const(None)
                    return
                case ast.Raise():
                    return
                case ast.If():
                    possible, _ = self.evaluate(statement.test, scope).truths()
                    arms = [
                        arm for want, arm in ((True, statement.body), (False, statement.orelse)) if want in possible
                    ]
                    for arm in arms:
                        yield from self._returns(arm, scope)
                    if arms and all(ends(arm) for arm in arms):
                        return
                case ast.Try() | ast.With():
                    yield from self._returns(statement.body, scope)
                    if ends(statement.body):
                        return
                case ast.Assign():
                    self._bind(statement, scope)

    def _bind(self, statement: ast.Assign, scope: Scope) -> None:
        value = self.evaluate(statement.value, scope)
        for target in statement.targets:
            if isinstance(target, ast.Name):
                scope.values[target.id] = value
            elif isinstance(target, ast.Tuple):
                for index, each in enumerate(target.elts):
                    if isinstance(each, ast.Name):
                        scope.values[each.id] = subscript(value, index)

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
        module = self._predicates.module(self._path)
        for values in (scope.assigned.get(name), module.names.get(name) if module else None):
            if values and name not in self._following and len(values) <= RETURNS:
                found, asked = self._followed(name, values, scope)
                # A constant list or number says what is compared with; a flag may be set elsewhere, too.
                plain = isinstance(found, Const) and not isinstance(found.value, bool | str | None)
                if plain or (asked and found != FREE):
                    return found
                if asked and not (MAJOR.match(name) or _ARCH_NAME.match(name)):
                    return FREE
        if MAJOR.match(name) and not _NOT_A_DEVICE.search(name):
            return self._met(Const(self._capability.major))
        if name == "minor":
            return Const(self._capability.minor)
        if _ARCH_NAME.match(name):
            return self._met(Arch(self._capability))
        if NAMED.match(name):
            return self._met(by_name(name, self._capability))
        if PREDICATE.match(name) and name in self._predicates.definitions:
            return self._met(self._predicates.call(name, self._capability, Call(), self._depth))
        return FREE

    def _met(self, value: Abstract) -> Abstract:
        self.asked = True
        return value

    def _followed(self, name: str, values: Iterable[Assigned], scope: Scope) -> tuple[Abstract, bool]:
        """What the assignments of *name* make of it, and whether they ask for the architecture."""
        self._following.add(name)
        before, self.asked = self.asked, False
        results = []
        for value in values:
            result = self.evaluate(value.value, scope)
            results.append(result if value.index is None else subscript(result, value.index))
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
        if name in ("major", "minor"):
            if _NOT_A_DEVICE.search(ast.unparse(node.value)):
                return FREE
            return self._met(Const(self._capability.major if name == "major" else self._capability.minor))
        if _ARCH_NAME.match(name) and name.lower() != "cc":
            return self._met(Arch(self._capability))
        return self._met(by_name(name, self._capability)) if NAMED.match(name) else FREE

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
        known = name in self._predicates.definitions
        if QUERY.match(name) or (NUMBER.match(name) and not known):
            return self._met(Arch(self._capability))
        if name in ("int", "str", "bool", "tuple", "list") and len(node.args) == 1:
            return _converted(name, self.evaluate(node.args[0], scope))
        if name in ("DeviceCapability", "ComputeCapability") and node.args:
            return self._met(Arch(self._capability))
        if not known:
            found = by_name(name, self._capability)
            return found if found == FREE and not NAMED.match(name) else self._met(found)
        call = Call(
            tuple(self.evaluate(each, scope) for each in node.args if not isinstance(each, ast.Starred)),
            {each.arg: self.evaluate(each.value, scope) for each in node.keywords if each.arg},
            method=isinstance(node.func, ast.Attribute),
        )
        return self._met(self._predicates.call(name, self._capability, call, self._depth))

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


def called(node: ast.Call) -> str:
    """The last name of what is called: ``b`` of ``a.b()``."""
    return _last_name(node.func)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
