"""Who judges which file of a tree, and what the judgement rests on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from downstream.guards import cuda, embedded, host, python
from downstream.guards.definitions import Definitions
from downstream.guards.interesting import asking_files
from downstream.guards.kept import Found
from downstream.guards.predicates import Predicates
from downstream.guards.profile import Profile
from downstream.guards.scope import Scope


class Item(NamedTuple):
    """One file for one judge; *size* stands for how long it takes."""

    kind: str  # cuda, host, python or embedded
    path: str
    size: int = 0


class Judge:
    """Everything that is asked about more than one file."""

    def __init__(
        self,
        texts: Mapping[str, bytes],
        profiles: Mapping[str, Profile],
        scope: Scope,
        *,
        like: Judge | None = None,
    ) -> None:
        self._texts = texts
        self._scope = scope
        self._sources = {path: known for path, known in profiles.items() if not path.endswith(".py")}
        self._scripts = {path: known for path, known in profiles.items() if path.endswith(".py")}
        self.definitions: Definitions = Definitions(
            texts,
            self._sources,
            toolkit=scope.toolkit,
            defines=scope.defines,
            like=like.definitions if like else None,
        )
        self.predicates = Predicates(texts, self._scripts)

    def work(self) -> list[Item]:
        """The files worth judging, and by whom."""
        chosen = [path for path in self._sources if self._scope.wanted(path)]
        scripts = [path for path in self._scripts if self._scope.wanted(path)]
        work = [Item("cuda", path, self._sources[path].size) for path in asking_files(self.definitions, chosen)]
        work += [Item("host", path, self._sources[path].size) for path in chosen if self._sources[path].compares]
        known = self._scripts
        work += [Item("python", path, known[path].size) for path in scripts if known[path].gates]
        work += [Item("embedded", path, known[path].size) for path in scripts if known[path].seeded]
        _ = self.predicates.definitions, self.predicates.attributes  # once, before the work is shared out
        return work

    def world(self, item: Item) -> str:
        """A digest of all that the judgement of *item* may rest on."""
        return self._c_world if item.kind in ("cuda", "host") else self._python_world

    @cached_property
    def _c_world(self) -> str:
        return _digest(f"{path} {known.digest}" for path, known in self._sources.items())

    @cached_property
    def _python_world(self) -> str:
        asking = ((path, known) for path, known in self._scripts.items() if known.gates or known.seeded)
        return _digest(f"{path} {known.digest}" for path, known in asking)

    def judge(self, item: Item) -> Found:
        """The guards of one file, and what could not be understood there."""
        path = item.path
        question = self._scope.question
        try:
            match item.kind:
                case "cuda":
                    file = cuda.CudaFile(self.definitions, path, self._texts[path], question)
                    found = list(file.guards())
                    problems = [f"{path}:{line}: {text}" for line, text in file.source.problems]
                    problems += [
                        f"{path}:{guard.line}: {name}"
                        for guard in found
                        for name in guard.unknown
                        if name.startswith("malformed")
                    ]
                    return found, problems
                case "host":
                    return list(host.guards(path, self._texts[path], question)), []
                case "embedded":
                    return list(embedded.guards(self.predicates.module(path), question, self._scope.toolkit)), []
                case _:
                    return python.guards(path, question, self.predicates)
        except RecursionError:
            return [], [f"{path}:1: nested too deeply to be understood"]


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
