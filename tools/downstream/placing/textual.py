"""A file patch on a file whose ancestor is not known: GNU patch's rules at fuzz 0, and a warning where they guess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from downstream.patches.text import Hunk
from downstream.placing import gnu
from downstream.placing.lines import count, occurrences
from downstream.placing.merge import changes_of
from downstream.placing.place import Placement
from downstream.placing.refuse import SHOWN, core_places, listed, places
from downstream.placing.verdict import HunkResult, HunkStatus

NO_BASE = "no base to place it by"


def place_by_text(path: str, hunks: Sequence[Hunk], lines: Sequence[bytes]) -> list[Placement]:
    """Place *hunks*, in order, in *lines* by their text alone."""
    cursor = gnu.Cursor()
    placed: list[Placement] = []
    shift = 0  # lines that the hunks above have added
    for hunk in hunks:
        placed.append(_place(path, hunk, lines, cursor, shift))
        shift += hunk.new_count - hunk.old_count if placed[-1].changes else 0
    return placed


def _place(path: str, hunk: Hunk, lines: Sequence[bytes], cursor: gnu.Cursor, shift: int) -> Placement:
    at = gnu.locate(lines, hunk, cursor)
    if at is None:
        blank = HunkResult(path=path, number=hunk.number, status=HunkStatus.CONFLICT)
        return Placement(hunk=hunk, result=_not_found(blank, hunk, lines, cursor))
    offset = at - gnu.old_first_line(hunk)
    # The very line the patch names, or the line at which an earlier hunk says to expect it, is no guess.
    # Anywhere else equal places cannot be told apart.
    expected = offset == 0 or (cursor.sure and offset == cursor.drift)
    doubtful = not expected and bool(hunk.old) and count(lines, hunk.old, limit=2) > 1
    gnu.advance(cursor, hunk, at, sure=not doubtful)
    if doubtful:
        candidates = tuple(line + 1 for line in occurrences(lines, hunk.old))
        reason = f"its text stands at {len(candidates)} places, lines {listed(candidates)}, and there is {NO_BASE}"
        result = HunkResult(
            path=path, number=hunk.number, status=HunkStatus.AMBIGUOUS, reason=reason, candidates=candidates
        )
        return Placement(hunk=hunk, result=result)
    status = HunkStatus.OFFSET if offset else HunkStatus.CLEAN
    placed = HunkResult(path=path, number=hunk.number, status=status, offset=offset, line=at + shift)
    return Placement(hunk=hunk, result=placed, changes=tuple(changes_of(hunk, at - 1)))


def _not_found(blank: HunkResult, hunk: Hunk, lines: Sequence[bytes], cursor: gnu.Cursor) -> HunkResult:
    expected = gnu.old_first_line(hunk) + cursor.drift
    first = max(0, min(expected - 1, len(lines)))
    found = tuple((line + 1, lines[line]) for line in range(first, min(first + SHOWN, len(lines))))
    result = replace(blank, found=found, hint_fuzz=gnu.hint_fuzz(lines, hunk, cursor))
    new = hunk.new
    standing = tuple(line + 1 for line in occurrences(lines, new)) if new and hunk.old else ()
    consumed = tuple(line + 1 for line in occurrences(lines, hunk.old)) if hunk.old else ()
    candidates = core_places(hunk, lines)
    if consumed and consumed[-1] > cursor.frozen and gnu.claims_an_end(hunk):
        reason = (
            f"its text stands at {places(consumed)}, but less context on one side says that it begins or ends the file"
        )
        candidates = consumed
    elif consumed:
        reason = f"its text stands only at {places(consumed)}, above or across an earlier hunk of this patch"
        candidates = consumed
    elif standing:
        reason = f"its old text is nowhere; its new text stands at {places(standing)}: give --base to prove it upstream"
    elif candidates:
        reason = f"its text is nowhere; the lines it changes stand at {places(candidates)} among other lines"
    else:
        reason = "its text is nowhere in the file"
    if result.hint_fuzz:
        reason += f"; GNU patch would take it with fuzz {result.hint_fuzz}, which proves nothing"
    return replace(result, reason=reason, candidates=candidates)
