"""What the bundled audit runs on a bare host: the installed packages, read with the standard library."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from downstream.arches import parse_targets
from downstream.cli import FAILED, FINDINGS, OK, colour_wanted
from downstream.errors import DownstreamError
from downstream.guards.audit import Scope, audit
from downstream.guards.bundle import LEFT_OUT
from downstream.guards.ledger import FILE, Covered, Ledger, covered, read
from downstream.guards.model import Question
from downstream.trees.layout import Layout
from downstream.trees.tree import REGULAR


class Distribution:
    """An installed package's files by repository path, as its RECORD lists them."""

    def __init__(self, found: metadata.Distribution, layout: Layout) -> None:
        self.name = f"{found.metadata['Name']} {found.version}"
        self._files: dict[str, Path] = {}
        for file in found.files or ():
            path = layout.to_repository(str(file))
            if path is not None:
                self._files[path] = Path(str(found.locate_file(file)))

    def read(self, path: str) -> bytes | None:
        try:
            return self._files[path].read_bytes() if path in self._files else None
        except OSError:
            return None

    def mode(self, path: str) -> int | None:
        return REGULAR if path in self._files else None

    def paths(self) -> Iterable[str]:
        return sorted(self._files)


def main(argv: Sequence[str], facts: Mapping[str, Any]) -> int:
    """Audit what is installed; exit codes as everywhere: 0 fine, 1 somebody has to look, 2 could not."""
    try:
        return _run(_parser().parse_args(argv), facts)
    except DownstreamError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="audit", description=f"Audit the installed packages. Left out: {LEFT_OUT}.")
    options.add_argument("--installed", action="store_true", help="the default, and all that this file can do")
    options.add_argument("--upstream", action="append", metavar="NAME")
    options.add_argument("--reference", default="sm_90,sm_100,sm_103", metavar="ARCH,…")
    options.add_argument("--target", default="sm_120,sm_121", metavar="ARCH,…")
    options.add_argument("--paths", action="append", default=[], metavar="GLOB")
    options.add_argument("--third-party", action="store_true")
    options.add_argument("--all", action="store_true")
    options.add_argument("--json", action="store_true")
    options.add_argument("-v", "--verbose", action="store_true")
    options.add_argument("-q", "--quiet", action="store_true")
    options.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    return options


def _run(options: argparse.Namespace, facts: Mapping[str, Any]) -> int:
    question = Question(references=parse_targets(options.reference), targets=parse_targets(options.target))
    reports: list[tuple[str, Covered]] = []
    print(f"left out here: {LEFT_OUT}", file=sys.stderr)
    for upstream in facts["upstreams"]:
        if options.upstream and upstream["name"] not in options.upstream:
            continue
        layout = Layout(tuple((str(ours), str(theirs)) for ours, theirs in upstream["layout"]))
        try:
            tree = Distribution(metadata.distribution(upstream["package"]), layout)
        except metadata.PackageNotFoundError:
            print(f"{upstream['package']}: is not installed for {sys.executable}", file=sys.stderr)
            continue
        scope = Scope(question=question, layout=layout, paths=tuple(options.paths), third_party=options.third_party)
        ledger = read(upstream["ledger"], Path(FILE)) if upstream["ledger"] else Ledger(path=Path(FILE))
        reports.append((upstream["name"], covered(audit(tree, scope), ledger)))
    if not reports:
        print("error: none of the packages is installed here", file=sys.stderr)
        return FAILED
    if options.json:
        from downstream.report.audit_json import render as as_json

        print(as_json(reports, everything=options.all), end="")
    else:
        from downstream.report.audit_text import render as as_text

        colour = colour_wanted(options.color, sys.stdout)
        for _, found in reports:
            print(as_text(found, colour=colour, quiet=options.quiet, verbose=options.verbose, everything=options.all))
    return OK if all(found.fine for _, found in reports) else FINDINGS
