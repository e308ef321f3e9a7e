"""From plans to the map of releases: judged, the culprits named, and written in each form asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from downstream import pins as pinned
from downstream.cli import FINDINGS, OK, colour_wanted
from downstream.errors import UsageError, WriteError
from downstream.pins import Pins
from downstream.queue.judged import Place
from downstream.queue.matrix import Lifetime, Matrix, chosen, matrix, withdrawn
from downstream.queue.plan import Plan
from downstream.queue.target import Target
from downstream.report.matrix.document import Culprits, document
from downstream.report.terminal import progress
from downstream.report.wording import size
from downstream.trees.cache import default_folder
from downstream.trees.releases import listing
from downstream.trees.session import Session

if TYPE_CHECKING:
    from downstream.queue.culprit import Culprit, History


def run(options: argparse.Namespace) -> int:
    """Judge the series that *options* name on their releases, and print or write the map."""
    pins = pinned.load(options.root.resolve(), satisfied=False)
    with Session(default_folder(), options.offline, progress(quiet=options.quiet)) as session:
        plans = [
            _plan(pins, line, name, session)
            for line in _lines(pins, options)
            for name in _upstreams(pins, line, options)
        ]
        matrices = [judged(plan, session, releases=options.releases, pre=options.pre) for plan in plans]
        histories = _histories(plans, options.git)
        found = document(matrices, culprit={of: _culprit(history) for of, history in histories.items()})
        if options.guards:
            from downstream.commands import matrix_guards

            for plan, one, shown in zip(plans, matrices, found["matrices"], strict=True):
                shown["guards"] = matrix_guards.document(plan, one, whole=options.guards == "all")
        if options.verbose:
            print(f"note: {size(session.fetched)} fetched in {session.requests} requests", file=sys.stderr)
    if options.svg:
        from downstream.report.matrix import svg

        write(options.svg, svg.render(found))
    if options.html:
        from downstream.report.matrix import page

        write(options.html, page.render(found))
    sys.stdout.write(_rendered(found, options))
    for note in sorted({note for plan in plans for note in _untagged(plan, histories)}):
        print(f"note: {note}", file=sys.stderr)
    return OK if found["ok"] else FINDINGS


def _lines(pins: Pins, options: argparse.Namespace) -> list[str]:
    if "all" in options.line:
        return list(pins.lines)
    return list(dict.fromkeys(options.line)) or [next(iter(pins.lines))]


def _upstreams(pins: Pins, line: str, options: argparse.Namespace) -> list[str]:
    return list(dict.fromkeys(options.upstream)) or list(pins.line(line).pins)


def _untagged(plan: Plan, histories: Mapping[tuple[str, str], History]) -> list[str]:
    upstream = plan.pin.upstream
    history = histories.get((plan.pin.line, upstream.name))
    versions = history.untagged if history else ()
    return [f"{upstream.name} {version} has no tag {upstream.tag_of(version)} in its clone" for version in versions]


def _plan(pins: Pins, line: str, upstream: str, session: Session) -> Plan:
    pin = pins.pin(line, upstream)
    plan = Plan.make(pins, pin.line, Target(pin.upstream, pin.version), session)
    plan.verify_base()
    return plan


def judged(plan: Plan, session: Session, *, releases: str | None = None, pre: bool = False) -> Matrix:
    """The matrix of *plan* on the releases that a specifier admits (None: from two before the pin on)."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        asked = SpecifierSet(releases) if releases else None
    except InvalidSpecifier as exc:
        raise UsageError(str(releases), "is no version specifier (PEP 440)", "write it as '>=0.6,<0.7'") from exc
    published = listing(plan.pin.upstream.package, session=session)
    columns = chosen(published.releases, plan.pin.version, asked, pre=pre)
    if not columns:
        raise UsageError(str(releases), f"admits no release of {plan.pin.upstream.name}", "widen it, or add --pre")
    yanked = withdrawn(published.releases, columns)
    return matrix(plan, columns, unversioned=published.skipped, yanked=yanked)


def _histories(plans: Sequence[Plan], asked: Sequence[str]) -> dict[tuple[str, str], History]:
    """The clones that --git names, by line and upstream."""
    found: dict[tuple[str, str], History] = {}
    for text in asked:
        name, equals, folder = text.partition("=")
        meant = [plan for plan in plans if plan.pin.upstream.name == name]
        if not equals or not meant:
            names = ", ".join(dict.fromkeys(plan.pin.upstream.name for plan in plans))
            raise UsageError(
                f"--git {text}", "names no upstream and folder", f"write NAME=FOLDER, NAME one of: {names}"
            )
        from downstream.queue.culprit import History
        from downstream.trees.git import git_folder

        if git_folder(Path(folder)) is None:
            raise UsageError(f"--git {folder}", "is no git repository", "name a clone, bare or not")
        for plan in meant:
            found[plan.pin.line, name] = History(Path(folder), plan.pin.upstream, plan.patches, plan.base)
    return found


def _culprit(history: History) -> Culprits:
    def asked(place: Place, life: Lifetime) -> Culprit | None:
        return history.culprit(place, life.before, life.ended) if life.before and life.ended else None

    return asked


def _rendered(found: dict[str, Any], options: argparse.Namespace) -> str:
    if options.json:
        from downstream.report import json

        return json.dumps(found)
    if options.markdown:
        from downstream.report.matrix import markdown

        return markdown.render(found)
    from downstream.report.matrix import text

    return text.render(found, colour=colour_wanted(options.color, sys.stdout), verbose=options.verbose)


def write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as exc:
        raise WriteError(str(path), exc.strerror or str(exc), "name a file in a folder that can be written") from exc
