"""The series file: which patches, in which order, at which strip level."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from downstream.errors import PatchError
from downstream.patches.names import safe_path, unquote
from downstream.patches.parse import parse, split_lines
from downstream.patches.text import Patch

FILE = "series"
DEFAULT_STRIP = 1

_BLANK = b" \t\r\n\f\v"
_COMMENT = re.compile(rb"(?:^|(?<=[ \t\f\v]))#.*", re.DOTALL)
_OPTION = re.compile(rb"(?:^|(?<![ \t\f\v])[ \t\f\v]+)(?:(-p[ \t]*(?:\d+|ab?))|(-R|--reverse)|(-[^ \t]*))$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesEntry:
    """One patch of a series: its name (subfolder included), strip level, comment, and its line as it stands."""

    name: str
    strip: int = DEFAULT_STRIP
    comment: str = ""
    raw: bytes = b""
    line: int = 0  # 1-based in the series file; 0 for an entry that is not written yet

    def to_bytes(self) -> bytes:
        """Return the line, LF included; the line that was read where there is one."""
        if self.raw:
            return self.raw if self.raw.endswith(b"\n") else self.raw + b"\n"
        name = self.name.encode("utf-8", "surrogateescape")
        if b" #" in name or name.startswith((b'"', b"#", b"-")):
            name = b'"' + name.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
        option = b"" if self.strip == DEFAULT_STRIP else b" -p%d" % self.strip
        comment = b" # " + self.comment.encode("utf-8", "surrogateescape") if self.comment else b""
        return name + option + comment + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A folder of patches and the file that orders them."""

    folder: Path
    entries: tuple[SeriesEntry, ...]
    raw: bytes = b""
    file: str = FILE

    def __iter__(self) -> Iterator[SeriesEntry]:
        return iter(self.entries)

    def entry(self, name: str) -> SeriesEntry:
        """Return the entry called *name*, with or without ``.patch``. Raises PatchError where there is none."""
        for entry in self.entries:
            if name in (entry.name, entry.name.removesuffix(".patch")):
                return entry
        raise PatchError(self._place(), f"has no patch '{name}'", "see tools/pq.py list for the names")

    def path(self, entry: SeriesEntry) -> Path:
        return self.folder / entry.name

    def read(self, entry: SeriesEntry) -> bytes:
        """Return the patch file. Raises PatchError naming the line of the series where it cannot be read."""
        try:
            return self.path(entry).read_bytes()
        except FileNotFoundError as exc:
            raise PatchError(
                self._place(entry.line),
                f"names '{entry.name}', and there is no such file in {self.folder}",
                "add the file, or take the line out of the series",
            ) from exc
        except OSError as exc:
            reason = exc.strerror or str(exc)
            raise PatchError(self._place(entry.line), f"'{entry.name}' cannot be read: {reason}") from exc

    def patch(self, entry: SeriesEntry) -> Patch:
        return parse(self.read(entry), name=entry.name, strip=entry.strip)

    def patches(self) -> tuple[Patch, ...]:
        """Read every patch, in order. Raises PatchError at the first that cannot be read."""
        return tuple(self.patch(entry) for entry in self.entries)

    def with_entries(self, entries: Iterable[SeriesEntry]) -> bytes:
        """Return the series file for *entries*, in their order.

        Lines that were read stay as they are and keep the comment lines above
        them; the comments above a dropped entry stay where they stood.
        """
        wanted = list(entries)
        kept = {entry.name for entry in wanted}
        above: dict[str, list[bytes]] = {}
        loose: list[bytes] = []
        by_line = {entry.line: entry for entry in self.entries}
        for number, line in enumerate(split_lines(self.raw), start=1):
            entry = by_line.get(number)
            if entry is None:
                loose.append(line if line.endswith(b"\n") else line + b"\n")
            elif entry.name in kept:
                above.setdefault(entry.name, []).extend(loose)
                loose = []
        out: list[bytes] = []
        for entry in wanted:
            out += above.pop(entry.name, [])
            out.append(entry.to_bytes())
        return b"".join(out + loose)

    def _place(self, line: int = 0) -> str:
        return _place(self.folder, self.file) + (f":{line}" if line else "")


def load_series(folder: Path, file: str = FILE, *, strip: int = DEFAULT_STRIP) -> Series:
    """Read ``folder/file`` by quilt's rules; names may hold spaces, or stand in quotes.

    *strip* is for the entries without an option of their own.

    Raises PatchError for a missing file, an option other than -pN, and (as
    UnsafePathError) for a name that leaves the folder.
    """
    path = folder / file
    try:
        raw = path.read_bytes()
    except OSError as exc:
        reason = "there is no such file" if isinstance(exc, FileNotFoundError) else exc.strerror or str(exc)
        raise PatchError(str(path), f"the series cannot be read: {reason}") from exc
    place = _place(folder, file)
    lines = enumerate(split_lines(raw), start=1)
    entries = [entry for number, line in lines if (entry := _entry(line, number, place, strip))]
    return Series(folder=folder, entries=tuple(entries), raw=raw, file=file)


def _place(folder: Path, file: str) -> str:
    """The series file as messages call it: a line's own from ``patches/`` on, any other by its folder."""
    own = folder.parent.parent.name == "patches"
    return f"patches/{folder.parent.name}/{folder.name}/{file}" if own else f"{folder.name}/{file}"


def _entry(raw: bytes, number: int, place: str, strip: int) -> SeriesEntry | None:
    text = raw.removeprefix(b"\xef\xbb\xbf").strip(_BLANK)
    quoted = unquote(text)
    if quoted:
        name, rest = quoted
        rest, comment = _without_comment(rest)
        rest = b" " + rest.strip(_BLANK)
    else:
        rest, comment = _without_comment(text)
        name = b""
    where = f"{place}:{number}"
    while found := _OPTION.search(rest.rstrip(_BLANK)):
        if found[1]:
            digits = found[1][2:].strip()
            strip = int(digits) if digits.isdigit() else DEFAULT_STRIP
        elif found[2]:
            raise PatchError(where, "asks for a reversed patch (-R)", "export the patch the other way round")
        else:
            option = found[3].decode("utf-8", "backslashreplace")
            raise PatchError(where, f"has an option that is not known: {option}", "only -pN may follow a name")
        rest = rest[: found.start()]
    rest = rest.strip(_BLANK)
    if quoted and rest:
        raise PatchError(where, "has text after the quoted name", "write a comment with ' # '")
    name = name or rest
    if not name:
        return None
    return SeriesEntry(name=safe_path(name, where), strip=strip, comment=comment, raw=raw, line=number)


def _without_comment(text: bytes) -> tuple[bytes, str]:
    found = _COMMENT.search(text)
    if not found:
        return text, ""
    return text[: found.start()], found[0].lstrip(b"#").strip(_BLANK).decode("utf-8", "surrogateescape")


def renamed(entry: SeriesEntry, name: str) -> SeriesEntry:
    """Return *entry* under another name, to be written anew."""
    return replace(entry, name=name, raw=b"", line=0)
