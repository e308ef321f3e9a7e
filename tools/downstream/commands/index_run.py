"""The commands of tools/index.py: each a call of the index, and its answer as text or JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from downstream.cli import FINDINGS, OK
from downstream.errors import UsageError
from downstream.index import publish as publishing
from downstream.index.folder import existing
from downstream.index.pages import Offer, Page, Status
from downstream.index.publish import Published
from downstream.index.verify import Verification
from downstream.index.verify import verify as verify_index
from downstream.report import json as report_json
from downstream.report.terminal import progress


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


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "publish": _publish,
    "yank": _yank,
    "status": _status,
    "reserve": _reserve,
    "list": _list,
    "verify": _verify,
    "serve": _serve,
    "upload": _upload,
}
