"""tools/index.py: publish, yank, list, verify, serve, and what goes with them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from downstream.cli import FINDINGS, OK, add_common_options, parser
from downstream.errors import UsageError
from downstream.index import publish as publishing
from downstream.index.folder import existing
from downstream.index.pages import Offer, Page, Status
from downstream.index.publish import Published
from downstream.index.verify import Verification
from downstream.index.verify import verify as verify_index
from downstream.report import json as report_json
from downstream.report.terminal import progress

DESCRIPTION = """\
A package index as a folder of files: any web server can serve it (docs/serving/), and so can this tool."""


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def build_parser() -> argparse.ArgumentParser:
    top = parser("index", DESCRIPTION)
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        options: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        add_common_options(options)
        options.set_defaults(run=run)
        return options

    root: dict[str, Any] = {"type": Path, "metavar": "INDEX", "help": "the index's folder"}
    wheels: dict[str, Any] = {"type": Path, "metavar": "WHEELS", "help": "a folder of wheels, e.g. dist/stable"}
    project: dict[str, Any] = {"metavar": "PROJECT", "help": "e.g. flashinfer-python"}

    options = command("publish", _publish, "add a folder of wheels to an index")
    options.add_argument("wheels", **wheels)
    options.add_argument("index", **root)
    options.add_argument(
        "--uploaded",
        type=_moment,
        metavar="TIME",
        help="the upload time to state, ISO 8601 (default: SOURCE_DATE_EPOCH, else the newest time in the wheel)",
    )

    options = command("yank", _yank, "take a build out of new resolutions; exact pins still install it (PEP 592)")
    options.add_argument("index", **root)
    options.add_argument("project", **project)
    options.add_argument("version", metavar="VERSION", help="in full, e.g. 0.6.3+sm120.1")
    options.add_argument("--reason", metavar="TEXT", help="what installers show")
    options.add_argument("--undo", action="store_true", help="offer it again")

    options = command("status", _status, "state whether a project is kept up (PEP 792)")
    options.add_argument("index", **root)
    options.add_argument("project", **project)
    options.add_argument("status", choices=[status.value for status in Status])
    options.add_argument("--reason", metavar="TEXT", default="", help="e.g. what to use instead")

    options = command("reserve", _reserve, "answer for names with an empty page, so nobody else's are offered")
    options.add_argument("index", **root)
    options.add_argument("projects", nargs="+", **project)

    options = command("list", _list, "what the index offers")
    options.add_argument("index", **root)

    options = command("verify", _verify, "hash every file and compare every page")
    options.add_argument("index", **root)

    options = command("serve", _serve, "one index URL: our projects from the folder, all others from the public index")
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

    options = command("upload", _upload, "give wheels to an index that the team already runs, with twine")
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


def _answer(options: argparse.Namespace, command: str, *, ok: bool = True, **fields: Any) -> None:
    if options.json:
        print(
            report_json.dumps({"schema": report_json.SCHEMA, "command": f"index {command}", "ok": ok} | fields), end=""
        )


def _publish(options: argparse.Namespace) -> int:
    wheels = publishing.wheels_in(options.wheels)
    bar = progress(quiet=options.quiet)
    _outcomes(options, "publish", publishing.publish(wheels, options.index, uploaded=options.uploaded, progress=bar))
    return OK


def _upload(options: argparse.Namespace) -> int:
    from downstream.index.upload import upload

    def say(line: str) -> None:
        if options.verbose:
            print(line, file=sys.stderr)

    wheels = publishing.wheels_in(options.wheels)
    bar = progress(quiet=options.quiet)
    done = upload(wheels, options.repository_url, index=options.index_url, report=say, progress=bar)
    _outcomes(options, "upload", done)
    return OK


def _outcomes(options: argparse.Namespace, command: str, outcomes: Sequence[Published]) -> None:
    rows = [
        {"project": one.project, "file": one.filename, "sha256": one.sha256, "outcome": one.outcome.value}
        for one in outcomes
    ]
    _answer(options, command, wheels=rows)
    if not options.json and not options.quiet:
        for one in outcomes:
            print(f"{one.filename}: {one.outcome.value}")


def _yank(options: argparse.Namespace) -> int:
    files = publishing.yank(options.index, options.project, options.version, reason=options.reason, undo=options.undo)
    _answer(options, "yank", files=list(files), yanked=False if options.undo else options.reason or True)
    if not options.json and not options.quiet:
        for name in files:
            print(f"{name}: {'offered again' if options.undo else 'yanked'}")
    return OK


def _status(options: argparse.Namespace) -> int:
    publishing.set_status(options.index, options.project, Status(options.status), reason=options.reason)
    _answer(options, "status", project=options.project, status=options.status)
    if not options.json and not options.quiet:
        print(f"{options.project}: {options.status}")
    return OK


def _reserve(options: argparse.Namespace) -> int:
    added = publishing.reserve(options.index, options.projects)
    _answer(options, "reserve", reserved=list(added))
    if not options.json and not options.quiet:
        for name in added:
            print(f"{name}: reserved")
    return OK


def _list(options: argparse.Namespace) -> int:
    folder = existing(options.index)
    found = [folder.page(name) for name in folder.projects()]
    _answer(options, "list", projects=[_listed(page) for page in found])
    if not options.json:
        for page in found:
            for line in _lines(page, verbose=options.verbose):
                print(line)
    return OK


def _listed(page: Page) -> dict[str, Any]:
    files = [
        {
            "file": offer.filename,
            "version": str(offer.version),
            "sha256": offer.sha256,
            "size": offer.size,
            "requires_python": offer.requires_python,
            "yanked": offer.yanked or False,
        }
        for offer in page.offers
    ]
    return {"project": page.name, "status": page.status.value, "reason": page.status_reason, "files": files}


def _lines(page: Page, *, verbose: bool) -> list[str]:
    state = "" if page.status is Status.ACTIVE else f" ({page.status.value})"
    if not page.offers:
        return [f"{page.name}: nothing{state}"]
    return [_line(page, offer, state, verbose=verbose) for offer in page.offers]


def _line(page: Page, offer: Offer, state: str, *, verbose: bool) -> str:
    yanked = f" yanked{': ' + offer.reason if offer.reason else ''}" if offer.yanked else ""
    digest = f" sha256={offer.sha256}" if verbose else ""
    return f"{page.name} {offer.version}: {offer.filename}{digest}{yanked}{state}"


def _verify(options: argparse.Namespace) -> int:
    found: Verification = verify_index(options.index, progress=progress(quiet=options.quiet))
    faults = [{"path": fault.path, "problem": fault.problem, "next": fault.next_step} for fault in found.faults]
    _answer(options, "verify", ok=found.clean, projects=found.projects, wheels=found.wheels, faults=faults)
    if not options.json:
        for fault in found.faults:
            print(f"{fault.path}: {fault.problem}\n  next: {fault.next_step}")
        if not options.quiet or not found.clean:
            print(f"{found.projects} projects, {found.wheels} wheels, {len(found.faults)} faults")
    return OK if found.clean else FINDINGS


def _serve(options: argparse.Namespace) -> int:
    from downstream.index.public import PublicIndex, Route, configured
    from downstream.index.serve import serve
    from downstream.trees.pipconf import redact

    upstream: PublicIndex | None = None
    if options.others == "none" or options.offline:
        if options.upstream_index or options.others not in (None, "none"):
            raise UsageError(
                "--upstream-index", "makes no sense where other names are refused", "leave one of them out"
            )
    else:
        upstream = configured(options.upstream_index, Route(options.others) if options.others else None)

    def ready(url: str) -> None:
        others = {"url": redact(upstream.url), "by": upstream.route.value} if upstream else None
        _answer(options, "serve", url=url, others=others)
        if not options.json:
            print(url)
        sys.stdout.flush()
        if not options.quiet:
            answer = f"{others['by']} to {others['url']}" if others else "refused"
            print(f"other names: {answer}", file=sys.stderr)

    serve(options.index, upstream, host=options.host, port=options.port, verbose=options.verbose, ready=ready)
    return OK
