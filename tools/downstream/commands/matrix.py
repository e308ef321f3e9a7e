"""tools/matrix.py: every hunk of a series on every release of its upstream."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from downstream.cli import add_common_options, parser
from downstream.errors import UsageError

DESCRIPTION = """\
Place every hunk of a line's series on every release, and say in which releases
it applies, since when it does not, and what ended it.

Only the files that the series touches are read of each release. What was
judged once is kept in the cache, by content.

exit codes: 0 the newest release takes the whole series, 1 it does not,
2 could not do it
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    if options.json and options.markdown:
        raise UsageError("--json --markdown", "stdout holds one format", "choose one of them")
    from downstream.commands import matrix_run

    return matrix_run.run(options)


def build_parser() -> argparse.ArgumentParser:
    options = parser("matrix", DESCRIPTION)
    options.add_argument(
        "--line",
        action="append",
        default=[],
        metavar="LINE",
        help="the line (default: the first in VERSIONS.toml); may be repeated, or all",
    )
    options.add_argument("--upstream", action="append", default=[], metavar="NAME", help="default: each of the line")
    options.add_argument(
        "--releases",
        metavar="SPECIFIER",
        help="which releases, e.g. '>=0.6,<0.7' (default: from two before the pin on)",
    )
    options.add_argument("--pre", action="store_true", help="pre-releases, too")
    options.add_argument(
        "--git",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a clone of an upstream's repository: name the commit and pull request that ended a hunk",
    )
    options.add_argument(
        "--guards",
        nargs="?",
        const="touched",
        choices=("touched", "all"),
        help="a second map: suspect guards of the files that the series and the ledger name, or of all files (slow)",
    )
    formats = options.add_argument_group("formats (default: text)")
    formats.add_argument("--markdown", action="store_true", help="the answer as Markdown")
    formats.add_argument(
        "--html", type=Path, metavar="FILE", help="also write the page, one file that needs no network"
    )
    formats.add_argument("--svg", type=Path, metavar="FILE", help="also write the map as a picture")
    add_common_options(options)
    return options
