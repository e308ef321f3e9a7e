"""The matrix as one self-contained page: the maps as tables that read without a script, and details on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from downstream.report.matrix import page_guards
from downstream.report.matrix.document import LETTERS, MEANINGS
from downstream.report.matrix.markup import escape
from downstream.report.matrix.svg import COLOURS
from downstream.report.matrix.text import ending, left_out, patch_statuses

_HERE = Path(__file__).parent


def render(document: Mapping[str, Any]) -> str:
    """Return the page. Everything it needs is in it; the document itself is embedded as JSON for the details."""
    style = (
        page_guards.STYLE
        + (_HERE / "page.css").read_text(encoding="utf-8")
        + "".join(f".s-{status}{{background:{fill};color:{ink}}}" for status, (fill, ink) in COLOURS.items())
    )
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    # "</" would end the script element early, wherever it stands in a patch.
    data = json.dumps(document, ensure_ascii=True, separators=(",", ":")).replace("</", "<\\/")
    names = " and ".join(matrix["upstream"] for matrix in document["matrices"])
    parts = [
        "<!DOCTYPE html>\n",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        # An inline icon: a browser asks for one otherwise, and there is nowhere to ask.
        '<link rel="icon" href="data:,">',
        f"<title>{escape(names)}: patches by release</title><style>{style}</style></head><body>",
        (
            f"<header><h1>{escape(names)}: every hunk on every release</h1>"
            "<p>Arrow keys move, Enter opens a cell, + and - unfold and fold a patch, Escape closes.</p>"
        ),
        "".join(_legend(document)),
        (
            '<p class="tools"><button type="button" id="unfold">unfold all</button> '
            '<button type="button" id="fold">fold all</button></p></header><main>'
        ),
    ]
    for index, matrix in enumerate(document["matrices"]):
        parts += _matrix(index, matrix)
    parts += [
        '</main><aside id="details" hidden aria-live="polite" tabindex="-1"></aside>',
        f'<script type="application/json" id="data">{data}</script><script>{script}</script></body></html>\n',
    ]
    return "".join(parts)


def _legend(document: Mapping[str, Any]) -> Iterator[str]:
    seen = {verdict["status"] for matrix in document["matrices"] for verdict in matrix["verdicts"]}
    yield '<ul class="legend">'
    for status, letter in LETTERS.items():
        if status in seen:
            yield f'<li><span class="cell s-{status}">{letter}</span> {status}: {escape(MEANINGS[status])}</li>'
    yield "</ul>"


def _matrix(index: int, matrix: Mapping[str, Any]) -> Iterator[str]:
    releases = matrix["releases"]
    yield f"<section><h2>{escape(matrix['upstream'])} <small>line {escape(matrix['line'])}, pin "
    yield f'{escape(matrix["pin"])}, {len(releases)} releases</small></h2><div class="scroll">'
    yield f'<table data-matrix="{index}" style="--columns:{len(releases)}"><thead><tr>'
    yield '<th scope="col" class="corner">patch</th>'
    for release in releases:
        pinned = ' class="pin"' if release["version"] == matrix["pin"] else ""
        title = f"{release['version']}, {release['date'] or 'date unknown'}"
        date = f" <i>{escape(release['date'])}</i>" if release["date"] else ""
        yield f'<th scope="col"{pinned} title="{escape(title)}"><span>{escape(release["version"])}{date}</span></th>'
    yield "</tr></thead><tbody>"
    for number, patch in enumerate(matrix["patches"]):
        yield from _patch(number, patch, matrix)
    yield "</tbody></table></div>"
    if "guards" in matrix:
        yield from page_guards.rendered(index, matrix)
    yield '<ul class="skipped">'
    yield from (f"<li>{escape(sentence)}</li>" for sentence in left_out(matrix))
    yield "</ul>"
    yield "</section>"


def _patch(number: int, patch: Mapping[str, Any], matrix: Mapping[str, Any]) -> Iterator[str]:
    lives = dict.fromkeys(ending(row["lifetime"]) for row in patch["hunks"])
    name, hunks = escape(patch["patch"]), len(patch["hunks"])
    yield f'<tr class="patch" data-patch="{number}"><th scope="row" title="{escape(patch["subject"])}">'
    yield f'<button type="button" class="unfold" aria-expanded="false" aria-label="hunks of {name}">▸</button>'
    yield f'<span class="name">{name}</span> <small>{hunks}</small>'
    yield f'<span class="life">{escape("; ".join(lives))}</span></th>'
    for column, status in enumerate(patch_statuses(patch, matrix)):
        yield _cell(status, f"{patch['patch']} on {matrix['releases'][column]['version']}", column)
    yield "</tr>"
    for index, row in enumerate(patch["hunks"]):
        place = f"{row['file']}, hunk {row['number']}" if row["number"] else row["file"]
        yield f'<tr class="hunk" data-patch="{number}" data-hunk="{index}" hidden>'
        yield f'<th scope="row" title="{escape(place)}"><span class="name">{escape(place)}</span>'
        yield f'<span class="life">{escape(ending(row["lifetime"]))}</span></th>'
        for column, cell in enumerate(row["cells"]):
            status = None if cell is None else matrix["verdicts"][cell]["status"]
            yield _cell(status, f"{place} on {matrix['releases'][column]['version']}", column)
        yield "</tr>"


def _cell(status: str | None, place: str, column: int) -> str:
    if status is None:
        return f'<td data-column="{column}" class="none" title="{escape(place)}: skipped" tabindex="-1">-</td>'
    facts = f'data-column="{column}" data-status="{status}" class="s-{status}" title="{escape(f"{place}: {status}")}"'
    return f'<td {facts} tabindex="-1">{LETTERS[status]}</td>'
