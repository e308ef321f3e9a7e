"""tools/rebase.py: carry a series to another release, or say what stands in the way."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from downstream.cli import add_common_options, parser
from downstream.errors import UsageError
from downstream.report.formats import add_options as add_format_options

DESCRIPTION = """\
Carry a patch series from its pinned release to another one.

Without --check: when every hunk finds its place, the patches, the series and
VERSIONS.toml are replaced in one step. When one does not, nothing of that is
touched; a git checkout is prepared in which to resolve it, and --continue,
--skip or --abort goes on from there.

exit codes: 0 done and clean, 1 a patch needs a decision, 2 could not do it
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    stepping = options.go_on or options.skip or options.abort or options.status
    if stepping and options.upstream:
        raise UsageError("--upstream", "is known to the rebase under way", "leave it out")
    if not stepping and not options.upstream:
        raise UsageError("--upstream", "is missing", "name a release: --upstream v0.6.12, or --upstream latest")
    from downstream.commands import rebase_run

    return rebase_run.run(options)


def build_parser() -> argparse.ArgumentParser:
    options = parser("rebase", DESCRIPTION)
    options.add_argument(
        "--upstream",
        action="append",
        default=[],
        metavar="RELEASE",
        help="v0.6.12, flashinfer=v0.6.12, latest or flashinfer=latest; may be given once per upstream",
    )
    options.add_argument("--line", metavar="LINE", help="the line to carry (default: the first in VERSIONS.toml)")
    step = options.add_mutually_exclusive_group()
    step.add_argument("--check", action="store_true", help="only say what would happen; write nothing")
    step.add_argument(
        "--continue", dest="go_on", action="store_true", help="take the waiting patch as the checkout has it"
    )
    step.add_argument("--skip", action="store_true", help="drop the waiting patch from the series and go on")
    step.add_argument("--abort", action="store_true", help="forget the rebase under way")
    step.add_argument("--status", action="store_true", help="say where the rebase under way stands")
    add_format_options(options)
    add_common_options(options)
    return options
