"""Macros that the tree itself defines, and which branches are active because of them.

Asked, not walked: a name at a line is what the file's earlier lines made it,
else the compiler's, else what the files it includes say, else what any file of
the tree says, else unknown. A name that the tree defines is undefined before
that (only ``-D`` could define it, and then ``defines`` says so).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from functools import cached_property

from downstream.arches import Target
from downstream.guards.directives import Source, scan
from downstream.guards.flow import File, Known
from downstream.guards.macros import Any, Predefined, Toolkit, predefined
from downstream.guards.profile import Profile, profile
from downstream.guards.tokens import Macro
from downstream.guards.values import Value, either, unknown

SUFFIXES = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".cu", ".cc", ".cpp", ".cxx", ".inl", ".inc")


class Definitions:
    """The C, C++ and CUDA files of a tree, *texts* by path, and what they define."""

    def __init__(
        self,
        texts: Mapping[str, bytes],
        profiles: Mapping[str, Profile] | None = None,
        *,
        toolkit: Toolkit | None = None,
        defines: Mapping[str, str] | None = None,
        like: Definitions | None = None,
    ) -> None:
        """*profiles* are those of *texts*; *like* has scanned some of the same texts already."""
        self._texts = texts
        self.profiles: Mapping[str, Profile] = (
            {path: profile(path, content) for path, content in texts.items()} if profiles is None else profiles
        )
        self._toolkit = toolkit
        self._defines = dict(defines or {})
        self.sources: dict[str, Source] = {}
        if like is not None:
            self.sources = {path: source for path, source in like.sources.items() if self._same(path, like)}
        self._closures: dict[str, frozenset[str]] = {}
        self._files: dict[tuple[str, Target | Any | None], File] = {}
        self._resolved: dict[tuple[str, frozenset[str], Target | Any | None], Known] = {}
        self._resolving: set[tuple[str, frozenset[str], Target | Any | None]] = set()
        self._tables: dict[Target | Any | None, Predefined] = {}
        self._cut = 0  # times that a circle of definitions was cut

    def _same(self, path: str, other: Definitions) -> bool:
        return path in self.profiles and self.profiles[path].digest == other.profiles[path].digest

    def source(self, path: str) -> Source:
        """The conditionals of a file."""
        if path not in self.sources:
            self.sources[path] = scan(decode(self._texts[path]))
        return self.sources[path]

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
        own = path in self._sites_of(name)
        sites = frozenset(site for site in self._sites_of(name) if site != path)
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

    def _sites_of(self, name: str) -> tuple[str, ...]:
        return self._sites.get(name, ())

    @cached_property
    def _sites(self) -> Mapping[str, tuple[str, ...]]:
        sites: dict[str, list[str]] = {}
        for path, known in self.profiles.items():
            for name in known.defined:
                sites.setdefault(name, []).append(path)
        return {name: tuple(paths) for name, paths in sites.items()}

    @cached_property
    def _by_basename(self) -> Mapping[str, tuple[str, ...]]:
        names: dict[str, list[str]] = {}
        for path in self.profiles:
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
                    for include in self.profiles[current].includes:
                        todo.extend(self._included(include, current))
            self._closures[path] = frozenset(seen)
        return self._closures[path]

    def _included(self, include: str, path: str) -> Iterable[str]:
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), include))
        if beside in self.profiles:
            return (beside,)
        tail = "/" + posixpath.normpath(include).lstrip("./")
        return [each for each in self._by_basename.get(posixpath.basename(include), ()) if ("/" + each).endswith(tail)]


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
