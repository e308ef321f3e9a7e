"""One place where Python code may ask for the architecture."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from downstream.guards.abstract import Assigned
from downstream.guards.names import FunctionNode


class Role(StrEnum):
    IF = "if"
    ASSERT = "assert"
    VALUE = "value"  # returned, assigned, passed
    LIST = "list"
    DECORATOR = "decorator"
    TABLE = "table"
    COMMENTED = "commented"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An expression that may admit some architectures only."""

    role: Role
    node: ast.expr
    line: int
    end_line: int
    text: str
    function: FunctionNode | None
    qualified: str | None  # Class.method
    body: Sequence[ast.stmt] = ()  # what it guards
    orelse: Sequence[ast.stmt] = ()
    arms: tuple[ast.expr, ast.expr] | None = None  # of ``a if test else b``
    following: Sequence[ast.stmt] = ()  # what comes after the statement in its block
    earlier: tuple[ast.expr, ...] = ()  # tests of the chain that failed before this one is asked
    under: tuple[ast.expr, ...] = ()  # conditions of the blocks that it stands in
    name: str = ""  # what a value is assigned to
    statement: ast.stmt | None = None
    assigned: dict[str, list[Assigned]] = field(default_factory=dict)  # in scope
