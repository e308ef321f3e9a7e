"""The names that Python code asks for the architecture by, and the parsed files they stand in."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from downstream.arches import ComputeCapability
from downstream.guards.abstract import FREE, Abstract, Assigned, Const, Open
from downstream.guards.cases import CasesAsChains

QUERY = re.compile(r"^(?:get_)?(?:device_|cuda_|gpu_|compute_|torch_)*(?:compute_)?capability$")
NUMBER = re.compile(
    r"^(?:get_)?(?:device_|cuda_|gpu_|current_)*(?:sm|sm_version|sm_arch|cuda_arch|gpu_arch|device_arch)$"
)
ARCHITECTURE = re.compile(
    r"^_?(?:sm|sm_version|sm_arch|cuda_arch|gpu_arch|device_arch|compute_capability|device_capability|capability"
    r"|cuda_capability|cc|sm_ver|capability_tuple)$",
    re.IGNORECASE,
)
MAJOR = re.compile(r"^_?(?:(?:cc|sm|dev|device|cuda|gpu|arch|compute|capability)_)?major$")
NAMED = re.compile(r"^_?(?:has|is|use|enable|with|supports?)_sm_?(\d{2,3})([af]?)x?(?:_\w+)?$", re.IGNORECASE)
PREDICATE = re.compile(
    r"^_?(?:is|has|supports?|use|can|should)_\w*?(?:sm_?\d{2,3}|blackwell|hopper|ampere)\w*$", re.IGNORECASE
)

_MATCH = re.compile(rb"^[ \t]*match\b[^=\n]*:", re.MULTILINE)
STRICT = re.compile(r"^_?(?:is|has|supports?)_(?:sm_?\d{2,3}|blackwell|hopper|ampere)\w*$", re.IGNORECASE)

LISTS = frozenset({"supported_major_versions", "supported_compute_capabilities", "supported_archs"})
# What is given a list of architectures: arguments, calls, decorators.
LISTING = re.compile(
    r"^(?:supported_major_versions|supported_compute_capabilities|supported_archs|get_nvcc_flags_list"
    r"|supported_compute_capability|supported_capabilit\w+|requires?_(?:compute_)?capabilit\w+)$"
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Module:
    """One parsed file and the names of its top level."""

    path: str
    text: str
    tree: ast.Module
    names: dict[str, list[Assigned]] = field(default_factory=dict)


def by_name(name: str, capability: ComputeCapability) -> Abstract:
    """What the name of a predicate promises: ``has_sm100`` can hold on 10.0, and nowhere else."""
    found = NAMED.match(name)
    if found:
        number = int(found[1])
        family = found[2].lower() == "f" and capability.major == number // 10
        return FREE if family or capability.number == number else Const(value=False)
    return Open(frozenset({name})) if PREDICATE.match(name) else FREE


def parse(path: str, content: bytes) -> Module | None:
    """Read a Python file; None where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # upstream's invalid escapes are not ours to report
            tree = ast.parse(content, path)
            if _MATCH.search(content):
                tree = CasesAsChains().visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module = Module(path, content.decode("utf-8", "replace"), tree)
    for name, value in assigned(tree.body):
        module.names.setdefault(name, []).append(value)
    return module


def assigned(body: Iterable[ast.stmt]) -> Iterator[tuple[str, Assigned]]:
    """What the statements of *body*, nested ones but no functions, assign; attributes of self as ``self.name``."""
    for statement in body:
        match statement:
            case ast.Assign():
                for target in statement.targets:
                    yield from _targets(target, statement.value)
            case ast.AnnAssign(value=ast.expr()):
                assert statement.value is not None
                yield from _targets(statement.target, statement.value)
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                yield from assigned(statement.body)
                yield from assigned(getattr(statement, "orelse", []))
                for handler in getattr(statement, "handlers", []):
                    yield from assigned(handler.body)


def _targets(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Assigned]]:
    match target:
        case ast.Name():
            yield target.id, Assigned(value)
        case ast.Attribute(value=ast.Name(id="self")):
            yield f"self.{target.attr}", Assigned(value)
        case ast.Tuple() | ast.List():
            for index, each in enumerate(target.elts):
                if isinstance(each, ast.Name):
                    yield each.id, Assigned(value, index)


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of *body* and within its statements, those of functions and classes, too."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, name, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from statements(handler.body)
        for case in getattr(statement, "cases", ()):
            yield from statements(case.body)


def lines_with(pattern: re.Pattern[str], text: str) -> list[int]:
    """The lines (1-based) that *pattern* is found on, in order."""
    lines: list[int] = []
    number, at = 1, 0
    for found in pattern.finditer(text):
        number += text.count("\n", at, found.start())
        at = found.start()
        if not lines or lines[-1] != number:
            lines.append(number)
    return lines


def ends(body: Sequence[ast.stmt]) -> bool:
    """Whether control never comes out at the end of *body*."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise)


def called(node: ast.Call) -> str:
    """The last name of what is called: ``b`` of ``a.b()``."""
    return last_name(node.func)


def last_name(node: ast.expr) -> str:
    """``b`` of ``b`` and of ``a.b``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def is_condition(node: ast.expr) -> bool:
    """Whether *node* asks a question by itself: what it says is judged where it stands."""
    if isinstance(node, ast.Call):
        return PREDICATE.match(called(node)) is not None
    return isinstance(node, ast.BoolOp | ast.Compare) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def is_decision(node: ast.expr) -> bool:
    """Whether *node* is a condition, a choice by one, or ``bool()`` of one."""
    if isinstance(node, ast.Call) and called(node) == "bool" and len(node.args) == 1:
        return is_decision(node.args[0])
    return isinstance(node, ast.IfExp) or is_condition(node)
