"""The hunks of one file patch: read by our counts, read again by unidiff, and the two compared."""

from __future__ import annotations

import re
from collections.abc import Sequence

from downstream.errors import PatchError
from downstream.patches.names import header_name
from downstream.patches.text import Hunk

HUNK_HEADER = re.compile(rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@ ?([^\r\n]*)\r?\n?")

# git and GNU patch take any line that starts with a backslash for the marker; unidiff knows only the English one.
_MARKER = "\\ No newline at end of file\n"


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
    if hunks:
        _check_with_unidiff(hunks, patch=patch, path=path)
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
    body: list[tuple[str, bytes]] = []
    old_left, new_left = old_count, new_count
    index = start + 1
    while old_left or new_left:
        line = lines[index] if index < end else b""
        first = line[0] if line else -1
        if first == 32:  # context
            old_left -= 1
            new_left -= 1
            body.append((" ", line[1:]))
        elif first == 43:
            new_left -= 1
            body.append(("+", line[1:]))
        elif first == 45:
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
        # The patch file's own last LF is missing: GNU patch reads the line as if it were there.
        body[-1] = _terminated(body[-1], lines[-1])
    hunk = Hunk(
        number=number,
        old_start=int(found[1]),
        old_count=old_count,
        new_start=int(found[3]),
        new_count=new_count,
        section=found[5],
        body=tuple(body),
        raw=b"".join(lines[start:index]),
        at=start + 1,
    )
    return hunk, index


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


def _check_with_unidiff(hunks: Sequence[Hunk], *, patch: str, path: str) -> None:
    """Let unidiff read the same hunks; it must find as many lines of each kind, and every line in one of them.

    It is asked for counts only: its values are the lines we feed it, and
    keeping them would cost three quarters of the time a series takes to read.
    """
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    fed = ["--- a/file\n", "+++ b/file\n"]
    for hunk in hunks:
        fed += _fed(hunk)
    try:
        files = PatchSet(fed, metadata_only=True)
    except UnidiffParseError as exc:
        problem = f"unidiff cannot read it: {str(exc).strip()}"
        raise MalformedError(problem, patch=patch, path=path, line=hunks[0].at) from exc
    theirs = [hunk for file in files for hunk in file]
    if len(files) != 1 or len(theirs) != len(hunks):
        raise MalformedError("unidiff reads another number of hunks", patch=patch, path=path, line=hunks[0].at)
    for ours, their in zip(hunks, theirs, strict=True):
        signs = [sign for sign, _ in ours.body]
        if (
            their.source_start,
            their.source_length,
            their.target_start,
            their.target_length,
            their.removed,
            their.added,
        ) != (ours.old_start, ours.old_count, ours.new_start, ours.new_count, signs.count("-"), signs.count("+")):
            raise MalformedError("unidiff reads other lines", patch=patch, path=path, hunk=ours.number, line=ours.at)


def _fed(hunk: Hunk) -> list[str]:
    """Split a hunk for unidiff: on LF only, so that no form feed or NEL is taken for a line break."""
    text = hunk.raw.decode("latin-1")
    lines = [line + "\n" for line in text.removesuffix("\n").split("\n")]
    if "\n\\" in text:
        lines = [_MARKER if line.startswith("\\") else line for line in lines]
    if "\n\t" in text:
        lines = [" " + line if line.startswith("\t") else line for line in lines]
    return lines
