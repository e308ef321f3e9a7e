"""Each upstream of each line against its newest release: a section of one report, and files beside it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from downstream import pins as pinned
from downstream.cli import FAILED, FINDINGS, OK
from downstream.commands import matrix_guards
from downstream.commands.matrix_run import judged, write
from downstream.errors import DownstreamError, UsageError, WriteError
from downstream.pins import Pins
from downstream.queue.plan import Plan, RebaseReport, checked
from downstream.queue.target import targets
from downstream.report import github, markdown
from downstream.report.audit_markdown import render_difference
from downstream.report.context import ReportContext
from downstream.report.matrix import markdown as matrix_markdown
from downstream.report.matrix import page, svg
from downstream.report.matrix.document import document
from downstream.report.terminal import progress
from downstream.report.wording import counted, totals
from downstream.trees.cache import default_folder
from downstream.trees.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One upstream of one line."""

    title: str
    stem: str  # LINE-UPSTREAM
    body: str
    fine: bool = True
    failed: bool = False
    annotations: str = ""
    release: str = ""  # the newest one, where it is newer than the pin
    matrix: dict[str, Any] | None = None


def run(options: argparse.Namespace, folder: Path) -> int:
    """Look at what *options* name, write the reports into *folder*, and print the answer."""
    root: Path = options.root.resolve()
    pins = pinned.load(root, satisfied=False)
    with Session(default_folder(), options.offline, progress(quiet=options.quiet)) as session:
        sections = [
            _section(pins, line, upstream, session, options)
            for line in options.line or pins.lines
            for upstream in options.upstream or pins.line(line).pins
            if upstream in pins.line(line).pins
        ]
    if not sections:
        raise UsageError(
            " ".join(options.upstream), "is pinned by no line", f"choose one of: {', '.join(pins.upstreams)}"
        )
    report = "\n".join(f"# {section.title}\n\n{section.body}" for section in sections)
    found = _document(sections)
    _write_all(folder, report, sections, found)
    sys.stdout.write(_answer(options, report, sections, found))
    if any(section.failed for section in sections):
        return FAILED
    return OK if all(section.fine for section in sections) else FINDINGS


def _section(pins: Pins, line: str, upstream: str, session: Session, options: argparse.Namespace) -> Section:
    """Everything about one upstream; what cannot be read makes a section that says so."""
    pin = pins.pin(line, upstream)
    try:
        (target,) = targets(f"{upstream}=latest", pins.line(line), session)
        plan = Plan.make(pins, line, target, session)
        report = checked(plan)
        guards, unexplained = matrix_guards.changes(plan, whole=options.guards == "all")
        matrix = judged(plan, session)
        found = document([matrix])
        shown = found["matrices"][0]
        shown["guards"] = matrix_guards.document(plan, matrix, whole=options.guards == "all")
    except DownstreamError as exc:
        text = f"**Could not be checked:** {markdown.escaped(str(exc))}\n"
        title = f"{upstream}: line {line}, pin {pin.version}"
        return Section(title=title, stem=f"{line}-{upstream}", body=text, fine=False, failed=True)
    newer = target.version > pin.version
    context = _context(plan, report)
    new = counted(len(unexplained), "new guard")
    summary = f"{totals(report.results)}; {new} that no ledger entry explains."
    parts = [
        summary if newer else f"The pin, {pin.version}, is the newest release.",
        markdown.render(report.results, context=context).rstrip("\n"),
        render_difference(guards).rstrip("\n"),
        matrix_markdown.render(found).rstrip("\n"),
    ]
    return Section(
        title=f"{upstream} {target.version}: line {line}, pin {pin.version}",
        stem=f"{line}-{upstream}",
        body="\n\n".join(parts) + "\n",
        fine=report.clean and not unexplained,
        annotations=github.render(report.results, context=context),
        release=str(target.version) if newer else "",
        matrix=shown,
    )


def _context(plan: Plan, report: RebaseReport) -> ReportContext:
    pin = plan.pin
    asked = f"{pin.upstream.name}=v{plan.target.version}"
    return ReportContext(
        command="check",
        upstream=pin.upstream.name,
        line=pin.line,
        old_version=str(pin.version),
        new_version=str(plan.target.version),
        base_tree=f"{pin.upstream.name} {pin.version}",
        tree=str(plan.target),
        series=f"patches/{pin.line}/{pin.upstream.name}",
        patches={patch.name: patch for patch in plan.patches},
        walked=report.walked,
        next_steps=(f"tools/rebase.py --line {pin.line} --upstream {asked}",),
    )


def _document(sections: Sequence[Section]) -> dict[str, Any]:
    return {
        "schema": 1,
        "command": "watch",
        "ok": all(section.fine for section in sections),
        "releases": [
            {"title": section.title, "release": section.release or None, "ok": section.fine, "failed": section.failed}
            for section in sections
        ],
        "matrices": [section.matrix for section in sections if section.matrix is not None],
    }


def _answer(options: argparse.Namespace, report: str, sections: Sequence[Section], found: dict[str, Any]) -> str:
    if options.github:
        return "".join(section.annotations for section in sections)
    if options.json:
        from downstream.report import json

        return json.dumps(found)
    return report


def _files(report: str, sections: Sequence[Section], found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "report.md", report
    yield "matrix.html", page.render(found)
    yield "matrix.svg", svg.render(found)
    for section in sections:
        if section.release and not section.fine:
            yield f"{section.stem}-{section.release}.md", f"# {section.title}\n\n{section.body}"


def _write_all(folder: Path, report: str, sections: Sequence[Section], found: dict[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in [path for section in sections for path in folder.glob(f"{section.stem}-*.md")]:
            stale.unlink()  # a release that needed somebody yesterday
    except OSError as exc:
        raise WriteError(str(folder), exc.strerror or str(exc), "name another folder with --out") from exc
    for name, content in _files(report, sections, found):
        write(folder / name, content)
