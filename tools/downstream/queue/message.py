"""A patch's header as a commit message, and back, so that whatever nobody edited keeps its bytes."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from downstream.patches.header import Field, Header, with_field, without_field

NAME = "Patch-Name"
_NAME_WIDTH = 60
_APART = ("from", "author", "date", "subject", "description")  # these are the commit's own
_TRAILER = re.compile(r"([A-Za-z][A-Za-z0-9-]*): ?(.*)")
_KNOWN = re.compile(
    r"patch-name|origin|bug(?:-.*)?|forwarded|applied-upstream|last-update|(?:reviewed|acked|tested|signed-off|co-authored)-by",
    re.IGNORECASE,
)
_PICKED = re.compile(r"\(cherry picked from commit ([0-9a-f]{7,64})\)")
_MAILBOX = re.compile(r"\s*([^<>\n]*?)\s*<([^<>\n]*)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a commit message says. ``name`` is the patch file's, None in a commit that is no patch yet."""

    subject: str
    body: str
    fields: tuple[tuple[str, str], ...]
    name: str | None

    def get(self, field: str) -> str | None:
        return next((value for key, value in self.fields if key.lower() == field.lower()), None)


def message_of(header: Header, name: str) -> bytes:
    """Write the header as a commit message: subject, text, fields, and the patch's name as the last of them."""
    trailers = [*((field.name, field.value) for field in _trailers(header)), (NAME, name)]
    return _encoded(_written(header.subject or name, header.description, trailers))


def parse_message(raw: bytes) -> Message:
    """Read a commit message; the fields are those of its last paragraphs that hold a known one."""
    subject, _, rest = _tidy(raw.decode("utf-8", "surrogateescape")).partition("\n")
    paragraphs = [paragraph for paragraph in rest.strip("\n").split("\n\n") if paragraph]
    fields: list[tuple[str, str]] = []
    kept: list[str] = []
    while paragraphs and _is_trailers(paragraphs[-1]):
        found, other = _read_trailers(paragraphs.pop())
        fields = found + fields
        kept = ["\n".join(other), *kept] if other else kept
    body = "\n\n".join([*paragraphs, *kept])
    name = next((value for key, value in fields if key == NAME), None)
    others = tuple((key, value) for key, value in fields if key != NAME)
    return Message(subject=subject.strip(), body=body, fields=others, name=name)


def header_of(message: Message, *, old: bytes | None, author: str, date: str, today: datetime.date) -> bytes:
    """Return the header for *message*: *old* where it says the same, else with as few of its lines changed as can be.

    A new one (*old* None) is a mail that git am takes, with DEP-3 fields.
    """
    if old is None:
        return _new(message, author=author, date=date, today=today)
    before = parse_message(message_of(Header.parse(old), message.name or "-"))
    if message.name is None:
        # A commit of the user's own, exported before: its fields were added then, and live in the patch alone.
        added = [(key, value) for key, value in before.fields if message.get(key) is None]
        message = replace(message, fields=(*message.fields, *added))
        before = replace(before, fields=tuple(sorted(before.fields)))
        message = replace(message, fields=tuple(sorted(message.fields)))
    if (before.subject, before.body, before.fields) == (message.subject, message.body, message.fields):
        return old
    keys = [key.lower() for key, _ in (*before.fields, *message.fields)]
    repeated = any(keys.count(key) > 2 for key in keys) or len({k.lower() for k, _ in before.fields}) != len(
        before.fields
    )
    if (before.subject, before.body) != (message.subject, message.body) or repeated:
        header = Header.parse(old)
        return _mail(message, author=header.author or author, date=header.get("Date") or date, fields=message.fields)
    for key, _ in before.fields:
        if message.get(key) is None:
            old = without_field(old, key)
    for key, value in message.fields:
        if before.get(key) != value:
            old = with_field(old, key, value)
    return old


def file_name(subject: str) -> str:
    """Return a patch file's name for a subject: its words, joined by hyphens; a pull request's number is left out."""
    subject = re.sub(r"\s*\(#\d+\)\s*$", "", subject)
    words = re.findall(r"[a-z0-9]+", subject.lower())
    while len("-".join(words)) > _NAME_WIDTH and len(words) > 1:
        words.pop()
    return ("-".join(words)[:_NAME_WIDTH] or "patch") + ".patch"


def mailbox(author: str | None) -> bytes:
    """Return ``Name <mail>`` as git wants it, of whatever an Author field holds."""
    found = _MAILBOX.match(author or "")
    if found:
        return _encoded(f"{found[1] or 'unknown'} <{found[2]}>")
    name = re.sub(r"[<>\n\0]+", " ", author or "").strip() or "unknown"
    return _encoded(f"{name} <>")


def _new(message: Message, *, author: str, date: str, today: datetime.date) -> bytes:
    fields = list(message.fields)
    picked = _PICKED.search(message.body)
    if picked and message.get("Origin") is None:
        fields.insert(0, ("Origin", f"upstream, commit {picked[1]}"))
    for key, value in (("Forwarded", "no"), ("Last-Update", today.isoformat())):
        if message.get(key) is None:
            fields.append((key, value))
    return _mail(message, author=author, date=date, fields=fields)


def _mail(message: Message, *, author: str, date: str, fields: Sequence[tuple[str, str]]) -> bytes:
    head = [("From", author), ("Date", date), ("Subject", message.subject), *fields]
    lines = [_field(key, value) for key, value in head if value]
    body = f"\n{message.body}\n" if message.body else ""
    return _encoded("\n".join(lines) + f"\n{body}\n---\n\n")


def _written(subject: str, body: str, trailers: Sequence[tuple[str, str]]) -> str:
    parts = [subject, _tidy(body), "\n".join(_field(key, value) for key, value in trailers)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _field(key: str, value: str) -> str:
    first, *more = value.split("\n")
    return "\n".join([f"{key}: {first}".rstrip(), *(f" {line}" if line.strip() else " ." for line in more)])


def _trailers(header: Header) -> list[Field]:
    return [field for field in header.fields if field.name.lower() not in _APART]


def _is_trailers(paragraph: str) -> bool:
    found, _ = _read_trailers(paragraph)
    return any(_KNOWN.fullmatch(key) for key, _ in found)


def _read_trailers(paragraph: str) -> tuple[list[tuple[str, str]], list[str]]:
    fields: list[tuple[str, str]] = []
    other: list[str] = []
    for line in paragraph.split("\n"):
        if line.startswith((" ", "\t")) and fields and not other:
            key, value = fields[-1]
            fields[-1] = key, f"{value}\n{'' if line.strip() == '.' else line[1:]}"
        elif found := _TRAILER.fullmatch(line):
            fields.append((found[1], found[2].strip()))
        else:
            other.append(line)
    return fields, other


def _tidy(text: str) -> str:
    """Strip what git's message clean-up strips: blanks at line ends, and blank lines beyond one."""
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
