"""A patch that waits for a person: its placed hunks made, the others between conflict markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from downstream.placing.file import FileOutcome
from downstream.placing.merge import Change, apply
from downstream.placing.place import Placement
from downstream.placing.push import Pushed

MARKERS = (b"<<<<<<< ", b"||||||| ", b"=======", b">>>>>>> ")


def marked(pushed: Pushed, *, old: str, new: str) -> dict[str, bytes]:
    """Return each file of *pushed* that exists on the new release, as a person should find it.

    *old* and *new* are what the markers call the two releases. As with git's
    ``diff3`` style the old lines stand in the middle.
    """
    found: dict[str, bytes] = {}
    for outcome in pushed.outcomes:
        if not outcome.before and not outcome.placements:
            continue
        path = outcome.path
        lines = list(outcome.before)
        if path in found:
            continue  # a second part of the same file was judged on the first's result; one part at a time is shown
        changes = sorted(_changes(outcome, lines, pushed.patch.name, old, new), key=lambda change: change.first)
        found[path] = b"".join(apply(lines, list(_apart(changes))))
    return found


def unresolved(files: Mapping[str, bytes]) -> list[str]:
    """Return ``path:line`` of every conflict marker left in *files*."""
    return [
        f"{path}:{number}"
        for path, content in sorted(files.items())
        for number, line in enumerate(content.split(b"\n"), 1)
        if line.startswith((MARKERS[0], MARKERS[3]))
    ]


def _changes(outcome: FileOutcome, lines: Sequence[bytes], patch: str, old: str, new: str) -> Iterable[Change]:
    for one in outcome.placements:
        if one.changes:
            yield from one.changes
        elif not one.result.status.fine and one.region is not None:
            yield _between_markers(one, lines, f"{patch}, hunk {one.result.number}", old, new)


def _between_markers(one: Placement, lines: Sequence[bytes], ours: str, old: str, new: str) -> Change:
    assert one.region is not None
    first, end = one.region
    before, wanted = list(one.hunk.old), list(one.hunk.new)
    # What all three sides share at either end needs no marker.
    while first < end and before and wanted and lines[first] == before[0] == wanted[0]:
        first, before, wanted = first + 1, before[1:], wanted[1:]
    while first < end and before and wanted and lines[end - 1] == before[-1] == wanted[-1]:
        end, before, wanted = end - 1, before[:-1], wanted[:-1]
    text = [b"<<<<<<< upstream %s\n" % new.encode(), *lines[first:end], b"||||||| upstream %s\n" % old.encode()]
    text += [*before, b"=======\n", *wanted, b">>>>>>> %s\n" % ours.encode("utf-8", "surrogateescape")]
    return Change(first, end, tuple(line if line.endswith(b"\n") else line + b"\n" for line in text))


def _apart(changes: Iterable[Change]) -> Iterable[Change]:
    """Leave out a change that begins before the one above it ends: two hunks in one rewritten place."""
    at = 0
    for change in changes:
        if change.first >= at:
            yield change
            at = change.end
