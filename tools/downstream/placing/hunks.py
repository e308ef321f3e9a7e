"""The hunks of one file patch, in order, on one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from downstream.patches.text import FilePatch, Hunk
from downstream.placing import gnu
from downstream.placing.linemap import LineMap
from downstream.placing.place import Placement, place
from downstream.placing.textual import place_by_text
from downstream.placing.verdict import HunkResult, HunkStatus


def without_cr(patch: FilePatch) -> FilePatch:
    """GNU patch drops each line's CR where the patch's own header lines end in CR LF; a mailer put them there."""
    if not patch.crlf:
        return patch
    return replace(
        patch, hunks=tuple(replace(hunk, body=tuple((s, _without_cr(t)) for s, t in hunk.body)) for hunk in patch.hunks)
    )


def _without_cr(line: bytes) -> bytes:
    # The marker takes a last line's LF, not the CR that a mailer put before it.
    return _bare(line) if line.endswith(b"\n") else line.removesuffix(b"\r")


def _bare(line: bytes) -> bytes:
    return line[:-2] + b"\n" if line.endswith(b"\r\n") else line


def place_hunks(patch: FilePatch, before: list[bytes], old: list[bytes] | None) -> list[Placement]:
    """Place the hunks in *before*: through the map from *old*, the file they were written for, else by text."""
    path = patch.path
    placed = place_by_text(path, patch.hunks, before) if old is None else _by_map(path, patch.hunks, old, before)
    return [_line_endings(one, before) for one in placed]


def _by_map(path: str, hunks: Sequence[Hunk], old: list[bytes], new: list[bytes]) -> list[Placement]:
    through = LineMap(old, new)
    placed: list[Placement] = []
    cursor = gnu.Cursor()
    consumed = 0
    for hunk in hunks:
        at = gnu.locate(old, hunk, cursor)
        if at is None:
            blank = HunkResult(path=path, number=hunk.number, status=HunkStatus.CONFLICT)
            reason = "the base does not have its text, so nothing says where it belongs"
            placed.append(Placement(hunk=hunk, result=replace(blank, reason=reason)))
            continue
        gnu.advance(cursor, hunk, at)
        one = place(path, hunk, at - 1, through)
        if one.changes and one.changes[0].first < consumed:
            reason = "upstream changed the code so that its lines overlap those of an earlier hunk"
            one = Placement(hunk=hunk, result=replace(one.result, status=HunkStatus.CONFLICT, reason=reason))
        elif one.changes:
            consumed = one.changes[-1].end
        placed.append(one)
    return placed


def _line_endings(placement: Placement, lines: Sequence[bytes]) -> Placement:
    """A hunk that would fit but for CR LF against LF says so; no file is ever converted."""
    result, hunk = placement.result, placement.hunk
    if result.status is not HunkStatus.CONFLICT or not hunk.old:
        return placement
    if any(line.endswith(b"\r\n") for line in hunk.old) == any(line.endswith(b"\r\n") for line in lines):
        return placement
    bare = replace(hunk, body=tuple((sign, _bare(line)) for sign, line in hunk.body))
    at = gnu.locate([_bare(line) for line in lines], bare, gnu.Cursor())
    if at is None:
        return placement
    theirs, ours = ("LF", "CR LF") if any(line.endswith(b"\r\n") for line in hunk.old) else ("CR LF", "LF")
    reason = f"line endings differ: the file has {theirs}, the patch {ours}; but for them it would fit at line {at}"
    result = replace(result, status=HunkStatus.LINE_ENDINGS, reason=reason, candidates=(at,), hint_fuzz=None)
    return replace(placement, result=result)


def numbered(placements: list[Placement]) -> list[Placement]:
    """Give each placed hunk the line where it lands in the resulting file, unless it was placed with it."""
    found: list[Placement] = []
    shift = 0
    for one in placements:
        result = one.result
        if result.offset is not None and one.changes and result.line is None:
            line = gnu.old_first_line(one.hunk) + result.offset + shift
            shift += sum(len(change.added) - (change.end - change.first) for change in one.changes)
            found.append(replace(one, result=replace(result, line=line)))
        else:
            found.append(one)
    return found
