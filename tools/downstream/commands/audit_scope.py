"""What the options of tools/audit.py mean: the pins, and the question that is put to them."""

from __future__ import annotations

import argparse
from dataclasses import replace

from downstream.arches import parse_targets
from downstream.commands.audit_options import REFERENCES, TARGETS
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


def covered(
    options: argparse.Namespace, pins: Pins, pin: Pin, session: Session, bar: Progress, *, proof: bool = False
) -> Covered:
    """The audit of a pin's patched tree, held against its ledger; with *proof*, what the kernels' proof says of it."""
    from downstream.patched import build

    tree = build(pins, pin, session)
    ledger = ledgers.load(pins.series_folder(pin) / FILE)
    scope = scope_of(options, pin.upstream)
    found = with_series(tree, scope, ledger, progress=bar, store=session.cache)
    # The proof is over the builds that we ship: it answers no question about other architectures or flags.
    if not proof or scope.defines or not scope.question.variants:
        return found
    from downstream.commands import kernels
    from downstream.kernels.citation import cite

    references, targets = parse_targets(kernels.REFERENCES), parse_targets(kernels.TARGETS)
    cited = cite(options.root, tree, session, references=references, targets=targets, progress=bar)
    return replace(found, proof=cited)
