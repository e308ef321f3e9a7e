"""The page in a real headless Chromium: it says what the JSON says, by mouse, by keyboard, in the dark and on paper."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from downstream.report.matrix import page

pytestmark = pytest.mark.browser

PAPER = 1062  # CSS pixels of A4 on its side within margins of 8 mm


Show = Callable[..., Any]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Show]:
    """Open the page of a document; at the end, nothing may have been logged, thrown or asked of a network."""
    said: list[str] = []
    contexts = []

    def opened(document: dict[str, Any], **facts: Any) -> Any:
        file = tmp_path / "page.html"
        file.write_text(page.render(document), encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **facts})
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: said.append(request.url) if request.url != file.as_uri() else None)
        tab.goto(file.as_uri())
        tab.wait_for_selector("html[data-ready=true]")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert said == [] or said == ["data:,"]


def wide(document: dict[str, Any], columns: int) -> dict[str, Any]:
    """The document with its last release repeated until there are *columns*."""
    found = copy.deepcopy(document)
    (matrix,) = found["matrices"]
    while len(matrix["releases"]) < columns:
        matrix["releases"].append({"version": f"2.0.{len(matrix['releases'])}", "date": "2026-01-01", "skipped": ""})
        for patch in matrix["patches"]:
            for row in patch["hunks"]:
                row["cells"].append(row["cells"][-1])
    return found


def statuses(tab: Any) -> list[list[str]]:
    """What each row's cells say, hidden rows too."""
    found: list[list[str]] = tab.evaluate(
        """() => [...document.querySelectorAll("tbody tr")].map(
            (row) => [...row.querySelectorAll("td")].map((cell) => cell.dataset.status ?? "skipped"))"""
    )
    return found


def test_every_cell_says_what_the_json_says(show: Show, document: dict[str, Any]) -> None:
    (matrix,) = document["matrices"]
    names = [verdict["status"] for verdict in matrix["verdicts"]]
    hunks = [
        ["skipped" if cell is None else names[cell] for cell in row["cells"]]
        for patch in matrix["patches"]
        for row in patch["hunks"]
    ]
    ten, first, second = hunks
    # In the row of guards.patch the first hunk, taken by upstream from 1.1 on, shows.
    assert statuses(show(document)) == [ten, ten, first, first, second]


def test_rows_unfold_to_their_hunks_and_fold_again(show: Show, document: dict[str, Any]) -> None:
    tab = show(document)
    assert tab.locator("tr.hunk:visible").count() == 0
    tab.get_by_label("hunks of guards.patch").click()
    assert tab.locator("tr.hunk:visible").count() == 2
    assert tab.get_by_label("hunks of guards.patch").get_attribute("aria-expanded") == "true"
    tab.get_by_text("unfold all").click()
    assert tab.locator("tr.hunk:visible").count() == 3
    tab.get_by_text("fold all", exact=True).click()
    assert tab.locator("tr.hunk:visible").count() == 0


def cell(tab: Any, row: int, column: int) -> Any:
    return tab.locator("tr.patch").nth(row).locator("td").nth(column)


def test_a_click_opens_the_hunk_both_sides_and_the_header(show: Show, document: dict[str, Any]) -> None:
    tab = show(document)
    details = tab.locator("#details")
    assert details.is_hidden()
    cell(tab, 0, 4).click()  # ten.patch on 1.2
    assert details.is_visible()
    said = details.inner_text()
    assert "ten.patch — kernels 1.2" in said
    assert "kernels/a.py, hunk 1 on kernels 1.2: conflict" in said
    assert "-line 10" in said
    assert "+TEN" in said
    assert "10 | line 10" in said  # the last release that takes it
    assert "10 | other" in said  # the one that does not
    assert "it needs a decision since 1.2" in said
    assert "</script><b>&|`" in said  # the header, as it is
    assert cell(tab, 0, 4).get_attribute("aria-selected") == "true"
    details.get_by_text("close").click()
    assert details.is_hidden()


def test_what_upstream_took_shows_upstreams_lines(show: Show, document: dict[str, Any]) -> None:
    tab = show(document)
    cell(tab, 1, 3).click()  # guards.patch on 1.1
    said = tab.locator("#details").inner_text()
    assert "hunk 1 on kernels 1.1: upstreamed" in said
    assert "10 | TEN" in said


