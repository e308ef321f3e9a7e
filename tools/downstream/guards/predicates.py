"""The predicates of a tree (``is_sm100_supported`` and friends) and what they admit, by reading their definitions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from downstream.arches import ComputeCapability
from downstream.guards.abstract import FREE, RANGE, Abstract, Call, Scope, joined
from downstream.guards.facts import attributes
from downstream.guards.gates import gates
from downstream.guards.interpreter import Interpreter
from downstream.guards.names import STRICT, FunctionNode, Module, by_name, parse
from downstream.guards.returned import returned

DEPTH = 8  # calls into calls
SEVERAL = 6  # definitions of one name; forward() has hundreds, which call one another

_ASKS = re.compile(
    rb"(?i)capabilit|(?<![-\w])(?:(?:cc|sm|dev|device|cuda|gpu|arch)_)?major\b(?!-)|_majors\b|supported_major"
    rb"|\bis_\w*(?:sm_?\d|blackwell|hopper|ampere)|has_sm\d|\bsm_version|_archs?\b|flashinfer_cutlass"
    rb"|\barchs\b|arch_list|gencode"
    rb"|\bsm\s*(?:[=!<>]=|[<>]|(?:not\s+)?in\b)"
)
_TESTS = re.compile(r"(?:^|/)(?:tests?|testing)/|(?:^|/)(?:test_[^/]*|conftest)\.py$")
_MENTION = re.compile(
    r"capability\b|\b(?:\w*_)?majors?\b|\b_?(?:is|has|supports?|use|can|should)_\w*?(?:sm_?\d{2,3}|blackwell|hopper|ampere)"
    r"|\b(?:get_)?(?:device_|cuda_|gpu_|current_)*(?:sm|sm_version|sm_arch|cuda_arch|gpu_arch|device_arch)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Definition:
    """A function of the tree, or an expression assigned to a name."""

    path: str
    node: FunctionNode | ast.expr
    method: bool = False


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
        self._followed: set[str] = set()
        self._judged: dict[str, bool] = {}

    @cached_property
    def asking(self) -> frozenset[str]:
        """The files that can hold a gate at all."""
        return frozenset(path for path, content in self.texts.items() if _ASKS.search(content))

    def module(self, path: str) -> Module | None:
        """The parsed file, or None where this Python cannot read it."""
        if path not in self.modules:
            self.modules[path] = parse(path, self.texts[path])
        return self.modules[path]

    @cached_property
    def definitions(self) -> Mapping[str, tuple[Definition, ...]]:
        """Functions and assigned predicates that ask for the architecture, by name."""
        found: dict[str, list[Definition]] = {}
        for path in self.texts:
            if path in self.asking and (module := self.module(path)) is not None:
                for name, definition in _definitions(module):
                    found.setdefault(name, []).append(definition)
        return {name: _no_doubles(definitions) for name, definitions in found.items()}

    @cached_property
    def attributes(self) -> Mapping[str, tuple[Definition, ...]]:
        """Properties, and names that a table answers, as far as they ask for the architecture."""
        found: dict[str, list[Definition]] = {}
        for path in self.asking:
            if (module := self.module(path)) is not None:
                lines = module.text.split("\n")
                for name, node in attributes(module):
                    if _mentions(lines, node):
                        found.setdefault(name, []).append(Definition(path, node))
        return {name: tuple(sorted(known, key=lambda one: one.path)) for name, known in found.items()}

    def attribute(self, name: str, capability: ComputeCapability, depth: int) -> Abstract:
        """What reading the attribute *name* answers."""
        key = (f".{name}", False, capability)
        if key not in self._answers:
            self._answers[key] = FREE
            known = self.attributes[name]
            if depth <= DEPTH and len(known) <= SEVERAL:
                result = self._defined(known, capability, Call(), depth)
                told = result != FREE or self._tells_apart(known, depth)
                self._answers[key] = result if told else by_name(name, capability)
        return self._answers[key]

    def call(self, name: str, capability: ComputeCapability, call: Call, depth: int) -> Abstract:
        """What calling *name* answers; of several definitions it is not known which is meant."""
        known = self.definitions.get(name, ())
        alike = tuple(one for one in known if one.method is call.method) or known
        if not alike or depth > DEPTH or len(known) > SEVERAL:
            return by_name(name, capability)
        if call.positional or call.keywords:
            if name in self._followed:  # a circle: forward() calls forward()
                return by_name(name, capability)
            self._followed.add(name)
            result = self._defined(alike, capability, call, depth)
            self._followed.discard(name)
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

    def judged(self, name: str) -> bool:
        """Whether the function *name* decides by conditions, which are judged where they stand."""
        if name not in self._judged:
            self._judged[name] = False
            self._judged[name] = all(self._decides(one) for one in self.definitions.get(name, ()))
        return self._judged[name]

    def _decides(self, one: Definition) -> bool:
        module = self.module(one.path)
        if isinstance(one.node, ast.expr) or module is None:
            return False
        for gate in gates(ast.Module([one.node], []), module.text):
            interpreter = Interpreter(self, one.path, RANGE[0])
            interpreter.evaluate(gate.node, Scope(assigned=gate.assigned))
            if interpreter.asked:
                return True
        return False

    def _defined(self, known: Iterable[Definition], capability: ComputeCapability, call: Call, depth: int) -> Abstract:
        return joined(returned(Interpreter(self, one.path, capability, depth + 1), one.node, call) for one in known)

    def _tells_apart(self, known: tuple[Definition, ...], depth: int) -> bool:
        if known not in self._telling:
            self._telling[known] = False
            answers = {self._defined(known, capability, Call(), depth) for capability in RANGE}
            self._telling[known] = len(answers) > 1
        return self._telling[known]


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


def _no_doubles(definitions: list[Definition]) -> tuple[Definition, ...]:
    """*definitions* without those that tests put in place of others."""
    real = tuple(one for one in definitions if not _TESTS.search(one.path))
    return real or tuple(definitions)
