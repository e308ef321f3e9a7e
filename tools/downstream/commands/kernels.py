"""tools/kernels.py: the CUDA toolchain, the proof in machine code, and modules built ahead of time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from downstream.arches import parse_targets
from downstream.cli import FINDINGS, OK, add_common_options, parser
from downstream.commands import kernels_build, kernels_modules
from downstream.commands.kernels_build import add_cuda_home, toolchain_of
from downstream.commands.kernels_report import document, tell, tell_fast
from downstream.errors import UsageError, WriteError
from downstream.report.terminal import progress

if TYPE_CHECKING:
    from downstream.kernels.fast import FastProof
    from downstream.kernels.sources import Touched
    from downstream.patched import PatchedTree

DESCRIPTION = "The kernels of the patched FlashInfer: compiled, proved and packed."
TARGETS = "sm_120a,sm_121a"
REFERENCES = "sm_90a,sm_100a"


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    if options.command == "toolchain":
        return _toolchain(options)
    if options.command == "prove":
        return _prove(options)
    return kernels_build.run(options)


def build_parser() -> argparse.ArgumentParser:
    top = parser("kernels", DESCRIPTION)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    text = "install the pinned CUDA toolchain if need be, say what it is, and try it"
    toolchain = commands.add_parser("toolchain", help=text, description=text, allow_abbrev=False)
    add_cuda_home(toolchain)
    toolchain.add_argument("--targets", default=f"{REFERENCES},sm_120f,{TARGETS}", metavar="LIST")
    add_common_options(toolchain)
    text = (
        "compile what the series touches from both trees and compare the machine code: no kernel may be empty"
        " or miss its wait on the targets, and none may move on the references"
    )
    prove = commands.add_parser("prove", help=text.split(":")[0], description=text, allow_abbrev=False)
    prove.add_argument("--line", metavar="LINE", help="default: the first of VERSIONS.toml")
    prove.add_argument("--fast", action="store_true", help="compare the preprocessed device text: seconds, no compiler")
    prove.add_argument("--targets", default=TARGETS, metavar="LIST", help=f"default: {TARGETS}")
    prove.add_argument("--references", default=REFERENCES, metavar="LIST", help=f"default: {REFERENCES}")
    prove.add_argument(
        "--units",
        action="append",
        metavar="GLOB",
        help="only these touched units, by file name or path; may be repeated",
    )
    kernels_modules.add_options(prove)
    prove.add_argument("--html", type=Path, metavar="FILE", help="also write a page that shows every kernel")
    prove.add_argument("--jobs", type=int, metavar="N", help="compiles at once (default: by free memory)")
    add_cuda_home(prove)
    add_common_options(prove)
    kernels_build.add_commands(commands)
    return top


def _toolchain(options: argparse.Namespace) -> int:
    from downstream.kernels.check import checks

    targets = parse_targets(options.targets)
    found = toolchain_of(options)
    results = checks(found, targets)
    fine = all(not check.problem for check in results)
    if options.json:
        facts = {"origin": found.origin, "version": found.version, "host": found.host, "digest": found.digest}
        document("kernels toolchain", ok=fine, **facts, checks=[asdict(check) for check in results])
        return OK if fine else FINDINGS
    if not options.quiet:
        print(f"CUDA {found.version}, {found.origin}, host compiler {found.host}")
        print(f"  CUDA_HOME={found.home}")
    for check in results:
        if check.problem or not options.quiet:
            print(f"  yes {check.what}" if not check.problem else f"  NO  {check.what}: {check.problem}")
    return OK if fine else FINDINGS


def _prove(options: argparse.Namespace) -> int:
    from downstream.kernels.sources import Sources, touched
    from downstream.patched import build
    from downstream.pins import load
    from downstream.trees.cache import default_folder
    from downstream.trees.session import Session

    targets, references = parse_targets(options.targets), parse_targets(options.references)
    if not targets or not references:
        raise UsageError("--targets, --references", "name at least one each", f"{TARGETS} and {REFERENCES} are usual")
    if options.python and options.modules is None:
        raise UsageError("--python", "is for --modules", "leave it out")
    if options.modules is not None and options.fast:
        step = "leave --fast out, and name a few units with --units"
        raise UsageError("--fast", "has no target to compare with in modules that are built for one family", step)
    pins = load(options.root)
    line = options.line or next(iter(pins.lines))
    with Session(default_folder(), offline=options.offline, progress=progress(quiet=options.quiet)) as session:
        tree = build(pins, pins.pin(line, "flashinfer"), session)
        before: Sources
        after: Sources
        if options.modules is not None:
            reach, before, after = kernels_modules.read(options, tree, session)
        else:
            before = Sources(tree.base)
            after = Sources(tree, before, tree.changed)
            reach = touched(before, after, tree.changed).built_for(after, (*references, *targets))
        if options.units:
            if not (chosen := reach.only(options.units)).units:
                names = [unit.name for unit in reach.units] or ["none"]
                more = f" and {len(names) - 12} more" if len(names) > 12 else ""
                step = f"choose from: {', '.join(names[:12])}{more}"
                raise UsageError("--units", "fits no unit that the series touches", step)
            reach = chosen
        if options.fast:
            return tell_fast(options, tree, reach, _fast(options, tree, reach, before, after))
        if not options.units and options.modules is None:
            reach = _unsettled(options, tree, reach, before, after)
        return _full(options, tree, reach, before, after)


def _unsettled(options: argparse.Namespace, tree: PatchedTree, reach: Touched, before: Any, after: Any) -> Touched:
    """Leave out the fused MoE's units, hours of compiling, where the fast form shows that only host code changes."""
    moe = tuple(unit for unit in reach.units if unit.moe)
    proof = _fast(options, tree, replace(reach, units=moe), before, after)
    if not proof.holds or proof.dead or any(row.differ for row in proof.rows):
        return reach
    reason = "only host code changes, as the fast form shows; prove --units NAME compiles one"
    return reach.keep([unit for unit in reach.units if not unit.moe], reason)


