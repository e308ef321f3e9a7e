"""Where a Python file defines what others may ask for the architecture by: enough to find the code again."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from downstream.guards.names import FunctionNode, Module, last_name, lines_with

_PROPERTIES = frozenset({"property", "cached_property"})
_MENTION = re.compile(
    r"capability\b|\b(?:\w*_)?majors?\b|\b_?(?:is|has|supports?|use|can|should)_\w*?(?:sm_?\d{2,3}|blackwell|hopper|ampere)"
    r"|\b(?:get_)?(?:device_|cuda_|gpu_|current_)*(?:sm|sm_version|sm_arch|cuda_arch|gpu_arch|device_arch)\b"
)


class Form(StrEnum):
    FUNCTION = "function"
    METHOD = "method"
    VALUE = "value"  # a name of the top level, assigned the result of a call
    PROPERTY = "property"
    TABLE = "table"  # an attribute that a table behind __getattr__ answers


@dataclass(frozen=True, slots=True)
class Entry:
    """*name* and where the code is that answers it: *line* and the place in it; *answer* for a table."""

    name: str
    form: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    answer: str = ""


def index(module: Module) -> Iterator[Entry]:
    """The functions, values and attributes of *module* that mention the architecture."""
    lines = lines_with(_MENTION, module.text.lower())
    for node, form in _functions(module.tree):
        if _mentions(lines, node):
            yield _entry(node.name, form, node)
            if form is Form.METHOD and any(last_name(decorator) in _PROPERTIES for decorator in node.decorator_list):
                yield _entry(node.name, Form.PROPERTY, node)
        if form is Form.METHOD and node.name == "__getattr__":
            yield from _tabled(module, node, lines)
    for name, values in module.names.items():
        for value in values:
            if isinstance(value.value, ast.Call) and value.index is None and _mentions(lines, value.value):
                yield _entry(name, Form.VALUE, value.value)


def located(module: Module, entry: Entry) -> FunctionNode | ast.expr:
    """The code that *entry*, which came from this text, speaks of. Raises LookupError where it is another text."""
    if entry.form == Form.TABLE:
        call = ast.Call(ast.Name(entry.answer, ast.Load()), [], [])
        place = ast.Pass(lineno=entry.line, col_offset=entry.column, end_lineno=entry.line, end_col_offset=entry.column)
        return ast.fix_missing_locations(ast.copy_location(call, place))
    if entry.form == Form.VALUE:
        for value in module.names.get(entry.name, ()):
            if isinstance(value.value, ast.Call) and _entry(entry.name, Form.VALUE, value.value) == entry:
                return value.value
    for node, form in _functions(module.tree):
        if node.lineno == entry.line and node.col_offset == entry.column and form != Form.VALUE:
            return node
    raise LookupError(entry.name)


def _functions(tree: ast.Module) -> Iterator[tuple[FunctionNode, Form]]:
    todo: list[ast.AST] = [tree]
    while todo:
        parent = todo.pop()
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child, Form.METHOD if isinstance(parent, ast.ClassDef) else Form.FUNCTION
                todo.append(child)
            elif isinstance(child, ast.ClassDef | ast.If | ast.Try | ast.With):
                todo.append(child)


def _tabled(module: Module, method: FunctionNode, lines: list[int]) -> Iterator[Entry]:
    """The names that *method* looks up in tables of its file, each with the function that the table names."""
    used = {node.id for node in ast.walk(method) if isinstance(node, ast.Name)}
    for table in sorted(used & module.names.keys()):
        for assigned in module.names[table]:
            if not isinstance(assigned.value, ast.Dict):
                continue
            for key, value in zip(assigned.value.keys, assigned.value.values, strict=True):
                match key, value:
                    case ast.Constant(value=str(name)), ast.Constant(value=str(answer)) if answer.isidentifier():
                        if _mentions(lines, value):
                            yield Entry(name, Form.TABLE, value.lineno, value.col_offset, answer=answer)


def _entry(name: str, form: Form, node: FunctionNode | ast.expr) -> Entry:
    return Entry(name, form.value, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def _mentions(lines: list[int], node: FunctionNode | ast.expr) -> bool:
    at = bisect.bisect_left(lines, node.lineno)
    return at < len(lines) and lines[at] <= (node.end_lineno or node.lineno)
