"""Why the Python code behind a gate needs what SM12x lacks: what it calls, and what it is named after.

What is asked is no evidence for the answer: the names of predicates, of the
flags they are kept in, and a message that says "requires SM100" count for nothing.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence

from downstream.arches import Target
from downstream.guards import hardware
from downstream.guards.gate import Gate, Role
from downstream.guards.names import called
from downstream.guards.refusal import talks

_PREDICATES = re.compile(r"\b_?(?:is|has|supports?|use|can)_\w*?(?:sm_?\d|blackwell|hopper)\w*", re.IGNORECASE)
_PROSE = re.compile(r"""(["'])(?:\\.|(?!\1).)*?\s(?:\\.|(?!\1).)*?\1""")
_ARCHITECTURES = re.compile(r"\bsm_?\d\w*|\bhopper\b|\bblackwell\b", re.IGNORECASE)
_IN_NAMES = re.compile(r"sm_?\d+[afx]?|hopper|blackwell", re.IGNORECASE)
_NUMBERED = re.compile(r"sm_?(\d{2,3})", re.IGNORECASE)


def evidence(gate: Gate, path: str, lines: Sequence[str], *, inverted: bool, admits: Collection[Target]) -> str:
    """The first sign that the guarded code needs what SM12x lacks, or an empty string.

    Where a gate guards statements, every one of them has to show it; a gate that
    turns away (*inverted*) guards what comes after it. *lines* are the file's.
    """
    names = [posixpath.basename(path)]
    if gate.qualified:
        answer = gate.role is Role.VALUE and isinstance(gate.statement, ast.Return)
        names.append(_unnumbered(gate.qualified) if answer else _PREDICATES.sub("", gate.qualified))
    if gate.role in (Role.LIST, Role.DECORATOR):
        if gate.role is Role.LIST:
            names.append(gate.name)
        if gate.role is Role.LIST and gate.function:
            names += [text for node in ast.walk(gate.function) for text in module_name(node)]
        return hardware.needs(names)
    if gate.role is Role.TABLE:
        around = [_said_above(gate, lines), ast.unparse(gate.statement or gate.node)]
        return hardware.needs([gate.name, *around, *names])
    statements = [statement for statement in gate.body if not talks(statement)]
    if gate.role is Role.IF and not inverted and statements:
        found = [hardware.needs([code_of(statement)]) for statement in statements]
        return found[0] if all(found) else hardware.needs(names)
    if inverted or gate.role is Role.ASSERT:
        asked = [code_of(test) for test in gate.under if not _denies(test)]
        texts = [*names, code_of(gate.statement) if gate.statement else "", *reversed(asked)]
        return hardware.needs(texts) or _called_after(gate, admits)
    return hardware.needs([*_other_words(gate), *names])


def code_of(node: ast.AST) -> str:
    """The code of *node* without what only says which architecture is asked for."""
    bare = _PREDICATES.sub("", ast.unparse(node))
    return _PROSE.sub(lambda found: _ARCHITECTURES.sub("", found.group()), bare)


def module_name(node: ast.AST) -> Iterator[str]:
    """The name that a JIT module is given."""
    if isinstance(node, ast.Call) and called(node) == "gen_jit_spec" and node.args:
        for part in ast.walk(node.args[0]):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def _denies(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Not | ast.NotEq | ast.NotIn) for node in ast.walk(test))


def _called_after(gate: Gate, admits: Collection[Target]) -> str:
    """What the rest of the function calls that is named after the architectures that may pass."""
    majors = {target.capability.major for target in admits}
    for node in ast.walk(gate.function) if gate.function else ():
        if isinstance(node, ast.Call) and node.lineno > gate.end_line:
            numbers = [int(number) // 10 for number in _NUMBERED.findall(_PREDICATES.sub("", called(node)))]
            found = hardware.needs([called(node)]) if set(numbers) & majors else ""
            if found:
                return found
    return ""


def _said_above(gate: Gate, lines: Sequence[str]) -> str:
    """The comment right above the gate's statement: other code near it is no evidence."""
    end = (gate.statement.lineno if gate.statement else gate.line) - 1
    first = end
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return "\n".join(lines[first:end])


def _other_words(gate: Gate) -> list[str]:
    """What stands beside the condition in its statement."""
    statement: ast.AST | None = gate.statement
    if statement is None or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    kept = []
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        kept = [_unnumbered(ast.unparse(target)) for target in targets]
        statement = statement.value
    return [*kept, code_of(statement).replace(code_of(gate.node), "")]


def _unnumbered(name: str) -> str:
    """*name*, which keeps the answer, without the architecture that it is the answer for."""
    return _IN_NAMES.sub("", name)
