"""The map as a picture: a row per patch, a column per release, a colour and a letter per verdict."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from downstream.report.context import printable
from downstream.report.matrix.document import LETTERS, MEANINGS
from downstream.report.matrix.text import patch_statuses

CELL = 16  # pixels, square
GAP = 2
LETTER_WIDTH = 6.7  # of the 11 px monospaced labels
TOP = 74  # room for slanted version numbers

# Fill and letter colours that differ in lightness too, so that they can be told apart without hue.
COLOURS: Mapping[str, tuple[str, str]] = {
    "clean": ("#2e7d4f", "#ffffff"),
    "offset": ("#6bb48a", "#08210f"),
    "merged": ("#b5dcc4", "#08210f"),
    "file-moved": ("#cfe8d8", "#08210f"),
    "upstreamed": ("#3b6fb6", "#ffffff"),
    "ambiguous": ("#f0c24b", "#2a1d00"),
    "misplaced": ("#e38b2c", "#2a1300"),
    "conflict": ("#c0392b", "#ffffff"),
    "file-gone": ("#7b1f17", "#ffffff"),
    "line-endings": ("#8e4a88", "#ffffff"),
    "malformed": ("#444444", "#ffffff"),
}
SKIPPED = ("none", "#888888")


def render(document: Mapping[str, Any]) -> str:
    """Return one SVG with the maps below each other; it reads on white and on black."""
    label = max((len(patch["patch"]) for matrix in document["matrices"] for patch in matrix["patches"]), default=0)
    left = round(label * LETTER_WIDTH) + 12
    columns = max((len(matrix["releases"]) for matrix in document["matrices"]), default=0)
    width = left + columns * (CELL + GAP) + 60
    picture = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    ET.SubElement(picture, "title").text = "Patches by release"
    style = ET.SubElement(picture, "style")
    style.text = (
        "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#555}"
        ".t{font:bold 13px system-ui,sans-serif}.c{font-size:10px;text-anchor:middle}.n{text-anchor:end}"
        "@media(prefers-color-scheme:dark){text{fill:#bbb}}"
    )
    top = 8.0
    for matrix in document["matrices"]:
        top = _matrix(picture, matrix, left, top)
    _legend(picture, document, top)
    height = round(top + 40)
    picture.set("viewBox", f"0 0 {width} {height}")
    picture.set("width", str(width))
    picture.set("height", str(height))
    ET.indent(picture)
    return ET.tostring(picture, encoding="unicode") + "\n"


def _matrix(picture: ET.Element, matrix: Mapping[str, Any], left: int, top: float) -> float:
    group = ET.SubElement(picture, "g")
    _text(group, 4, top + 12, f"{matrix['upstream']} (line {matrix['line']}, pin {matrix['pin']})", "t")
    top += TOP + 8
    for column, release in enumerate(matrix["releases"]):
        x = left + column * (CELL + GAP) + CELL / 2
        name = _text(group, x, top - 6, release["version"], "")
        name.set("transform", f"rotate(-60 {x} {top - 6})")
        if release["version"] == matrix["pin"]:
            height = len(matrix["patches"]) * (CELL + GAP)
            ET.SubElement(
                group, "rect", x=str(x - CELL / 2 - 1.5), y=str(top - 1.5), width=str(CELL + 3), height=str(height + 1),
                fill="none", stroke="#888888",
            )  # fmt: skip
    for row, patch in enumerate(matrix["patches"]):
        y = top + row * (CELL + GAP)
        _text(group, left - 8, y + 12, patch["patch"], "n")
        for column, status in enumerate(patch_statuses(patch, matrix)):
            _cell(group, left + column * (CELL + GAP), y, status, matrix["releases"][column], patch["patch"])
    return top + len(matrix["patches"]) * (CELL + GAP) + 18


def _cell(group: ET.Element, x: float, y: float, status: str | None, release: Mapping[str, Any], patch: str) -> None:
    fill, ink = COLOURS[status] if status else SKIPPED
    cell = ET.SubElement(
        group, "rect", x=str(x), y=str(y), width=str(CELL), height=str(CELL), rx="2", fill=fill,
    )  # fmt: skip
    ET.SubElement(cell, "title").text = printable(f"{patch} on {release['version']}: {status or release['skipped']}")
    letter = _text(group, x + CELL / 2, y + 12, LETTERS[status] if status else "-", "c")
    letter.set("style", f"fill:{ink}")


def _legend(picture: ET.Element, document: Mapping[str, Any], top: float) -> None:
    seen = {verdict["status"] for matrix in document["matrices"] for verdict in matrix["verdicts"]}
    x = 8.0
    for status, letter in LETTERS.items():
        if status not in seen:
            continue
        fill, ink = COLOURS[status]
        ET.SubElement(picture, "rect", x=str(x), y=str(top), width=str(CELL), height=str(CELL), rx="2", fill=fill)
        _text(picture, x + CELL / 2, top + 12, letter, "c").set("style", f"fill:{ink}")
        word = _text(picture, x + CELL + 5, top + 12, status, "")
        ET.SubElement(word, "title").text = MEANINGS[status]
        x += CELL + 14 + len(status) * LETTER_WIDTH


def _text(parent: ET.Element, x: float, y: float, content: str, kind: str) -> ET.Element:
    text = ET.SubElement(parent, "text", x=str(x), y=str(y))
    if kind:
        text.set("class", kind)
    text.text = printable(content)
    return text
