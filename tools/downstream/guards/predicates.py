"""The predicates of a tree (``is_sm100_supported`` and friends) and what they admit, by reading their definitions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from downstream.arches import ComputeCapability
from downstream.guards.abstract import FREE, RANGE, Abstract, Call, Scope, joined
from downstream.guards.gates import gates
from downstream.guards.index import Entry, Form, located
from downstream.guards.interpreter import Interpreter
from downstream.guards.names import STRICT, FunctionNode, Module, by_name, parse
from downstream.guards.pertinent import Pertinent
from downstream.guards.profile import Profile, profile
from downstream.guards.returned import returned

DEPTH = 8  # calls into calls
SEVERAL = 6  # definitions of one name; forward() has hundreds, which call one another

_TESTS = re.compile(r"(?:^|/)(?:tests?|testing)/|(?:^|/)(?:test_[^/]*|conftest)\.py$")
HELD = 64  # parsed files


@dataclass(frozen=True, slots=True)
class Definition:
    """A function of the tree, an expression assigned to a name, or what answers an attribute."""

    path: str
    entry: Entry

    @property
    def method(self) -> bool:
        return self.entry.form == Form.METHOD


class Predicates:
    """The Python files of a tree: what they define is known, they are parsed when they are asked for."""

    def __init__(self, texts: Mapping[str, bytes], profiles: Mapping[str, Profile] | None = None) -> None:
        self.texts = texts
        self.profiles: Mapping[str, Profile] = (
            {path: profile(path, content) for path, content in texts.items()} if profiles is None else profiles
        )
        self._modules: dict[str, Module | None] = {}
        self._pertinent: dict[str, Pertinent] = {}
        self._nodes: dict[Definition, FunctionNode | ast.expr] = {}
        self._answers: dict[tuple[str, bool, ComputeCapability], Abstract] = {}
        self._telling: dict[tuple[Definition, ...], bool] = {}
        self._followed: set[str] = set()
        self._judged: dict[str, bool] = {}
        self._calls: dict[Any, Abstract] = {}

    def module(self, path: str) -> Module | None:
        """The parsed file, or None where this Python cannot read it; the last few are held."""
        if path in self._modules:
            module = self._modules.pop(path)
        else:
            module = parse(path, self.texts[path])
            if len(self._modules) >= HELD:
                oldest = next(iter(self._modules))
                del self._modules[oldest]
                self._pertinent.pop(oldest, None)
        self._modules[path] = module
        return module

    def pertinent(self, path: str) -> Pertinent:
        """The lines of a readable file that can have to do with the architecture."""
        if path not in self._pertinent:
            module = self.module(path)
            assert module is not None
            self._pertinent[path] = Pertinent(module, self._names)
        return self._pertinent[path]

    @cached_property
    def _names(self) -> frozenset[str]:
        """What asks for the architecture when it is called or read; of a common name nobody knows which is meant."""
        few = (name for name, known in self.definitions.items() if len(known) <= SEVERAL)
        return frozenset(few) | self.attributes.keys()

    def node(self, one: Definition) -> FunctionNode | ast.expr:
        """The code of a definition."""
        if one not in self._nodes:
            module = self.module(one.path)
            assert module is not None  # it has entries
            self._nodes[one] = located(module, one.entry)
        return self._nodes[one]

    @cached_property
    def definitions(self) -> Mapping[str, tuple[Definition, ...]]:
        """Functions and assigned predicates that ask for the architecture, by name."""
        return self._defining(Form.FUNCTION, Form.METHOD, Form.VALUE)

    @cached_property
    def attributes(self) -> Mapping[str, tuple[Definition, ...]]:
        """Properties, and names that a table answers, as far as they ask for the architecture."""
        return self._defining(Form.PROPERTY, Form.TABLE)

    def _defining(self, *forms: Form) -> Mapping[str, tuple[Definition, ...]]:
        found: dict[str, list[Definition]] = {}
        for path, known in self.profiles.items():
            for entry in known.entries:
                if entry.form in forms:
                    found.setdefault(entry.name, []).append(Definition(path, entry))
        return {name: _no_doubles(definitions) for name, definitions in found.items()}

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
            result = self._answered(name, alike, capability, call, depth)
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

    def _answered(
        self, name: str, alike: tuple[Definition, ...], capability: ComputeCapability, call: Call, depth: int
    ) -> Abstract:
        """What calling *name* with arguments answers; the same question from the same place is asked often."""
        given = call.positional, tuple(sorted(call.keywords.items(), key=lambda each: each[0]))
        key: Any = (name, call.method, capability, depth, frozenset(self._followed), given)
        try:
            if key in self._calls:
                return self._calls[key]
        except TypeError:  # an argument that cannot be a key
            key = None
        self._followed.add(name)
        result = self._defined(alike, capability, call, depth)
        self._followed.discard(name)
        if key is not None:
            self._calls[key] = result
        return result

    def judged(self, name: str) -> bool:
        """Whether the function *name* decides by conditions, which are judged where they stand."""
        if name not in self._judged:
            self._judged[name] = False
            self._judged[name] = all(self._decides(one) for one in self.definitions.get(name, ()))
        return self._judged[name]

    def _decides(self, one: Definition) -> bool:
        node = self.node(one)
        module = self.module(one.path)
        if isinstance(node, ast.expr) or module is None:
            return False
        for gate in gates(ast.Module([node], []), module.text, self.pertinent(one.path)):
            interpreter = Interpreter(self, one.path, RANGE[0])
            interpreter.evaluate(gate.node, Scope(assigned=gate.assigned))
            if interpreter.asked:
                return True
        return False

    def _defined(self, known: Iterable[Definition], capability: ComputeCapability, call: Call, depth: int) -> Abstract:
        return joined(
            returned(Interpreter(self, one.path, capability, depth + 1), self.node(one), call) for one in known
        )

    def _tells_apart(self, known: tuple[Definition, ...], depth: int) -> bool:
        if known not in self._telling:
            self._telling[known] = False
            answers = {self._defined(known, capability, Call(), depth) for capability in RANGE}
            self._telling[known] = len(answers) > 1
        return self._telling[known]


def _no_doubles(definitions: list[Definition]) -> tuple[Definition, ...]:
    """*definitions* without those that tests put in place of others."""
    real = tuple(one for one in definitions if not _TESTS.search(one.path))
    return real or tuple(definitions)
