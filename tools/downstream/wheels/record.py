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
_ROW = re.compile(r"^([A-Za-z0-9_./+-]+),(sha256=[A-Za-z0-9_-]{43}),([0-9]+)\n", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]*").fullmatch  # needs no quotes


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
    text = raw.decode("utf-8", "replace")
    found = _ROW.findall(text)
    if text.endswith("\n") and len(found) + 1 == text.count(
        "\n"
    ):  # every row but RECORD's own, so there is no second one that is malformed
        rows = {path: Row(path, digest, int(size)) for path, digest, size in found}
        if len(rows) == len(found):
            return rows
    return _read_odd_rows(text)


def _read_odd_rows(text: str) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    seen: set[str] = set()
    for fields in csv.reader(io.StringIO(text, newline="")):
        path, digest, size = fields if len(fields) == 3 else (*fields[:1], "", "") if fields else ("", "", "")
        if path in seen:
            rows.pop(path, None)
        elif _DIGEST.fullmatch(digest) and size.isdecimal():
            rows[path] = Row(path, digest, int(size))
        seen.add(path)
    return rows


def write_rows(rows: Iterable[Row], record: str) -> bytes:
    """Return RECORD with *rows* in their order, and last *record*, its own row, which has no digest."""
    rows = list(rows)
    if _PLAIN("".join(row.path for row in rows)):
        lines = [f"{path},{digest},{size}\n" for path, digest, size in rows]
    else:
        lines = [f"{_quoted(path)},{digest},{size}\n" for path, digest, size in rows]
    return "".join([*lines, _quoted(record), ",,\n"]).encode()


def _quoted(path: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="").writerow((path,))
    return text.getvalue()
