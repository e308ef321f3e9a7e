"""Which lines of a Python file can have to do with the architecture: the rest need no closer look."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate

from downstream.guards.names import (
    ARCHITECTURE,
    LISTING,
    MAJOR,
    NAMED,
    NUMBER,
    PREDICATE,
    QUERY,
    Module,
    lines_with,
    statements,
)

NEAR = 4  # lines above a statement that may say what it is about

_WORD = re.compile(r"[A-Za-z_]\w*")
# What makes a list, a dict or a text of several architectures one, and an entry that is commented out.
_LITERAL = re.compile(r"arch|capab|gencode|nvcc|sm_?\d|\bsm\b|hopper|blackwell")
_ENTRY = re.compile(r"""^[ \t]*\#[ \t]*["'][\w.\-]+["']""", re.MULTILINE)
_OTHERS = frozenset({"minor", "DeviceCapability", "ComputeCapability"})
_PATTERNS = (MAJOR, NUMBER, QUERY, NAMED, PREDICATE, ARCHITECTURE, LISTING)

_known: dict[str, bool] = {}  # words that were asked about: files share most of theirs


class Pertinent:
    """The lines of *module* that name the architecture, or something of *names*, or what is assigned from such."""

    def __init__(self, module: Module, names: Collection[str]) -> None:
        lines_of: dict[str, list[int]] = {}
        for number, line in enumerate(module.text.split("\n"), 1):
            for word in _WORD.findall(line):
                lines_of.setdefault(word, []).append(number)
        last = module.text.count("\n") + 1
        hot = bytearray(last + 1)
        for number in lines_with(_LITERAL, module.text.lower()):
            hot[number] = 1
        for number in lines_with(_ENTRY, module.text):
            hot[number] = 1
        words = [word for word in lines_of if word in names or _asks(word)]
        assignments = list(_assignments(module.tree))
        seen: set[str] = set(words)
        while words:
            for word in words:
                for number in lines_of.get(word, ()):
                    hot[number] = 1
            words = []
            for targets, first, end in assignments:
                if 1 in hot[first : end + 1]:
                    words += [target for target in targets if target not in seen]
                    seen.update(targets)
        self._before = list(accumulate(hot, initial=0))

    def within(self, first: int, last: int) -> bool:
        """Whether a line from *first* to *last*, or just above, is one."""
        end = min(last + 1, len(self._before) - 1)
        return self._before[end] > self._before[max(0, first - NEAR)]


def _asks(word: str) -> bool:
    if word not in _known:
        _known[word] = word in _OTHERS or any(pattern.match(word) for pattern in _PATTERNS)
    return _known[word]


def _assignments(tree: ast.Module) -> Iterator[tuple[set[str], int, int]]:
    """The names that each statement gives a value to, and its lines."""
    for statement in statements(tree.body):
        match statement:
            case ast.Assign(targets=targets):
                names = set(_names(targets))
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                names = set(_names([target]))
            case ast.For(target=target) | ast.AsyncFor(target=target):
                yield set(_names([target])), statement.lineno, statement.iter.end_lineno or statement.lineno
                continue
            case _:
                continue
        yield names, statement.lineno, statement.end_lineno or statement.lineno


def _names(targets: Iterable[ast.expr]) -> Iterator[str]:
    for target in targets:
        match target:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                yield from _names(parts)
            case ast.Starred(value=value):
                yield from _names([value])
