from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from downstream.placing.verdict import PatchResult
from downstream.report import markdown
from downstream.report.context import ReportContext


def tokens(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def cells(text: str) -> list[list[str]]:
    """The table's rows, each cell as its plain text."""
    rows: list[list[str]] = []
    for token in tokens(text):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level == 4:
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


def test_the_table_has_a_row_per_patch(results: Sequence[PatchResult], context: ReportContext) -> None:
    assert cells(markdown.render(results, context=context)) == [
        ["", "patch", "verdict", "hunks"],
        ["❌", "guards.patch", "conflict", "1 clean, 1 offset, 1 conflict (since 0.6.17)"],
        ["✅", "arch-list.patch", "partly-upstreamed", "1 merged, 1 upstreamed (since 0.6.17)"],
        ["❌", "moved.patch", "conflict", "1 file-moved"],
        ["❌", "hostile.patch", "conflict", "1 misplaced, 1 ambiguous"],
        ["❌", "endings.patch", "conflict", "1 line-endings"],
        ["❌", "broken.patch", "malformed", "line 7: the hunk ends too early"],
        ["✅", "fine.patch", "unmodified", "1 clean"],
    ]


def test_details_unfold_for_every_patch_that_needs_a_person_and_for_no_other(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    summaries = re.findall(r"<summary>(.*)</summary>", markdown.render(results, context=context))
    assert summaries == [
        "guards.patch: conflict",
        "arch-list.patch: partly-upstreamed",
        "moved.patch: conflict",
        "hostile.patch: conflict",
        "endings.patch: conflict",
        "broken.patch: malformed",
    ]


def test_the_lines_in_the_way_are_a_code_block(results: Sequence[PatchResult], context: ReportContext) -> None:
    (block,) = [token for token in tokens(markdown.render(results, context=context)) if token.type == "fence"]
    assert block.content.splitlines() == ["   456 | #if (defined(__CUDA_ARCH__))", "   457 |   caf\\xe9\\x1b[2J"]


def test_no_name_becomes_markup(results: Sequence[PatchResult], context: ReportContext) -> None:
    html = [
        token.content.strip()
        for block in tokens(markdown.render(results, context=context))
        for token in (block, *(block.children or ()))
        if token.type in ("html_block", "html_inline")
    ]
    assert not [found for found in html if not re.match(r"</?(details|summary)>", found)]


@pytest.mark.parametrize("text", ["plain", "a `b` c", "``", "`", "a | b", "``` x"])
def test_code_shows_the_text_itself(text: str) -> None:
    (paragraph,) = [token for token in tokens(markdown.code(text)) if token.type == "inline"]
    assert [(child.type, child.content) for child in paragraph.children or ()] == [("code_inline", text)]


@pytest.mark.parametrize("text", ["x", "```\nx\n```", "````"])
def test_a_fence_is_longer_than_any_in_its_text(text: str) -> None:
    (block,) = [token for token in tokens("\n".join(markdown.fenced(text))) if token.type == "fence"]
    assert block.content == f"{text}\n"
