"""Commits back to patches: what nobody changed keeps its bytes, what moved changes its line numbers only."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from downstream.errors import StateError
from downstream.patches.parse import parse
from downstream.patches.series import Series, SeriesEntry
from downstream.patches.text import FilePatch, Hunk, Patch
from downstream.patches.unified import unified
from downstream.placing.push import Push
from downstream.placing.refresh import refresh
from downstream.queue import checkout
from downstream.queue.history import Change, History, Recorded
from downstream.queue.message import file_name, header_of, parse_message
from downstream.queue.transaction import Transaction
from downstream.queue.worktree import File
from downstream.trees.tree import REGULAR, MemoryTree, Tree


class Fate(StrEnum):
    """What an export does to a patch file."""

    UNMODIFIED = "unmodified"
    REWRITTEN = "rewritten"
    NEW = "new"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """One patch after the export; *content* is None for a dropped one."""

    name: str
    content: bytes | None
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """All that an export would write: the patches in their new order, dropped ones last, and the series file."""

    patches: tuple[Exported, ...]
    series: bytes

    def write(self, root: Path, folder: Path, old: Series) -> tuple[str, ...]:
        """Write patches and series to *folder* below *root* in one step; return the paths that changed."""
        change = Transaction(root)
        for patch in self.patches:
            if patch.content is None:
                change.remove(folder / patch.name)
            else:
                change.write(folder / patch.name, patch.content)
        change.write(folder / old.file, self.series)
        return change.commit()


def export(
    folder: Path, record: checkout.Record, series: Series, release: Tree, *, today: datetime.date, tip: str = "HEAD"
) -> Export:
    """Turn the commits of the checkout at *folder* into patches; *series* is the one it was made of.

    Raises StateError: uncommitted changes, a rebase under way, a merge, two
    commits for one patch, or a file that the release has and the checkout had not.
    """
    _refuse_unready(folder, record, series)
    history = History(folder / ".git")
    commits = history.commits(record.base, tip)
    unseen = None if record.extent == checkout.Extent.FULL.value else _Unseen(release, history.paths(record.base))
    old = {entry.name: entry for entry in series}
    messages = [parse_message(commit.message) for commit in commits]
    claimed = {message.name for message in messages if message.name}
    taken: set[str] = set()
    entries: list[SeriesEntry] = []
    patches: list[Exported] = []
    for commit, message in zip(commits, messages, strict=True):
        if unseen is not None:
            _refuse_unseen(commit, unseen, record.upstream)
        # An unnamed commit keeps the file that an earlier export gave it.
        name = message.name or _free_name(file_name(message.subject), taken | claimed)
        if name in taken:
            raise StateError(commit.object[:12], f"is a second commit for {name}", "squash the two (git rebase -i)")
        taken.add(name)
        entry = old.get(name)
        before = series.read(entry) if entry else None
        patch = parse(before, name=name, strip=entry.strip) if entry and before is not None else None
        header = header_of(
            message, old=patch.header if patch else None, author=commit.author, date=commit.date, today=today
        )
        content = header + diff_of(commit.changes, patch)
        if entry is None or (entry.strip != 1 and content != before):
            entry = SeriesEntry(name=name, comment=entry.comment if entry else "")
        entries.append(entry)
        fate = Fate.NEW if before is None else Fate.UNMODIFIED if content == before else Fate.REWRITTEN
        patches.append(Exported(name=name, content=content, fate=fate))
    dropped = [Exported(name=name, content=None, fate=Fate.DROPPED) for name in old if name not in taken]
    return Export(patches=(*patches, *dropped), series=series.with_entries(entries))


def diff_of(changes: Sequence[Change], old: Patch | None) -> bytes:
    """Write *changes* as a diff, with the bytes of the file patches of *old* that still do the same."""
    if old is None or old.strip != 1:
        whole = None if old is None else _same_effect(changes, old)
        return b"".join(map(_written, changes)) if whole is None else whole
    if (whole := _same_effect(changes, old)) is not None:
        return whole
    left = {change.path: change for change in changes}
    parts: list[bytes] = []
    for path, files in _by_path(old):
        change = left.pop(path, None)
        if change is None:
            continue
        part = Patch(name=old.name, header=b"", files=files)
        kept = _same_effect([change], part) or _same_lines(change, files)
        parts.append(_written(change) if kept is None else kept)
    return b"".join(parts) + b"".join(_written(left[path]) for path in sorted(left))


def _same_effect(changes: Sequence[Change], old: Patch) -> bytes | None:
    """Return *old*, headerless and with its line numbers renewed, where it does exactly what *changes* do."""
    before: dict[str, File] = {}
    after: dict[str, File | None] = {}
    for change in changes:
        if change.old is not None and change.old_path is not None:
            before[change.old_path] = change.old
            if not change.copy:
                after.setdefault(change.old_path, None)
    for change in changes:
        if change.new_path is not None:
            after[change.new_path] = change.new
    tree = MemoryTree(
        {path: content for path, (_, content) in before.items()},
        name="the commit's parent",
        modes={path: mode for path, (mode, _) in before.items()},
    )
    run = Push.over(tree)
    pushed = run.step(replace(old, header=b""))
    if not pushed.result.fine or any(not hunk.status.placed for hunk in pushed.result.hunks):
        return None
    for path in after.keys() | {file.path for file in old.files}:
        lines = run.new.lines(path)
        made = None if lines is None else (run.new.mode(path) or REGULAR, b"".join(lines))
        if made != after.get(path):
            return None
    return refresh(pushed)


def _same_lines(change: Change, files: tuple[FilePatch, ...]) -> bytes | None:
    """Return the one file patch with new line numbers where nothing else of it would change.

    Among look-alikes the text alone does not tell where a hunk went; the commit does.
    """
    if len(files) != 1:
        return None
    (old,) = files
    made = parse(_written(change), name="export").files
    if len(made) != 1 or _but_numbers(made[0]) != _but_numbers(old):
        return None
    hunks = [_renumbered(hunk, new) for hunk, new in zip(old.hunks, made[0].hunks, strict=True)]
    return old.raw_header + b"".join(hunks) + old.trailer


def _but_numbers(file: FilePatch) -> tuple[object, ...]:
    bodies = [hunk.body for hunk in file.hunks]
    return file.kind, file.old_path, file.new_path, file.old_mode, file.new_mode, bodies


def _renumbered(old: Hunk, new: Hunk) -> bytes:
    if (old.old_start, old.new_start) == (new.old_start, new.new_start):
        return old.raw
    return new.raw.partition(b" @@")[0] + b" @@" + old.raw.partition(b" @@")[2]


def _by_path(patch: Patch) -> Iterator[tuple[str, tuple[FilePatch, ...]]]:
    groups: dict[str, list[FilePatch]] = {}
    for file in patch.files:
        groups.setdefault(file.path, []).append(file)
    for path, files in groups.items():
        yield path, tuple(files)


def _written(change: Change) -> bytes:
    return unified(
        change.old_path,
        change.new_path,
        change.old[1] if change.old else None,
        change.new[1] if change.new else None,
        old_mode=change.old[0] if change.old else None,
        new_mode=change.new[0] if change.new else None,
        copy=change.copy,
    )


def _free_name(name: str, taken: set[str]) -> str:
    stem, number, found = name.removesuffix(".patch"), 1, name
    while found in taken:
        number += 1
        found = f"{stem}-{number}.patch"
    return found


def _refuse_unready(folder: Path, record: checkout.Record, series: Series) -> None:
    if what := checkout.under_way(folder):
        raise StateError(str(folder), f"is in the middle of a git {what}", f"end it: git {what} --continue or --abort")
    if changed := checkout.changed_files(folder):
        shown = ", ".join(changed[:3]) + (", …" if len(changed) > 3 else "")
        raise StateError(str(folder), f"has changes that are not committed: {shown}", "git commit or git stash them")
    if checkout.digest(series) != record.series:
        raise StateError(
            f"patches/{record.line}/{record.upstream}",
            "has changed since the checkout was made",
            f"tools/pq.py checkout {record.upstream} --dir NEW, then git cherry-pick what you did",
        )


@dataclass(frozen=True, slots=True)
class _Unseen:
    """The files of the release that a checkout was made without."""

    release: Tree
    held: set[str]

    def __contains__(self, path: str) -> bool:
        return path not in self.held and self.release.read(path) is not None


def _refuse_unseen(commit: Recorded, unseen: _Unseen, upstream: str) -> None:
    """A file that was left out of the checkout would be exported as a new one."""
    for change in commit.changes:
        if change.new_path and change.new_path != change.old_path and change.new_path in unseen:
            raise StateError(
                change.new_path,
                f"is added by commit {commit.object[:12]}, but the release has it and the checkout had not",
                f"tools/pq.py checkout {upstream} --with {change.new_path}, and make the change there",
            )
