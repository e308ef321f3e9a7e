"""Where Python code may ask for the architecture: conditions, lists, decorators, dicts, commented entries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from downstream.guards.abstract import Assigned
from downstream.guards.cases import written
from downstream.guards.gate import Gate, Role
from downstream.guards.listed import architectures, built_for
from downstream.guards.names import LISTS, FunctionNode, assigned, called, is_condition
from downstream.guards.pertinent import Pertinent

_LISTING_CALLS = frozenset({"get_nvcc_flags_list"})
_DECORATOR = re.compile(
    r"^(?:supported_compute_capability|supported_capabilit\w+|requires?_(?:compute_)?capabilit\w+)$"
)
_ENTRY = re.compile(r"""^\s*#\s*(?:"([\w.\-]+)"|'([\w.\-]+)')\s*,?\s*(?:#.*)?$""")
_ARCH_WORDS = re.compile(r"capab|\bmajors?\b|cc_major|\bsm_?\d|\bsm\b|(?:\b|_)arch|hopper|blackwell", re.IGNORECASE)
_NEAR = 3  # lines around a dict that may say what its keys are


def gates(tree: ast.Module, text: str, pertinent: Pertinent | None = None) -> Iterator[Gate]:
    """Every candidate of a file; whether it asks for the architecture is for the interpreter to say.

    *pertinent* lines are all that need a look.
    """
    yield from _Finder(text, pertinent).body(tree.body, None, (), {})


