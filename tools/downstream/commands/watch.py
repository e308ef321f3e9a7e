"""tools/watch.py: the morning after a release, for every line and upstream, in one report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from downstream.cli import add_common_options, parser
from downstream.errors import UsageError

DESCRIPTION = """\
What the newest release of each upstream does to each line: the series checked
against it, guards that came and went, every hunk on every release since the
pin. Writes report.md, matrix.html, matrix.svg, and one
LINE-UPSTREAM-VERSION.md per release that is newer than its pin; prints the
report. Nothing else is written.

exit codes: 0 every series applies and no guard is new, 1 somebody has to look,
2 something could not be read (the report says what)
"""
FOLDER = Path(".work/watch")


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    if options.json and options.github:
        raise UsageError("--json --github", "stdout holds one format", "choose one of them")
    from downstream.commands import watch_run

    return watch_run.run(options, options.out or options.root.resolve() / FOLDER)


def build_parser() -> argparse.ArgumentParser:
    options = parser("watch", DESCRIPTION)
    options.add_argument("--line", action="append", default=[], metavar="LINE", help="default: every line")
    options.add_argument("--upstream", action="append", default=[], metavar="NAME", help="default: each of the line")
    options.add_argument("--out", type=Path, metavar="FOLDER", help=f"where to write (default: {FOLDER})")
    options.add_argument("--github", action="store_true", help="annotations on stdout instead of the report")
    options.add_argument(
        "--guards",
        choices=("touched", "all"),
        default="touched",
        help="of the files that the series and the ledger name (default), or of all files (minutes)",
    )
    add_common_options(options)
    return options
