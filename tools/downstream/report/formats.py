"""The formats a command offers for its verdicts, each loaded only when asked for."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from downstream.errors import UsageError

if TYPE_CHECKING:
    from downstream.placing.verdict import PatchResult
    from downstream.report.context import ReportContext

FORMATS = {
    "markdown": "the answer as Markdown, fit for a pull request",
    "sarif": "the answer as SARIF 2.1.0, for code scanning",
    "junit": "the answer as JUnit XML: a suite per patch, a case per hunk",
    "github": "the answer as GitHub workflow annotations",
}


def add_options(options: argparse.ArgumentParser) -> None:
    """--markdown, --sarif, --junit, --github, beside the common --json."""
    group = options.add_argument_group("formats (default: text)")
    for name, meaning in FORMATS.items():
        group.add_argument(f"--{name}", action="store_true", help=meaning)


def rendered(
    results: Sequence[PatchResult], *, context: ReportContext, options: argparse.Namespace, colour: bool = False
) -> str:
    """Return *results* in the one format that *options* ask for.

    Raises UsageError where they ask for several.
    """
    return rendered_together([(results, context)], options=options, colour=colour)


def rendered_together(
    reports: Sequence[tuple[Sequence[PatchResult], ReportContext]], *, options: argparse.Namespace, colour: bool = False
) -> str:
    """Return the reports of several upstreams as one valid document of the format."""
    asked = [name for name in ("json", *FORMATS) if getattr(options, name, False)]
    if len(asked) > 1:
        raise UsageError(" ".join(f"--{name}" for name in asked), "stdout holds one format", "choose one of them")
    if not asked:
        from downstream.report import text

        shown = [
            text.render(results, context=context, colour=colour, quiet=options.quiet, verbose=options.verbose)
            for results, context in reports
        ]
        return "\n".join(part for part in shown if part)
    writer = importlib.import_module(f"downstream.report.{asked[0]}")
    if len(reports) > 1 and asked[0] in ("sarif", "junit"):
        return str(writer.together(reports))
    if len(reports) > 1 and asked[0] == "json":
        return str(writer.dumps(writer.together(reports)))
    between = "\n" if asked[0] == "markdown" else ""
    return between.join(writer.render(results, context=context) for results, context in reports)
