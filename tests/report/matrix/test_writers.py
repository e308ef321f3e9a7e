"""The matrix as text, Markdown, a picture and a page: the same verdicts in each."""

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from downstream.placing.verdict import HunkStatus
from downstream.report import json as plain
from downstream.report.matrix import markdown, page, svg, text
from downstream.report.matrix.document import GRAVITY, LETTERS, MEANINGS, worst
from downstream.report.matrix.svg import COLOURS

from .conftest import HOSTILE, Overlay

TEXT = """\
kernels (line stable, pin 1.0): 8 releases, 0.8 to 2.0
                ↓ pin
ten.patch     coccXX-G
              applies 0.8 … 1.1; needs a decision since 1.2
guards.patch  cccUUU-U
  k.cuh 1     cccUUU-U
              applies 0.8 … 1.0; is upstream since 1.1
  k.cuh 2     cccccc-c
              applies 0.8 … 2.0
c applies at its own line; o applies, moved by some lines; U the release has it; X upstream changed the same lines; \
G the release does not have the file
skipped 1.5: kernels 1.5: has no wheel on the index, only kernels-python-1.5.tar.gz
yanked, so left out: 1.3
no releases (1): kernels_python-nightly-py3-none-any.whl
"""

MARKDOWN = """\
### kernels: the series of line stable on 8 releases (0.8 to 2.0)

| patch | hunks | life |
| --- | ---: | --- |
| `ten.patch` | 1 | applies 0.8 … 1.1; needs a decision since 1.2 |
| `guards.patch` | 2 | applies 0.8 … 1.0; is upstream since 1.1<br>applies 0.8 … 2.0 |

```text
ten.patch    coccXX-G
guards.patch cccUUU-U
  hunk 1     cccUUU-U
  hunk 2     cccccc-c
```
"""


def test_every_status_has_a_letter_a_meaning_and_a_colour() -> None:
    statuses = {status.value for status in HunkStatus}
    assert set(LETTERS) == set(MEANINGS) == set(COLOURS) == set(GRAVITY) == statuses
    assert len(set(LETTERS.values())) == len(statuses)


@pytest.mark.parametrize(
    ("statuses", "found"),
    [
        ([], None),
        (["clean"], "clean"),
        (["clean", "offset"], "offset"),
        (["clean", "upstreamed"], "upstreamed"),
        (["upstreamed", "conflict", "clean"], "conflict"),
        (["conflict", "file-gone"], "file-gone"),
        (["malformed", "file-gone"], "malformed"),
    ],
)
def test_a_patch_shows_the_hunk_that_needs_a_person_most(statuses: list[str], found: str | None) -> None:
    assert worst(statuses) == found


def test_text_is_a_letter_per_release_and_a_sentence_per_life(story: Overlay) -> None:
    assert story.matrix("--releases", ">=0.1").out == TEXT


def test_colour_only_repeats_the_letters(story: Overlay) -> None:
    plain_text = story.matrix("--releases", ">=0.1").out
    document = json.loads(story.matrix("--releases", ">=0.1", "--json").out)
    painted = text.render(document, colour=True)
    assert "\033[1;31mX\033[0m" in painted
    assert re.sub(r"\033\[[\d;]*m", "", painted) == plain_text


def test_markdown_is_a_table_of_lives_and_the_map(story: Overlay) -> None:
    said = story.matrix("--releases", ">=0.1", "--markdown").out
    assert said.startswith(MARKDOWN)
    assert "- yanked, so left out: 1.3\n" in said


def test_json_is_the_same_every_time_and_has_no_clock(story: Overlay) -> None:
    first = story.matrix("--releases", ">=0.1", "--json").out
    assert story.matrix("--releases", ">=0.1", "--json").out == first
    assert plain.dumps(json.loads(first)) == first
    assert str(story.root) not in first


def test_cells_point_into_a_table_without_repetition(document: dict[str, Any]) -> None:
    (matrix,) = document["matrices"]
    cells = [cell for patch in matrix["patches"] for row in patch["hunks"] for cell in row["cells"]]
    assert {cell for cell in cells if cell is not None} == set(range(len(matrix["verdicts"])))
    assert len({json.dumps(verdict) for verdict in matrix["verdicts"]}) == len(matrix["verdicts"])
    assert all(len(row["cells"]) == len(matrix["releases"]) for patch in matrix["patches"] for row in patch["hunks"])


def test_the_picture_has_a_cell_per_patch_and_release(document: dict[str, Any]) -> None:
    picture = ET.fromstring(svg.render(document))
    space = "{http://www.w3.org/2000/svg}"
    titles = [title.text or "" for rect in picture.iter(f"{space}rect") for title in rect.iter(f"{space}title")]
    assert len(titles) == 16
    assert titles[:3] == ["ten.patch on 0.8: clean", "ten.patch on 0.9: offset", "ten.patch on 1.0: clean"]
    letters = [each.text for each in picture.iter(f"{space}text") if each.get("class") == "c"][:8]
    assert letters == list("coccXX-G")


def _luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("status", COLOURS)
def test_a_letter_can_be_read_on_its_colour(status: str) -> None:
    # WCAG 2.2, 1.4.3: 4.5 to 1.
    dark, light = sorted(map(_luminance, COLOURS[status]))
    assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize("writer", [text, markdown, svg, page])
def test_nothing_that_a_name_holds_breaks_out(writer: Any, document: dict[str, Any]) -> None:
    said = writer.render(document)
    said.encode("utf-8", "backslashreplace").decode()
    assert "\x1b" not in said
    if writer in (svg, page):
        assert "</script><b>" not in said


class Elements(html.parser.HTMLParser):
    """What an HTML parser makes of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.addresses: list[str] = []
        self.text: dict[str, str] = {}
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self._open.append(facts.get("id") or tag)
        if tag == "td":
            self.cells.append(facts.get("data-status") or "skipped")
        self.addresses += [facts[key] or "" for key in ("src", "href") if key in facts]

    def handle_endtag(self, tag: str) -> None:
        self._open.pop() if self._open else None

    def handle_data(self, data: str) -> None:
        if self._open:
            self.text[self._open[-1]] = self.text.get(self._open[-1], "") + data


def test_the_page_is_one_file_that_reads_without_a_script(document: dict[str, Any]) -> None:
    found = Elements()
    found.feed(page.render(document))
    (matrix,) = document["matrices"]
    verdicts = [verdict["status"] for verdict in matrix["verdicts"]]
    hunk = [verdicts[cell] if cell is not None else "skipped" for cell in matrix["patches"][0]["hunks"][0]["cells"]]
    assert found.cells[: 2 * len(hunk)] == hunk * 2  # a patch of one hunk: its row and the hunk's
    assert found.addresses == ["data:,"]
    assert json.loads(found.text["data"]) == document
    assert HOSTILE in json.loads(found.text["data"])["matrices"][0]["patches"][0]["header"]


def test_files_are_written_beside_the_answer(story: Overlay) -> None:
    picture, sheet = story.root / "map.svg", story.root / "map.html"
    assert story.matrix("--svg", str(picture), "--html", str(sheet)).out
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert sheet.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    refused = story.matrix("--svg", str(story.root / "no" / "map.svg"))
    assert refused.code == 2
    assert "next: name a file in a folder that can be written" in refused.err
