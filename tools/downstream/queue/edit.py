"""Edits of a series: new, drop, fold, refresh; each keeps every patch at zero offset on the pin."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from downstream.errors import UsageError
from downstream.patches.header import Header
from downstream.patches.names import safe_path
from downstream.patches.parse import parse
from downstream.patches.series import Series, SeriesEntry
from downstream.patches.text import Patch
from downstream.placing.push import Push
from downstream.placing.refresh import refresh
from downstream.placing.side import Side
from downstream.placing.verdict import PatchResult
from downstream.queue.export import diff_of
from downstream.queue.history import Change
from downstream.queue.judged import touched
from downstream.queue.transaction import Transaction
from downstream.queue.worktree import File
from downstream.trees.tree import REGULAR, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A series after an edit: what would be written, and how each patch then stands on the pin."""

    series: bytes
    contents: Mapping[str, bytes | None]  # patches that change; None: is deleted
    results: tuple[PatchResult, ...]

    @property
    def clean(self) -> bool:
        """Every patch is placed: nothing conflicts, and nothing is there already."""
        return all(result.fine and all(hunk.status.placed for hunk in result.hunks) for result in self.results)

    def write(self, root: Path, folder: Path, old: Series) -> tuple[str, ...]:
        """Write it in one step; return the paths that changed."""
        change = Transaction(root)
        for name, content in self.contents.items():
            if content is None:
                change.remove(folder / name)
            else:
                change.write(folder / name, content)
        change.write(folder / old.file, self.series)
        return change.commit()


def settle(series: Series, entries: Sequence[SeriesEntry], tree: Tree, given: Mapping[str, bytes]) -> Edit:
    """Push *entries* in order over *tree* and renew the line numbers of those that moved.

    *given* holds the content of patches that are new or changed; the others
    are read, and stand in the order of the series. Patches of the series that
    *entries* leaves out are deleted. What stands now is the map by which the
    others find their new lines, so look-alikes are not confused.
    """
    before, after = Side(tree), Side(tree)
    waiting = list(series.entries)
    contents: dict[str, bytes | None] = {}
    results = []
    for entry in entries:
        if entry.name in given:
            content = given[entry.name]
            run = Push(after, None, [], set())
        else:
            content = series.read(entry)
            while waiting and (passed := waiting.pop(0)).name != entry.name:
                Push(before, None, [], set()).step(series.patch(passed))
            run = Push(after, before, [], set())
        pushed = run.step(parse(content, name=entry.name, strip=entry.strip))
        results.append(pushed.result)
        renewed = refresh(pushed) if pushed.result.fine else content
        renewed = content if renewed is None else renewed
        if entry.name in given or renewed != content:
            contents[entry.name] = renewed
    kept = {entry.name for entry in entries}
    contents.update({entry.name: None for entry in series if entry.name not in kept})
    return Edit(series=series.with_entries(entries), contents=contents, results=tuple(results))


def drop(series: Series, names: Iterable[str], tree: Tree) -> Edit:
    """Take the patches called *names* out. Raises PatchError for a name that the series lacks."""
    gone = {series.entry(name).name for name in names}
    return settle(series, [entry for entry in series if entry.name not in gone], tree, {})


def new(
    series: Series, name: str, *, subject: str | None, after: str | None, author: str, today: datetime.date
) -> Edit:
    """Add a patch that changes nothing yet, with a header to fill in. Raises UsageError where the name is taken."""
    name = fresh_name(series, name)
    entries = list(series.entries)
    at = entries.index(series.entry(after)) + 1 if after else len(entries)
    entries.insert(at, SeriesEntry(name=name))
    words = subject or name.rpartition("/")[2].removesuffix(".patch").replace("-", " ").replace("_", " ")
    fields = [("From", author), ("Subject", words), ("Forwarded", "no"), ("Last-Update", today.isoformat())]
    head = "".join(f"{key}: {value}\n" for key, value in fields if value)
    content = f"{head}\nSay what breaks without it.\n\n---\n\n".encode("utf-8", "surrogateescape")
    return Edit(series=series.with_entries(entries), contents={name: content}, results=())


