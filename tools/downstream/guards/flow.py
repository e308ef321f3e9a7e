"""One file on one target: which branches are compiled, and what a name is at a line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from downstream.arches import Target
from downstream.guards.directives import Branch, Chain, Directive, Source
from downstream.guards.expressions import evaluate
from downstream.guards.macros import ARCHITECTURE, Any, Predefined, parse_define
from downstream.guards.tokens import Lookup, Macro
from downstream.guards.values import FALSE, TRUE, Value, both, either, negate, unknown


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


_NAME = re.compile(r"[A-Za-z_]\w*")
_COMPILED = State(TRUE)


class Tree(Protocol):
    """Who knows the other files."""

    def source(self, path: str) -> Source:
        """The conditionals of a file."""

    def resolve(self, name: str, path: str, target: Target | Any | None) -> Known:
        """What *name* is when *path* begins."""


class File:
    """One file on one target; states and names are worked out when asked for."""

    def __init__(self, definitions: Tree, path: str, table: Predefined) -> None:
        self._definitions = definitions
        self._path = path
        self.table = table
        self._states: dict[int, State] = {}
        self._answered: dict[str, tuple[Value, tuple[Known, ...]]] = {}
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

            own = TRUE if branch.own is None else self._own(branch.own, lookup, used)
            architecture = architecture or any(known.architecture for known in used)
            for known in used:
                why.update(dict.fromkeys(known.why))
            value = both(outer.value, both(negate(taken), own))
            self._states[id(branch)] = State(value, architecture, tuple(why))
            taken = either(taken, own)

    def _own(self, condition: str, lookup: Lookup, used: list[Known]) -> Value:
        """What *condition* comes to; generated files ask the same thousands of times."""
        if condition in self._answered:
            value, known = self._answered[condition]
            used += known
            return value
        value = evaluate(condition, lookup)
        if self._events.keys().isdisjoint(_NAME.findall(condition)):  # no line of the file changes it
            self._answered[condition] = value, tuple(used)
        return value

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
        if self.table.knows(name):
            return Known(self.table.lookup(name), ARCHITECTURE.fullmatch(name) is not None)
        if ARCHITECTURE.fullmatch(name):
            return Known(unknown(f"defined({name})", frozenset({name})), architecture=True)
        return self._definitions.resolve(name, self._path, self.table.target)

    def _after(self, directive: Directive, branch: Branch | None, before: Known | None) -> Known:
        state = self.state(branch)
        origin = f"{self._path}:{directive.line}"
        macro = parse_define(directive.text, origin)
        assert macro is not None  # collected as one
        on = f" on {self.table.target}" if isinstance(self.table.target, Target) else ""
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
