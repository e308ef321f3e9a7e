"""tools/wheels.py: build the wheels of a line, and hold a wheel against the gate."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from downstream.cli import FINDINGS, OK, add_common_options, parser
from downstream.errors import UsageError
from downstream.report.terminal import progress

if TYPE_CHECKING:
    from downstream.pins import Line, Pin, Pins
    from downstream.wheels.build import Built

DESCRIPTION = """\
The published wheels of a line, with exactly the files replaced that its series and overlay name.
Without a command: build."""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, "build")
    options = build_parser().parse_args(words)
    return _build(options) if options.command == "build" else _verify(options)


def build_parser() -> argparse.ArgumentParser:
    top = parser("wheels", DESCRIPTION)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    text = "build the wheels of a line; none leaves unless the gate lets it"
    build = commands.add_parser("build", help=text, description=text, allow_abbrev=False)
    build.add_argument("--line", metavar="LINE", help="default: the first of VERSIONS.toml")
    build.add_argument("--upstream", metavar="NAME", action="append", help="only this one (may be repeated)")
    build.add_argument("--out", type=Path, metavar="DIR", help="default: dist/<line>")
    build.add_argument("--python", metavar="TAG", help="of wheels with compiled parts, only those for e.g. cp311")
    build.add_argument("--platform", metavar="NAME", help="... and only those for e.g. x86_64")
    add_common_options(build)
    text = "hold a built wheel against the release, the series and the overlay it claims to be made of"
    verify = commands.add_parser("verify", help=text, description=text, allow_abbrev=False)
    verify.add_argument("wheel", nargs="+", type=Path, metavar="WHEEL")
    add_common_options(verify)
    return top


def _build(options: argparse.Namespace) -> int:
    from downstream.patched import build as patched_tree
    from downstream.pins import load
    from downstream.trees.cache import default_folder
    from downstream.trees.open import wheel_files
    from downstream.trees.session import Session
    from downstream.wheels.build import build_line, narrowed
    from downstream.wheels.manifest import write_beside
    from downstream.wheels.writer import timestamp

    epoch = timestamp(os.environ.get("SOURCE_DATE_EPOCH"))
    pins = load(options.root)
    line = pins.line(options.line or next(iter(pins.lines)))
    folder = options.out or Path("dist") / line.name
    wanted = [pins.pin(line.name, name) for name in options.upstream or line.pins]
    bar = progress(quiet=options.quiet)
    jobs = []
    with Session(default_folder(), offline=options.offline, progress=bar) as session:
        for pin in wanted:
            names = narrowed(pin, python=options.python, platform=options.platform)
            files = wheel_files(replace(pin, sha256={name: pin.sha256[name] for name in names}), session)
            jobs.append((patched_tree(pins, pin, session), files))
        built = build_line(jobs, folder, line=line, epoch=epoch, progress=bar)
    beside = write_beside(built, folder, line=line, epoch=epoch)
    _tell_built(options, line, built, beside)
    return OK


def _tell_built(options: argparse.Namespace, line: Line, built: Sequence[Built], beside: Sequence[Path]) -> None:
    if options.json:
        wheels = [
            {
                "file": one.path.name,
                "sha256": one.sha256,
                "size": one.size,
                "from": one.upstream_file,
                "members": list(one.members),
                "outside": list(one.outside),
            }
            for one in built
        ]
        _document("wheels build", ok=True, line=line.name, wheels=wheels, beside=[path.name for path in beside])
        return
    for one in built:
        print(f"{one.path}  sha256:{one.sha256}")
        if not options.quiet:
            print(
                f"  from {one.upstream_file}: {_count(len(one.patches), 'patch', 'patches')},"
                f" {_count(len(one.members), 'member')} changed; the gate found nothing else"
            )
        if options.verbose:
            print("".join(f"    {member}\n" for member in one.members), end="")
        if one.outside:
            print(f"  not in a wheel: {', '.join(one.outside)}")
    if not options.quiet:
        print(f"beside: {', '.join(path.name for path in beside)}")


def _verify(options: argparse.Namespace) -> int:
    from downstream.patched import build as patched_tree
    from downstream.pins import load
    from downstream.trees.cache import default_folder
    from downstream.trees.open import wheel_files
    from downstream.trees.session import Session
    from downstream.wheels.gate import verify
    from downstream.wheels.naming import parse_name

    pins = load(options.root)
    reports = []
    with Session(default_folder(), offline=options.offline, progress=progress(quiet=options.quiet)) as session:
        for path in options.wheel:
            pin = _pin_of(path, pins)
            name = parse_name(path.name)
            stock = next((one for one in sorted(pin.sha256) if parse_name(one).rest == name.rest), None)
            if stock is None:
                raise UsageError(path.name, f"{pin} has no wheel tagged {name.rest}", "rename nothing: build it again")
            (upstream,) = wheel_files(replace(pin, sha256={stock: pin.sha256[stock]}), session)
            tree = patched_tree(pins, pin, session)
            reports.append(verify(path, upstream, tree, line=pins.line(pin.line)))
    if options.json:
        wheels = [
            {
                "file": report.wheel,
                "ok": report.passed,
                "violations": [
                    {"member": one.member, "rule": one.rule.value, "detail": one.detail} for one in report.violations
                ],
            }
            for report in reports
        ]
        _document("wheels verify", ok=all(report.passed for report in reports), wheels=wheels)
    else:
        for report in reports:
            for violation in report.violations:
                print(f"{report.wheel}: {violation}")
            if report.passed and not options.quiet:
                print(f"{report.wheel}: differs from upstream only where series and overlay say")
    return OK if all(report.passed for report in reports) else FINDINGS


def _pin_of(path: Path, pins: Pins) -> Pin:
    """Return the pin whose current build bears this file name. Raises UsageError with the builds there are."""
    from downstream.wheels.naming import parse_name

    if not path.is_file():
        raise UsageError(str(path), "is no file", "give the path of a built wheel")
    name = parse_name(path.name)
    every = [pin for line in pins.lines.values() for pin in line.pins.values()]
    for pin in every:
        if pin.local_version == name.version and any(parse_name(one).package == name.package for one in pin.sha256):
            return pin
    known = ", ".join(f"{pin.upstream.package} {pin.local_version}" for pin in every)
    raise UsageError(path.name, "is the build of no pin", f"VERSIONS.toml has: {known}")


def _document(command: str, *, ok: bool, **fields: Any) -> None:
    from downstream.report import json as report_json

    print(report_json.dumps({"schema": report_json.SCHEMA, "command": command, "ok": ok} | fields), end="")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
