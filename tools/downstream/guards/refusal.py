"""Python statements that only turn away: they raise, or answer no."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from downstream.guards.names import called

_TALK = frozenset(
    {"warning", "info", "debug", "warning_once", "info_once", "error", "log", "print", "warn", "exception"}
)
_SM12X = frozenset({12, 120, 121, "12", "120", "121", "sm_120", "sm_121"})
_NOTED = re.compile(r"(?:unsupported|problems|errors|reasons)\w*\.append\(")
_TURNED_AWAY = re.compile(r"unsupported|not supported|fall\w* ?back|unavailable|reason", re.IGNORECASE)


def refuses(body: Sequence[ast.stmt]) -> bool:
    """Whether *body* only turns away: it raises, returns a plain no, or adds to what is unsupported."""
    work = [statement for statement in body if not talks(statement)]
    if len(work) != 1:
        return bool(work) and isinstance(work[-1], ast.Raise) and len(work) <= 2
    last = work[0]
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, ast.Expr) and _NOTED.match(ast.unparse(last)):
        return True
    return isinstance(last, ast.Return) and (
        last.value is None or (isinstance(last.value, ast.Constant) and not last.value.value)
    )


def gives_nothing(body: Sequence[ast.stmt]) -> bool:
    """Whether *body* turns away, or comes to nothing at once: an empty list of settings, for one."""
    work = [statement for statement in body if not talks(statement)]
    if not work or refuses(work):
        return True
    return isinstance(work[0], ast.Return) and (work[0].value is None or nothing(work[0].value))


def nothing(node: ast.expr) -> bool:
    """Whether *node* is None, a plain no, or an empty collection."""
    match node:
        case ast.Constant(value=value):
            return value is None or value is False or value == ""
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.Dict(keys=parts):
            return not parts
        case ast.Call(args=[], keywords=[]):
            return called(node) in ("dict", "list", "tuple", "set", "nullcontext")
    return False


def turns_others_away(test: ast.expr, body: Sequence[ast.stmt]) -> bool:
    """Whether ``if capability != (12, 0): return "not for this device"`` sends all but an SM12x elsewhere."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.NotEq | ast.NotIn):
        return False
    constants = {node.value for node in ast.walk(test) if isinstance(node, ast.Constant)}
    if not constants & _SM12X:
        return False
    return isinstance(body[-1], ast.Return | ast.Raise) or any(
        _TURNED_AWAY.search(ast.unparse(statement)) for statement in body
    )


def talks(statement: ast.stmt) -> bool:
    """Imports, log lines, docstrings: they guard nothing."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    return isinstance(statement.value, ast.Constant) or (
        isinstance(statement.value, ast.Call) and called(statement.value) in _TALK
    )