def _fast(options: argparse.Namespace, tree: PatchedTree, reach: Touched, before: Any, after: Any) -> FastProof:
    from downstream.kernels.fast import prove_text
    from downstream.kernels.proof import declared
    from downstream.kernels.toolchain import headers
    from downstream.trees.cache import default_folder

    bar = progress(quiet=options.quiet)
    return prove_text(
        reach.units,
        before,
        after,
        changed=reach.files,
        references=parse_targets(options.references),
        targets=parse_targets(options.targets),
        allowed=declared(tree.patches),
        outside=headers(options.root, default_folder(), offline=options.offline, progress=bar),
        unproved=reach.unproved,
        workers=options.jobs or 2,
    )


TREES = ("unpatched", "patched")


def _full(options: argparse.Namespace, tree: PatchedTree, reach: Touched, before: Any, after: Any) -> int:
    from downstream.kernels.compile import Job, compile_all, workers_for
    from downstream.kernels.module_sources import MEMORY
    from downstream.kernels.picture import page
    from downstream.kernels.proof import declared, join, prove_unit
    from downstream.kernels.toolchain import headers
    from downstream.trees.cache import default_folder

    targets, references = parse_targets(options.targets), parse_targets(options.references)
    both = (*references, *targets)
    toolchain = toolchain_of(options)
    outside = headers(options.root, default_folder(), offline=options.offline)[2:]
    trees = {"unpatched": before, "patched": after}
    jobs = [
        Job(tree=name, unit=unit, target=to)
        for unit in reach.units
        for to in both
        for name, tree_sources in trees.items()
        if tree_sources.flags(unit, to) is not None
    ]
    built = {
        unit.name: [to for to in both if any(j.unit == unit and j.target == to for j in jobs)] for unit in reach.units
    }
    found = compile_all(
        jobs,
        toolchain,
        outside,
        trees,
        default_folder(),
        workers=options.jobs or workers_for(*((MEMORY,) if options.modules else ())),
        progress=progress(quiet=options.quiet),
    )
    by_unit = {
        unit.name: {(job.tree, job.target): kernels for job, kernels in found.items() if job.unit == unit}
        for unit in reach.units
    }
    allowed = declared(tree.patches)
    proofs = [
        prove_unit(
            name,
            {to: listings.get(("unpatched", to), {}) for to in built[name]},
            {to: listings.get(("patched", to), {}) for to in built[name]},
            references=[to for to in references if to in built[name]],
            targets=[to for to in targets if to in built[name]],
            allowed=allowed,
        )
        for name, listings in by_unit.items()
    ]
    proof = join(proofs, reach.unproved)
    if options.html is not None:
        ordered = {
            name: {(t, to): listings.get((t, to), {}) for to in both for t in TREES}
            for name, listings in by_unit.items()
        }
        title = f"{tree.base.name}: kernels before and after the series"
        text = page(ordered, proof, title=title, references=references, targets=targets)
        try:
            options.html.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise WriteError(str(options.html), f"cannot be written: {exc.strerror}", "name another --html") from exc
    return tell(options, tree, proof, toolchain)
