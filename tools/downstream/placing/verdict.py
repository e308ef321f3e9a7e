"""Verdicts: what became of each hunk, and how hunks fold to files and patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class HunkStatus(StrEnum):
    """What became of one hunk (DESIGN 7). The values are those of the JSON."""

    CLEAN = "clean"  # text equal, same line
    OFFSET = "offset"  # text equal, moved by some lines
    MERGED = "merged"  # placed by a three-way merge: lines around it changed
    UPSTREAMED = "upstreamed"  # the release has it already, proved against the old one
    MISPLACED = "misplaced"  # its text stands only where the map says it does not belong
    AMBIGUOUS = "ambiguous"  # several equal places, nothing to tell them apart
    CONFLICT = "conflict"
    FILE_GONE = "file-gone"
    FILE_MOVED = "file-moved"  # placed in the file's new home, which its content told
    LINE_ENDINGS = "line-endings"  # equal but for CR LF against LF
    MALFORMED = "malformed"

    @property
    def placed(self) -> bool:
        """The hunk's change is in the resulting tree through us."""
        return self in (HunkStatus.CLEAN, HunkStatus.OFFSET, HunkStatus.MERGED, HunkStatus.FILE_MOVED)

    @property
    def fine(self) -> bool:
        """Nobody has to act on it."""
        return self.placed or self is HunkStatus.UPSTREAMED


class PatchStatus(StrEnum):
    """What became of a patch as a whole, in StGit's spirit."""

    UNMODIFIED = "unmodified"  # every hunk clean: the bytes stay
    REFRESHED = "refreshed"  # every hunk placed, some moved or merged
    UPSTREAMED = "upstreamed"  # nothing left to carry
    PARTLY_UPSTREAMED = "partly-upstreamed"  # the rest is a smaller patch
    CONFLICT = "conflict"  # something has to be decided by a person
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HunkResult:
    """One hunk, counted as GNU patch does: the *number*-th of its file patch."""

    path: str
    number: int
    status: HunkStatus
    line: int | None = None  # where it lands in the resulting file, 1-based
    offset: int | None = None  # input line of its first old line minus the header's old start
    hint_fuzz: int | None = None  # the fuzz at which GNU patch would take it
    reason: str = ""
    candidates: tuple[int, ...] = ()  # input lines where its old text stands
    elsewhere: tuple[str, ...] = ()  # "path:line" in other files of the release where its code went
    found: tuple[tuple[int, bytes], ...] = ()  # the upstream lines in the way: (line number, text)
    old_line: int | None = None  # the hunk's first line in the pinned release
    since: str | None = None  # first release with this verdict; None where none was walked
    review: str | None = None  # the function or kernel around it that changed
    tentative: bool = False  # judged after a conflict in an earlier patch on the same file


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    path: str
    status: HunkStatus  # the worst of its hunks; its own where it has none
    hunks: tuple[HunkResult, ...]
    moved_to: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchResult:
    patch: str
    status: PatchStatus
    files: tuple[FileResult, ...]
    reason: str = ""

    @property
    def hunks(self) -> tuple[HunkResult, ...]:
        return tuple(hunk for file in self.files for hunk in file.hunks)

    @property
    def fine(self) -> bool:
        return self.status not in (PatchStatus.CONFLICT, PatchStatus.MALFORMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """A series pushed over a tree: a result per patch, and the files as they then are."""

    results: tuple[PatchResult, ...]
    changes: Mapping[str, bytes | None] = field(default_factory=dict)  # None: the file is removed
    modes: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return all(result.fine for result in self.results)
