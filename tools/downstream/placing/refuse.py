"""Why a hunk was not placed: what stands there now, and where else its lines are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from downstream.patches.text import Hunk
from downstream.placing import gnu
from downstream.placing.linemap import LineMap
from downstream.placing.lines import occurrences
from downstream.placing.merge import Carried, Carry, carry, changes_of
from downstream.placing.verdict import HunkResult, HunkStatus

SHOWN = 8  # upstream lines quoted, and places named, at the most

# Lines that stand everywhere and so point nowhere.
_COMMON = frozenset(
    (b"", b"{", b"}", b"};", b")", b"(", b"],", b"]", b"),", b"#endif", b"#else", b"else:", b"else", b"pass")
)


def refused(blank: HunkResult, hunk: Hunk, at: int, through: LineMap) -> HunkResult:
    """Say why *hunk*, first old line *at* (0-based) of ``through.old``, cannot be placed in ``through.new``."""
    blocked = [one for one in (carry(change, through) for change in changes_of(hunk, at)) if one.carry is Carry.BLOCKED]
    if blocked:
        first, end = blocked[0].first, blocked[0].end
    else:
        first, end = through.before(at) + 1, through.after(at + len(hunk.old))
    found = tuple((line + 1, through.new[line]) for line in range(first, min(end, first + SHOWN)))
    standing = tuple(line + 1 for line in occurrences(through.new, hunk.old)) if hunk.old else ()
    low, high = through.before(at) + 1, through.after(at + len(hunk.old))
    elsewhere = tuple(line for line in standing if not low < line <= high)
    result = replace(blank, found=found, hint_fuzz=gnu.hint_fuzz(through.new, hunk, gnu.Cursor()))
    if elsewhere and elsewhere == standing:
        reason = f"upstream no longer has its lines where they were; the same text stands at {places(elsewhere)}"
        return replace(result, status=HunkStatus.MISPLACED, reason=reason, candidates=elsewhere)
    candidates = core_places(hunk, through.new)
    reason = _in_the_way(blocked, first, end)
    if _equal_but_blanks(hunk, through.new[first:end]):
        reason += "; what stands there equals the patch's text but for white space"
    return replace(result, status=HunkStatus.CONFLICT, reason=reason, candidates=candidates)


def _in_the_way(blocked: Sequence[Carried], first: int, end: int) -> str:
    if first < end:
        where = f"line {first + 1}" if end - first == 1 else f"lines {first + 1}-{end}"
        return f"upstream changed the same lines (now {where})"
    if blocked and blocked[0].change.first == blocked[0].change.end:
        return f"upstream changed the lines beside the place it adds to (now line {first + 1})"
    return f"upstream removed the lines that it changes (they stood before what is now line {first + 1})"


def core_places(hunk: Hunk, lines: Sequence[bytes]) -> tuple[int, ...]:
    """Where the lines that *hunk* removes stand, 1-based; none where they are too common to point anywhere."""
    signs = [sign for sign, _ in hunk.body if sign != "+"]
    core = [index for index, sign in enumerate(signs) if sign == "-"]
    wanted = hunk.old[core[0] : core[-1] + 1] if core else ()
    if not any(line.strip() not in _COMMON for line in wanted):
        return ()
    found = tuple(line + 1 for line in occurrences(lines, wanted))
    return found if len(found) <= 2 * SHOWN else ()


def _equal_but_blanks(hunk: Hunk, region: Sequence[bytes]) -> bool:
    added = b"".join(b"".join(line for sign, line in hunk.body if sign == "+").split())
    return bool(added) and added in b"".join(b"".join(region).split())


def places(numbers: Sequence[int]) -> str:
    """``line 7``, ``lines 7, 12``: at most SHOWN of them."""
    return f"line {numbers[0]}" if len(numbers) == 1 else f"lines {listed(numbers)}"


def listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:SHOWN]))
    return f"{shown} and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else shown
