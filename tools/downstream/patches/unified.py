"""Writing a change as git writes it, without the line that depends on the clone (``index``)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from downstream.patches.differences import Block, differences
from downstream.patches.names import quote
from downstream.patches.text import ChangeKind

REGULAR = 0o100644

_NO_NEWLINE = b"\\ No newline at end of file\n"
# git's default for the text after @@: the last line before the hunk that begins like a definition.
_FUNCTION = re.compile(rb"[A-Za-z_$]")
_SECTION_WIDTH = 80


def unified(
    old_path: str | None,
    new_path: str | None,
    old: bytes | None,
    new: bytes | None,
    *,
    old_mode: int | None = None,
    new_mode: int | None = None,
    context: int = 3,
    copy: bool = False,
) -> bytes:
    """Return a file patch in git's form; empty where nothing changes.

    *old* is None for a file that is added, *new* for one that is removed. Paths
    that differ make a rename (or, with *copy*, a copy). Applies with
    ``git apply`` and ``patch -p1``.
    """
    if old is None and new is None:
        return b""
    kind = ChangeKind.ADD if old is None else ChangeKind.DELETE if new is None else ChangeKind.MODIFY
    if old is not None and new is not None and old_path != new_path:
        kind = ChangeKind.COPY if copy else ChangeKind.RENAME
    hunks = unified_hunks(old or b"", new or b"", context=context)
    if kind is ChangeKind.MODIFY and not hunks and (not old_mode or not new_mode or old_mode == new_mode):
        return b""
    head = file_header(kind, old_path, new_path, old_mode=old_mode, new_mode=new_mode, hunks=bool(hunks))
    return head + hunks


def file_header(
    kind: ChangeKind,
    old_path: str | None,
    new_path: str | None,
    *,
    old_mode: int | None = None,
    new_mode: int | None = None,
    hunks: bool = True,
) -> bytes:
    """Return the lines before a file's hunks in git's form, for ``-p1``; *hunks*: whether any follow."""
    before = _encoded(old_path if old_path is not None else new_path)
    after = _encoded(new_path if new_path is not None else old_path)
    names = quote(b"a/" + before), quote(b"b/" + after)
    head = [b"diff --git " + names[0] + b" " + names[1] + b"\n"]
    if kind is ChangeKind.ADD:
        head.append(b"new file mode %06o\n" % (new_mode or REGULAR))
    elif kind is ChangeKind.DELETE:
        head.append(b"deleted file mode %06o\n" % (old_mode or REGULAR))
    elif old_mode and new_mode and old_mode != new_mode:
        head += [b"old mode %06o\n" % old_mode, b"new mode %06o\n" % new_mode]
    if kind in (ChangeKind.RENAME, ChangeKind.COPY):
        verb = kind.value.encode()
        head += [verb + b" from " + quote(before) + b"\n", verb + b" to " + quote(after) + b"\n"]
    if hunks:
        head.append(b"--- " + (b"/dev/null\n" if kind is ChangeKind.ADD else _ended(names[0])))
        head.append(b"+++ " + (b"/dev/null\n" if kind is ChangeKind.DELETE else _ended(names[1])))
    return b"".join(head)


def unified_hunks(old: bytes, new: bytes, *, context: int = 3) -> bytes:
    """Return the hunks that turn *old* into *new*, ``@@`` lines included; empty where they are equal."""
    if old == new:
        return b""
    a, b = _lines(old), _lines(new)
    out: list[bytes] = []
    group: list[Block] = []
    for block in differences(a, b):
        # git joins changes when the lines between them would all be context.
        if group and block.old_start - group[-1].old_end > 2 * context:
            out += _hunk(a, b, group, context)
            group = []
        group.append(block)
    if group:
        out += _hunk(a, b, group, context)
    return b"".join(out)


def _hunk(a: Sequence[bytes], b: Sequence[bytes], group: Sequence[Block], context: int) -> list[bytes]:
    first, last = group[0], group[-1]
    lead = min(context, first.old_start)
    trail = min(context, len(a) - last.old_end)
    old_from, old_to = first.old_start - lead, last.old_end + trail
    new_from, new_to = first.new_start - lead, last.new_end + trail
    head = b"@@ -%s +%s @@" % (_range(old_from, old_to), _range(new_from, new_to))
    section = _section(a, old_from)
    out = [head + (b" " + section if section else b"") + b"\n"]
    at = old_from
    for block in group:
        out += [_line(b" ", line) for line in a[at : block.old_start]]
        out += [_line(b"-", line) for line in a[block.old_start : block.old_end]]
        out += [_line(b"+", line) for line in b[block.new_start : block.new_end]]
        at = block.old_end
    out += [_line(b" ", line) for line in a[at:old_to]]
    return out


def _range(start: int, end: int) -> bytes:
    count = end - start
    if count == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if count else start, count)


def _section(lines: Sequence[bytes], before: int) -> bytes:
    for index in range(before - 1, -1, -1):
        if _FUNCTION.match(lines[index]):
            return lines[index].rstrip()[:_SECTION_WIDTH].rstrip()
    return b""


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + b"\n" + _NO_NEWLINE


def _lines(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    rest = lines.pop()
    return [line + b"\n" for line in lines] + ([rest] if rest else [])


def _ended(name: bytes) -> bytes:
    # git ends a name with spaces by a TAB, so that GNU patch takes no part of it for a time stamp.
    return name + (b"\t\n" if b" " in name and not name.startswith(b'"') else b"\n")


def _encoded(path: str | None) -> bytes:
    assert path is not None, "a change has a path on one side at least"
    return path.encode("utf-8", "surrogateescape")
