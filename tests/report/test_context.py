from __future__ import annotations

import pytest

from downstream.report.context import ReportContext, decoded, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü → 日本", "plain ü → 日本"),
        ("a\tb", "a\tb"),
        ("\x1b[31m\x07", "\\x1b[31m\\x07"),
        ("a\rb\nc\x0bd\x0ce", "a\\x0db\\x0ac\\x0bd\\x0ce"),
        ("\x85\x9b2J", "\\x85\\x9b2J"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("if\u202e x\u2066", "if\\u202e x\\u2066"),  # what a compiler reads is not what a person sees
        ("caf\udce9", "caf\\xe9"),
    ],
)
def test_printable_shows_what_a_terminal_would_act_on(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"x\n", "x"),
        (b"x\r\n", "x"),
        (b"x", "x"),
        (b"\xe9\n", "\udce9"),
        (b"a\x0cb\n", "a\x0cb"),
        ("a\u2028b\n".encode(), "a\u2028b"),
    ],
)
def test_decoded_takes_off_the_line_end_and_nothing_else(content: bytes, text: str) -> None:
    assert decoded(content) == text


@pytest.mark.parametrize(
    ("context", "title"),
    [
        (
            ReportContext(command="check", upstream="sglang", line="stable", old_version="0.5.9", new_version="0.5.12"),
            "sglang 0.5.9 → 0.5.12 (line stable)",
        ),
        (
            ReportContext(command="check", upstream="sglang", line="next", old_version="0.5.9", new_version="0.5.9"),
            "sglang 0.5.9 (line next)",
        ),
        (ReportContext(command="check", base_tree="old", tree="new"), "old → new"),
        (ReportContext(command="check", tree="new"), "new"),
    ],
)
def test_the_title_says_what_was_compared(context: ReportContext, title: str) -> None:
    assert context.title == title
