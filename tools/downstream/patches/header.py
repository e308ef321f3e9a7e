"""The header of a patch: free text, mail fields and DEP-3 fields."""

from __future__ import annotations

import re
from dataclasses import dataclass

# https://dep-team.pages.debian.net/deps/dep3/ and the mail fields that stand for them
_FIELD = re.compile(rb"([A-Za-z][A-Za-z0-9-]*):(?:[ \t]+|(?=\r?\n|$))([^\n]*)")
_KNOWN = re.compile(
    rb"(?:description|subject|origin|bug|bug-[a-z0-9-]+|forwarded|author|from|date|reviewed-by|acked-by|last-update"
    rb"|applied-upstream|signed-off-by|co-authored-by|tested-by)",
    re.IGNORECASE,
)
_TAG = re.compile(r"^\s*(?:\[[^\]]*\b(?:patch|rfc)\b[^\]]*\]\s*)+", re.IGNORECASE)
_REQUIRED = (
    ("Subject", ("subject", "description")),
    ("Origin", ("origin", "author", "from")),
    ("Forwarded", ("forwarded",)),
    ("Last-Update", ("last-update",)),
)


@dataclass(frozen=True, slots=True)
class Field:
    """One field: where its lines stand in the header (line indices, end exclusive) and what it says."""

    name: str
    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """A header's fields, in order, and its free text."""

    fields: tuple[Field, ...]
    text: str  # what is no field, up to the ``---`` line

    @classmethod
    def parse(cls, raw: bytes) -> Header:
        """Read the text before the first file header (bytes that are no UTF-8 are surrogate-escaped).

        Any field counts at the top, only DEP-3's and git's further down, so that
        prose with a colon stays prose. A line ``---`` ends it.
        """
        lines = raw.split(b"\n")
        fields: list[Field] = []
        text: list[str] = []
        index = 1 if lines[0].startswith(b"From ") else 0
        first_paragraph = in_fields = True
        while index < len(lines):
            line = lines[index].rstrip(b"\r")
            if line == b"---":
                break
            found = _FIELD.match(line)
            if found and ((first_paragraph and in_fields) or _KNOWN.fullmatch(found[1])):
                end = index + 1
                while end < len(lines) and lines[end][:1] in (b" ", b"\t") and lines[end].strip():
                    end += 1
                fields.append(Field(found[1].decode(), _value(lines[index:end], found.start(2)), index, end))
                index = end
                continue
            blank = not line.strip()
            if blank:
                first_paragraph = first_paragraph and not fields and not any(text)
            in_fields = blank
            text.append(_decoded(line))
            index += 1
        return cls(tuple(fields), "\n".join(text).strip("\n"))

    def get(self, name: str) -> str | None:
        """Return the value of the first field *name* (case does not matter); continuation lines joined by LF."""
        wanted = name.lower()
        return next((field.value for field in self.fields if field.name.lower() == wanted), None)

    @property
    def subject(self) -> str | None:
        """The one-line summary: Subject without its [PATCH] tag, else the first line of Description."""
        if (subject := self.get("Subject")) is not None:
            return _TAG.sub("", " ".join(subject.split())) or None
        description = self.get("Description")
        return description.split("\n")[0].strip() or None if description is not None else None

    @property
    def description(self) -> str:
        """The long text: the rest of Description, then the free text."""
        rest = (self.get("Description") or "").split("\n")[0 if self.get("Subject") is not None else 1 :]
        return "\n\n".join(part for part in ("\n".join(rest).strip("\n"), self.text) if part)

    @property
    def author(self) -> str | None:
        return self.get("Author") or self.get("From")

    @property
    def origin(self) -> str | None:
        return self.get("Origin")

    @property
    def forwarded(self) -> str | None:
        return self.get("Forwarded")

    @property
    def applied_upstream(self) -> str | None:
        return self.get("Applied-Upstream")

    @property
    def last_update(self) -> str | None:
        return self.get("Last-Update")

    def missing(self) -> list[str]:
        """Return the required fields that are absent or empty (DESIGN 6)."""
        return [shown for shown, names in _REQUIRED if not any(self.get(name) for name in names)]


def with_field(raw: bytes, field: str, value: str) -> bytes:
    """Return the header with *field* set to *value*; all other bytes stay.

    An existing field's lines are replaced, a new one follows the last field of
    the first run of them, and stands at the top where there is none.
    """
    lines = raw.splitlines(keepends=True) if b"\r" not in raw else re.findall(rb"[^\n]*\n|[^\n]+", raw)
    eol = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    first, *more = value.encode("utf-8", "surrogateescape").split(b"\n")
    new = b"".join(
        [field.encode() + b": " + first + eol, *(b" " + (line if line.strip() else b".") + eol for line in more)]
    )
    fields = Header.parse(raw).fields
    existing = next((known for known in fields if known.name.lower() == field.lower()), None)
    if existing:
        start, end = existing.start, existing.end
    else:
        start = end = _insertion(fields, bool(lines) and lines[0].startswith(b"From "))
    before = b"".join(lines[:start])
    if before and not before.endswith(b"\n"):
        before += eol
    after = b"".join(lines[end:])
    if not fields and after.strip() and not after.startswith((b"\n", b"\r\n")):
        after = eol + after  # a blank line divides fields from prose
    return before + new + after


def without_field(raw: bytes, field: str) -> bytes:
    """Return the header without the lines of *field*; all other bytes stay."""
    lines = raw.splitlines(keepends=True) if b"\r" not in raw else re.findall(rb"[^\n]*\n|[^\n]+", raw)
    gone = [known for known in Header.parse(raw).fields if known.name.lower() == field.lower()]
    removed = {index for known in gone for index in range(known.start, known.end)}
    return b"".join(line for index, line in enumerate(lines) if index not in removed)


def _insertion(fields: tuple[Field, ...], mail: bool) -> int:
    if not fields:
        return int(mail)
    end = fields[0].end
    for field in fields[1:]:
        if field.start != end:
            break
        end = field.end
    return end


def _value(lines: list[bytes], start: int) -> str:
    first, *more = [_decoded(line.rstrip(b"\r")) for line in lines]
    texts = [first[start:].strip()]
    for line in more:
        text = line[1:].rstrip()
        texts.append("" if text.strip() == "." else text)
    value = "\n".join(texts)
    if "=?" in value:
        value = _decode_words(value)
    return value


def _decode_words(value: str) -> str:
    """Decode RFC 2047 words, which git format-patch writes for names that are no ASCII."""
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, UnicodeDecodeError, ValueError):
        return value


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
