"""One hunk, carried from the release it was written for to another one through the line map (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from downstream.patches.text import Hunk
from downstream.placing import gnu
from downstream.placing.doubt import defined_twice, renamed, review, rivals, seat, stranger
from downstream.placing.enclosing import Span
from downstream.placing.linemap import LineMap
from downstream.placing.lines import count, occurrences
from downstream.placing.merge import Carried, Carry, Change, apply, carry, changes_of, is_telling
from downstream.placing.refuse import listed, refused
from downstream.placing.verdict import HunkResult, HunkStatus

UNANCHORED = "every line near it is repeated, so nothing says which of them it was written for"
TEXT = 3  # lines from which what a change adds is told apart from chance
WINDOW = 20  # lines of the base around a hunk in which its changes may slide


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A hunk's verdict, and the changes that it makes to the input file (none when it is not placed)."""

    hunk: Hunk
    result: HunkResult
    changes: tuple[Change, ...] = ()
    rewritten: bool = False  # the hunk's text no longer says what it changes: it has to be written anew
    partly: bool = False  # upstream made some of its changes
    region: tuple[int, int] | None = None  # input lines [first, end), 0-based, that stand where it belongs


def place(path: str, hunk: Hunk, at: int, through: LineMap) -> Placement:
    """Place *hunk*, whose first old line is line *at* (0-based) of ``through.old``, in ``through.new``.

    ``HunkResult.line`` is left to the caller, who knows what earlier hunks added above.
    """
    blank = HunkResult(path=path, number=hunk.number, status=HunkStatus.CONFLICT, old_line=at + 1)
    placement = (
        _upstreamed(blank, hunk, at, through)
        or _whole(blank, hunk, at, through)
        or _merged(blank, hunk, at, through)
        or Placement(hunk=hunk, result=refused(blank, hunk, at, through))
    )
    return replace(placement, region=(through.before(at) + 1, through.after(at + len(hunk.old))))


def _whole(blank: HunkResult, hunk: Hunk, at: int, through: LineMap) -> Placement | None:
    """The old text stands whole at the mapped place."""
    first = _mapped_whole(hunk, at, through)
    if first is None:
        return None
    result = replace(blank, candidates=(first + 1,))
    if not gnu.edges_hold(hunk, at, len(through.old), first, len(through.new)):
        return None  # it began or ended the file; there it is no longer, and its context has to be written anew
    if through.old is not through.new and any(
        carry(change, through).carry is Carry.TAKEN for change in _canonical(hunk, at, through.old)
    ):
        return None  # an insertion at the edge of the hunk, which upstream made as well: _merged tells it apart
    if (
        through.old is not through.new
        and not through.is_anchored(at, at + len(hunk.old))
        and not _unique(hunk, through)
    ):
        return Placement(hunk=hunk, result=replace(result, status=HunkStatus.AMBIGUOUS, reason=UNANCHORED))
    equals = rivals(blank.path, hunk, at, first, through)
    if equals:
        places = tuple(sorted(line + 1 for line in (first, *equals)))
        reason = f"its text stands equally well at lines {listed(places)}: upstream has a new copy of this code"
        return Placement(
            hunk=hunk, result=replace(result, status=HunkStatus.AMBIGUOUS, reason=reason, candidates=places)
        )
    changes = tuple(changes_of(hunk, first))
    seats = [seat(change, now.first) for change, now in zip(changes_of(hunk, at), changes, strict=True)]
    elsewhere = stranger(blank.path, seats, through)
    if elsewhere:
        return Placement(hunk=hunk, result=replace(result, status=HunkStatus.MISPLACED, reason=elsewhere))
    if twice := defined_twice(blank.path, changes, through):
        return _doubled(blank, hunk, twice)
    offset = first + 1 - gnu.old_first_line(hunk)
    placed = replace(
        blank,
        status=HunkStatus.OFFSET if offset else HunkStatus.CLEAN,
        offset=offset,
        review=review(blank.path, seats, through),
    )
    return Placement(hunk=hunk, result=placed, changes=changes)


def _mapped_whole(hunk: Hunk, at: int, through: LineMap) -> int | None:
    """Return the new 0-based line of the hunk's old text where the map, or failing it the gap in it, has it whole."""
    size = len(hunk.old)
    if size == 0:
        first = through.before(at) + 1
        adjacent = through.is_mapped(at - 1) and through.is_mapped(at) and through.after(at) == first
        return first if adjacent else None
    first = through.image(at)
    if (
        first >= 0
        and through.image(at + size - 1) == first + size - 1
        and all(map(through.is_mapped, range(at, at + size)))
    ):
        return first
    # The diff may have aligned repeated lines across the hunk. A text that is unique in both files
    # needs no map, only a place that does not contradict it.
    low, high = through.before(at) + 1, through.after(at + size)
    inside = list(occurrences(through.new, hunk.old, start=low, end=high))
    return inside[0] if len(inside) == 1 and _unique(hunk, through) else None


def _unique(hunk: Hunk, through: LineMap) -> bool:
    """Whether the hunk's old text stands exactly once in both files."""
    if not hunk.old:
        return False
    return count(through.new, hunk.old, limit=2) == 1 and count(through.old, hunk.old, limit=2) == 1


