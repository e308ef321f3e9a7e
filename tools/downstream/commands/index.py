"""tools/index.py: publish, yank, list, verify, serve, and what goes with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from downstream.cli import add_common_options, parser

DESCRIPTION = """\
A package index as a folder of files: any web server can serve it (docs/serving/), and so can this tool."""
STATUSES = ("active", "archived", "quarantined", "deprecated")  # PEP 792


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    from downstream.commands import index_run

    return index_run.COMMANDS[options.command](options)


def build_parser() -> argparse.ArgumentParser:
    top = parser("index", DESCRIPTION)
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        options: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        add_common_options(options)
        options.set_defaults(command=name)
        return options

    root: dict[str, Any] = {"type": Path, "metavar": "INDEX", "help": "the index's folder"}
    wheels: dict[str, Any] = {"type": Path, "metavar": "WHEELS", "help": "a folder of wheels, e.g. dist/stable"}
    project: dict[str, Any] = {"metavar": "PROJECT", "help": "e.g. flashinfer-python"}

    options = command("publish", "add a folder of wheels to an index")
    options.add_argument("wheels", **wheels)
    options.add_argument("index", **root)
    options.add_argument(
        "--uploaded",
        type=_moment,
        metavar="TIME",
        help="the upload time to state, ISO 8601 (default: SOURCE_DATE_EPOCH, else the newest time in the wheel)",
    )

    options = command("yank", "take a build out of new resolutions; exact pins still install it (PEP 592)")
    options.add_argument("index", **root)
    options.add_argument("project", **project)
    options.add_argument("version", metavar="VERSION", help="in full, e.g. 0.6.3+sm120.1")
    options.add_argument("--reason", metavar="TEXT", help="what installers show")
    options.add_argument("--undo", action="store_true", help="offer it again")

    options = command("status", "state whether a project is kept up (PEP 792)")
    options.add_argument("index", **root)
    options.add_argument("project", **project)
    options.add_argument("status", choices=STATUSES)
    options.add_argument("--reason", metavar="TEXT", default="", help="e.g. what to use instead")

    options = command("reserve", "answer for names with an empty page, so nobody else's are offered")
    options.add_argument("index", **root)
    options.add_argument("projects", nargs="+", **project)

    options = command("list", "what the index offers")
    options.add_argument("index", **root)

    options = command("verify", "hash every file and compare every page")
    options.add_argument("index", **root)

    options = command("serve", "one index URL: our projects from the folder, all others from the public index")
    options.add_argument("index", **root)
    options.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    options.add_argument("--port", type=int, default=0, help="default: any free one")
    options.add_argument(
        "--upstream-index", metavar="URL", help="the public index (default: what pip is configured with)"
    )
    options.add_argument(
        "--others",
        choices=("redirect", "proxy", "none"),
        help="other names: send clients to the public index, pass its answers through, or refuse (default: redirect)",
    )

    options = command("upload", "give wheels to an index that the team already runs, with twine")
    options.add_argument("wheels", **wheels)
    options.add_argument("--repository-url", required=True, metavar="URL", help="where twine uploads to")
    options.add_argument("--index-url", required=True, metavar="URL", help="where pip reads the same index")
    return top


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(f"'{text}' is no ISO 8601 time") from exc
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
