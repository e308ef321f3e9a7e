"""What a function of the tree returns on an architecture, or the ``partial`` that a name stands for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from downstream.guards.abstract import FREE, Abstract, Call, Const, Scope, joined, subscript
from downstream.guards.interpreter import Interpreter
from downstream.guards.names import FunctionNode, called, ends, last_name

RETURNS = 32  # of one function

_WRAPPERS = frozenset({"cache", "lru_cache", "functools.cache"})


def returned(interpreter: Interpreter, node: FunctionNode | ast.expr, call: Call) -> Abstract:
    """The result of calling what *node* defines, in the file and on the architecture of *interpreter*."""
    if isinstance(node, ast.expr):
        return _wrapped(interpreter, node, call)
    scope = Scope()
    arguments = [*node.args.posonlyargs, *node.args.args]
    if arguments and arguments[0].arg in ("self", "cls"):
        arguments = arguments[1:]
    for argument, value in zip(arguments, call.positional, strict=False):
        scope.values[argument.arg] = value
    scope.values.update(call.keywords)
    results = []
    for value in _returns(interpreter, node.body, scope):
        results.append(value)
        if len(results) == RETURNS:
            return FREE
    return joined(results) if results else FREE


def _wrapped(interpreter: Interpreter, node: ast.expr, call: Call) -> Abstract:
    """``lru_cache(…)(partial(f, …))``, ``partial(f, …)`` or an expression."""
    if not isinstance(node, ast.Call):
        return interpreter.evaluate(node, Scope())
    if called(node) == "partial" and node.args:
        keywords = {each.arg: interpreter.evaluate(each.value, Scope()) for each in node.keywords if each.arg}
        positional = tuple(interpreter.evaluate(each, Scope()) for each in node.args[1:])
        bound = Call((*positional, *call.positional), {**keywords, **call.keywords})
        return interpreter.predicates.call(last_name(node.args[0]), interpreter.capability, bound, interpreter.depth)
    if isinstance(node.func, ast.Call) or called(node) in _WRAPPERS:
        return _wrapped(interpreter, node.args[0], call) if node.args else FREE
    return interpreter.evaluate(node, Scope())


def _returns(interpreter: Interpreter, body: Sequence[ast.stmt], scope: Scope) -> Iterator[Abstract]:
    """The values that *body* may return, given what its conditions may be."""
    for statement in body:
        match statement:
            case ast.Return():
                yield interpreter.evaluate(statement.value, scope) if statement.value else Const(None)
                return
            case ast.Raise():
                return
            case ast.If():
                possible, _ = interpreter.evaluate(statement.test, scope).truths()
                arms = [arm for want, arm in ((True, statement.body), (False, statement.orelse)) if want in possible]
                for arm in arms:
                    yield from _returns(interpreter, arm, scope)
                if arms and all(ends(arm) for arm in arms):
                    return
            case ast.Try() | ast.With():
                yield from _returns(interpreter, statement.body, scope)
                if ends(statement.body):
                    return
            case ast.Assign():
                _bind(interpreter, statement, scope)


def _bind(interpreter: Interpreter, statement: ast.Assign, scope: Scope) -> None:
    value = interpreter.evaluate(statement.value, scope)
    for target in statement.targets:
        if isinstance(target, ast.Name):
            scope.values[target.id] = value
        elif isinstance(target, ast.Tuple):
            for index, each in enumerate(target.elts):
                if isinstance(each, ast.Name):
                    scope.values[each.id] = subscript(value, index)
