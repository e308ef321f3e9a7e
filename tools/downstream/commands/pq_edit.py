"""``pq.py`` checkout, export, import, new, drop, fold, refresh."""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from downstream.cli import FINDINGS, OK, colour_wanted
from downstream.errors import PatchError, StateError, UsageError
from downstream.patches.series import Series, load_series
from downstream.pins import Pin, Pins, load
from downstream.placing.verdict import PatchResult
from downstream.queue import checkout as checkouts
from downstream.queue import edit as edits
from downstream.queue import state
from downstream.queue.transaction import WORK, recover
from downstream.report import json as report_json
from downstream.report import text as report_text
from downstream.report.context import ReportContext, printable
from downstream.report.terminal import progress
from downstream.trees.cache import default_folder
from downstream.trees.open import open_pin
from downstream.trees.session import Session
from downstream.trees.tree import Tree


def checkout(options: argparse.Namespace) -> int:
    pins, pin = _one(options)
    series = load_series(pins.series_folder(pin))
    folder = _folder(options, pins, pin)
    made_before = checkouts.load(folder)
    if made_before is None and folder.exists() and any(folder.iterdir()):
        raise StateError(str(folder), "is not empty, and no checkout of ours", "name another folder with --dir")
    if made_before and not options.force and (lost := checkouts.unexported(folder, made_before)):
        step = f"tools/pq.py export {_words(options, pin)} first, or --force to lose it"
        raise StateError(str(folder), f"has changes of yours: {lost[0]}", step)
    extent = checkouts.Extent.FULL if options.full else checkouts.Extent.SOURCES
    if options.touched:
        extent = checkouts.Extent.TOUCHED
    with _session(options) as session:
        tree = open_pin(pin, session)
        record = checkouts.make(folder, pin, series, tree, session, extent=extent, more=options.more)
    answer = {"folder": _shown(folder), "release": record.version, "patches": len(series.entries)}
    what = f"cd {_shown(folder)}; edit, git commit, git rebase -i release"
    steps = [what, f"tools/pq.py export {_words(options, pin)}"]
    if options.json:
        _json("checkout", ok=True, **answer, next=steps)
    elif not options.quiet:
        print(f"{answer['folder']}: {pin.upstream.name} {record.version}, {answer['patches']} commits")
        _print_steps(steps)
    return OK


def export(options: argparse.Namespace) -> int:
    from downstream.queue.export import Fate
    from downstream.queue.export import export as exported

    pins, pin = _one(options)
    folder = _folder(options, pins, pin)
    record = checkouts.load(folder)
    if record is None:
        raise StateError(str(folder), "is no checkout of ours", f"see tools/pq.py checkout {_words(options, pin)}")
    if (record.line, record.upstream) != (pin.line, pin.upstream.name):
        made_of = f"{record.line}/{record.upstream}"
        raise StateError(
            str(folder), f"is a checkout of {made_of}", f"--line {record.line} --upstream {record.upstream}"
        )
    if record.version != str(pin.version):
        step = f"tools/pq.py checkout {_words(options, pin, place=False)} --dir NEW, then git cherry-pick what you did"
        raise StateError(str(folder), f"was made on {record.version}, the pin is {pin.version} now", step)
    with _writing(pins, pin), _session(options) as session:
        series = load_series(pins.series_folder(pin))
        tree = open_pin(pin, session)
        found = exported(folder, record, series, tree, today=_today(options))
        written: tuple[str, ...] = ()
        if not options.dry_run:
            written = found.write(pins.root, pins.series_folder(pin), series)
            checkouts.renew(folder, record, load_series(pins.series_folder(pin)))
    changed = [patch for patch in found.patches if patch.fate is not Fate.UNMODIFIED]
    if options.json:
        fates = [{"patch": patch.name, "fate": patch.fate.value} for patch in found.patches]
        _json("export", ok=True, dry_run=options.dry_run, patches=fates, written=list(written))
    elif not options.quiet:
        for patch in changed:
            print(f"{patch.fate.value:<10} {printable(patch.name)}")
        print(f"{len(found.patches) - len(changed)} of {len(found.patches)} patches unmodified")
        _print_written(written, pins.root)
    return OK


