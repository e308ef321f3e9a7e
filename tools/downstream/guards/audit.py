"""All guards of a tree: which files to read, who judges them, and in which order they come out."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from downstream.guards import cuda, embedded, host, python
from downstream.guards.definitions import SUFFIXES, Definitions
from downstream.guards.interesting import asking_files
from downstream.guards.macros import Toolkit
from downstream.guards.model import Audit, Coverage, Guard, Question
from downstream.guards.predicates import Predicates
from downstream.progress import SILENT, Progress
from downstream.trees.layout import IDENTITY, Layout
from downstream.trees.tree import Tree

PARALLEL = 2_000_000  # bytes to judge before a second process pays
AT_ONCE = 4

_THIRD_PARTY = re.compile(r"(?:^|/)(?:3rdparty|third_party|flashinfer/data/(?:cutlass|spdlog|cccl))/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What to audit of a tree, and under which assumptions."""

    question: Question
    layout: Layout = IDENTITY
    paths: tuple[str, ...] = ()  # glob patterns on repository paths; none: all
    third_party: bool = False
    toolkit: Toolkit | None = field(default_factory=Toolkit)
    defines: Mapping[str, str] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        """Whether it shows less, or something else, than the audit that a ledger is kept for."""
        return bool(self.paths or self.defines) or not self.question.variants


def audit(tree: Tree, scope: Scope, *, progress: Progress = SILENT) -> Audit:
    """Find and judge every guard of *tree*. What cannot be understood is listed, not skipped."""
    return Auditor(tree, scope, progress=progress).audit()


class Auditor:
    """An audit of one tree; another one of a tree that is much the same can build on it (*like*)."""

    def __init__(self, tree: Tree, scope: Scope, *, progress: Progress = SILENT, like: Auditor | None = None) -> None:
        self._tree = tree
        self._scope = scope
        self._progress = progress
        listed = list(tree.paths())
        sources = [path for path in listed if path.endswith(SUFFIXES)]
        scripts = [path for path in listed if path.endswith(".py")]
        _prefetch(tree, [*sources, *scripts])
        self._texts: dict[str, bytes] = {}
        with progress.task(f"read {tree.name}", len(sources) + len(scripts)) as task:
            for path in (*sources, *scripts):
                self._texts[path] = tree.read(path) or b""
                task.advance()
        self.judge: _Judge = _Judge(self._texts, scope, sources, scripts, like=like.judge if like else None)

    def audit(self) -> Audit:
        """Judge every file that asks for the architecture."""
        work = self.judge.work()
        guards: list[Guard] = []
        problems: list[str] = []
        sizes = [len(self._texts[path]) for _, path in work]
        with _runner(self.judge, sizes) as run, self._progress.task("judge guards", len(work)) as task:
            for found, failed in run(work):
                guards += found
                problems += failed
                task.advance()
        return Audit(
            tree=self._tree.name,
            question=self._scope.question,
            guards=numbered(guards, self._scope.layout),
            coverage=Coverage(
                files=len(self._texts),
                scanned=len({path for _, path in work}),
                problems=tuple(sorted(problems)),
                partial=self._scope.partial,
            ),
        )


def _prefetch(tree: Tree, paths: Iterable[str]) -> None:
    """Have a remote wheel fetch its members together (trees.open says the same; the bundle goes without it)."""
    base = getattr(tree, "base", tree)
    if hasattr(base, "prefetch"):
        base.prefetch(paths)


def numbered(guards: Iterable[Guard], layout: Layout) -> tuple[Guard, ...]:
    """*guards* in order, equal ones of one function told apart, with their wheel paths."""
    counts: Counter[tuple[object, ...]] = Counter()
    out = []
    for guard in sorted(guards, key=lambda each: (each.path, each.line, each.end_line, each.condition)):
        key = (guard.path, guard.kind, guard.function, "".join(guard.condition.split()))
        out.append(replace(guard, ordinal=counts[key], wheel_path=layout.to_wheel(guard.path)))
        counts[key] += 1
    return tuple(out)


class _Judge:
    """Everything that is asked about more than one file."""

    def __init__(
        self,
        texts: Mapping[str, bytes],
        scope: Scope,
        sources: Sequence[str],
        scripts: Sequence[str],
        *,
        like: _Judge | None = None,
    ) -> None:
        self._texts = texts
        self._scope = scope
        self._sources = sources
        self._scripts = scripts
        in_sources = {path: texts[path] for path in sources}
        known: Definitions | None = like.definitions if like else None
        self.definitions: Definitions = Definitions(
            in_sources, toolkit=scope.toolkit, defines=scope.defines, like=known
        )
        self.predicates: Predicates = Predicates(
            {path: texts[path] for path in scripts}, like=like.predicates if like else None
        )

    def work(self) -> list[tuple[str, str]]:
        """The files worth judging, and by whom."""
        chosen = [path for path in self._sources if self._wanted(path)]
        work = [("cuda", path) for path in asking_files(self.definitions, chosen)]
        work += [("host", path) for path in chosen if host.asks(self._texts[path])]
        scripts = [path for path in self._scripts if self._wanted(path)]
        work += [("python", path) for path in scripts if path in self.predicates.asking]
        _ = self.predicates.definitions, self.predicates.attributes  # once, before the work is shared out
        work += [("embedded", path) for path in scripts if embedded.asks(self._texts[path])]
        return work

    def _wanted(self, path: str) -> bool:
        if not self._scope.third_party and _THIRD_PARTY.search(path):
            return False
        return not self._scope.paths or any(fnmatch.fnmatchcase(path, pattern) for pattern in self._scope.paths)

    def judge(self, item: tuple[str, str]) -> tuple[list[Guard], list[str]]:
        """The guards of one file, and what could not be understood there."""
        kind, path = item
        content = self._texts[path]
        question = self._scope.question
        try:
            match kind:
                case "cuda":
                    file = cuda.CudaFile(self.definitions, path, content, question)
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
                    return list(host.guards(path, content, question)), []
                case "embedded":
                    return list(embedded.guards(self.predicates.module(path), question, self._scope.toolkit)), []
                case _:
                    return python.guards(path, question, self.predicates)
        except RecursionError:
            return [], [f"{path}:1: nested too deeply to be understood"]


_judge: _Judge | None = None  # what a forked process judges with; it never sees more than one


def _judge_one(item: tuple[str, str]) -> tuple[list[Guard], list[str]]:
    assert _judge is not None
    return _judge.judge(item)


class _runner:  # noqa: N801 - a context manager that reads as a verb
    """Maps the judge over the work, in forked processes where that pays."""

    def __init__(self, judge: _Judge, sizes: Sequence[int]) -> None:
        self._judge = judge
        self._parallel = sum(sizes) > PARALLEL and hasattr(os, "fork") and len(os.sched_getaffinity(0)) > 1

    def __enter__(self) -> Callable[[Sequence[tuple[str, str]]], Iterator[tuple[list[Guard], list[str]]]]:
        global _judge  # noqa: PLW0603 - fork is how the texts reach the children without a copy
        if not self._parallel:
            return lambda work: map(self._judge.judge, work)
        import multiprocessing

        _judge = self._judge
        self._pool = multiprocessing.get_context("fork").Pool(min(AT_ONCE, len(os.sched_getaffinity(0))))
        return lambda work: self._pool.imap_unordered(_judge_one, work, chunksize=4)

    def __exit__(self, *_: object) -> None:
        global _judge  # noqa: PLW0603
        _judge = None
        if self._parallel:
            self._pool.terminate()
            self._pool.join()
