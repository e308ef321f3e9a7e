"""One file patch on one file: what it adds, deletes, renames, chmods, and its hunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from downstream.patches.text import ChangeKind, FilePatch
from downstream.placing import gnu
from downstream.placing.hunks import numbered, place_hunks, without_cr
from downstream.placing.merge import Change, apply, changes_of
from downstream.placing.moved import Home, find_home
from downstream.placing.place import Placement
from downstream.placing.side import Side
from downstream.placing.verdict import FileResult, HunkResult, HunkStatus
from downstream.trees.tree import SYMLINK

_WORST = (
    HunkStatus.MALFORMED, HunkStatus.CONFLICT, HunkStatus.MISPLACED, HunkStatus.AMBIGUOUS, HunkStatus.LINE_ENDINGS,
    HunkStatus.FILE_GONE, HunkStatus.FILE_MOVED, HunkStatus.MERGED, HunkStatus.OFFSET, HunkStatus.CLEAN,
    HunkStatus.UPSTREAMED,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    """The verdict on one file patch, and what a refreshed patch needs of it."""

    patch: FilePatch
    result: FileResult
    placements: tuple[Placement, ...] = ()
    before: tuple[bytes, ...] = ()  # the input file's lines, where any hunk was placed
    path: str = ""  # the input file's path in the new tree


def place_file(patch: FilePatch, new: Side, base: Side | None) -> FileOutcome:
    """Judge *patch* on *new*, apply what is placed, and carry *base* along to the state after the patch."""
    patch = without_cr(patch)
    source = _source(patch, new, base)
    if patch.kind is ChangeKind.ADD or (_adds_to_nothing(patch) and _read(patch, source, new) is None):
        return _add(patch, new, base)
    moved: Home | None = None
    if _read(patch, source, new) is None:
        if patch.kind is ChangeKind.RENAME and (arrived := _renamed_already(patch, new, base)):
            return arrived
        if patch.kind is ChangeKind.DELETE and base is not None and base.lines(source) is not None:
            base.put(source, None)
            return _whole_file(patch, source, HunkStatus.UPSTREAMED, "upstream has deleted it")
        moved = find_home(source, new, base) if base else None
        if moved is None or moved.path is None:
            if base is not None:
                _advance_base(patch, source, base)
            reason = moved.reason if moved else "the release does not have this file"
            return _whole_file(patch, source, HunkStatus.FILE_GONE, reason)
    target = moved.path if moved and moved.path else source
    before = _read(patch, target, new)
    assert before is not None
    placements = place_hunks(patch, before, _read(patch, source, base) if base else None)
    if moved:
        placements = [_followed(one, target) for one in placements]
    placements = numbered(placements)
    outcome = FileOutcome(
        patch=patch,
        result=_fold(patch, target, [one.result for one in placements], moved_to=target if moved else None),
        placements=tuple(placements),
        before=tuple(before),
        path=target,
    )
    if base is not None:
        _advance_base(patch, source, base)
    return _write(outcome, new, rest=base is None)


def _read(patch: FilePatch, path: str, side: Side) -> list[bytes] | None:
    """Return the lines that *patch* is about: a copy or a rename is of the file as the whole patch found it."""
    return side.origin(path)[0] if patch.kind in (ChangeKind.RENAME, ChangeKind.COPY) else side.lines(path)


def _adds_to_nothing(patch: FilePatch) -> bool:
    """``@@ -0,0`` under a plain file name: it creates the file where there is none, and else adds at its top."""
    hunk = patch.hunks[0] if patch.kind is ChangeKind.MODIFY and len(patch.hunks) == 1 else None
    return hunk is not None and hunk.old_start == 0 and hunk.old_count == 0


def _source(patch: FilePatch, new: Side, base: Side | None) -> str:
    """The path to read: where a plain diff names two, the one that is there (GNU patch prefers the fewer letters)."""
    old_path, new_path = patch.old_path, patch.new_path
    if old_path is None or new_path is None or old_path == new_path:
        return patch.path
    if patch.kind in (ChangeKind.RENAME, ChangeKind.COPY):
        return old_path
    known = [path for path in (old_path, new_path) if (base or new).lines(path) is not None]
    return (
        min(known, key=lambda path: (path.count("/"), len(path.rsplit("/", 1)[-1]), len(path))) if known else new_path
    )


def _followed(placement: Placement, target: str) -> Placement:
    result = placement.result
    if not result.status.placed:
        return replace(
            placement, result=replace(result, reason=f"upstream moved the file to {target}; {result.reason}")
        )
    reason = f"followed to {target}" + (f"; {result.reason}" if result.reason else "")
    return replace(placement, result=replace(result, status=HunkStatus.FILE_MOVED, reason=reason), rewritten=True)


def _write(outcome: FileOutcome, new: Side, *, rest: bool) -> FileOutcome:
    """Apply the placed hunks and what the patch does to the file as a whole.

    *rest*: what a deletion does not account for stays as a file of its own, as GNU patch leaves it.
    """
    patch, path = outcome.patch, outcome.path
    lines = apply(outcome.before, [change for one in outcome.placements for change in one.changes])
    clean = all(one.result.status.fine for one in outcome.placements)
    if patch.kind is ChangeKind.DELETE:
        if lines and clean:
            if rest:
                new.put(path, lines)
            reason = "what is left of the file is not in the patch: upstream added to it"
            return replace(outcome, result=replace(outcome.result, status=HunkStatus.CONFLICT, reason=reason))
        if clean:
            new.put(path, None)
        return outcome
    mode = patch.new_mode if patch.new_mode is not None and patch.new_mode != patch.old_mode else None
    if patch.kind in (ChangeKind.RENAME, ChangeKind.COPY):
        return _rename(outcome, new, lines, clean=clean)
    if mode is not None and not patch.hunks:
        return _chmod(outcome, new, mode)
    if any(one.changes for one in outcome.placements):
        new.put(path, lines, mode=mode)
    return outcome


def _rename(outcome: FileOutcome, new: Side, lines: list[bytes], *, clean: bool) -> FileOutcome:
    patch = outcome.patch
    target = patch.new_path
    assert target is not None
    there = new.lines(target)
    reason = _not_a_folder(target, new)
    if reason or (there is not None and there != lines):
        reason = reason or f"the release already has another file at {target}"
        return replace(outcome, result=replace(outcome.result, status=HunkStatus.CONFLICT, reason=reason))
    if not clean:
        return outcome
    mode = patch.new_mode or new.origin(outcome.path)[1]
    if there == lines and patch.kind is ChangeKind.COPY:
        return replace(
            outcome, result=replace(outcome.result, status=HunkStatus.UPSTREAMED, reason="upstream has this copy")
        )
    new.put(target, lines, mode=mode)
    if patch.kind is ChangeKind.RENAME and not new.touched(outcome.path):
        new.put(outcome.path, None)
    return outcome


def _chmod(outcome: FileOutcome, new: Side, mode: int) -> FileOutcome:
    is_now = new.mode(outcome.path)
    if is_now == mode:
        result = replace(outcome.result, status=HunkStatus.UPSTREAMED, reason=f"its mode is {mode:06o} already")
        return replace(outcome, result=result)
    if outcome.patch.old_mode is not None and is_now != outcome.patch.old_mode:
        reason = f"its mode is {is_now or 0:06o}, the patch changes {outcome.patch.old_mode:06o} to {mode:06o}"
        return replace(outcome, result=replace(outcome.result, status=HunkStatus.CONFLICT, reason=reason))
    new.put(outcome.path, new.lines(outcome.path), mode=mode)
    return outcome


def _add(patch: FilePatch, new: Side, base: Side | None) -> FileOutcome:
    path = patch.path
    lines = [line for hunk in patch.hunks for line in hunk.new]
    there = new.lines(path)
    if base is not None:
        base.put(path, lines, mode=patch.new_mode)
    if reason := _not_a_folder(path, new):
        return _whole_file(patch, path, HunkStatus.CONFLICT, reason)
    if there is not None and there != lines and (there or not lines):
        found = tuple((number, line) for number, line in enumerate(there[:8], 1))
        reason = "the release already has this file, with other content"
        return _whole_file(patch, path, HunkStatus.CONFLICT, reason, found=found)
    if there is not None and there == lines:
        return _whole_file(patch, path, HunkStatus.UPSTREAMED, "the release already has this file, with this content")
    new.put(path, lines, mode=patch.new_mode)
    placed = tuple(
        Placement(
            hunk=hunk,
            result=HunkResult(path=path, number=hunk.number, status=HunkStatus.CLEAN, line=1, offset=0, old_line=1),
            changes=(Change(0, 0, hunk.new),),
        )
        for hunk in patch.hunks
    )
    result = FileResult(path=path, status=HunkStatus.CLEAN, hunks=tuple(one.result for one in placed))
    return FileOutcome(patch=patch, result=result, placements=placed, path=path)


def _not_a_folder(path: str, new: Side) -> str:
    """Say so where a file, or a symlink that would lead elsewhere, stands where *path* needs a folder."""
    parts = path.split("/")
    for end in range(1, len(parts)):
        folder = "/".join(parts[:end])
        if new.lines(folder) is not None:
            return f"{folder} is a {'symlink' if new.mode(folder) == SYMLINK else 'file'} there, not a folder"
    return ""


def _renamed_already(patch: FilePatch, new: Side, base: Side | None) -> FileOutcome | None:
    """Upstream made the same rename: its source is gone and its target holds the same text, or can take the hunks."""
    target, source = patch.new_path, patch.old_path
    assert target is not None
    assert source is not None
    there = new.lines(target)
    lines = _read(patch, source, base) if base else None
    if base is None or there is None or lines is None:
        return None
    placements = numbered(place_hunks(replace(patch, new_path=target), there, lines))
    _advance_base(patch, source, base)
    if any(one.changes for one in placements):
        new.put(target, apply(there, [change for one in placements for change in one.changes]))
    result = _fold(patch, target, [one.result for one in placements], nothing=HunkStatus.UPSTREAMED)
    result = replace(result, reason=f"upstream has renamed {source} to {target}")
    return FileOutcome(patch=patch, result=result, placements=tuple(placements), before=tuple(there), path=target)


def _advance_base(patch: FilePatch, source: str, base: Side) -> None:
    """Bring the base to the state after the patch, so that the next patch is mapped from there."""
    lines = _read(patch, source, base)
    if lines is None:
        return
    cursor = gnu.Cursor()
    changes: list[Change] = []
    for hunk in patch.hunks:
        at = gnu.locate(lines, hunk, cursor)
        if at is not None:
            gnu.advance(cursor, hunk, at)
            changes.extend(changes_of(hunk, at - 1))
    after = apply(lines, changes)
    if patch.kind is ChangeKind.DELETE:
        base.put(source, after or None)
    elif patch.kind in (ChangeKind.RENAME, ChangeKind.COPY) and patch.new_path:
        base.put(patch.new_path, after, mode=patch.new_mode or base.origin(source)[1])
        if patch.kind is ChangeKind.RENAME and not base.touched(source):
            base.put(source, None)
    else:
        base.put(source, after, mode=patch.new_mode)


def _whole_file(
    patch: FilePatch, path: str, status: HunkStatus, reason: str, *, found: tuple[tuple[int, bytes], ...] = ()
) -> FileOutcome:
    """One verdict for the file and every hunk of it."""
    hunks = tuple(
        HunkResult(path=path, number=hunk.number, status=status, reason=reason, found=found) for hunk in patch.hunks
    )
    placements = tuple(Placement(hunk=hunk, result=result) for hunk, result in zip(patch.hunks, hunks, strict=True))
    result = FileResult(path=path, status=status, hunks=hunks, reason=reason)
    return FileOutcome(patch=patch, result=result, placements=placements, path=path)


def _fold(
    patch: FilePatch,
    path: str,
    hunks: Sequence[HunkResult],
    *,
    moved_to: str | None = None,
    nothing: HunkStatus = HunkStatus.CLEAN,
) -> FileResult:
    statuses = {hunk.status for hunk in hunks} or {HunkStatus.FILE_MOVED if moved_to else nothing}
    worst = next(status for status in _WORST if status in statuses)
    shown = patch.path if moved_to else path
    return FileResult(path=shown, status=worst, hunks=tuple(hunks), moved_to=moved_to)
