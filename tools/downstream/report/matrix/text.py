"""The matrix in a terminal: a letter for each release, and a sentence for what ended a hunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from downstream.report.context import printable
from downstream.report.matrix import guards
from downstream.report.matrix.document import LETTERS, MEANINGS, worst

_COLOURS = {"c": "32", "o": "32", "m": "32", "v": "32", "U": "36"}
_RED = "1;31"


def render(document: Mapping[str, Any], *, colour: bool = False, verbose: bool = False) -> str:
    """Return the maps, a line per patch and, *verbose* or where they differ, per hunk; colour repeats the letter."""
    lines: list[str] = []
    for matrix in document["matrices"]:
        lines += _matrix(matrix, colour=colour, verbose=verbose)
        lines.append("")
    return "\n".join(lines)


def cell_letters(row: Mapping[str, Any], matrix: Mapping[str, Any]) -> str:
    """A letter per release; ``-`` for one that was skipped."""
    return "".join("-" if cell is None else LETTERS[matrix["verdicts"][cell]["status"]] for cell in row["cells"])


def patch_statuses(patch: Mapping[str, Any], matrix: Mapping[str, Any]) -> list[str | None]:
    """Per release, the verdict of the hunk that needs a person most."""
    columns = range(len(matrix["releases"]))
    cells = [[row["cells"][column] for row in patch["hunks"] if row["cells"][column] is not None] for column in columns]
    return [worst([matrix["verdicts"][cell]["status"] for cell in column]) for column in cells]


def ending(life: Mapping[str, Any]) -> str:
    """``applies 0.5.0 … 0.6.16; is upstream since 0.6.17 (#3903 title)``."""
    if not life["first"]:
        return "applies to none of them"
    text = f"applies {life['first']} … {life['last']}"
    if life["ended"]:
        text += f"; {life['fate']} since {life['ended']}"
        if commit := life["commit"]:
            pull = f"#{commit['pull']}" if commit["pull"] else commit["id"][:9]
            title = commit["title"].removesuffix(f" (#{commit['pull']})")
            text += f" ({pull}: {title})"
    return text + "".join(f"; from {move['version']} on code like it is in {move['path']}" for move in life["moves"])


def left_out(matrix: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for every release and file of the index that has no verdict."""
    yield from (f"skipped {one['version']}: {one['skipped']}" for one in matrix["releases"] if one["skipped"])
    if matrix["withdrawn"]:
        yield f"yanked, so left out: {', '.join(matrix['withdrawn'])}"
    if names := matrix["not_releases"]:
        yield f"no releases ({len(names)}): {', '.join(names)}"


def _matrix(matrix: Mapping[str, Any], *, colour: bool, verbose: bool) -> Iterator[str]:
    releases = matrix["releases"]
    versions = [release["version"] for release in releases]
    pinned = versions.index(matrix["pin"]) if matrix["pin"] in versions else None
    width = max((len(patch["patch"]) for patch in matrix["patches"]), default=0) + 2
    title = f"{matrix['upstream']} (line {matrix['line']}, pin {matrix['pin']})"
    yield f"{title}: {len(releases)} releases, {versions[0]} to {versions[-1]}" if versions else f"{title}: no releases"
    if pinned is not None:
        yield " " * (width + pinned) + "↓ pin"
    for patch in matrix["patches"]:
        letters = "".join("-" if status is None else LETTERS[status] for status in patch_statuses(patch, matrix))
        lives = {ending(row["lifetime"]) for row in patch["hunks"]}
        yield f"{printable(patch['patch']):{width}}{_painted(letters, colour)}"
        if len(lives) == 1 and not verbose:
            yield f"{'':{width}}{printable(lives.pop())}"
            continue
        for row in patch["hunks"]:
            name = f"  {row['file'].rsplit('/', 1)[-1]} {row['number'] or ''}"
            yield f"{printable(name)[: width - 1]:{width}}{_painted(cell_letters(row, matrix), colour)}"
            yield f"{'':{width}}{printable(ending(row['lifetime']))}"
    seen = {verdict["status"] for verdict in matrix["verdicts"]}
    yield "; ".join(f"{letter} {MEANINGS[status]}" for status, letter in LETTERS.items() if status in seen)
    yield from map(printable, left_out(matrix))
    if "guards" in matrix:
        yield ""
        yield from guards.lines(matrix)


def _painted(letters: str, colour: bool) -> str:
    if not colour:
        return letters
    return "".join(
        letter if letter == "-" else f"\033[{_COLOURS.get(letter, _RED)}m{letter}\033[0m" for letter in letters
    )
