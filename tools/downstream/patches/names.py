"""File names as patches write them: quoting, time stamps, strip levels, and which are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from downstream.errors import UnsafePathError

DEV_NULL = b"/dev/null"

_MOST_SPACES = 50  # in two names, before only their middle is looked at

_ESCAPES = {
    ord("a"): 7,
    ord("b"): 8,
    ord("t"): 9,
    ord("n"): 10,
    ord("v"): 11,
    ord("f"): 12,
    ord("r"): 13,
    ord('"'): 34,
    ord("\\"): 92,
}
_UNESCAPES = {value: bytes((key,)) for key, value in _ESCAPES.items()}
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)

# What diff programs put after a name when no TAB divides them: an ISO or a ctime() time stamp, or "(revision 2)".
_STAMP = re.compile(
    rb"(?<![ \t])[ \t]+(?:\([^()]*\)|\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[-+]\d\d:?\d\d| ?Z)?"
    rb"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: [A-Z]+)? \d{4}(?: [-+]\d{4})?)[ \t]*\Z"
)
_ISO = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.0*)?(?: ?([-+])(\d\d):?(\d\d)| ?Z)?\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A file name of a header line, unquoted, and whether its stamp is the epoch."""

    raw: bytes
    epoch: bool = False

    @property
    def is_null(self) -> bool:
        return self.raw == DEV_NULL


def unquote(text: bytes) -> tuple[bytes, bytes] | None:
    """Read a C-quoted name at the start of *text*; return it and the rest, or None where there is none."""
    found = _QUOTED.match(text)
    return (_ESCAPE.sub(_unescape, found[1]), text[found.end() :]) if found else None


def _unescape(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if len(code) == 3:
        return bytes((int(code, 8),))
    return bytes((_ESCAPES.get(code[0], code[0]),))


def quote(name: bytes) -> bytes:
    """Write *name* as git does at core.quotePath=true: C-quoted where a byte is special or above 126."""
    if all(31 < byte < 127 and byte not in b'"\\' for byte in name):
        return name
    return b'"' + b"".join(_quoted_byte(byte) for byte in name) + b'"'


def _quoted_byte(byte: int) -> bytes:
    if byte in _UNESCAPES:
        return b"\\" + _UNESCAPES[byte]
    return bytes((byte,)) if 31 < byte < 127 else b"\\%03o" % byte


def header_name(text: bytes) -> Name:
    """Read what follows ``--- ``, ``+++ `` or ``Index:``: a name, then perhaps a time stamp.

    A TAB ends the name; without one a time stamp at the end does (git's rules);
    other spaces belong to the name.
    """
    text = text.strip(b" \r\n")
    if quoted := unquote(text):
        return Name(raw=quoted[0], epoch=_is_epoch(quoted[1]))
    name, tab, stamp = text.partition(b"\t")
    if not tab and (found := _STAMP.search(text)):
        name, stamp = text[: found.start()], found[0]
    return Name(raw=name.rstrip(b" \r"), epoch=_is_epoch(stamp))


def _is_epoch(stamp: bytes) -> bool:
    """Whether *stamp* is 1970-01-01 00:00:00 UTC, which diff -N writes for a file that is not there."""
    found = _ISO.match(stamp.strip())
    if not found or found[1] not in (b"1970", b"1969"):
        return False
    day = 0 if (found[1], found[2], found[3]) == (b"1970", b"01", b"01") else -1
    if day and (found[1], found[2], found[3]) != (b"1969", b"12", b"31"):
        return False
    seconds = ((day * 24 + int(found[4])) * 60 + int(found[5])) * 60 + int(found[6])
    if found[7]:
        seconds -= (int(found[8]) * 60 + int(found[9])) * 60 * (1 if found[7] == b"+" else -1)
    return seconds == 0


def git_names(text: bytes) -> tuple[bytes, bytes] | None:
    """Read the two names after ``diff --git ``; None where they cannot be told apart.

    Unquoted names with spaces are divided where both sides are equal but for
    their first component (git writes such a line only for one name on both sides).
    """
    text = text.rstrip(b"\r\n")
    if quoted := unquote(text):
        first, rest = quoted
        second = rest[1:]
        if not rest.startswith(b" ") or not second:
            return None
        other = unquote(second)
        return (first, other[0] if other else second)
    if text.endswith(b'"') and (start := text.find(b' "')) > 0:
        other = unquote(text[start + 1 :])
        return (text[:start], other[0]) if other and not other[1] else None
    if text.count(b" ") == 1:
        first, _, second = text.partition(b" ")
        return (first, second) if first and second else None
    middle = len(text) // 2
    # git writes prefixes of one length, so the middle is the place; others are tried where they are few.
    cuts = [middle] if text.count(b" ") > _MOST_SPACES else [middle, *range(len(text))]
    for cut in (cut for cut in cuts if text[cut : cut + 1] == b" "):
        first, second = text[:cut], text[cut + 1 :]
        if alike(first, second):
            return first, second
    return None


def alike(first: bytes, second: bytes) -> bool:
    """Whether two names are equal, or equal but for their first component (``a/`` and ``b/``)."""
    if first == second:
        return True
    ours, theirs = first.partition(b"/"), second.partition(b"/")
    return ours[1] != b"" and ours[1:] == theirs[1:]


def stripped(name: bytes, strip: int, place: str) -> str | None:
    """Take *strip* leading components off *name* and return it as a path, or None where it has too few.

    Raises UnsafePathError for a path that would leave the tree or reach into ``.git``.
    """
    if name.startswith(b"/") and strip <= 1:
        raise _unsafe(name, place, "is absolute")
    rest = name
    for _ in range(strip):
        # A run of slashes counts as one, as GNU patch has it.
        _, slash, rest = rest.partition(b"/")
        if not slash:
            return None
        rest = rest.lstrip(b"/")
    return safe_path(rest, place, shown=name)


def safe_path(path: bytes, place: str, *, shown: bytes | None = None) -> str:
    """Return *path* as a clean relative POSIX path. Raises UnsafePathError (see ``stripped``)."""
    shown = path if shown is None else shown
    if path.startswith(b"/"):
        raise _unsafe(shown, place, "is absolute")
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    if not parts or path.endswith(b"/"):
        raise _unsafe(shown, place, "names no file")
    if b".." in parts:
        raise _unsafe(shown, place, "leaves the tree")
    if b"\0" in path or b"\n" in path:
        raise _unsafe(shown, place, "holds a NUL or a line break")
    if any(part.lower() in (b".git", b"git~1") for part in parts):
        raise _unsafe(shown, place, "reaches into git's own folder")
    return b"/".join(parts).decode("utf-8", "surrogateescape")


def _unsafe(name: bytes, place: str, why: str) -> UnsafePathError:
    text = name.decode("utf-8", "backslashreplace")
    return UnsafePathError(place, f"the path '{text}' {why}", "take this file out of the patch, or correct its path")
