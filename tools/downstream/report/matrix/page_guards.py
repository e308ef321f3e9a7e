"""The second map of the page: a row per file that holds suspect guards, unfolding to the guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from downstream.report.matrix.guards import ABSENT, STATES, by_file, states
from downstream.report.matrix.markup import escape

COLOURS: Mapping[str, tuple[str, str]] = {
    "suspect": ("#c0392b", "#ffffff"),
    "over-inclusive": ("#e38b2c", "#2a1300"),
    "unknown": ("#f0c24b", "#2a1d00"),
    "patched": ("#2e7d4f", "#ffffff"),
    "reviewed": ("#b5dcc4", "#08210f"),
}
SHOWN = 56  # characters of a path
STYLE = "".join(f".g-{state}{{background:{fill};color:{ink}}}" for state, (fill, ink) in COLOURS.items())


def rendered(index: int, matrix: Mapping[str, Any]) -> Iterator[str]:
    """Yield the map of one upstream: the same columns as its patches."""
    guards, releases = matrix["guards"], matrix["releases"]
    files = "every file" if guards["scope"] == "all" else "the files that the series and the ledger name"
    yield f"<h3>guards of {escape(matrix['upstream'])} <small>{files}</small></h3>"
    yield '<ul class="legend">'
    seen = {cell["state"] for cell in guards["cells"]}
    for state, (letter, meaning) in STATES.items():
        if state in seen:
            yield f'<li><span class="cell g-{state}">{letter}</span> {state}: {escape(meaning)}</li>'
    yield f'</ul><div class="scroll"><table data-matrix="{index}" data-map="guards" style="--columns:{len(releases)}">'
    yield '<thead><tr><th scope="col" class="corner">file</th>'
    changes = {change["version"]: change for change in guards["changes"]}
    for release in releases:
        pinned = ' class="pin"' if release["version"] == matrix["pin"] else ""
        change = changes.get(release["version"], {"appeared": 0, "gone": 0})
        title = f"{release['version']}: {change['appeared']} appeared, {change['gone']} gone"
        yield f'<th scope="col"{pinned} title="{escape(title)}"><span>{escape(release["version"])}</span></th>'
    yield "</tr></thead><tbody>"
    numbers = {id(row): number for number, row in enumerate(guards["rows"])}
    for number, (path, rows) in enumerate(by_file(guards)):
        name = escape(path)
        yield f'<tr class="patch" data-patch="{number}"><th scope="row" title="{name}">'
        yield f'<button type="button" class="unfold" aria-expanded="false" aria-label="guards of {name}">▸</button>'
        yield f'<span class="name">{escape(_tail(path))}</span> <small>{len(rows)}</small></th>'
        for column, worst in enumerate(states(rows, matrix)):
            yield _cell(worst, f"{path} on {releases[column]['version']}", column)
        yield "</tr>"
        for row in rows:
            condition = " ".join(row["condition"].split())
            yield f'<tr class="hunk" data-patch="{number}" data-guard="{numbers[id(row)]}" hidden>'
            yield f'<th scope="row" title="{escape(condition)}"><span class="name">{escape(condition)}</span></th>'
            for column, one in enumerate(states([row], matrix)):
                yield _cell(one, f"{condition} on {releases[column]['version']}", column)
            yield "</tr>"
    yield "</tbody></table></div>"


def _tail(path: str) -> str:
    """The end of a long path, which tells more than its beginning."""
    return path if len(path) <= SHOWN else f"…{path[1 - SHOWN :]}"


def _cell(state: str | None, place: str, column: int) -> str:
    if not state:
        word, letter = ("skipped", "-") if state is None else ("no such guard", ABSENT)
        return (
            f'<td data-column="{column}" class="none" title="{escape(f"{place}: {word}")}" tabindex="-1">{letter}</td>'
        )
    facts = f'data-column="{column}" data-status="{state}" class="g-{state}" title="{escape(f"{place}: {state}")}"'
    return f'<td {facts} tabindex="-1">{STATES[state][0]}</td>'
