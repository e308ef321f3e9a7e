"""The lines that say which file a run of hunks is for: git's, diff's and Subversion's forms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from downstream.errors import PatchError
from downstream.patches.hunks import HUNK_HEADER, MalformedError, is_pair
from downstream.patches.names import DEV_NULL, Name, alike, git_names, header_name, safe_path, stripped, unquote
from downstream.patches.text import ChangeKind, FilePatch, Hunk

_GIT = b"diff --git "
_MODE = re.compile(rb"(old mode|new mode|deleted file mode|new file mode) ([0-7]{6})\s*")
_NAME = re.compile(rb"(rename from|rename to|rename old|rename new|copy from|copy to) ([^\r\n]+)\s*")
_OTHER = re.compile(
    rb"(?:similarity index \d+%|dissimilarity index \d+%|index [0-9a-f]+,?[0-9a-f]*\.\.[0-9a-f]+(?: ([0-7]{6}))?)\s*"
)
_RULE = re.compile(rb"={3,}\s*")
_BINARY = re.compile(rb"(?:Binary files .* differ|GIT binary patch)\s*")
_STARTS = (b"diff ", b"--- ", b"Index:")


def find(lines: Sequence[bytes], start: int) -> int:
    """Return the index of the first complete file header at or after *start*, or the number of lines."""
    for index in range(start, len(lines)):
        if lines[index].startswith(_STARTS) and _is_complete(lines, index):
            return index
    return len(lines)


def _is_complete(lines: Sequence[bytes], index: int) -> bool:
    """Whether a file header begins here, told from prose that only looks like one."""
    line = lines[index]
    if line.startswith(_GIT):
        names = git_names(line[len(_GIT) :])
        if names is not None and alike(*names):
            return True
        following = lines[index + 1] if index + 1 < len(lines) else b""
        return _is_extended(following) or is_pair(lines, index + 1)
    if line.startswith(b"Index:"):
        index += 1
        if index < len(lines) and _RULE.fullmatch(lines[index]):
            index += 1
        return _is_plain(lines, index) or _is_hunk(lines, index) or _is_binary(lines, index)
    if line.startswith(b"diff "):
        return is_pair(lines, index + 1) or _is_binary(lines, index + 1)
    return is_pair(lines, index)


def _is_plain(lines: Sequence[bytes], index: int) -> bool:
    return is_pair(lines, index) or (
        index < len(lines) and lines[index].startswith(b"diff ") and is_pair(lines, index + 1)
    )


def _is_hunk(lines: Sequence[bytes], index: int) -> bool:
    return index < len(lines) and HUNK_HEADER.fullmatch(lines[index]) is not None


def _is_binary(lines: Sequence[bytes], index: int) -> bool:
    return index < len(lines) and _BINARY.fullmatch(lines[index]) is not None


def _is_extended(line: bytes) -> bool:
    return any(pattern.fullmatch(line) for pattern in (_MODE, _NAME, _OTHER))


@dataclass(slots=True, kw_only=True)
class FileHeader:
    """What the lines before the first hunk say. ``end`` is the index of the line after them."""

    old_path: str | None
    new_path: str | None
    end: int
    git: bool
    fields: dict[str, bytes] = field(default_factory=dict)  # git's extended lines: words -> value
    old_absent: bool = False  # /dev/null, 'new file mode' or a time stamp of the epoch
    new_absent: bool = False
    crlf: bool = False

    @property
    def path(self) -> str:
        return self.new_path or self.old_path or ""

    @property
    def has_effect(self) -> bool:
        """Whether the header alone changes something: a mode, a name, an empty file."""
        return any(not words.startswith("index") for words in self.fields)

    def file_patch(self, *, hunks: tuple[Hunk, ...], raw_header: bytes, trailer: bytes, at: int) -> FilePatch:
        kind = self._kind(hunks)
        return FilePatch(
            kind=kind,
            old_path=None if kind is ChangeKind.ADD else self.old_path,
            new_path=None if kind is ChangeKind.DELETE else self.new_path,
            old_mode=self._mode("old mode", "deleted file mode", "index"),
            new_mode=self._mode("new mode", "new file mode", "index"),
            hunks=hunks,
            raw_header=raw_header,
            trailer=trailer,
            at=at,
            crlf=self.crlf,
        )

    def _kind(self, hunks: tuple[Hunk, ...]) -> ChangeKind:
        fields = self.fields
        first = hunks[0] if len(hunks) == 1 else None
        if "new file mode" in fields or (self.old_absent and first and not first.old_count):
            return ChangeKind.ADD
        if "deleted file mode" in fields or (self.new_absent and first and not first.new_count):
            return ChangeKind.DELETE
        if "rename from" in fields or "rename old" in fields:
            return ChangeKind.RENAME
        if "copy from" in fields:
            return ChangeKind.COPY
        return ChangeKind.MODIFY if hunks else ChangeKind.MODE

    def _mode(self, *names: str) -> int | None:
        for name in names:
            if name in self.fields:
                mode = int(self.fields[name], 8)
                # An index line repeats the mode of the clone it was made in; only a symlink's matters.
                if name != "index" or mode == 0o120000:
                    return mode
        return None


def read(lines: Sequence[bytes], start: int, *, patch: str, strip: int) -> FileHeader:
    """Read the file header at ``lines[start]`` (see ``find``).

    Raises MalformedError for binary changes, submodules and names that *strip*
    leaves nothing of; UnsafePathError for paths that leave the tree.
    """
    place = f"{patch}:{start + 1}"
    git: tuple[bytes, bytes] | None = None
    is_git = lines[start].startswith(_GIT)
    fields: dict[str, bytes] = {}
    indexed: Name | None = None
    if is_git:
        git = git_names(lines[start][len(_GIT) :])
    elif lines[start].startswith(b"Index:"):
        indexed = header_name(lines[start][len(b"Index:") :])
    index = _before_pair(lines, start, fields)
    if _is_binary(lines, index):
        raise MalformedError(
            "changes a binary file; only text is carried as a patch",
            patch=patch,
            line=index + 1,
            path=_shown(git, indexed),
        )
    if any(value[:3] == b"160" for words, value in fields.items() if words.endswith("mode") or words == "index"):
        raise MalformedError("changes a submodule", patch=patch, line=start + 1, path=_shown(git, indexed))
    old = new = None
    crlf = lines[start].endswith(b"\r\n") and not is_git
    if is_pair(lines, index):
        old, new = header_name(lines[index][4:]), header_name(lines[index + 1][4:])
        crlf = lines[index + 1].endswith(b"\r\n")
        index += 2
    header = FileHeader(old_path=None, new_path=None, end=index, git=is_git, fields=fields, crlf=crlf)
    _name(header, old=old, new=new, git=git, indexed=indexed, place=place, strip=strip)
    return header


def end(lines: Sequence[bytes], start: int) -> int:
    """Return the index of the line after the file header at ``lines[start]``, whatever its names and fields say."""
    index = _before_pair(lines, start, {})
    return index + 2 if is_pair(lines, index) else max(index, start + 1)


def _before_pair(lines: Sequence[bytes], start: int, fields: dict[str, bytes]) -> int:
    """Return the index after the lines of a header that may precede ``---``; git's are put into *fields*."""
    if lines[start].startswith(_GIT):
        return _read_extended(lines, start + 1, fields)
    index = start
    if lines[index].startswith(b"Index:"):
        index += 1
        if index < len(lines) and _RULE.fullmatch(lines[index]):
            index += 1
    if index < len(lines) and lines[index].startswith(b"diff "):
        index += 1
    return index