def import_patches(options: argparse.Namespace) -> int:
    from downstream.queue.incoming import Asked, read_source

    pins, pin = _one(options)
    stdin = sys.stdin.buffer.read() if options.source == "-" else None
    with _writing(pins, pin), _session(options) as session:
        series = load_series(pins.series_folder(pin))
        asked = Asked(
            name=edits.fresh_name(series, options.name) if options.name else None,
            subject=options.subject,
            origin=options.origin,
            strip=options.strip,
            today=_today(options),
        )
        incoming = read_source(options.source, stdin, pin.upstream, asked, session)
        for one in incoming:
            edits.fresh_name(series, one.patch.name)
        base = incoming[0].base if len(incoming) == 1 else None
        edit, results = edits.added(series, [one.patch for one in incoming], open_pin(pin, session), base=base)
        if edit.clean and edit.contents:
            written = edit.write(pins.root, pins.series_folder(pin), series)
            steps = [f"tools/pq.py check --upstream {_words(options, pin)}"]
        else:
            written = ()
            steps = [f"tools/pq.py checkout {_words(options, pin)}; there git cherry-pick or git apply -3, and resolve",
                     f"tools/pq.py export {_words(options, pin)}"]  # fmt: skip
    return _tell(options, pin, results, written, steps, left_out=[path for one in incoming for path in one.left_out])


def new(options: argparse.Namespace) -> int:
    pins, pin = _one(options)
    with _writing(pins, pin):
        series = load_series(pins.series_folder(pin))
        edit = edits.new(
            series,
            options.name,
            subject=options.subject,
            after=options.after,
            author=_author(pins.root),
            today=_today(options),
        )
        written = edit.write(pins.root, pins.series_folder(pin), series)
    steps = [f"say in its header what breaks without it; tools/pq.py checkout {_words(options, pin)} to fill it"]
    return _tell(options, pin, (), written, steps)


def drop(options: argparse.Namespace) -> int:
    return _edit(options, lambda series, tree: edits.drop(series, options.names, tree), options.names[0])


def fold(options: argparse.Namespace) -> int:
    return _edit(options, lambda series, tree: edits.fold(series, options.into, options.names, tree), options.into)


def refresh(options: argparse.Namespace) -> int:
    return _edit(options, lambda series, tree: edits.settle(series, series.entries, tree, {}), "")


def _edit(options: argparse.Namespace, change: Callable[[Series, Tree], edits.Edit], named: str) -> int:
    pins, pin = _one(options, named=named)
    with _writing(pins, pin), _session(options) as session:
        series = load_series(pins.series_folder(pin))
        edit = change(series, open_pin(pin, session))
        written: tuple[str, ...] = ()
        steps = ["what follows needs what was taken away: drop or edit that first, or use tools/pq.py checkout"]
        if edit.clean:
            written, steps = edit.write(pins.root, pins.series_folder(pin), series), []
    return _tell(options, pin, edit.results, written, steps)


def _tell(
    options: argparse.Namespace,
    pin: Pin,
    results: Sequence[PatchResult],
    written: Sequence[str],
    steps: Sequence[str],
    *,
    left_out: Sequence[str] = (),
) -> int:
    """Report an edit: what stands in its way, else what was written."""
    placed = all(result.fine and all(hunk.status.placed for hunk in result.hunks) for result in results)
    if options.json:
        context = ReportContext(
            command=options.command, upstream=pin.upstream.name, line=pin.line, old_version=str(pin.version),
            series=f"patches/{pin.line}/{pin.upstream.name}", written=tuple(written), next_steps=tuple(steps),
        )  # fmt: skip
        document = report_json.document(results, context=context)
        document["ok"] = placed
        document["left_out"] = list(left_out)
        _out(report_json.dumps(document))
        return OK if placed else FINDINGS
    if not placed:
        context = ReportContext(
            command=options.command,
            upstream=pin.upstream.name,
            line=pin.line,
            old_version=str(pin.version),
            series=f"patches/{pin.line}/{pin.upstream.name}",
            next_steps=tuple(steps),
        )
        colour = colour_wanted(options.color, sys.stdout)
        waiting = [result for result in results if not result.fine or any(not h.status.placed for h in result.hunks)]
        _out(report_text.render(waiting, context=context, colour=colour, quiet=options.quiet, verbose=options.verbose))
        print("nothing was written")
        return FINDINGS
    if not options.quiet:
        for path in left_out:
            print(f"left out   {printable(path)} (the release does not ship it)")
        _print_written(written, options.root)
        _print_steps(steps if written else ["nothing to do"])
    return OK


