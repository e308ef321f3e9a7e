"""RECORD: one row per file, with its digest and its size (binary distribution format, PEP 376)."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import NamedTuple

_DIGEST = re.compile(r"sha256=[A-Za-z0-9_-]{43}")


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
    for fields in csv.reader(io.StringIO(raw.decode("utf-8", "replace"), newline="")):
        if not fields:
            continue
        if fields[0] in seen:
            rows.pop(fields[0], None)
        elif len(fields) == 3 and _DIGEST.fullmatch(fields[1]) and fields[2].isdecimal():
            rows[fields[0]] = Row(fields[0], fields[1], int(fields[2]))
        seen.add(fields[0])
    return rows


def write_rows(rows: Iterable[Row], record: str) -> bytes:
    """Return RECORD with *rows* in their order, and last *record*, its own row, which has no digest."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(rows)
    writer.writerow((record, "", ""))
    return text.getvalue().encode()