def _read_extended(lines: Sequence[bytes], index: int, fields: dict[str, bytes]) -> int:
    while index < len(lines):
        line = lines[index]
        if found := _MODE.fullmatch(line) or _NAME.fullmatch(line):
            fields[found[1].decode()] = found[2]
        elif found := _OTHER.fullmatch(line):
            if found[1]:
                fields["index"] = found[1]
        else:
            break
        index += 1
    return index


def _shown(git: tuple[bytes, bytes] | None, indexed: Name | None) -> str:
    name = git[1] if git else indexed.raw if indexed else b""
    return (name.partition(b"/")[2] or name).decode("utf-8", "backslashreplace")


def _name(
    header: FileHeader,
    *,
    old: Name | None,
    new: Name | None,
    git: tuple[bytes, bytes] | None,
    indexed: Name | None,
    place: str,
    strip: int,
) -> None:
    """Decide the paths: git's rename lines, else the ``---`` pair, else ``diff --git``, else ``Index:``.

    A plain pair may name two files (f.c.orig, f.c); which of them is meant only a tree can tell, so both are kept.
    """
    fields = header.fields
    source = fields.get("rename from") or fields.get("rename old") or fields.get("copy from")
    target = fields.get("rename to") or fields.get("rename new") or fields.get("copy to")
    if source and target:
        # git leaves the a/ and b/ out in these lines, so one component less is stripped.
        paths = [stripped(_unquoted(name), max(strip - 1, 0), place) for name in (source, target)]
        header.old_path, header.new_path = paths
        named = (old.raw, new.raw) if old and new else git or ()
        whole = [stripped(name, strip, place) for name in named if name != DEV_NULL]
        # git diff --submodule=diff leaves the submodule's folder out of these lines, too.
        if len(whole) == 2 and all(one and one.endswith(f"/{path}") for one, path in zip(whole, paths, strict=True)):
            header.old_path, header.new_path = whole
    else:
        before = None if old is None or old.is_null else stripped(old.raw, strip, place)
        after = None if new is None or new.is_null else stripped(new.raw, strip, place)
        if old is None and new is None:
            if git:
                before, after = (stripped(name, strip, place) for name in git)
            elif indexed and strip == 1 and b"/" not in indexed.raw:
                before = after = safe_path(indexed.raw, place)
            elif indexed:
                before = after = stripped(indexed.raw, strip, place)
        header.old_absent = bool(old and (old.is_null or old.epoch)) or "new file mode" in fields
        header.new_absent = bool(new and (new.is_null or new.epoch)) or "deleted file mode" in fields
        header.old_path = before if before is not None else after
        header.new_path = after if after is not None else before
    if header.old_path is None or header.new_path is None:
        raise PatchError(place, f"names no file at strip level -p{strip}", "give the series entry its -p option")


def _unquoted(name: bytes) -> bytes:
    quoted = unquote(name)
    return quoted[0] if quoted else name.rstrip(b"\r")