def _one(options: argparse.Namespace, *, named: str = "") -> tuple[Pins, Pin]:
    """The pin that a command means: by name, by a patch that only its series has, or the only one of the line."""
    pins = load(options.root)
    line = pins.line(options.line or next(iter(pins.lines)))
    asked = options.upstream or getattr(options, "upstream_name", None)
    if asked:
        return pins, pins.pin(line.name, asked)
    having = list(line.pins.values())
    if named:
        having = [pin for pin in having if _has(pins, pin, named)]
        if not having:
            raise PatchError(f"line {line.name}", f"no series has a patch '{named}'", "tools/pq.py list")
    if len(having) == 1:
        return pins, having[0]
    names = " or ".join(f"--upstream {pin.upstream.name}" for pin in having)
    raise UsageError(f"line {line.name}", "has several upstreams", f"say which: {names}")


def _has(pins: Pins, pin: Pin, name: str) -> bool:
    series = load_series(pins.series_folder(pin))
    return any(name in (entry.name, entry.name.removesuffix(".patch")) for entry in series)


def _words(options: argparse.Namespace, pin: Pin, *, place: bool = True) -> str:
    """What names *pin*, and the folder that was named, to the next command."""
    words = [pin.upstream.name, *(["--line", pin.line] if options.line else [])]
    if place and getattr(options, "dir", None):
        words += ["--dir", shlex.quote(_shown(options.dir))]
    return " ".join(words)


def _folder(options: argparse.Namespace, pins: Pins, pin: Pin) -> Path:
    return Path(options.dir or pins.root / WORK / "checkout" / pin.line / pin.upstream.name).absolute()


@contextmanager
def _writing(pins: Pins, pin: Pin) -> Iterator[None]:
    """Keep other writers out, finish what a killed one began, and leave a series alone that is being rebased."""
    with state.exclusive(pins.root):
        recover(pins.root)
        under_way = state.load(pins.root)
        if under_way and (under_way.line, under_way.upstream) == (pin.line, pin.upstream.name):
            raise StateError(
                str(pin), "is being rebased", "tools/rebase.py --status; end it with --continue or --abort"
            )
        yield


def _session(options: argparse.Namespace) -> Session:
    return Session(default_folder(), offline=options.offline, progress=progress(quiet=options.quiet))


def _today(options: argparse.Namespace) -> datetime.date:
    date: datetime.date = options.date or datetime.datetime.now(tz=datetime.UTC).date()
    return date


def _author(root: Path) -> str:
    """Who the user is to git; empty where git does not know."""
    from git.cmd import Git

    status, out, _ = Git(str(root)).execute(
        ["git", "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT"],
        with_extended_output=True,
        with_exceptions=False,
    )
    return str(out).rsplit(" ", 2)[0] if status == 0 else ""


def _shown(path: Path) -> str:
    return os.path.relpath(path)


def _json(command: str, **fields: object) -> None:
    _out(report_json.dumps({"schema": report_json.SCHEMA, "command": command, **fields}))


def _print_written(written: Sequence[str], root: Path) -> None:
    for path in written:
        print(f"{'wrote' if (root / path).exists() else 'removed':<10} {printable(path)}")


def _print_steps(steps: Sequence[str]) -> None:
    for step in steps:
        print(f"next: {step}")


def _out(text: str) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
