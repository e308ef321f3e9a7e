"""Text as HTML shows it."""

from __future__ import annotations

from html import escape as quoted

from downstream.report.context import printable


def escape(text: str) -> str:
    """Return *text* with markup, control characters and odd bytes made visible."""
    return quoted(printable(text))
