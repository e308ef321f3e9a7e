"""The matrix as Markdown: a table of lifetimes, and the map in a code block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from downstream.report.markdown import code, escaped, fenced
from downstream.report.matrix import guards
from downstream.report.matrix.document import LETTERS, MEANINGS
from downstream.report.matrix.text import cell_letters, ending, left_out, patch_statuses


def render(document: Mapping[str, Any]) -> str:
    """Return a section per upstream, fit for an issue or a pull request."""
    lines: list[str] = []
    for matrix in document["matrices"]:
        lines += _matrix(matrix)
    return "\n".join(lines) + "\n"


def _matrix(matrix: Mapping[str, Any]) -> list[str]:
    versions = [release["version"] for release in matrix["releases"]]
    span = f"{versions[0]} to {versions[-1]}" if versions else "none"
    lines = [f"### {matrix['upstream']}: the series of line {matrix['line']} on {len(versions)} releases ({span})", ""]
    lines += ["| patch | hunks | life |", "| --- | ---: | --- |"]
    for patch in matrix["patches"]:
        lives = list(dict.fromkeys(ending(row["lifetime"]) for row in patch["hunks"]))
        lines.append(f"| {code(patch['patch'])} | {len(patch['hunks'])} | {'<br>'.join(map(escaped, lives))} |")
    width = max((len(patch["patch"]) for patch in matrix["patches"]), default=0) + 1
    lines += ["", "```text"]
    for patch in matrix["patches"]:
        letters = "".join("-" if status is None else LETTERS[status] for status in patch_statuses(patch, matrix))
        lines.append(f"{patch['patch']:{width}}{letters}")
        if len({cell_letters(row, matrix) for row in patch["hunks"]}) > 1:
            lines += [f"{'  hunk ' + str(row['number']):{width}}{cell_letters(row, matrix)}" for row in patch["hunks"]]
    seen = {verdict["status"] for verdict in matrix["verdicts"]}
    legend = "; ".join(f"{letter} {MEANINGS[status]}" for status, letter in LETTERS.items() if status in seen)
    lines += ["```", "", legend, ""]
    lines += [line for sentence in left_out(matrix) for line in (f"- {escaped(sentence)}", "")]
    if "guards" in matrix:
        lines += [*fenced("\n".join(guards.lines(matrix)), "text"), ""]
    return lines
