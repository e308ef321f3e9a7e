"""The matrix as plain values: what JSON prints, and what the page and the pictures are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from downstream.patches.header import Header
from downstream.patches.text import FilePatch, Hunk, Patch
from downstream.placing.verdict import HunkStatus
from downstream.queue.culprit import Culprit
from downstream.queue.ending import Sides
from downstream.queue.judged import Place, Verdict
from downstream.queue.matrix import Lifetime, Matrix
from downstream.report.context import decoded

SCHEMA = 1

# A letter for each verdict, so that no cell depends on its colour.
LETTERS: Mapping[str, str] = {
    HunkStatus.CLEAN.value: "c",
    HunkStatus.OFFSET.value: "o",
    HunkStatus.MERGED.value: "m",
    HunkStatus.FILE_MOVED.value: "v",
    HunkStatus.UPSTREAMED.value: "U",
    HunkStatus.AMBIGUOUS.value: "A",
    HunkStatus.MISPLACED.value: "M",
    HunkStatus.CONFLICT.value: "X",
    HunkStatus.FILE_GONE.value: "G",
    HunkStatus.LINE_ENDINGS.value: "L",
    HunkStatus.MALFORMED.value: "!",
}
MEANINGS: Mapping[str, str] = {
    "clean": "applies at its own line",
    "offset": "applies, moved by some lines",
    "merged": "applies; upstream changed lines beside it",
    "file-moved": "applies in the file's new home",
    "upstreamed": "the release has it",
    "ambiguous": "several equal places: refused",
    "misplaced": "its text stands only elsewhere: refused",
    "conflict": "upstream changed the same lines",
    "file-gone": "the release does not have the file",
    "line-endings": "fits but for CR LF against LF",
    "malformed": "cannot be read",
}
# From what needs a person most to what needs one least.
GRAVITY = tuple(LETTERS)[::-1]

Shown = tuple[Verdict, tuple[str, ...]]  # a verdict, and where the code went
Culprits = Callable[[Place, Lifetime], Culprit | None]


def nobody(_: Place, __: Lifetime) -> Culprit | None:
    """No repository to ask."""
    return None


def document(
    matrices: Sequence[Matrix], *, culprit: Mapping[tuple[str, str], Culprits] | None = None
) -> dict[str, Any]:
    """Return the document of *matrices*; *culprit* by line and upstream names the commit that ended a hunk's life."""
    asked = culprit or {}
    return {
        "schema": SCHEMA,
        "command": "matrix",
        "ok": all(_newest_is_fine(matrix) for matrix in matrices),
        "matrices": [_matrix(matrix, asked.get((matrix.line, matrix.upstream), nobody)) for matrix in matrices],
    }


def worst(statuses: Sequence[str]) -> str | None:
    """Return the status that needs a person most, None of none."""
    return min(statuses, key=GRAVITY.index) if statuses else None


def _newest_is_fine(matrix: Matrix) -> bool:
    """Whether the newest release that could be read needs nobody."""
    for column in reversed(matrix.columns):
        if column.verdicts is not None:
            return all(verdict.status.fine for verdict in column.verdicts.values())
    return True


def _matrix(matrix: Matrix, culprit: Culprits) -> dict[str, Any]:
    verdicts: dict[Shown, int] = {}
    patches = [_patch(patch, matrix, verdicts, culprit) for patch in matrix.patches]
    return {
        "upstream": matrix.upstream,
        "line": matrix.line,
        "pin": str(matrix.pin),
        "releases": [
            {"version": str(column.version), "date": column.uploaded[:10], "skipped": column.skipped}
            for column in matrix.columns
        ],
        "not_releases": list(matrix.unversioned),
        "withdrawn": [str(version) for version in matrix.withdrawn],
        # Cells are indices into this table: neighbouring releases mostly share their verdict.
        "verdicts": [_verdict(*shown) for shown in verdicts],
        "patches": patches,
    }


def _verdict(verdict: Verdict, elsewhere: tuple[str, ...]) -> dict[str, Any]:
    return {
        "status": verdict.status.value,
        "line": verdict.line,
        "offset": verdict.offset,
        "reason": verdict.reason,
        "review": verdict.review,
        "candidates": list(verdict.candidates),
        "elsewhere": list(elsewhere),
        "found": _lines(verdict.found),
    }


def _patch(patch: Patch, matrix: Matrix, verdicts: dict[Shown, int], culprit: Culprits) -> dict[str, Any]:
    header = Header.parse(patch.header)
    return {
        "patch": patch.name,
        "subject": header.subject or "",
        "header": "\n".join(decoded(line) for line in patch.header.strip().removesuffix(b"---").rstrip().split(b"\n")),
        "hunks": [
            _row((patch.name, index, hunk.number if hunk else 0), file, hunk, matrix, verdicts, culprit)
            for index, file in enumerate(patch.files)
            for hunk in (file.hunks or (None,))
        ],
    }


def _row(
    place: Place, file: FilePatch, hunk: Hunk | None, matrix: Matrix, verdicts: dict[Shown, int], culprit: Culprits
) -> dict[str, Any]:
    cells: list[int | None] = []
    for column in matrix.columns:
        verdict = matrix.verdict(place, column)
        shown = None if verdict is None else (verdict, column.elsewhere.get(place, ()))
        cells.append(None if shown is None else verdicts.setdefault(shown, len(verdicts)))
    return {
        "file": file.path,
        "number": place[2],
        "old_line": hunk.old_start if hunk else None,
        "text": "\n".join(decoded(line) for line in hunk.raw.rstrip(b"\n").split(b"\n")) if hunk else "",
        "cells": cells,
        "lifetime": _lifetime(place, matrix, culprit),
    }


def _lifetime(place: Place, matrix: Matrix, culprit: Culprits) -> dict[str, Any]:
    life = matrix.lifetime(place)
    sides = matrix.sides.get(place, Sides())
    commit = culprit(place, life) if life.ended else None
    return {
        "first": str(life.first) if life.first else None,
        "last": str(life.last) if life.last else None,
        "ended": str(life.ended) if life.ended else None,
        "fate": life.fate.value if life.fate else None,
        "commit": None
        if commit is None
        else {"id": commit.commit, "title": commit.title, "pull": commit.pull, "date": commit.date},
        "before": _lines(sides.before),
        "after": _lines(sides.after),
        "moves": list(_moves(place, matrix)),
    }


def _moves(place: Place, matrix: Matrix) -> Iterator[dict[str, str]]:
    """Each release in which the code that left its file stands in another one than in the release before.

    Where several files look like it, the one that does in most releases counts.
    """
    homes = [
        (str(column.version), [each.rpartition(":")[0] for each in column.elsewhere.get(place, ())])
        for column in matrix.columns
    ]
    often = Counter(path for _, paths in homes for path in set(paths))
    home = ""
    for version, paths in homes:
        if paths and (likely := max(paths, key=lambda path: often[path])) != home:
            home = likely
            yield {"version": version, "path": home}


def _lines(lines: Sequence[tuple[int, bytes]]) -> list[dict[str, Any]]:
    return [{"line": line, "text": decoded(text.rstrip(b"\r\n"))} for line, text in lines]
