"""The hunks of one file patch, read by their counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter

from downstream.errors import PatchError
from downstream.patches.names import header_name
from downstream.patches.text import Body, Hunk

HUNK_HEADER = re.compile(rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@ ?([^\r\n]*)\r?\n?")

_PLUS, _MINUS, _SPACE = b"+- "


class MalformedError(PatchError):
    """A part of a patch that cannot be read; the facts of its place stay fields."""

    def __init__(self, problem: str, *, patch: str, line: int, path: str = "", hunk: int = 0) -> None:
        where = ": ".join(text for text in (path, f"hunk {hunk}" if hunk else "") if text)
        super().__init__(
            f"{patch}:{line}",
            f"{where}: {problem}" if where else problem,
            "export the patch again with git or quilt, or correct it by hand",
        )
        self.patch = patch
        self.path = path
        self.hunk = hunk  # 1-based within its file patch, 0: the fault is outside the hunks
        self.line = line  # 1-based line of the patch file
        self.reason = problem


def read_hunks(lines: Sequence[bytes], start: int, *, patch: str, path: str) -> tuple[tuple[Hunk, ...], int]:
    """Read the hunks that begin at ``lines[start]``; return them and the index after the last.

    Each line keeps its LF. Raises MalformedError where a hunk does not hold what
    its counts say, or stands out of order.
    """
    hunks: list[Hunk] = []
    index = start
    while index < len(lines) and lines[index].startswith(b"@@ -"):
        hunk, after = _read_hunk(lines, index, patch=patch, path=path, number=len(hunks) + 1)
        if hunks and _first(hunk) < _first(hunks[-1]) + hunks[-1].old_count:
            raise MalformedError(
                "is out of order or overlaps the hunk before it", patch=patch, path=path, hunk=hunk.number, line=hunk.at
            )
        hunks.append(hunk)
        index = after
    return tuple(hunks), index


def _first(hunk: Hunk) -> int:
    """Return the first old line a hunk touches; one without old lines stands after its start."""
    return hunk.old_start if hunk.old_count else hunk.old_start + 1


def _read_hunk(lines: Sequence[bytes], start: int, *, patch: str, path: str, number: int) -> tuple[Hunk, int]:
    def malformed(problem: str, at: int) -> MalformedError:
        return MalformedError(problem, patch=patch, path=path, hunk=number, line=min(at, end - 1) + 1)

    end = len(lines)
    found = HUNK_HEADER.fullmatch(lines[start])
    if not found:
        raise malformed("its @@ line cannot be read", start)
    old_count = int(found[2]) if found[2] is not None else 1
    new_count = int(found[4]) if found[4] is not None else 1
    if not old_count and not new_count:
        raise malformed("holds no line: both counts are 0", start)
    body: Sequence[tuple[str, bytes]] | None = _plain_body(lines, start + 1, old_count, new_count)
    index = start + 1 + len(body or ())
    if body is None:
        body, index = _any_body(lines, start + 1, old_count, new_count, malformed)
    hunk = Hunk(
        number=number,
        old_start=int(found[1]),
        old_count=old_count,
        new_start=int(found[3]),
        new_count=new_count,
        section=found[5],
        body=body,
        raw=b"".join(lines[start:index]),
        at=start + 1,
    )
    return hunk, index


def _plain_body(lines: Sequence[bytes], start: int, old_count: int, new_count: int) -> Body | None:
    """Return the body of a hunk of context, removed and added lines alone; None where it takes a closer look.

    Nearly every hunk is one, and this reads it in a fraction of the time.
    """
    window = lines[start : start + old_count + new_count]
    signs = bytes(map(itemgetter(0), window))
    size, before = old_count, -1
    while size != before:  # old_count lines of the old side, and the added ones among them
        size, before = old_count + signs.count(_PLUS, 0, size), size
    added = size - old_count
    rest = new_count - added - signs.count(_SPACE, 0, size)
    end = size + rest
    if rest < 0 or signs[size:end].count(_PLUS) != rest or len(signs) < end:
        return None
    signs, window = signs[:end], window[:end]
    if signs.count(_SPACE) + signs.count(_MINUS) + signs.count(_PLUS) != end:
        return None
    if _MINUS in signs and any(line.startswith(b"--- ") for line in window):
        return None
    after = start + end
    if after < len(lines) and lines[after].startswith(b"\\"):
        return None
    if after == len(lines) and not lines[-1].endswith(b"\n"):
        return None
    return Body(signs, [line[1:] for line in window])


def _any_body(
    lines: Sequence[bytes], start: int, old_count: int, new_count: int, malformed: Callable[[str, int], MalformedError]
) -> tuple[list[tuple[str, bytes]], int]:
    """Return the body that begins at ``lines[start]``, and the index after it."""
    body: list[tuple[str, bytes]] = []
    old_left, new_left = old_count, new_count
    index, end = start, len(lines)
    while old_left or new_left:
        line = lines[index] if index < end else b""
        first = line[0] if line else -1
        if first == _SPACE:
            old_left -= 1
            new_left -= 1
            body.append((" ", line[1:]))
        elif first == _PLUS:
            new_left -= 1
            body.append(("+", line[1:]))
        elif first == _MINUS:
            if line.startswith(b"--- ") and is_pair(lines, index) and _same_file(lines[index], lines[index + 1]):
                raise malformed(f"ends {_missing(old_left, new_left)} before its counts say, at the next file", index)
            old_left -= 1
            body.append(("-", line[1:]))
        elif first == 9 or line in (b"\n", b"\r\n"):
            # An editor ate the space before a blank line or a TAB; GNU patch takes it, too.
            old_left -= 1
            new_left -= 1
            body.append((" ", line))
        elif first == 92 and body:
            body[-1] = _unterminated(body[-1])
        else:
            raise malformed(
                f"ends {_missing(old_left, new_left)} before its counts say (-{old_count} +{new_count})", index
            )
        if old_left < 0 or new_left < 0:
            raise malformed(f"does not fit its counts (-{old_count} +{new_count})", index)
        index += 1
    if index < end and lines[index].startswith(b"\\"):
        body[-1] = _unterminated(body[-1])
        index += 1
    if index == end and not lines[-1].endswith(b"\n"):
        # The patch file's own last LF is missing, as editors and mailers leave it; the line is meant as it stands.
        body[-1] = _terminated(body[-1], lines[-1])
    return body, index


def is_pair(lines: Sequence[bytes], index: int) -> bool:
    """Whether ``---``, ``+++`` and ``@@`` lines stand here, which make a complete file header."""
    return (
        index + 2 < len(lines)
        and lines[index].startswith(b"--- ")
        and lines[index + 1].startswith(b"+++ ")
        and lines[index + 2].startswith(b"@@ -")
    )


def _same_file(old: bytes, new: bytes) -> bool:
    """Whether two lines that a hunk's counts claim are rather the next file's header, eaten by a short hunk.

    A removed ``-- x`` with an added ``++ y`` reads alike; only names in a folder that agree decide.
    """
    before, after = header_name(old[4:]), header_name(new[4:])
    if before.is_null or after.is_null:
        return before.is_null is not after.is_null
    return before.raw.partition(b"/")[2] == after.raw.partition(b"/")[2] != b""


def _unterminated(pair: tuple[str, bytes]) -> tuple[str, bytes]:
    return pair[0], pair[1].removesuffix(b"\n")


def _terminated(pair: tuple[str, bytes], last: bytes) -> tuple[str, bytes]:
    return pair if last.startswith(b"\\") else (pair[0], pair[1] + b"\n")


def _missing(old_left: int, new_left: int) -> str:
    count = max(old_left, new_left)
    return f"{count} line{'s' if count != 1 else ''}"
