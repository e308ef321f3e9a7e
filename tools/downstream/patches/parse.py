"""From the bytes of a patch file to a Patch in which every byte is owned."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, replace

from downstream.errors import PatchError
from downstream.patches import fileheader, hunks
from downstream.patches.header import Header
from downstream.patches.hunks import MalformedError
from downstream.patches.text import FilePatch, Patch

__all__ = ["MalformedError", "Parsed", "parse", "parse_tolerant", "split_lines"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # an editor of Windows put it there
_BODY = (b"+", b"-", b" ", b"\\", b"@", b"\n")
_CONTEXT_DIFF = re.compile(rb"^\*\*\* [^\n]+\n--- [^\n]+\n\*{15}", re.MULTILINE)
_COMBINED_DIFF = re.compile(rb"^diff --(?:cc|combined) ", re.MULTILINE)
_ED_DELETION = re.compile(rb"^\d+(?:,\d+)?d\r?$", re.MULTILINE)
_ED_TEXT = re.compile(rb"^\d+(?:,\d+)?[ac]\r?$", re.MULTILINE)
_ED_END = re.compile(rb"^\.\r?$", re.MULTILINE)
_NORMAL_DIFF = re.compile(rb"^\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?\n[<>] ", re.MULTILINE)
_BINARY = re.compile(rb"^(?:Binary files .* differ|GIT binary patch)\r?$", re.MULTILINE)
_LOOSE_HUNK = re.compile(rb"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What could be read of a patch file, and a fault for each file patch that could not.

    The bytes of a refused file patch are kept in ``patch`` (in the trailer of the
    file before it, or in the header), so that ``to_bytes`` still is the file.
    """

    patch: Patch
    faults: tuple[PatchError, ...]


def split_lines(content: bytes) -> list[bytes]:
    """Split on LF only and keep it; a CR, a form feed or a NEL is content."""
    return io.BytesIO(content).readlines()


def parse(content: bytes, *, name: str, strip: int = 1) -> Patch:
    """Read a patch file; *name* is what errors call it, *strip* as for ``patch -p``.

    Raises PatchError (a MalformedError where a line can be named) and
    UnsafePathError.
    """
    parsed = parse_tolerant(content, name=name, strip=strip)
    if parsed.faults:
        raise parsed.faults[0]
    return parsed.patch


def parse_tolerant(content: bytes, *, name: str, strip: int = 1) -> Parsed:
    """Read a patch file, leaving out each file patch that is malformed, unsafe or refused.

    Raises PatchError only where nothing in it is a unified diff, nor a header
    that awaits one.
    """
    mark = _BYTE_ORDER_MARK if content.startswith(_BYTE_ORDER_MARK) else b""
    lines = split_lines(content.removeprefix(mark))
    start = fileheader.find(lines, 0)
    header = b"".join(lines[:start])
    files: list[FilePatch] = []
    faults: list[PatchError] = []
    if fault := _refused(header, name, first=1):
        faults.append(fault)
    while start < len(lines):
        try:
            file, after = _read_file(lines, start, name=name, strip=strip)
        except PatchError as exc:
            faults.append(exc)
            after = fileheader.find(lines, fileheader.end(lines, start))
            refused = b"".join(lines[start:after])
            if files:
                files[-1] = replace(files[-1], trailer=files[-1].trailer + refused)
            else:
                header += refused
        else:
            files.append(file)
        start = after
    if not files and not faults and (nothing := _nothing_read(header, name)):
        raise nothing
    header = mark + header
    return Parsed(patch=Patch(name=name, header=header, files=tuple(files), strip=strip), faults=tuple(faults))


def _read_file(lines: list[bytes], start: int, *, name: str, strip: int) -> tuple[FilePatch, int]:
    """Read the file patch whose header begins at ``lines[start]``; return it and the index after its trailer."""
    head = fileheader.read(lines, start, patch=name, strip=strip)
    body, end = hunks.read_hunks(lines, head.end, patch=name, path=head.path)
    if not body and not head.has_effect:
        raise MalformedError(
            "has a 'diff --git' line, but no hunk, mode or rename", patch=name, path=head.path, line=start + 1
        )
    after = fileheader.find(lines, end)
    _check_trailer(lines, end, after, name=name, path=head.path, hunk=len(body))
    return (
        head.file_patch(
            hunks=body,
            raw_header=b"".join(lines[start : head.end]),
            trailer=b"".join(lines[end:after]),
            at=start + 1,
        ),
        after,
    )


def _check_trailer(lines: list[bytes], start: int, end: int, *, name: str, path: str, hunk: int) -> None:
    """Refuse what git, GNU patch and unidiff would drop in silence: lines after a hunk's counts are used up."""
    index = start
    while index < end and lines[index] in (b"\n", b"\r\n"):
        index += 1
    if hunk and index < end and lines[index][:1] in _BODY and not _signs_off(lines, index):
        raise MalformedError("goes on after its counts say it ends", patch=name, path=path, hunk=hunk, line=index + 1)
    if start < end and (fault := _refused(b"".join(lines[start:end]), name, first=start + 1, loose=True)):
        raise fault


def _signs_off(lines: list[bytes], index: int) -> bool:
    """Whether a mail signature (``-- ``, or ``--`` once an editor took the space) or TopGit's ``---`` is here."""
    line = lines[index].rstrip(b"\r\n")
    following = lines[index + 1][:1] if index + 1 < len(lines) else b"+"
    return line == b"-- " or (line in (b"--", b"---") and following not in _BODY)


def _refused(text: bytes, name: str, *, first: int, loose: bool = False) -> MalformedError | None:
    """Return a fault where *text*, which is no part of a unified diff, holds a diff of another kind."""

    def fault(found: re.Match[bytes], problem: str) -> MalformedError:
        return MalformedError(problem, patch=name, line=first + text.count(b"\n", 0, found.start()))

    if found := _CONTEXT_DIFF.search(text):
        return fault(found, "is a context diff; only unified diffs are read")
    if found := _COMBINED_DIFF.search(text):
        return fault(found, "is a combined diff (of a merge); only unified diffs are read")
    if loose and (found := _BINARY.search(text)):
        return fault(found, "changes a binary file; only text is carried as a patch")
    if loose and (found := _LOOSE_HUNK.search(text)):
        return fault(found, "a hunk stands without a file header")
    return None


def _nothing_read(header: bytes, name: str) -> PatchError | None:
    """Return the error for a file without any unified diff; None where it is a header that awaits one."""
    if fault := _refused(header, name, first=1, loose=True):
        return fault
    kind = "an ed script" if _is_ed(header) else "a diff without context lines" if _NORMAL_DIFF.search(header) else ""
    if kind:
        return PatchError(name, f"is {kind}; only unified diffs are read", "make it again with diff -u")
    if not header.strip() or Header.parse(header).subject is not None:
        return None
    return PatchError(name, "holds no unified diff", "export it with git or quilt; a new patch needs a Subject field")


def _is_ed(text: bytes) -> bool:
    begun = _ED_TEXT.search(text)
    return _ED_DELETION.search(text) is not None or (
        begun is not None and _ED_END.search(text, begun.end()) is not None
    )