class _Finder:
    def __init__(self, text: str, pertinent: Pertinent | None) -> None:
        self._pertinent = pertinent
        self._lines = text.split("\n")
        self._under: list[ast.expr] = []  # the conditions of the blocks around

    def body(
        self,
        body: Sequence[ast.stmt],
        function: FunctionNode | None,
        owners: tuple[str, ...],
        names: dict[str, list[Assigned]],
    ) -> Iterator[Gate]:
        for number, statement in enumerate(body, 1):
            yield from self._statement(statement, function, owners, names, (), body[number:])

    def _statement(
        self,
        statement: ast.stmt,
        function: FunctionNode | None,
        owners: tuple[str, ...],
        names: dict[str, list[Assigned]],
        earlier: tuple[ast.expr, ...],
        following: Sequence[ast.stmt],
    ) -> Iterator[Gate]:
        if self._pertinent is not None and not self._pertinent.within(
            _first_line(statement), statement.end_lineno or 0
        ):
            return
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inner = (*owners, statement.name)
                for decorator in statement.decorator_list:
                    yield from self._decorator(decorator, statement, inner)
                # What callers pass may be anything, whatever the body makes of it later.
                given = {argument.arg for argument in ast.walk(statement.args) if isinstance(argument, ast.arg)}
                known = names | _by_name(statement.body)
                known = {name: values for name, values in known.items() if name not in given}
                yield from self.body(statement.body, statement, inner, known)
                return
            case ast.ClassDef():
                attributes: dict[str, list[Assigned]] = {}
                for method in statement.body:
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                        for name, value in assigned(method.body):
                            if name.startswith("self."):
                                attributes.setdefault(name, []).append(value)
                    elif isinstance(method, ast.Assign):
                        for name, value in assigned([method]):
                            attributes.setdefault(f"self.{name}", []).append(value)
                yield from self.body(statement.body, None, (*owners, statement.name), names | attributes)
                return
        context = _Context(statement, function, owners, names, following)
        match statement:
            case ast.If():
                yield self._gate(statement.test, Role.IF, context, statement.body, statement.orelse, earlier)
                yield from self._inner(statement.test, context, skip_whole=True)
                self._under.append(statement.test)
                yield from self._block(statement.body, context)
                self._under.pop()
                if len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If):
                    chain = (*earlier, statement.test)
                    yield from self._statement(statement.orelse[0], function, owners, names, chain, following)
                else:
                    yield from self._block(statement.orelse, context)
            case ast.While():
                yield self._gate(statement.test, Role.IF, context, statement.body)
                yield from self._block([*statement.body, *statement.orelse], context)
            case ast.Assert():
                yield self._gate(statement.test, Role.ASSERT, context)
            case _:
                yield from self._parts(statement, context)

    def _parts(self, node: ast.AST, context: _Context) -> Iterator[Gate]:
        """The expressions and statements within a statement; handlers, with items and cases one step deeper."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self._inner(child, context)
            elif isinstance(child, ast.stmt):
                yield from self._block([child], context)
            else:
                yield from self._parts(child, context)

    def _block(self, body: Sequence[ast.stmt], context: _Context) -> Iterator[Gate]:
        for number, statement in enumerate(body, 1):
            yield from self._statement(statement, context.function, context.owners, context.names, (), body[number:])

    def _inner(self, node: ast.expr, context: _Context, *, skip_whole: bool = False) -> Iterator[Gate]:
        """The largest conditions within an expression, and the lists and dicts."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            yield from self._commented(node, context)
        if not skip_whole and isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Constant):
            yield from self._built_for(node, context)
        if isinstance(node, ast.Dict):
            yield from self._table(node, context)
        if isinstance(node, ast.Call):
            yield from self._listed(node, context)
        if not skip_whole and is_condition(node):
            yield self._gate(node, Role.VALUE, context)
            skip_whole = True
        if isinstance(node, ast.IfExp):
            yield replace(self._gate(node.test, Role.VALUE, context), arms=(node.body, node.orelse))
            yield from self._inner(node.test, context, skip_whole=True)
            yield from self._inner(node.body, context)
            yield from self._inner(node.orelse, context)
            return
        within = skip_whole and isinstance(node, ast.BoolOp | ast.UnaryOp | ast.Compare)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self._inner(child, context, skip_whole=within)
            elif isinstance(child, ast.keyword):
                yield from self._inner(child.value, context)
            elif isinstance(child, ast.comprehension):
                for test in child.ifs:
                    yield self._gate(test, Role.VALUE, context)
                yield from self._inner(child.iter, context)

    def _listed(self, node: ast.Call, context: _Context) -> Iterator[Gate]:
        for keyword in node.keywords:
            if keyword.arg in LISTS and not _is_none(keyword.value):
                text = f"{keyword.arg}={self._source(keyword.value)}"
                yield self._gate(keyword.value, Role.LIST, context, text=text, line=keyword.lineno)
        if called(node) in _LISTING_CALLS and node.args and not _is_none(node.args[0]):
            yield self._gate(node.args[0], Role.LIST, context)

    def _built_for(self, node: ast.expr, context: _Context) -> Iterator[Gate]:
        around = "\n".join(self._lines[context.statement.lineno - 1 : context.statement.end_lineno])
        served = built_for(node, around)
        if served is not None:
            text = f"{context.assigned_name or 'architectures'} = {self._source(node)}"
            yield self._gate(served, Role.LIST, context, text=text)

    def _decorator(self, node: ast.expr, function: FunctionNode, owners: tuple[str, ...]) -> Iterator[Gate]:
        if isinstance(node, ast.Call) and _DECORATOR.match(called(node)) and node.args:
            context = _Context(function, function, owners, {})
            yield self._gate(
                node.args[0], Role.DECORATOR, context, function.body, text=self._source(node), line=node.lineno
            )

    def _table(self, node: ast.Dict, context: _Context) -> Iterator[Gate]:
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        if len(keys) < 2 or len(keys) != len(node.keys) or not architectures(keys):
            return
        first = max(0, context.statement.lineno - 1 - _NEAR)
        near = "\n".join(self._lines[first : context.statement.end_lineno])
        if not _ARCH_WORDS.search(near):
            return
        shown = ", ".join(repr(key) for key in keys)
        name = context.assigned_name
        text = f"{name or 'dict'} keyed by {{{shown}}}"
        keyed = ast.copy_location(ast.Tuple([key for key in node.keys if key is not None], ast.Load()), node)
        yield self._gate(keyed, Role.TABLE, context, text=text)

    def _commented(self, node: ast.List | ast.Tuple | ast.Set, context: _Context) -> Iterator[Gate]:
        end = node.end_lineno or node.lineno
        values = {element.value for element in node.elts if isinstance(element, ast.Constant)}
        if end == node.lineno or not values or not all(isinstance(value, str) for value in values):
            return
        for line in range(node.lineno, end + 1):
            found = _ENTRY.match(self._lines[line - 1]) if line <= len(self._lines) else None
            if found:
                entry = found[1] or found[2]
                text = f'# "{entry}" in {self._source(node)[:200]}'
                if entry not in values:
                    yield self._gate(node, Role.COMMENTED, context, text=text, line=line, end_line=line)

    def _gate(
        self,
        node: ast.expr,
        role: Role,
        context: _Context,
        body: Sequence[ast.stmt] = (),
        orelse: Sequence[ast.stmt] = (),
        earlier: tuple[ast.expr, ...] = (),
        *,
        text: str = "",
        line: int = 0,
        end_line: int = 0,
    ) -> Gate:
        return Gate(
            role=role,
            node=node,
            line=line or node.lineno,
            end_line=end_line or node.end_lineno or node.lineno,
            text=text or written(node) or self._source(node),
            function=context.function,
            qualified=".".join(context.owners) if context.function else None,
            body=body,
            orelse=orelse,
            following=context.following,
            earlier=earlier,
            under=tuple(self._under),
            name=context.assigned_name,
            statement=context.statement,
            assigned=context.names,
        )

    def _source(self, node: ast.expr | ast.stmt) -> str:
        """The source of *node* on one line, comments left out."""
        return " ".join(_COMMENT.sub(lambda found: found[1] or "", self._segment(node)).split())

    def _segment(self, node: ast.expr | ast.stmt) -> str:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = [line.encode() for line in self._lines[first : last + 1]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class _Context:
    statement: ast.stmt
    function: FunctionNode | None
    owners: tuple[str, ...]
    names: dict[str, list[Assigned]]
    following: Sequence[ast.stmt] = ()

    @property
    def assigned_name(self) -> str:
        match self.statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                return name
            case ast.Assign(targets=[ast.Attribute(attr=name)]) | ast.AnnAssign(target=ast.Attribute(attr=name)):
                return name
        return ""


def _first_line(statement: ast.stmt) -> int:
    """The line that *statement* begins on, with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _by_name(body: Sequence[ast.stmt]) -> dict[str, list[Assigned]]:
    names: dict[str, list[Assigned]] = {}
    for name, value in assigned(body):
        names.setdefault(name, []).append(value)
    return names


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|#[^\n]*""")
