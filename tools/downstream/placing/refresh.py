"""A pushed patch written anew for the release it was pushed on, with as few bytes changed as can be."""

from __future__ import annotations

import re

from downstream.patches.names import quote
from downstream.patches.text import Hunk, Patch
from downstream.patches.unified import unified_hunks
from downstream.placing import gnu
from downstream.placing.file import FileOutcome
from downstream.placing.merge import apply
from downstream.placing.place import Placement
from downstream.placing.push import Pushed
from downstream.placing.verdict import HunkStatus, PatchStatus


def refresh(pushed: Pushed) -> bytes | None:
    """Return *pushed* as it reads on the new release, None where upstream has all of it.

    What was placed at its own line keeps its bytes, what moved changes its line
    numbers, and only a file with a merged hunk is written anew. The patch must
    have no hunk that waits for a decision.
    """
    assert pushed.result.fine, f"{pushed.patch.name} is not placed"
    patch: Patch = pushed.patch
    if pushed.result.status is PatchStatus.UNMODIFIED:
        return patch.to_bytes()
    if pushed.result.status is PatchStatus.UPSTREAMED:
        return None
    return patch.header + b"".join(map(_file, pushed.outcomes))


def _file(outcome: FileOutcome) -> bytes:
    patch, placements = outcome.patch, outcome.placements
    if outcome.result.status is HunkStatus.UPSTREAMED:
        return b""
    header = patch.raw_header
    if outcome.result.moved_to:
        header = _renamed(header, patch.path, outcome.result.moved_to)
    if any(one.rewritten for one in placements):
        changes = [change for one in placements for change in one.changes]
        before, after = b"".join(outcome.before), b"".join(apply(outcome.before, changes))
        return header + unified_hunks(before, after) + patch.trailer
    return header + b"".join(_renumbered(placements)) + patch.trailer


def _renamed(header: bytes, old: str, new: str) -> bytes:
    """Return the lines before a file's hunks with its path changed, whole and quoted as git does."""
    before, after = (path.encode("utf-8", "surrogateescape") for path in (old, new))
    names = b"|".join(re.escape(name) for name in {before, quote(before).removeprefix(b'"').removesuffix(b'"')})
    found = re.compile(rb'(?<= )"?((?:[^ \t\r\n"/]+/)*)(?:%s)"?(?=[ \t\r\n])' % names)
    header = found.sub(lambda match: quote(match[1] + after), header)
    # A TAB tells a name with a space from a name and a date.
    ended = re.compile(rb"^((?:---|\+\+\+) [^\t\r\n]*%s)(?=\r?$)" % re.escape(after), re.MULTILINE)
    return ended.sub(rb"\1\t", header) if b" " in after and quote(after) == after else header


def _renumbered(placements: tuple[Placement, ...]) -> list[bytes]:
    hunks: list[bytes] = []
    shift = 0  # lines that the hunks before have added
    for one in placements:
        if not one.changes:
            continue
        hunk = one.hunk
        assert one.result.offset is not None
        first = gnu.old_first_line(hunk) + one.result.offset
        hunks.append(_at(hunk, first, first + shift))
        shift += hunk.new_count - hunk.old_count
    return hunks


def _at(hunk: Hunk, old_first: int, new_first: int) -> bytes:
    """Return the hunk's bytes with its first lines moved; an empty side is named by the line before it."""
    old_start = old_first if hunk.old_count else old_first - 1
    new_start = new_first if hunk.new_count else new_first - 1
    if (old_start, new_start) == (hunk.old_start, hunk.new_start):
        return hunk.raw
    end = hunk.raw.index(b"\n")
    # Everything but the two starts stays as it is written: counts that are left out, text after @@, a CR.
    at = hunk.raw.index(b"@@", 2)
    return (
        b"@@ -%s +%s "
        % (
            _range(old_start, hunk.old_count),
            _range(new_start, hunk.new_count),
        )
        + hunk.raw[at : end + 1]
        + hunk.raw[end + 1 :]
    )


def _range(start: int, count: int) -> bytes:
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)
