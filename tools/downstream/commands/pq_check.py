"""``pq.py check`` and ``pq.py list``."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from downstream.cli import FINDINGS, OK, colour_wanted
from downstream.errors import UsageError
from downstream.patches.header import Header
from downstream.patches.parse import Parsed
from downstream.patches.series import Series, load_series
from downstream.pins import Pin, Pins, load
from downstream.placing.push import push
from downstream.placing.verdict import HunkStatus, PatchResult, PushReport
from downstream.queue import state
from downstream.queue.foreign import read_tolerantly
from downstream.queue.lint import Finding, age, lint, unsettled
from downstream.queue.transaction import pending, recover
from downstream.report import json as report_json
from downstream.report.context import ReportContext, printable
from downstream.report.formats import FORMATS, rendered_together
from downstream.report.terminal import progress
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin, prefetch
from downstream.trees.session import Session


def check(options: argparse.Namespace) -> int:
    for option in ("base", "out"):
        if getattr(options, option):
            raise UsageError(f"--{option}", "is for foreign material", "give --series and --tree, too")
    checked = _judged(options)
    asked = [name for name in FORMATS if getattr(options, name)]
    if options.json and not asked:
        _write(report_json.dumps(_document(checked)))
    else:
        reports = [(one.report.results, one.context) for one in checked]
        _write(rendered_together(reports, options=options, colour=colour_wanted(options.color, sys.stdout)))
        if not asked:
            _write("".join(line for one in checked for line in _lint_lines(one, options)))
    return OK if all(one.ok for one in checked) else FINDINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """One series of the project, judged on its pin."""

    pin: Pin
    series: Series
    read: tuple[Parsed, ...]
    report: PushReport
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return self.report.clean and all(finding.warning for finding in self.findings)

    @property
    def folder(self) -> str:
        return f"patches/{self.pin.line}/{self.pin.upstream.name}"

    @property
    def context(self) -> ReportContext:
        return ReportContext(
            command="check",
            upstream=self.pin.upstream.name,
            line=self.pin.line,
            old_version=str(self.pin.version),
            series=self.folder,
            patches={parsed.patch.name: parsed.patch for parsed in self.read},
        )


def _judged(options: argparse.Namespace) -> list[_Checked]:
    if pending(options.root):
        with state.exclusive(options.root):
            recover(options.root)
    pins = load(options.root)
    with _session(options) as session:
        return [_judge(pins, pin, session) for pin in _pins(pins, options)]


def _judge(pins: Pins, pin: Pin, session: Session) -> _Checked:
    series = load_series(pins.series_folder(pin))
    read = read_tolerantly(series)
    tree = open_pin(pin, session)
    prefetch(tree, _touched(read))
    report = push(read, tree)
    findings = (*lint(series, read), *unsettled(report.results))
    return _Checked(pin=pin, series=series, read=read, report=report, findings=findings)


def _pins(pins: Pins, options: argparse.Namespace) -> list[Pin]:
    line = pins.line(options.line or next(iter(pins.lines)))
    return [pins.pin(line.name, options.upstream)] if options.upstream else list(line.pins.values())


def _document(checked: Sequence[_Checked]) -> dict[str, Any]:
    """One document, with what lint found at its end."""
    if len(checked) == 1:
        document = report_json.document(checked[0].report.results, context=checked[0].context)
    else:
        document = report_json.together([(one.report.results, one.context) for one in checked])
    document["ok"] = all(one.ok for one in checked)
    document["lint"] = [
        {
            "path": f"{one.folder}/{finding.patch}",
            "line": finding.line,
            "level": "warning" if finding.warning else "error",
            "problem": finding.problem,
            "next": finding.next_step,
        }
        for one in checked
        for finding in one.findings
    ]
    return document


def _lint_lines(one: _Checked, options: argparse.Namespace) -> list[str]:
    lines = []
    for finding in one.findings:
        if finding.warning and options.quiet:
            continue
        level = "warning" if finding.warning else "error"
        lines.append(
            f"{printable(f'{one.folder}/{finding.patch}')}:{finding.line}: {level}: {printable(finding.problem)}\n"
        )
        if finding.next_step:
            lines.append(f"    next: {finding.next_step}\n")
    return lines


def list_series(options: argparse.Namespace) -> int:
    today: datetime.date = options.date or datetime.datetime.now(tz=datetime.UTC).date()
    checked = _judged(options)
    if options.json:
        series = [
            {
                "line": one.pin.line,
                "upstream": one.pin.upstream.name,
                "version": str(one.pin.version),
                "patches": [_row(parsed, result, today) for parsed, result in _pairs(one)],
            }
            for one in checked
        ]
        ok = all(one.report.clean for one in checked)
        _write(report_json.dumps({"schema": report_json.SCHEMA, "command": "list", "ok": ok, "series": series}))
        return OK if ok else FINDINGS
    for one in checked:
        _write(f"{one.pin}\n")
        rows = [_row(parsed, result, today) for parsed, result in _pairs(one)]
        names = max((len(row["patch"]) for row in rows), default=0)
        for row in rows:
            _write(_listed(row, names, verbose=options.verbose))
    return OK if all(one.report.clean for one in checked) else FINDINGS


def _pairs(one: _Checked) -> list[tuple[Parsed, PatchResult]]:
    return list(zip(one.read, one.report.results, strict=True))


def _row(parsed: Parsed, result: PatchResult, today: datetime.date) -> dict[str, Any]:
    header = Header.parse(parsed.patch.header)
    return {
        "patch": parsed.patch.name,
        "status": result.status.value,
        "hunks": len(result.hunks),
        "offset": sum(hunk.status is HunkStatus.OFFSET for hunk in result.hunks),
        "subject": header.subject,
        "forwarded": header.forwarded,
        "applied_upstream": header.applied_upstream,
        "age": age(header, today),
    }


def _listed(row: dict[str, Any], width: int, *, verbose: bool) -> str:
    upstream = (
        f"upstream: {row['applied_upstream']}" if row["applied_upstream"] else f"forwarded: {row['forwarded'] or '?'}"
    )
    days = "age ?" if row["age"] is None else f"{row['age']} d"
    line = f"  {row['status']:<11}  {printable(row['patch']):{width}}  {days:>6}  {printable(upstream)}\n"
    return line + (f"      {printable(row['subject'] or '(no subject)')}\n" if verbose else "")


def _touched(read: Sequence[Parsed]) -> list[str]:
    paths = {path for one in read for file in one.patch.files for path in (file.old_path, file.new_path) if path}
    return sorted(paths)


def _session(options: argparse.Namespace) -> Session:
    return Session(default_folder(), offline=options.offline, progress=progress(quiet=options.quiet))


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
