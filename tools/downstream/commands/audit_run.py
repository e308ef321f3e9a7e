"""What tools/audit.py does once it knows what it is asked: trees, findings, and one format of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from downstream.cli import FINDINGS, OK, colour_wanted
from downstream.commands.audit_scope import chosen, covered, scope_of
from downstream.errors import UsageError
from downstream.guards import ledger as ledgers
from downstream.guards.audit import audit
from downstream.guards.difference import difference
from downstream.guards.ledger import FILE, Covered, Ledger
from downstream.guards.model import Audit
from downstream.pins import Pins, Upstream, load
from downstream.progress import Progress
from downstream.report.terminal import progress
from downstream.trees.cache import default_folder
from downstream.trees.layout import IDENTITY
from downstream.trees.session import Session
from downstream.trees.tree import Tree


def run(options: argparse.Namespace) -> int:
    """Audit what *options* ask for and print the answer."""
    pins = load(options.root)
    bar = progress(quiet=options.quiet)
    with Session(default_folder(), offline=options.offline, progress=bar) as session:
        if options.diff:
            return _difference(options, pins, session, bar)
        reports = _reports(options, pins, session, bar)
    _emit(reports, options)
    return OK if all(covered.fine for _, covered in reports) else FINDINGS


def _reports(options: argparse.Namespace, pins: Pins, session: Session, bar: Progress) -> list[tuple[str, Covered]]:
    if options.tree:
        upstream = _meant(options, pins, options.tree)
        tree = _opened(options.tree, upstream, session)
        found = audit(tree, scope_of(options, upstream), progress=bar, store=session.cache)
        return [(upstream.name if upstream else "", ledgers.covered(found, _foreign_ledger(options, pins, upstream)))]
    if options.installed:
        return [
            _installed(options, pins, pins.upstreams[name], session, bar) for name in options.upstream or pins.upstreams
        ]
    return [(pin.upstream.name, covered(options, pins, pin, session, bar, proof=True)) for pin in chosen(options, pins)]


def _installed(
    options: argparse.Namespace, pins: Pins, upstream: Upstream, session: Session, bar: Progress
) -> tuple[str, Covered]:
    from downstream.trees.open import open_installed

    tree = open_installed(upstream, options.python)
    found = audit(tree, scope_of(options, upstream), progress=bar, store=session.cache)
    return upstream.name, ledgers.covered(found, _foreign_ledger(options, pins, upstream))


def _foreign_ledger(options: argparse.Namespace, pins: Pins, upstream: Upstream | None) -> Ledger:
    """The ledger for a tree of unknown origin: none, unless --ledger or --line names one."""
    if options.ledger:
        return ledgers.load(options.ledger)
    if options.line and upstream:
        return ledgers.load(pins.series_folder(pins.pin(options.line, upstream.name)) / FILE)
    return Ledger(path=Path(FILE))


def _meant(options: argparse.Namespace, pins: Pins, tree: str) -> Upstream | None:
    """The upstream of a tree: as named, else as its file or folder says."""
    if options.upstream:
        if options.upstream[0] not in pins.upstreams:
            raise UsageError(options.upstream[0], "is no upstream", f"choose one of: {', '.join(pins.upstreams)}")
        return pins.upstreams[options.upstream[0]]
    name = Path(tree).name.lower().replace("-", "_")
    folder = Path(tree)
    for upstream in pins.upstreams.values():
        package = upstream.package.replace("-", "_")
        if name.startswith(f"{package}_") or any(folder.glob(f"{package}-*.dist-info")):
            return upstream
    return None


def _opened(text: str, upstream: Upstream | None, session: Session) -> Tree:
    from downstream.trees.spec import open_spec

    return open_spec(text, layout=upstream.layout if upstream else IDENTITY, session=session)


def _difference(options: argparse.Namespace, pins: Pins, session: Session, bar: Progress) -> int:
    if options.sarif:
        raise UsageError("--sarif", "is no format of --diff", "choose --json or --markdown")
    old, new = (_side(text, options, pins, session, bar) for text in options.diff)
    found = difference(old, new, everything=options.all)
    fine = not found.appeared
    if options.json:
        from downstream.report.audit_json import render_difference as as_json

        print(as_json(found, ok=fine), end="")
    elif options.markdown:
        from downstream.report.audit_markdown import render_difference as as_markdown

        print(as_markdown(found), end="")
    else:
        from downstream.report.audit_text import render_difference as as_text

        colour = colour_wanted(options.color, sys.stdout)
        print(as_text(found, colour=colour, verbose=options.verbose), end="")
    return OK if fine else FINDINGS


def _side(text: str, options: argparse.Namespace, pins: Pins, session: Session, bar: Progress) -> Audit:
    """One side of --diff: a tree where there is one of that name, else a published version."""
    from packaging.version import InvalidVersion, Version

    from downstream.trees.open import open_release

    if text.startswith("git:") or Path(text).exists():
        upstream = _meant(options, pins, text)
        return audit(_opened(text, upstream, session), scope_of(options, upstream), progress=bar, store=session.cache)
    try:
        version = Version(text.removeprefix("v"))
    except InvalidVersion:
        raise UsageError(text, "is neither a tree nor a version", "write 0.6.3, or a path that exists") from None
    if not options.upstream:
        choices = " or ".join(f"--upstream {name}" for name in pins.upstreams)
        raise UsageError(text, "is a version, but of which upstream?", f"add {choices}")
    named = _meant(options, pins, text)
    assert named is not None  # --upstream is given
    return audit(open_release(named, version, session), scope_of(options, named), progress=bar, store=session.cache)


def _emit(reports: Sequence[tuple[str, Covered]], options: argparse.Namespace) -> None:
    if options.json:
        from downstream.report.audit_json import render as as_json

        print(as_json(reports, everything=options.all), end="")
    elif options.markdown:
        from downstream.report.audit_markdown import render as as_markdown

        print(as_markdown(reports), end="")
    elif options.sarif:
        from downstream.report.audit_sarif import render as as_sarif

        print(as_sarif(reports), end="")
    else:
        from downstream.report.audit_text import render as as_text

        colour = colour_wanted(options.color, sys.stdout)
        texts = [
            as_text(found, colour=colour, quiet=options.quiet, verbose=options.verbose, everything=options.all)
            for _, found in reports
        ]
        print("\n".join(text for text in texts if text), end="")