def focused(tab: Any) -> tuple[str, int, str]:
    found = tab.evaluate(
        """() => { const cell = document.activeElement, row = cell.closest("tr");
            return [row.className, Number(cell.dataset.column), row.dataset.patch]; }"""
    )
    return found[0], found[1], found[2]


def test_the_keyboard_does_all_that_the_mouse_does(show: Show, document: dict[str, Any]) -> None:
    tab = show(document)
    tab.locator("td[tabindex='0']").focus()
    assert focused(tab) == ("patch", 0, "0")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        tab.keyboard.press(key)
    assert focused(tab) == ("patch", 2, "1")
    tab.keyboard.press("+")
    assert tab.locator("tr.hunk:visible").count() == 2
    tab.keyboard.press("ArrowDown")
    assert focused(tab) == ("hunk", 2, "1")
    tab.keyboard.press("Enter")
    assert "hunk 1 on kernels 1.0: clean" in tab.locator("#details").inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator("#details").is_hidden()
    assert focused(tab) == ("hunk", 2, "1")
    tab.keyboard.press("-")
    assert tab.locator("tr.hunk:visible").count() == 0
    assert focused(tab) == ("patch", 2, "1")
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("ArrowUp")  # there is nothing above
    assert focused(tab) == ("patch", 2, "0")


def test_a_skipped_release_says_why(show: Show, document: dict[str, Any]) -> None:
    tab = show(document)
    cell(tab, 0, 5).focus()
    tab.keyboard.press("ArrowRight")
    assert focused(tab)[1] == 6
    tab.keyboard.press("Enter")
    said = tab.locator("#details").inner_text()
    assert "kernels/a.py, hunk 1 on kernels 1.5: skipped" in said
    assert "</script><b>&|`" in said


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_both_readable(show: Show, document: dict[str, Any], tmp_path: Path, scheme: str) -> None:
    tab = show(document, color_scheme=scheme)
    cell(tab, 0, 4).click()
    paper, ink, raised = tab.evaluate(
        """() => { const of = (element, name) => getComputedStyle(element)[name].match(/\\d+/g).map(Number);
            return [of(document.body, "backgroundColor"), of(document.body, "color"),
                    of(document.getElementById("details"), "backgroundColor")]; }"""
    )
    assert (sum(paper) > sum(ink)) is (scheme == "light")
    for ground in (paper, raised):
        assert abs(sum(ground) - sum(ink)) > 3 * 120
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    picture = tab.screenshot(path=folder / f"matrix-{scheme}.png", full_page=True)
    assert picture.startswith(b"\x89PNG")


def test_eighty_columns_scroll_below_a_name_that_stays(show: Show, document: dict[str, Any]) -> None:
    tab = show(wide(document, 80))
    assert tab.locator("thead th").count() == 81
    assert tab.locator("thead th").last.inner_text() == "2.0.79 2026-01-01"
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    cell(tab, 0, 0).focus()
    for _ in range(75):
        tab.keyboard.press("ArrowRight")
    box = tab.locator(":focus").bounding_box()
    assert focused(tab)[1] == 75
    name = tab.locator("tr.patch th").first.bounding_box()
    assert name["x"] >= 0
    assert name["x"] + name["width"] <= box["x"] < 1400
    assert box["width"] >= 16


@pytest.mark.parametrize("columns", [8, 85])
def test_it_prints_on_the_width_of_a_sheet(show: Show, document: dict[str, Any], columns: int) -> None:
    tab = show(wide(document, columns), viewport={"width": PAPER, "height": 740}, color_scheme="dark")
    cell(tab, 0, 0).click()
    tab.emulate_media(media="print")
    assert tab.locator("#details").is_hidden()
    assert tab.locator(".tools").is_hidden()
    assert tab.locator(".life").first.is_visible()
    assert tab.evaluate("document.documentElement.scrollWidth") <= PAPER
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.pdf(prefer_css_page_size=True).startswith(b"%PDF")


def test_without_a_script_the_map_still_reads(
    show: Show, browser: Any, document: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "plain.html"
    file.write_text(page.render(document), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(file.as_uri())
    assert "coccXX-G" in "".join(tab.locator("tr.patch").first.locator("td").all_inner_texts())
    context.close()
