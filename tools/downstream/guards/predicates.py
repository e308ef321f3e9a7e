"""The predicates of a tree (``is_sm100_supported`` and friends) and what they admit, by reading their definitions."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from downstream.arches import ComputeCapability
from downstream.guards.abstract import FREE, RANGE, Abstract, Assigned, Call, Const, Open, joined

DEPTH = 8  # calls into calls

_ASKS = re.compile(
    rb"(?i)capabilit|(?<![-\w])(?:(?:cc|sm|dev|device|cuda|gpu|arch)_)?major\b(?!-)|_majors\b|supported_major"
    rb"|\bis_\w*(?:sm_?\d|blackwell|hopper|ampere)|has_sm\d|\bsm_version|_archs?\b|flashinfer_cutlass"
    rb"|\bsm\s*(?:[=!<>]=|[<>]|(?:not\s+)?in\b)"
)
QUERY = re.compile(r"^(?:get_)?(?:device_|cuda_|gpu_|compute_|torch_)*(?:compute_)?capability$")
NUMBER = re.compile(
    r"^(?:get_)?(?:device_|cuda_|gpu_|current_)*(?:sm|sm_version|sm_arch|cuda_arch|gpu_arch|device_arch)$"
)
MAJOR = re.compile(r"^_?(?:(?:cc|sm|dev|device|cuda|gpu|arch|compute|capability)_)?major$")
NAMED = re.compile(r"^_?(?:has|is|use|enable|with|supports?)_sm_?(\d{2,3})([af]?)x?(?:_\w+)?$", re.IGNORECASE)
PREDICATE = re.compile(
    r"^_?(?:is|has|supports?|use|can|should)_\w*?(?:sm_?\d{2,3}|blackwell|hopper|ampere)\w*$", re.IGNORECASE
)

_MENTION = re.compile(
    r"capability\b|\b(?:\w*_)?majors?\b|\b_?(?:is|has|supports?|use|can|should)_\w*?(?:sm_?\d{2,3}|blackwell|hopper|ampere)"
    r"|\b(?:get_)?(?:device_|cuda_|gpu_|current_)*(?:sm|sm_version|sm_arch|cuda_arch|gpu_arch|device_arch)\b",
    re.IGNORECASE,
)
STRICT = re.compile(r"^_?(?:is|has|supports?)_(?:sm_?\d{2,3}|blackwell|hopper|ampere)\w*$", re.IGNORECASE)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Definition:
    """A function of the tree, or an expression assigned to a name."""

    path: str
    node: FunctionNode | ast.expr
    method: bool = False


@dataclass(slots=True)
class Module:
    """One parsed file and the names of its top level."""

    path: str
    text: str
    tree: ast.Module
    names: dict[str, list[Assigned]] = field(default_factory=dict)


class Predicates:
    """The Python files of a tree."""

    def __init__(self, texts: Mapping[str, bytes], *, like: Predicates | None = None) -> None:
        """*like* has read some of the same texts already: they are not parsed again."""
        self.texts = texts
        self.modules: dict[str, Module | None] = {}
        if like is not None:
            same = (path for path in like.modules if like.texts.get(path) == texts.get(path))
            self.modules = {path: like.modules[path] for path in same}
        self._answers: dict[tuple[str, bool, ComputeCapability], Abstract] = {}
        self._telling: dict[tuple[Definition, ...], bool] = {}

    @staticmethod
    def asks(content: bytes) -> bool:
        """Whether a file can hold a gate at all."""
        return _ASKS.search(content) is not None

    def module(self, path: str) -> Module | None:
        """The parsed file, or None where this Python cannot read it."""
        if path not in self.modules:
            self.modules[path] = parse(path, self.texts[path])
        return self.modules[path]

    @cached_property
    def definitions(self) -> Mapping[str, tuple[Definition, ...]]:
        """Functions and assigned predicates that ask for the architecture, by name."""
        found: dict[str, list[Definition]] = {}
        for path, content in self.texts.items():
            if self.asks(content) and (module := self.module(path)) is not None:
                for name, definition in _definitions(module):
                    found.setdefault(name, []).append(definition)
        return {name: tuple(definitions) for name, definitions in found.items()}

    def call(self, name: str, capability: ComputeCapability, call: Call, depth: int) -> Abstract:
        """What calling *name* answers; of several definitions it is not known which is meant."""
        known = self.definitions.get(name, ())
        alike = tuple(one for one in known if one.method is call.method) or known
        if not alike or depth > DEPTH:
            return by_name(name, capability)
        if call.positional or call.keywords:
            result = self._defined(alike, capability, call, depth)
        else:
            key = (name, call.method, capability)
            if key not in self._answers:
                self._answers[key] = FREE  # what a circle of calls answers
                self._answers[key] = self._defined(alike, capability, call, depth)
            result = self._answers[key]
        if result == FREE and STRICT.match(name) and not self._tells_apart(alike, depth):
            # The definition asks somebody else (another library, a driver): its name is what is left.
            return by_name(name, capability)
        return result

    def _defined(self, known: Iterable[Definition], capability: ComputeCapability, call: Call, depth: int) -> Abstract:
        from downstream.guards.interpreter import Interpreter

        return joined(Interpreter(self, one.path, capability, depth + 1).define(one.node, call) for one in known)

    def _tells_apart(self, known: tuple[Definition, ...], depth: int) -> bool:
        if known not in self._telling:
            self._telling[known] = False
            answers = {self._defined(known, capability, Call(), depth) for capability in RANGE}
            self._telling[known] = len(answers) > 1
        return self._telling[known]


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


def _definitions(module: Module) -> Iterator[tuple[str, Definition]]:
    lines = module.text.split("\n")
    todo: list[ast.AST] = [module.tree]
    while todo:
        parent = todo.pop()
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                if _mentions(lines, child):
                    yield child.name, Definition(module.path, child, isinstance(parent, ast.ClassDef))
                todo.append(child)
            elif isinstance(child, ast.ClassDef | ast.If | ast.Try | ast.With):
                todo.append(child)
    for name, values in module.names.items():
        for value in values:
            if isinstance(value.value, ast.Call) and value.index is None and _mentions(lines, value.value):
                yield name, Definition(module.path, value.value)


def _mentions(lines: list[str], node: FunctionNode | ast.expr) -> bool:
    return _MENTION.search("\n".join(lines[node.lineno - 1 : node.end_lineno])) is not None
