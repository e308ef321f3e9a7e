"""RECORD: one row per file, with its digest and its size (binary distribution format, PEP 376)."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_DIGEST = re.compile(r"sha256=[A-Za-z0-9_-]{43}")
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+").fullmatch  # needs no quotes


class Row(NamedTuple):
    """Where a file goes, what it must hash to, how long it is."""

    path: str
    digest: str  # "sha256=" and urlsafe base64 without padding
    size: int


def row(path: str, chunks: Iterable[bytes]) -> Row:
    """Return the row of a file given its content in pieces."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return Row(path, "sha256=" + urlsafe_b64encode(digest.digest()).rstrip(b"=").decode(), size)


def read_rows(raw: bytes) -> dict[str, Row]:
    """Return the rows that can be taken at their word: well formed, and the only one of their path."""
    rows: dict[str, Row] = {}
    seen: set[str] = set()
    for path, digest, size in _fields(raw.decode("utf-8", "replace")):
        if path in seen:
            rows.pop(path, None)
        elif _DIGEST.fullmatch(digest) and size.isdecimal():
            rows[path] = Row(path, digest, int(size))
        seen.add(path)
    return rows


def write_rows(rows: Iterable[Row], record: str) -> bytes:
    """Return RECORD with *rows* in their order, and last *record*, its own row, which has no digest."""
    return "".join([*map(_line, rows), _quoted(record), ",,\n"]).encode()


def _fields(text: str) -> Iterator[tuple[str, str, str]]:
    # Few wheels have a path that needs quotes, and csv takes its time.
    lines = (
        csv.reader(io.StringIO(text, newline=""))
        if '"' in text or "\r" in text
        else (line.split(",") for line in text.split("\n"))
    )
    for fields in lines:
        if fields and fields[0]:
            path, digest, size, *_ = *fields, "", ""
            yield (path, digest, size) if len(fields) == 3 else (path, "", "")


def _line(row: Row) -> str:
    return f"{row.path if _PLAIN(row.path) else _quoted(row.path)},{row.digest},{row.size}\n"


def _quoted(path: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="").writerow((path,))
    return text.getvalue()
