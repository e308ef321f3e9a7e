"""Macros that the tree itself defines, and which branches are active because of them.

Asked, not walked: a name at a line is what the file's earlier lines made it,
else the compiler's, else what the files it includes say, else what any file of
the tree says, else unknown. A name that the tree defines is undefined before
that (only ``-D`` could define it, and then ``defines`` says so).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from downstream.arches import Target
from downstream.guards.directives import Branch, Chain, Directive, Source, scan
from downstream.guards.expressions import evaluate
from downstream.guards.macros import ARCHITECTURE, Any, Predefined, Toolkit, parse_define, predefined
from downstream.guards.tokens import Macro
from downstream.guards.values import FALSE, TRUE, Value, both, either, negate, unknown

SUFFIXES = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".cu", ".cc", ".cpp", ".cxx", ".inl", ".inc")

_T = TypeVar("_T")
_PROFILE = re.compile(rb"#[ \t]*(?:include[ \t]*[\"<]([^\">\n]+)[\">]|define[ \t]+(\w+))")


@dataclass(frozen=True, slots=True)
class Known:
    """What a name is at some point: a Macro, None (not defined) or an unknown Value that says when it is."""

    meaning: Macro | Value | None
    architecture: bool = False  # whether another target may answer otherwise
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """Whether a branch is compiled on one target."""

    value: Value
    architecture: bool = False  # whether its chain asks for the target
    why: tuple[str, ...] = ()


_COMPILED = State(TRUE)


class Definitions:
    """The C, C++ and CUDA files of a tree, *texts* by path, and what they define."""

    def __init__(
        self,
        texts: Mapping[str, bytes],
        *,
        toolkit: Toolkit | None = None,
        defines: Mapping[str, str] | None = None,
        like: Definitions | None = None,
    ) -> None:
        """*like* has read some of the same texts already: what it knows of them is not found out again."""
        self._texts = texts
        self._toolkit = toolkit
        self._defines = dict(defines or {})
        same = {path for path, text in texts.items() if like and like.texts.get(path) == text}
        self._sources: dict[str, Source] = _kept(like and like._sources, same)
        self._profiles: dict[str, tuple[tuple[str, ...], frozenset[str]]] = _kept(like and like._profiles, same)
        self.conditions: dict[str, frozenset[str]] = _kept(like and like.conditions, same)  # names, by path
        self._closures: dict[str, frozenset[str]] = {}
        self._files: dict[tuple[str, Target | Any | None], File] = {}
        self._resolved: dict[tuple[str, frozenset[str], Target | Any | None], Known] = {}
        self._resolving: set[tuple[str, frozenset[str], Target | Any | None]] = set()
        self._tables: dict[Target | Any | None, Predefined] = {}
        self._cut = 0  # times that a circle of definitions was cut

    def source(self, path: str) -> Source:
        if path not in self._sources:
            self._sources[path] = scan(decode(self._texts[path]))
        return self._sources[path]

    def file(self, path: str, target: Target | Any | None) -> File:
        """*path* as *target* sees it (None: the host pass)."""
        key = (path, target)
        if key not in self._files:
            if target not in self._tables:
                self._tables[target] = predefined(target, self._toolkit, self._defines)
            self._files[key] = File(self, path, self._tables[target])
        return self._files[key]

    def resolve(self, name: str, path: str, target: Target | Any | None) -> Known:
        """What *name* is when *path* begins: from its includes, else from the whole tree."""
        own = name in self._profile(path)[1]
        sites = frozenset(site for site in self._sites.get(name, ()) if site != path)
        reachable = sites & self._closure(path) if sites else sites
        sites = reachable if reachable or own else sites
        open_world = Known(None if own else unknown(f"defined({name})", frozenset({name})))
        if not sites:
            return open_world
        key = (name, sites, target)
        if key in self._resolved:
            return self._resolved[key]
        if key in self._resolving:
            self._cut += 1
            return open_world
        cut = self._cut
        self._resolving.add(key)
        known = _agree(name, [self.file(site, target).at_end(name) for site in sorted(sites)])
        self._resolving.discard(key)
        # What a circle cut short depends on where we came in; only the whole answer is kept.
        if cut == self._cut or not self._resolving:
            self._resolved[key] = known
        return known

    @property
    def texts(self) -> Mapping[str, bytes]:
        return self._texts

    def _profile(self, path: str) -> tuple[tuple[str, ...], frozenset[str]]:
        if path not in self._profiles:
            found = _PROFILE.findall(self._texts[path])
            self._profiles[path] = (
                tuple(include.decode("utf-8", "replace") for include, _ in found if include),
                frozenset(name.decode("utf-8", "replace") for _, name in found if name),
            )
        return self._profiles[path]

    @cached_property
    def _sites(self) -> Mapping[str, tuple[str, ...]]:
        sites: dict[str, list[str]] = {}
        for path in self._texts:
            for name in self._profile(path)[1]:
                sites.setdefault(name, []).append(path)
        return {name: tuple(paths) for name, paths in sites.items()}

    @cached_property
    def _by_basename(self) -> Mapping[str, tuple[str, ...]]:
        names: dict[str, list[str]] = {}
        for path in self._texts:
            names.setdefault(posixpath.basename(path), []).append(path)
        return {name: tuple(paths) for name, paths in names.items()}

    def _closure(self, path: str) -> frozenset[str]:
        if path not in self._closures:
            seen: set[str] = set()
            todo = [path]
            while todo:
                current = todo.pop()
                if current not in seen:
                    seen.add(current)
                    for include in self._profile(current)[0]:
                        todo.extend(self._included(include, current))
            self._closures[path] = frozenset(seen)
        return self._closures[path]

    def _included(self, include: str, path: str) -> Iterable[str]:
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), include))
        if beside in self._texts:
            return (beside,)
        tail = "/" + posixpath.normpath(include).lstrip("./")
        return [each for each in self._by_basename.get(posixpath.basename(include), ()) if ("/" + each).endswith(tail)]


def _kept(known: dict[str, _T] | None, same: set[str]) -> dict[str, _T]:
    return {path: value for path, value in (known or {}).items() if path in same}


def decode(content: bytes) -> str:
    """Source as text: what is no UTF-8 can only stand in comments and strings."""
    return content.decode("utf-8", "replace")


def _agree(name: str, found: Iterable[Known]) -> Known:
    """What the files that define *name* make of it, together."""
    known = list(found)
    architecture = any(each.architecture for each in known)
    present = [each for each in known if isinstance(each.meaning, Macro)]
    why = next((each.why for each in (*present, *known) if each.why), ())
    if present:
        bodies = {(each.meaning.body, each.meaning.parameters) for each in present if isinstance(each.meaning, Macro)}
        if len(bodies) == 1:
            return Known(present[0].meaning, architecture, why)
        return Known(Macro(name, None), architecture, (f"{name} has several definitions", *why))
    open_ones = [each.meaning for each in known if isinstance(each.meaning, Value)]
    if not open_ones:
        return Known(None, architecture, why)
    meaning = open_ones[0]
    for other in open_ones[1:]:
        meaning = either(meaning, other)
    return Known(meaning, architecture, why)


class File:
    """One file on one target; states and names are worked out when asked for."""

    def __init__(self, definitions: Definitions, path: str, table: Predefined) -> None:
        self._definitions = definitions
        self._path = path
        self._table = table
        self._states: dict[int, State] = {}
        self._events: dict[str, list[tuple[Directive, Branch | None]]] = {}
        self._collect(definitions.source(path).items, None)

    def _collect(self, items: Iterable[Chain | Directive], branch: Branch | None) -> None:
        for item in items:
            if isinstance(item, Chain):
                for arm in item.branches:
                    self._collect(arm.items, arm)
            elif item.keyword != "include":
                macro = parse_define(item.text)
                if macro is not None:
                    self._events.setdefault(macro.name, []).append((item, branch))

    def state(self, branch: Branch | None) -> State:
        """Whether *branch* is compiled, the arms before it and the chains around it counted in."""
        if branch is None:
            return _COMPILED
        if id(branch) not in self._states:
            self._decide(branch.chain)
        return self._states[id(branch)]

    def _decide(self, chain: Chain) -> None:
        outer = self.state(chain.parent)
        taken: Value = FALSE  # whether an earlier arm is
        architecture = False
        why: dict[str, None] = {}
        for branch in chain.branches:
            line = branch.directive.line
            used: list[Known] = []

            def lookup(name: str, line: int = line, used: list[Known] = used) -> Macro | Value | None:
                known = self.at(name, line)
                used.append(known)
                return known.meaning

            own = TRUE if branch.own is None else evaluate(branch.own, lookup)
            architecture = architecture or any(known.architecture for known in used)
            for known in used:
                why.update(dict.fromkeys(known.why))
            value = both(outer.value, both(negate(taken), own))
            self._states[id(branch)] = State(value, architecture, tuple(why))
            taken = either(taken, own)

    def at_end(self, name: str) -> Known:
        return self.at(name, self._definitions.source(self._path).lines + 1)

    def at(self, name: str, line: int) -> Known:
        """What *name* is just before *line*."""
        events = [event for event in self._events.get(name, ()) if event[0].line < line]
        known: Known | None = None
        # The last event that certainly happens hides those before it.
        for start in range(len(events) - 1, -1, -1):
            if self.state(events[start][1]).value.truth is True:
                events = events[start:]
                break
        else:
            known = self._at_begin(name)
        for directive, branch in events:
            known = self._after(directive, branch, known)
        assert known is not None  # the first event left is certain, or the begin is known
        return known

    def _at_begin(self, name: str) -> Known:
        if self._table.knows(name):
            return Known(self._table.lookup(name), ARCHITECTURE.fullmatch(name) is not None)
        if ARCHITECTURE.fullmatch(name):
            return Known(unknown(f"defined({name})", frozenset({name})), architecture=True)
        return self._definitions.resolve(name, self._path, self._table.target)

    def _after(self, directive: Directive, branch: Branch | None, before: Known | None) -> Known:
        state = self.state(branch)
        origin = f"{self._path}:{directive.line}"
        macro = parse_define(directive.text, origin)
        assert macro is not None  # collected as one
        on = f" on {self._table.target}" if isinstance(self._table.target, Target) else ""
        architecture = self._asks(branch) or (before is not None and before.architecture)
        if state.value.truth is True:
            defined = macro if directive.keyword == "define" else None
            says = " ".join(token.text for token in macro.body or ()) or "defined"
            why = f"{macro.name} is {says if defined else 'not defined'}{on} ({origin})"
            return Known(defined, architecture, (why, *state.why) if architecture else ())
        assert before is not None
        if state.value.truth is False:
            if before.meaning is not None or not architecture or directive.keyword == "undef":
                return before
            shut = self._outermost_inactive(branch)
            why = f"{macro.name} is not defined{on} ({origin} is under {shut.condition})"
            return Known(None, architecture, (why, *self.state(shut).why))
        why = f"{macro.name} depends on {state.value.residual}{on} ({origin})"
        if directive.keyword == "undef":
            meaning: Macro | Value | None = before.meaning
            if meaning is not None:
                meaning = unknown(f"!({state.value.residual})", state.value.names)
        elif isinstance(before.meaning, Macro):
            same = before.meaning.body == macro.body
            meaning = before.meaning if same else Macro(macro.name, None, None, origin)
        else:
            meaning = state.value if before.meaning is None else either(before.meaning, state.value)
        return Known(meaning, architecture, (why, *state.why))

    def _outermost_inactive(self, branch: Branch | None) -> Branch:
        assert branch is not None  # the top of a file is always compiled
        parent = branch.chain.parent
        while parent is not None:
            if self.state(parent).value.truth is False:
                branch = parent
            parent = parent.chain.parent
        return branch

    def _asks(self, branch: Branch | None) -> bool:
        while branch is not None:
            if self.state(branch).architecture:
                return True
            branch = branch.chain.parent
        return False
