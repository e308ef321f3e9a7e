"""What tools/kernels.py prove prints: families, findings, and what was not proved."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from downstream.arches import parse_targets
from downstream.cli import FINDINGS, OK
from downstream.report.wording import counted

if TYPE_CHECKING:
    from downstream.kernels.fast import FastProof
    from downstream.kernels.proof import Proof
    from downstream.kernels.sources import Touched
    from downstream.kernels.toolchain import Toolchain
    from downstream.patched import PatchedTree


def tell_fast(options: argparse.Namespace, tree: PatchedTree, reach: Touched, proof: FastProof) -> int:
    if options.json:
        document("kernels prove", ok=proof.holds, form="text", release=tree.base.name, **asdict(proof))
        return OK if proof.holds else FINDINGS
    for finding in proof.findings:
        print(finding)
    if not options.quiet:
        for row in proof.rows:
            rest = f", and {counted(row.equal, 'declaration')} of the others" if row.equal or row.differ else ""
            print(f"{row.unit}: {row.before} and {row.after}: {counted(row.files, 'file')} read the same{rest}")
            for label, names in (("host code only", row.host_only), ("differ", row.differ)):
                if names:
                    print(f"  {label}: {', '.join(names)}")
        if proof.declared:
            print(f"changed for the references as a patch declares: {', '.join(proof.declared)}")
        if options.verbose:
            for finding in proof.dead:
                print(f"without the series: {finding}")
        _tell_rest(proof.unknown, proof.unproved)
    print(
        f"{tree.base.name}: {len(reach.units)} of {reach.total} touched units read;"
        f" without the series {len(proof.dead)} faults on the targets, with it"
        f" {len(proof.findings)}; {'what was read holds' if proof.holds else 'the proof fails'}"
    )
    return OK if proof.holds else FINDINGS


def tell(options: argparse.Namespace, tree: PatchedTree, proof: Proof, toolchain: Toolchain) -> int:
    if options.json:
        said = {"form": "machine code", "release": tree.base.name, "toolchain": toolchain.identity, **asdict(proof)}
        document("kernels prove", ok=proof.holds, **said)
        return OK if proof.holds else FINDINGS
    for finding in proof.findings:
        print(finding)
    if not options.quiet:
        print(f"{'family':46} {'target':8} {'tree':10} kernels  empty  instructions  waits  triggers")
        if not proof.rows:
            print("none")
        unit = ""
        for row in proof.rows:
            if row.unit != unit and len({each.unit for each in proof.rows}) > 1:
                print(row.unit)
            unit = row.unit
            span = f"{row.least}-{row.most}"
            print(
                f"{row.family:46} {row.target:8} {row.tree:10} {row.kernels:7} {row.empty:6} {span:>13}"
                f" {row.waits:6} {row.triggers:9}"
            )
        for unit, reference, count in proof.equal:
            if unit not in proof.no_kernels:
                print(f"{unit}: {reference}: {counted(count, 'kernel')} byte for byte the same")
        for unit in proof.no_kernels:
            print(f"{unit}: no kernel for any target: the flags of its module instantiate none")
        for moved in proof.moved:
            print(f"{moved.unit}: {moved.target}: {moved.count} {moved.family} changed, declared by {moved.patch}")
        _tell_rest((), proof.unproved)
    for target in parse_targets(options.targets):
        before, after = (proof.totals(tree, str(target)) for tree in ("unpatched", "patched"))
        print(
            f"{target}: {before.empty} empty kernels before, {after.empty} after;"
            f" {before.waits} of {before.kernels} wait before, {after.waits} of {after.kernels} after"
        )
    answer = "holds" if proof.holds else "fails" if proof.findings else "has no kernel to look at"
    print(f"{tree.base.name}: the proof {answer} ({toolchain.identity})")
    return OK if proof.holds else FINDINGS


def _tell_rest(unknown: Sequence[str], unproved: Sequence[str]) -> None:
    for text in unknown:
        print(f"unknown: {text}")
    for text in unproved:
        print(f"not proved: {text}")


def document(command: str, *, ok: bool, **rest: Any) -> None:
    from downstream.report import json as report_json

    head = {"schema": report_json.SCHEMA, "command": command, "ok": ok}
    sys.stdout.write(report_json.dumps(head | rest))
