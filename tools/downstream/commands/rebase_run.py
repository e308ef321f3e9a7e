"""The steps of tools/rebase.py: check, carry, go on, give up, and what each says."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from downstream import pins as pinned
from downstream.cli import FINDINGS, OK, colour_wanted
from downstream.errors import StateError, UsageError
from downstream.pins import Pins
from downstream.placing.verdict import HunkStatus
from downstream.queue.plan import Plan, RebaseReport, checked
from downstream.queue.target import targets
from downstream.report import formats
from downstream.report.context import ReportContext
from downstream.report.terminal import progress
from downstream.trees.cache import default_folder
from downstream.trees.session import Session


def run(options: argparse.Namespace) -> int:
    """Take the step that *options* ask for and print what became of each patch."""
    root: Path = options.root.resolve()
    if options.abort:
        return _abort(root, options)
    # The pins may be on their way to one another: that is what a rebase is for.
    pins = pinned.load(root, satisfied=False)
    with Session(default_folder(), options.offline, progress(quiet=options.quiet)) as session:
        if options.status:
            return _status(pins, session, options)
        if options.go_on or options.skip:
            from downstream.queue import resolve

            command = "continue" if options.go_on else "skip"
            report = resolve.go_on(pins, session) if options.go_on else resolve.skip(pins, session)
            return _emit([(report, command, _plan(report, pins, session))], session, options)
        return _carry(pins, session, options)


def _carry(pins: Pins, session: Session, options: argparse.Namespace) -> int:
    line = options.line or next(iter(pins.lines))
    wanted = [target for text in options.upstream for target in targets(text, pins.line(line), session)]
    if len({target.upstream.name for target in wanted}) != len(wanted):
        raise UsageError(" ".join(options.upstream), "names an upstream twice", "give one release for each")
    reports = []
    for target in wanted:
        plan = Plan.make(pins, line, target, session)
        if options.check:
            reports.append((checked(plan), "check", plan))
            continue
        from downstream.queue import rebase

        report = rebase.start(plan)
        reports.append((report, "rebase", plan))
        if report.waiting:
            break  # one conflict at a time; the others are named in the next step
        pins = pinned.load(pins.root, satisfied=False)
    left = wanted[len(reports) :]
    return _emit(reports, session, options, left=[f"{target.upstream.name}=v{target.version}" for target in left])


def _emit(
    reports: Sequence[tuple[RebaseReport, str, Plan]],
    session: Session,
    options: argparse.Namespace,
    *,
    left: Sequence[str] = (),
) -> int:
    colour = colour_wanted(options.color, sys.stdout)
    places = [(report.results, _context(report, command, plan, left)) for report, command, plan in reports]
    sys.stdout.write(formats.rendered_together(places, options=options, colour=colour))
    for report, _, _ in reports:
        for warning in report.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        for skipped in report.skipped:
            print(f"note: {report.target.upstream.name} {skipped}; left out of the walk", file=sys.stderr)
    if session.cache.fault:
        print(f"note: {session.cache.fault}", file=sys.stderr)
    return OK if all(report.clean for report, _, _ in reports) else FINDINGS


def _plan(report: RebaseReport, pins: Pins, session: Session) -> Plan:
    """What a rebase under way was made for, as it now reads."""
    return Plan.make(pins, report.pin.line, report.target, session)


def _context(report: RebaseReport, command: str, plan: Plan, left: Sequence[str] = ()) -> ReportContext:
    pin = report.pin
    patches = {} if report.written else {patch.name: patch for patch in plan.patches}
    return ReportContext(
        command=command,
        upstream=pin.upstream.name,
        line=pin.line,
        old_version=str(pin.version),
        new_version=str(report.target.version),
        base_tree=f"{pin.upstream.name} {pin.version}",
        tree=str(report.target),
        series=f"patches/{pin.line}/{pin.upstream.name}",
        patches=patches,
        walked=report.walked,
        fetched=plan.session.fetched,
        written=report.written,
        next_steps=tuple(_next_steps(report, command, plan.pins, left)),
    )


def _next_steps(report: RebaseReport, command: str, pins: Pins, left: Sequence[str]) -> Iterable[str]:
    from downstream.queue import state

    asked = f"{report.pin.upstream.name}=v{report.target.version}"
    if report.waiting:
        folder = state.checkout(pins.root)
        shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        yield f"{report.waiting} waits: resolve it in {shown} (search for <<<<<<<), then tools/rebase.py --continue"
        yield "or --skip to drop it because upstream has it, or --abort; patches/ and VERSIONS.toml are untouched"
    elif command == "check" and report.clean and report.target.version != report.pin.version:
        yield f"tools/rebase.py --upstream {asked} carries the series there"
    elif command == "check" and not report.clean:
        yield f"tools/rebase.py --upstream {asked} stops at the first patch that needs a decision, in a git checkout"
    if report.written:
        yield "git diff shows what was written; commit it, then tools/audit.py"
    if left:
        yield f"tools/rebase.py {' '.join(f'--upstream {text}' for text in left)} once that is settled"
    if (
        any(hunk.status is HunkStatus.UPSTREAMED for result in report.results for hunk in result.hunks)
        and command == "check"
    ):
        yield "what is upstreamed is dropped from the series by the rebase"


def _abort(root: Path, options: argparse.Namespace) -> int:
    from downstream.queue import resolve

    state = resolve.abort(root)
    if not options.quiet:
        what = (
            f"the rebase of {state.line}/{state.upstream} to {state.new}" if state.line else "what was left of a rebase"
        )
        print(f"forgot {what}; patches/ and VERSIONS.toml are as they were")
    return OK


def _status(pins: Pins, session: Session, options: argparse.Namespace) -> int:
    from downstream.queue import resolve
    from downstream.queue.state import checkout

    state = resolve.under_way(pins.root)
    if options.json:
        from downstream.report import json

        sys.stdout.write(json.dumps(_status_document(state)))
        return OK if state is None else FINDINGS
    if state is None:
        print("no rebase is under way")
        return OK
    try:
        plan = resolve.plan_of(pins, state, session)
        names = [entry.name for entry in plan.series.entries]
    except StateError as exc:
        print(f"error: {exc}", file=sys.stderr)
        names = []
    print(f"rebase of {state.line}/{state.upstream} {state.old} → {state.new}")
    for done in state.done:
        print(f"  {done.how:18} {done.name}")
    for index, name in enumerate(names[len(state.done) :]):
        print(f"  {'waits' if index == 0 else 'to come':18} {name}")
    if state.ready:
        print(f"next: resolve it in {checkout(pins.root)}, then tools/rebase.py --continue (or --skip, --abort)")
    else:
        print("next: it was interrupted; tools/rebase.py --continue goes on where it stopped (or --abort)")
    return FINDINGS


def _status_document(state: object) -> dict[str, object]:
    from downstream.queue.state import State

    document: dict[str, object] = {"schema": 1, "command": "status", "ok": state is None, "under_way": None}
    if isinstance(state, State):
        document["under_way"] = {
            "line": state.line,
            "upstream": state.upstream,
            "old_version": state.old,
            "new_version": state.new,
            "ready": state.ready,
            "done": [{"patch": done.name, "how": done.how, "kept": done.content is not None} for done in state.done],
        }
    return document
