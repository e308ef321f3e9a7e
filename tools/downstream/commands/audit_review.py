"""tools/audit.py review: fill a ledger from the terminal or from a file, and prune it."""

from __future__ import annotations

import argparse
import datetime
import getpass
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from downstream.cli import FINDINGS, OK, add_common_options, parser
from downstream.commands.audit_options import add_scope
from downstream.commands.audit_scope import chosen, covered
from downstream.errors import UsageError
from downstream.guards.ledger import FILE, Covered, Entry, Ledger, load, load_filled
from downstream.guards.model import Guard
from downstream.guards.review import counted, save, template
from downstream.patched import build
from downstream.pins import load as load_pins
from downstream.report.audit_code import shown
from downstream.report.audit_text import verdicts
from downstream.report.context import printable
from downstream.report.terminal import progress
from downstream.trees.cache import default_folder
from downstream.trees.session import Session

DESCRIPTION = """\
Add entries to the ledgers (patches/<line>/<upstream>/guards.toml) of a line's patched releases.
At a terminal, each unreviewed guard is shown and a reason asked for. Elsewhere, write --template into
a file, fill in the reasons, and give it to --from."""


def main(argv: Sequence[str]) -> int:
    options = build_parser().parse_args(argv)
    for name in ("tree", "installed", "diff"):
        if getattr(options, name):
            raise UsageError(f"--{name}", "has no ledger of its own", "review works on a line's pins")
    if options.prune and (options.paths or options.reference or options.target or options.defines):
        problem = "cannot be told from a part of the audit"
        raise UsageError("--prune", problem, "leave out --paths, --reference, --target and -D")
    pins = load_pins(options.root)
    bar = progress(quiet=options.quiet)
    left = 0
    unreviewed: list[Guard] = []
    notes: dict[str, str] = {}
    with Session(default_folder(), offline=options.offline, progress=bar) as session:
        for pin in chosen(options, pins):
            found = covered(options, pins, pin, session, bar)
            if options.template:
                tree = build(pins, pin, session)
                unreviewed += found.reading.unreviewed
                notes |= {guard.fingerprint: shown(guard, tree.read(guard.path)) for guard in found.reading.unreviewed}
            else:
                left += _review(found, load(pins.series_folder(pin) / FILE), options, str(pin))
    if options.template:  # one file for all upstreams: --from gives each its own
        print(template(unreviewed, reviewer=_reviewer(options), date=_today(), notes=notes), end="")
    return FINDINGS if left else OK


def build_parser() -> argparse.ArgumentParser:
    options = parser("audit", DESCRIPTION)
    options.prog = "tools/audit.py review"
    options.add_argument("--from", dest="source", type=Path, metavar="FILE", help="entries to add: a ledger's form")
    options.add_argument("--template", action="store_true", help="print an entry for each unreviewed guard, to fill in")
    options.add_argument("--prune", action="store_true", help="drop entries whose guard is gone, recount patterns")
    options.add_argument("--reviewer", metavar="NAME", help="default: who runs this")
    add_scope(options)
    add_common_options(options)
    return options


def _review(found: Covered, ledger: Ledger, options: argparse.Namespace, place: str) -> int:
    """Work on one ledger; return how many guards are still unreviewed."""
    entries = list(ledger.entries)
    if options.prune:
        gone = set(found.reading.gone)
        counts = dict(found.reading.miscounted)
        entries = [replace(entry, covers=counts.get(entry, entry.covers)) for entry in entries if entry not in gone]
        print(f"{place}: {len(gone)} entries dropped, {len(counts)} recounted")
    left = list(found.reading.unreviewed)
    if options.source:
        filled = [entry for entry in load_filled(options.source).entries if entry.reason and _useful(entry, found)]
        added = counted(filled, entries, found.audit.concerns)
        entries += added
        left = [guard for guard in left if not any(entry.about(guard) for entry in added)]
        print(f"{place}: {len(added)} entries added, {len(left)} guards unreviewed")
    elif not options.prune:
        if left and not sys.stdin.isatty():
            problem = f"{len(left)} guards need a reason, and this is no terminal"
            raise UsageError("review", problem, "use --template and --from")
        added = tuple(_asked(left, _reviewer(options), _today()))
        entries += added
        left = [guard for guard in left if not any(entry.about(guard) for entry in added)]
    if tuple(entries) != ledger.entries:
        save(replace(ledger, entries=tuple(entries)))
        print(f"wrote {ledger.path}")
    return len(left)


def _reviewer(options: argparse.Namespace) -> str:
    return str(options.reviewer or getpass.getuser())


def _today() -> datetime.date:
    return datetime.datetime.now(tz=datetime.UTC).date()


def _useful(entry: Entry, found: Covered) -> bool:
    """Whether the entry speaks of a guard of this tree: one file may serve several upstreams."""
    return any(entry.about(guard) for guard in found.audit.concerns)


def _asked(guards: Iterable[Guard], reviewer: str, today: datetime.date) -> Iterable[Entry]:
    for guard in guards:
        print(f"\n{printable(guard.path)}:{guard.line}: {guard.verdict_class}, {guard.effect}")
        print(f"  {printable(guard.condition)}")
        print(f"  in {guard.function or 'no function'}; {printable(guard.evidence)}; {verdicts(guard)}")
        try:
            reason = input("reason it may stay (empty: later, q: stop): ").strip()
            if reason == "q":
                return
            if not reason:
                continue
            hardware = input("hardware fact it rests on (may be empty): ").strip()
        except EOFError:
            return
        yield Entry(
            fingerprint=guard.fingerprint,
            where=guard.where,
            reason=reason,
            hardware=hardware,
            reviewer=reviewer,
            date=today,
        )