def fresh_name(series: Series, name: str) -> str:
    """Return *name*, ending in .patch, as a path in the series' folder. Raises UsageError where it is taken."""
    path = safe_path(name.encode("utf-8", "surrogateescape"), "the patch's name")
    if not path.endswith((".patch", ".diff")):
        path += ".patch"
    if any(entry.name == path for entry in series) or (series.folder / path).exists():
        raise UsageError(path, "is there already", "choose another name")
    return path


def fold(series: Series, into: str, names: Sequence[str], tree: Tree) -> Edit:
    """Make *into* and *names* one patch, at the place and under the header of *into*.

    The patches between must not need what is moved past them; the edit's
    results say whether they do.
    """
    target = series.entry(into)
    sources = [series.entry(name) for name in names]
    if target in sources or len(set(sources)) != len(sources):
        raise UsageError(" ".join(names), "names a patch twice", "name each once")
    sources.sort(key=lambda entry: entry.line)
    entries = [entry for entry in series if entry not in sources]
    before = [entry for entry in entries[: entries.index(target)] if entry.line < target.line]
    run = Push.over(tree)
    for entry in before:
        run.step(series.patch(entry))
    parts = [series.patch(entry) for entry in (target, *sources)]
    paths = touched(parts)
    old = {path: _file(run, path) for path in paths}
    results = [run.step(part).result for part in parts]
    changes = [
        Change(old_path=path if old[path] else None, new_path=path if made else None, old=old[path], new=made)
        for path in paths
        if (made := _file(run, path)) != old[path]
    ]
    if not all(result.fine and all(hunk.status.placed for hunk in result.hunks) for result in results):
        return Edit(series=series.raw, contents={}, results=tuple(results))
    content = _joined(parts) + diff_of(changes, _apart(parts))
    if target.strip != 1:
        entries[entries.index(target)] = SeriesEntry(name=target.name, comment=target.comment)
    return settle(series, entries, tree, {target.name: content})


def _apart(parts: Sequence[Patch]) -> Patch | None:
    """Return the file patches whose file no other part touches: their bytes may stay."""
    if any(part.strip != 1 for part in parts):
        return None
    counts = Counter(path for part in parts for path in touched([part]))
    files = [file for part in parts for file in part.files]
    alone = [file for file in files if all(counts[path] == 1 for path in (file.old_path, file.new_path) if path)]
    return Patch(name=parts[0].name, header=b"", files=tuple(alone))


def _joined(parts: Sequence[Patch]) -> bytes:
    """Return the first patch's header with what the others say put under its text."""
    first, *others = parts
    added = []
    for part in others:
        header = Header.parse(part.header)
        added += [text for text in (header.subject, header.description) if text]
    if not added:
        return first.header
    text = "\n\n".join(added).encode("utf-8", "surrogateescape")
    head, rule, rest = first.header.partition(b"\n---\n")
    return head.rstrip(b"\n") + b"\n\n" + text + b"\n" + (rule and b"\n---\n" + rest)


def _file(run: Push, path: str) -> File | None:
    lines = run.new.lines(path)
    return None if lines is None else (run.new.mode(path) or REGULAR, b"".join(lines))


def added(series: Series, patches: Sequence[Patch], tree: Tree, *, base: Tree | None) -> tuple[Edit, list[PatchResult]]:
    """Add *patches* to the end of the series, carried from *base* (where known) to the pin's *tree*.

    Returns the edit, and the verdicts on the new ones alone.
    """
    run = Push.over(tree)
    for entry in series:
        run.step(series.patch(entry))
    entries = list(series.entries)
    given: dict[str, bytes] = {}
    results = []
    run.base = None if base is None else Side(base)
    for patch in patches:
        pushed = run.step(patch)
        results.append(pushed.result)
        if pushed.result.fine and (content := refresh(pushed)) is not None:
            given[patch.name] = content
            entries.append(SeriesEntry(name=patch.name, strip=patch.strip))
    if len(given) < len(patches):
        return Edit(series=series.raw, contents={}, results=()), results
    return settle(series, entries, tree, given), results
