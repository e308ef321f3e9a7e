"""Attributes that ask for the architecture when they are read: properties, and tables behind ``__getattr__``.

SGLang's ``get_platform().is_sm120`` is such a table: it names the predicate
that answers, ``"is_sm120": "is_sm120_supported"``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from downstream.guards.names import FunctionNode, Module, last_name

_PROPERTIES = frozenset({"property", "cached_property"})


def attributes(module: Module) -> Iterator[tuple[str, FunctionNode | ast.expr]]:
    """The attributes of the classes of *module*, each with the code that answers it."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef):
                if any(last_name(decorator) in _PROPERTIES for decorator in method.decorator_list):
                    yield method.name, method
                elif method.name == "__getattr__":
                    yield from _tabled(module, method)


def _tabled(module: Module, method: FunctionNode) -> Iterator[tuple[str, ast.expr]]:
    """The names that *method* looks up in tables of its file, each as a call of the function that the table names."""
    used = {node.id for node in ast.walk(method) if isinstance(node, ast.Name)}
    for name in sorted(used & module.names.keys()):
        for assigned in module.names[name]:
            if isinstance(assigned.value, ast.Dict):
                yield from _entries(assigned.value)


def _entries(table: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(table.keys, table.values, strict=True):
        match key, value:
            case ast.Constant(value=str(name)), ast.Constant(value=str(answer)) if answer.isidentifier():
                call = ast.Call(ast.Name(answer, ast.Load()), [], [])
                yield name, ast.fix_missing_locations(ast.copy_location(call, value))
