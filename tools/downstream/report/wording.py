"""What a verdict means and what to do about it, in the same words in every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from downstream.placing.verdict import HunkResult, HunkStatus, PatchResult, PatchStatus
from downstream.report.context import Located

MEANING = {
    HunkStatus.CLEAN: "applies where it stands",
    HunkStatus.OFFSET: "applies, moved with the lines around it",
    HunkStatus.MERGED: "placed by a three-way merge: lines around it changed",
    HunkStatus.UPSTREAMED: "the release has this change already",
    HunkStatus.MISPLACED: "its text stands only where it does not belong",
    HunkStatus.AMBIGUOUS: "give the patch more context lines, or the tree it was made against where none was given",
    HunkStatus.CONFLICT: "the lines it changes are not there as it wants them",
    HunkStatus.FILE_GONE: "the release has no such file",
    HunkStatus.FILE_MOVED: "placed in the file's new home",
    HunkStatus.LINE_ENDINGS: "equal but for CR LF against LF",
    HunkStatus.MALFORMED: "this is no well-formed diff",
}

ADVICE = {
    HunkStatus.MISPLACED: "compare the candidates with the function the patch was made for; never let a tool pick one",
    HunkStatus.AMBIGUOUS: "give the patch more context lines, or the tree it was made against where none was given",
    HunkStatus.CONFLICT: "rewrite the change against the lines shown",
    HunkStatus.FILE_GONE: "find out where the code went, or drop the patch",
    HunkStatus.LINE_ENDINGS: "remake the patch with the line ends of the file; files are never converted",
    HunkStatus.MALFORMED: "remake the patch from the files; counts and lines must agree",
}

# Worst first, as they are counted at the end of a report.
PATCH_ORDER = (
    PatchStatus.MALFORMED,
    PatchStatus.CONFLICT,
    PatchStatus.PARTLY_UPSTREAMED,
    PatchStatus.UPSTREAMED,
    PatchStatus.REFRESHED,
    PatchStatus.UNMODIFIED,
)


def meaning(place: Located) -> str:
    """The reason of this very hunk, else what its status means in general."""
    return place.reason or MEANING[place.status]


def whereabouts(hunk: HunkResult) -> list[str]:
    """Sentences about where a person may look: in the file itself, then in others."""
    found = []
    if hunk.candidates:
        what = "the lines it changes stand" if hunk.status is HunkStatus.CONFLICT else "its text stands"
        found.append(f"{what} at: {', '.join(map(str, hunk.candidates))}")
    if hunk.elsewhere:
        found.append(f"its code may now be at: {', '.join(hunk.elsewhere)}")
    return found


def to_review(place: Located) -> str:
    """Why a hunk that is placed still wants a reader; empty where it does not."""
    if not place.status.placed:
        return ""
    reasons = []
    if place.status is HunkStatus.FILE_MOVED:
        reasons.append(f"the file is now {place.file.moved_to}: check that it is the same code")
    if place.hunk and place.hunk.review:
        reasons.append(f"{place.hunk.review} changed around it: read it again")
    return "; ".join(reasons)


def level(place: Located) -> str:
    """``error`` (a person must decide), ``warning`` (one should look), ``note`` (merged upstream), or nothing."""
    if not place.status.fine:
        return "error"
    if to_review(place):
        return "warning"
    return "note" if place.status is HunkStatus.UPSTREAMED else ""


def since(place: Located) -> str:
    """``since 0.6.12``, or nothing where no releases were walked."""
    return f"since {place.since}" if place.since else ""


def counted(number: int, noun: str) -> str:
    """``1 hunk``, ``2 hunks``, ``2 patches``."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{plural if number != 1 else ''}"


def hunk_counts(hunks: Iterable[HunkResult]) -> str:
    """``3 clean, 1 conflict (since 0.6.12)``, in the order of HunkStatus."""
    by_status: dict[HunkStatus, list[HunkResult]] = {}
    for hunk in hunks:
        by_status.setdefault(hunk.status, []).append(hunk)
    parts = []
    for status in HunkStatus:
        if alike := by_status.get(status):
            releases = {hunk.since for hunk in alike if hunk.since}
            parts.append(f"{len(alike)} {status.value}" + (f" (since {releases.pop()})" if len(releases) == 1 else ""))
    return ", ".join(parts)


def totals(results: Sequence[PatchResult]) -> str:
    """``2 patches: 1 conflict, 1 unmodified; 4 hunks: 3 clean, 1 conflict``."""
    patches = Counter(result.status for result in results)
    hunks = [hunk for result in results for hunk in result.hunks]
    statuses = Counter(hunk.status for hunk in hunks)
    by_patch = ", ".join(f"{patches[status]} {status.value}" for status in PATCH_ORDER if patches[status])
    by_hunk = ", ".join(f"{statuses[status]} {status.value}" for status in HunkStatus if statuses[status])
    parts = [counted(len(results), "patch") + (f": {by_patch}" if by_patch else "")]
    if hunks:
        parts.append(f"{counted(len(hunks), 'hunk')}: {by_hunk}")
    if review := sum(hunk.review is not None or hunk.status is HunkStatus.FILE_MOVED for hunk in hunks):
        parts.append(f"{review} to review")
    return "; ".join(parts)


def size(count: int) -> str:
    """Bytes for people: ``0 B``, ``1.2 MB`` (decimal units)."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
