"""A series over a tree: every patch judged on what the patches before it left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from downstream.errors import PatchError
from downstream.patches.parse import MalformedError, Parsed
from downstream.patches.text import ChangeKind, FilePatch, Patch
from downstream.placing.file import FileOutcome, place_file
from downstream.placing.side import Side
from downstream.placing.verdict import (
    FileResult,
    HunkResult,
    HunkStatus,
    PatchResult,
    PatchStatus,
    PushReport,
)
from downstream.trees.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """One patch pushed: its verdict, and per file what a refreshed patch needs."""

    patch: Patch
    result: PatchResult
    outcomes: tuple[FileOutcome, ...]


@dataclass(slots=True)
class Push:
    """A series being pushed; ``step`` takes one patch, ``report`` says what became of all.

    *base* is the release the series was written for; without it hunks are placed by text alone.
    """

    new: Side
    base: Side | None
    results: list[PatchResult]  # what ``step`` returned besides is not kept: it holds every file it read
    _unsure: set[str]  # paths on which an earlier hunk was not placed

    @classmethod
    def over(cls, tree: Tree, *, base: Tree | None = None) -> Push:
        return cls(Side(tree), Side(base) if base is not None else None, [], set())

    def step(self, entry: Patch | Parsed) -> Pushed:
        """Push one patch. A conflict is an answer here, not an error; the walk goes on after it."""
        patch, faults = (entry.patch, entry.faults) if isinstance(entry, Parsed) else (entry, ())
        origins = {file.old_path for file in patch.files if file.kind in (ChangeKind.RENAME, ChangeKind.COPY)}
        for side in (self.new, self.base):
            if side is not None:
                side.begin(path for path in origins if path is not None)
        outcomes = tuple(self._file(file) for file in patch.files)
        files = tuple(outcome.result for outcome in outcomes) + tuple(_malformed(fault) for fault in faults)
        status, reason = _fold(outcomes, files)
        reason = reason or next((fault.problem for fault in faults), "")
        result = PatchResult(patch=patch.name, status=status, files=files, reason=reason)
        self.results.append(result)
        return Pushed(patch=patch, result=result, outcomes=outcomes)

    def _file(self, file: FilePatch) -> FileOutcome:
        paths = {path for path in (file.old_path, file.new_path) if path is not None}
        tentative = bool(paths & self._unsure)
        outcome = place_file(file, self.new, self.base)
        hunks = outcome.result.hunks
        if not outcome.result.status.fine or any(not hunk.status.fine for hunk in hunks):
            self._unsure |= paths
        if not tentative:
            return outcome
        marked = tuple(replace(hunk, tentative=True) for hunk in hunks)
        return replace(outcome, result=replace(outcome.result, hunks=marked))

    def report(self) -> PushReport:
        return PushReport(
            results=tuple(self.results),
            changes=self.new.changes(),
            modes=self.new.modes(),
        )


def push(patches: Iterable[Patch | Parsed], tree: Tree, *, base: Tree | None = None) -> PushReport:
    """Place every patch of a series in *tree* and return what became of each (DESIGN 7)."""
    run = Push.over(tree, base=base)
    for patch in patches:
        run.step(patch)
    return run.report()


def _malformed(fault: PatchError) -> FileResult:
    line = fault.place.rpartition(":")[2]
    path, number, reason = "", 1, f"line {line}: {fault.problem}" if line.isdigit() else fault.problem
    if isinstance(fault, MalformedError):
        path, number, reason = fault.path, fault.hunk or 1, f"line {fault.line}: {fault.reason}"
    elif fault.next_step:
        reason = f"{reason}; {fault.next_step}"
    hunk = HunkResult(path=path, number=number, status=HunkStatus.MALFORMED, reason=reason)
    return FileResult(path=path, status=HunkStatus.MALFORMED, hunks=(hunk,), reason=reason)


def _fold(outcomes: tuple[FileOutcome, ...], files: tuple[FileResult, ...]) -> tuple[PatchStatus, str]:
    statuses = [file.status for file in files]
    if HunkStatus.MALFORMED in statuses:
        return PatchStatus.MALFORMED, ""
    failed = [status for status in statuses if not status.fine]
    if failed:
        hunks = [hunk for file in files for hunk in file.hunks]
        bad = sum(not hunk.status.fine for hunk in hunks)
        return PatchStatus.CONFLICT, f"{bad} of its {len(hunks)} hunks need a decision" if bad else ""
    verdicts = {one.result.status for outcome in outcomes for one in outcome.placements}
    verdicts |= {file.status for file in files if not file.hunks}
    if not verdicts:
        return PatchStatus.UNMODIFIED, ""
    if verdicts == {HunkStatus.UPSTREAMED}:
        return PatchStatus.UPSTREAMED, ""
    if HunkStatus.UPSTREAMED in verdicts or any(one.partly for outcome in outcomes for one in outcome.placements):
        return PatchStatus.PARTLY_UPSTREAMED, ""
    if verdicts == {HunkStatus.CLEAN}:
        return PatchStatus.UNMODIFIED, ""
    return PatchStatus.REFRESHED, ""
