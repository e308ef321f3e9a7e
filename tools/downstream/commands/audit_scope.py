"""What tools/audit.py is asked about: the options of a scope, and the pins and questions they mean."""

from __future__ import annotations

import argparse
from pathlib import Path

from downstream.arches import parse_targets
from downstream.errors import UsageError
from downstream.guards import ledger as ledgers
from downstream.guards.audit import Scope
from downstream.guards.coverage import with_series
from downstream.guards.ledger import FILE, Covered
from downstream.guards.macros import parse_toolkit
from downstream.guards.model import Question
from downstream.pins import Pin, Pins, Upstream
from downstream.progress import Progress
from downstream.trees.layout import IDENTITY
from downstream.trees.session import Session

REFERENCES = "sm_90,sm_100,sm_103"
TARGETS = "sm_120,sm_121"


def add_scope(options: argparse.ArgumentParser) -> None:
    """What to audit, and for which architectures: shared with ``review``."""
    scope = options.add_argument_group("scope")
    scope.add_argument("--line", metavar="LINE", help="a line's patched releases (default: the first of VERSIONS.toml)")
    scope.add_argument("--upstream", metavar="NAME", action="append", help="only this one (may be repeated)")
    scope.add_argument("--tree", metavar="TREE", help="a folder, archive, wheel or git:REPO@REV, as it is")
    scope.add_argument("--installed", action="store_true", help="what this environment has installed")
    scope.add_argument("--python", type=Path, metavar="PATH", help="with --installed: that interpreter's environment")
    scope.add_argument("--diff", nargs=2, metavar=("OLD", "NEW"), help="two releases (0.6.3) or trees: what changed")
    scope.add_argument("--paths", metavar="GLOB", action="append", default=[], help="only these repository paths")
    scope.add_argument("--third-party", action="store_true", help="judge bundled third-party code, too")
    scope.add_argument("--ledger", type=Path, metavar="FILE", help="hold --tree or --installed against this ledger")
    asked = options.add_argument_group("architectures")
    asked.add_argument("--reference", metavar="ARCH,…", help=f"default: {REFERENCES}")
    asked.add_argument("--target", metavar="ARCH,…", help=f"default: {TARGETS}")
    asked.add_argument("--toolkit", metavar="X.Y", default="13.0", help="the CUDA version macros (default: 13.0)")
    asked.add_argument("-D", metavar="NAME[=VALUE]", action="append", default=[], dest="defines", help="a build flag")


def scope_of(options: argparse.Namespace, upstream: Upstream | None) -> Scope:
    """The audit's scope as *options* ask for it."""
    given = options.reference or options.target
    question = Question(
        references=parse_targets(options.reference or REFERENCES),
        targets=parse_targets(options.target or TARGETS),
        # Plain targets stand for their suffixed builds, too, unless somebody names what to ask.
        variants=not given,
    )
    if not question.references or not question.targets:
        raise UsageError("--reference and --target", "need an architecture each", "write --target sm_120")
    defines = {name: value or "1" for name, _, value in (word.partition("=") for word in options.defines)}
    return Scope(
        question=question,
        layout=upstream.layout if upstream else IDENTITY,
        paths=tuple(options.paths),
        third_party=options.third_party,
        toolkit=parse_toolkit(options.toolkit),
        defines=defines,
    )


def chosen(options: argparse.Namespace, pins: Pins) -> list[Pin]:
    """The pins that --line and --upstream name."""
    line = pins.line(options.line or next(iter(pins.lines)))
    return [pins.pin(line.name, name) for name in options.upstream or line.pins]


def covered(options: argparse.Namespace, pins: Pins, pin: Pin, session: Session, bar: Progress) -> Covered:
    """The audit of a pin's patched tree, held against its ledger."""
    from downstream.patched import build

    tree = build(pins, pin, session)
    ledger = ledgers.load(pins.series_folder(pin) / FILE)
    return with_series(tree, scope_of(options, pin.upstream), ledger, progress=bar)