def _upstreamed(blank: HunkResult, hunk: Hunk, at: int, through: LineMap) -> Placement | None:
    """The whole new text stands at the mapped place, the old one only inside it, and the old release had it nowhere."""
    if through.old is through.new or all(sign != "+" for sign, _ in hunk.body):
        return None  # a pure deletion is judged by its neighbours, in _merged
    low, high = through.before(at) + 1, through.after(at + len(hunk.old))
    standing = list(occurrences(through.new, hunk.new, start=low, end=high))
    if len(standing) != 1 or _stands_in(through.old, hunk.new):
        return None
    first, end = standing[0], standing[0] + len(hunk.new)
    old = occurrences(through.new, hunk.old, start=low, end=high) if hunk.old else iter(())
    if any(not first <= place <= end - len(hunk.old) for place in old):
        return None
    seats = []
    shift = first - at
    for change in changes_of(hunk, at):
        seats.append(seat(change, change.first + shift, made=True))
        shift += len(change.added) - (change.end - change.first)
    if stranger(blank.path, seats, through):
        return None
    return _taken(blank, hunk, first, renamed(blank.path, seats, through))


def _taken(blank: HunkResult, hunk: Hunk, line: int, where: str) -> Placement:
    result = replace(blank, status=HunkStatus.UPSTREAMED, reason=f"upstream has it, at line {line + 1}{where}")
    return Placement(hunk=hunk, result=replace(result, candidates=(line + 1,)))


def _merged(blank: HunkResult, hunk: Hunk, at: int, through: LineMap) -> Placement | None:
    """Every change of the hunk is either made by upstream already or free to be made."""
    carried = [carry(change, through) for change in _canonical(hunk, at, through.old)]
    if not carried or any(one.carry is Carry.BLOCKED for one in carried):
        return None
    if not all(through.is_anchored(one.change.first, one.change.end) for one in carried):
        places = tuple(one.first + 1 for one in carried)
        return Placement(
            hunk=hunk, result=replace(blank, status=HunkStatus.AMBIGUOUS, reason=UNANCHORED, candidates=places)
        )
    seats = [seat(one.change, one.first, made=one.carry is Carry.TAKEN) for one in carried]
    elsewhere = stranger(blank.path, seats, through)
    if elsewhere:
        result = replace(blank, status=HunkStatus.MISPLACED, reason=elsewhere, candidates=(carried[0].first + 1,))
        return Placement(hunk=hunk, result=result)
    fresh = [one for one in carried if one.carry is Carry.FRESH]
    if not fresh:
        return _taken(blank, hunk, carried[0].first, renamed(blank.path, seats, through))
    if (alike := _alike(carried, through)) is not None:
        reason = f"upstream added lines like those it would add, at line {alike + 1}"
        return Placement(hunk=hunk, result=replace(blank, reason=reason, candidates=(alike + 1,)))
    changes = tuple(Change(one.first, one.end, one.change.added) for one in fresh)
    if twice := defined_twice(blank.path, changes, through):
        return _doubled(blank, hunk, twice)
    taken = len(carried) - len(fresh)
    reason = (
        f"{taken} of its {len(carried)} changes are upstream already" if taken else "upstream changed lines around it"
    )
    first = through.image(at) if hunk.old and through.is_mapped(at) else through.before(at) + 1
    placed = replace(
        blank,
        status=HunkStatus.MERGED,
        reason=reason,
        offset=first + 1 - gnu.old_first_line(hunk),
        review=review(blank.path, seats, through) or "the text",
    )
    return Placement(hunk=hunk, result=placed, changes=changes, rewritten=True, partly=bool(taken))


def _doubled(blank: HunkResult, hunk: Hunk, twice: Span) -> Placement:
    reason = f"upstream has a {twice.name} of its own now, at line {twice.first + 1}, and it would define one more"
    return Placement(hunk=hunk, result=replace(blank, reason=reason, candidates=(twice.first + 1,)))


def _alike(carried: Sequence[Carried], through: LineMap) -> int | None:
    """Return where upstream added half or more of what a change still to be made would add, None where it did not.

    It took the change and went on with it: made once more, it would stand there twice.
    """
    known, images = set(map(bytes.strip, through.old)), set(through.to_new)
    for one in carried:
        if one.carry is Carry.TAKEN:
            images.update(range(one.first, one.end))
            # Lines that the hunk only moves are known, but where upstream has taken them away already, it moved them.
            known -= set(map(bytes.strip, through.old[one.change.first : one.change.end]))
    for one in carried:
        telling = {line.strip() for line in one.change.added if is_telling(line.strip(), known)}
        if one.carry is not Carry.FRESH or not telling:
            continue
        # A line or two may well have been added elsewhere for reasons of its own; a text is no accident.
        reach = WINDOW if len(telling) < TEXT else len(through.new)
        near = range(max(0, one.first - reach), min(len(through.new), one.end + reach))
        found = [line for line in near if line not in images and through.new[line].strip() in telling]
        if 2 * len({through.new[line].strip() for line in found}) >= len(telling):
            return found[0]
    return None


def _canonical(hunk: Hunk, at: int, old: Sequence[bytes]) -> list[Change]:
    """The hunk's changes aligned as the map aligns upstream's, so that equal changes of repeated lines look equal."""
    low, high = max(0, at - WINDOW), min(len(old), at + len(hunk.old) + WINDOW)
    before = list(old[low:high])
    after = apply(before, [Change(one.first - low, one.end - low, one.added) for one in changes_of(hunk, at)])
    own = LineMap(before, after)
    found: list[Change] = []
    line, image = -1, -1  # the last mapped pair
    for next_line in (*filter(own.is_mapped, range(len(before))), len(before)):
        next_image = own.image(next_line)
        if next_line - line > 1 or next_image - image > 1:
            found.append(Change(line + 1 + low, next_line + low, tuple(after[image + 1 : next_image])))
        line, image = next_line, next_image
    return found


def _stands_in(lines: Sequence[bytes], text: Sequence[bytes]) -> bool:
    return bool(text) and next(occurrences(lines, text), None) is not None
