"""All guards of a tree: which files to read, who judges them, and in which order they come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from downstream.guards.definitions import SUFFIXES
from downstream.guards.judge import Item, Judge
from downstream.guards.kept import Found, Kept, Store, read, written
from downstream.guards.model import Audit, Coverage, Guard
from downstream.guards.profile import Profile
from downstream.guards.scope import Scope
from downstream.guards.survey import survey
from downstream.guards.texts import Texts
from downstream.guards.workers import shared_out, unhurried
from downstream.progress import SILENT, Progress
from downstream.trees.layout import Layout
from downstream.trees.tree import LayeredTree, Tree

__all__ = ["Auditor", "Scope", "audit", "numbered"]


def audit(tree: Tree, scope: Scope, *, progress: Progress = SILENT, store: Store | None = None) -> Audit:
    """Find and judge every guard of *tree*. What cannot be understood is listed, not skipped."""
    return Auditor(tree, scope, progress=progress, store=store).audit()


class Auditor:
    """An audit of one tree; another one of a tree that is much the same can build on it (*like*).

    *store* keeps what was found, by the digests of what it was found in.
    """

    def __init__(
        self,
        tree: Tree,
        scope: Scope,
        *,
        progress: Progress = SILENT,
        like: Auditor | None = None,
        store: Store | None = None,
    ) -> None:
        self._tree = tree
        self._scope = scope
        self._progress = progress
        self._store = store
        sources = [path for path in tree.paths() if path.endswith(SUFFIXES)]
        scripts = [path for path in tree.paths() if path.endswith(".py") and scope.judged(path)]
        _prefetch(tree, [*sources, *scripts])
        self._texts = Texts(tree, [*sources, *scripts])
        with unhurried():
            self.profiles = survey(self._texts, tree.name, progress, store, known=_unchanged(tree, like))
            self.judge: Judge = Judge(self._texts, self.profiles, scope, like=like.judge if like else None)

    @property
    def changes(self) -> Mapping[str, bytes | None]:
        """How the tree differs from the one it is laid over."""
        return self._tree.changes if isinstance(self._tree, LayeredTree) else {}

    def lies_over(self, tree: Tree) -> bool:
        return isinstance(self._tree, LayeredTree) and self._tree.base is tree

    def audit(self) -> Audit:
        """Judge every file that asks for the architecture."""
        guards: list[Guard] = []
        problems: list[str] = []
        with unhurried():
            work = self.judge.work()
            for found, failed in self._found(work):
                guards += found
                problems += failed
        return Audit(
            tree=self._tree.name,
            question=self._scope.question,
            guards=numbered(guards, self._scope.layout),
            coverage=Coverage(
                files=len(self._texts),
                scanned=len({item.path for item in work}),
                problems=tuple(sorted(problems)),
                partial=self._scope.partial,
            ),
        )

    def _found(self, work: Sequence[Item]) -> Iterator[Found]:
        """What each item came to, taken over where it is known."""
        asked = repr((self._scope.question, self._scope.toolkit, sorted(self._scope.defines.items())))
        kept = {
            world: Kept(self._store, "guards", [asked, world]) for world in {self.judge.world(item) for item in work}
        }
        missing = []
        for item in work:
            known, key = kept[self.judge.world(item)], f"{item.kind} {item.path}"
            if key in known:
                found, problems = known[key]
                yield [read(row) for row in found], problems
            else:
                missing.append(item)
        sizes = [(item, item.size) for item in missing]
        with self._progress.task("judge guards", len(missing)) as task:
            for item, (guards, problems) in shared_out(self.judge.judge, sizes, apart=self._texts.shared):
                kept[self.judge.world(item)].add(f"{item.kind} {item.path}", [[written(g) for g in guards], problems])
                yield guards, problems
                task.advance()
        for known in kept.values():
            known.save()


def _unchanged(tree: Tree, like: Auditor | None) -> Mapping[str, Profile]:
    """The profiles that *like*, an audit of *tree* with changes laid over it, has made of the same files."""
    if like is None or not like.lies_over(tree):
        return {}
    return {path: known for path, known in like.profiles.items() if path not in like.changes}


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
