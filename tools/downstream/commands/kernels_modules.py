"""tools/kernels.py prove --modules: what a series makes of the sources that FlashInfer's generators write."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from downstream.arches import parse_targets
from downstream.commands.kernels_build import patched_wheel, toolchain_of
from downstream.errors import UsageError
from downstream.report.terminal import progress

if TYPE_CHECKING:
    from downstream.kernels.module_sources import ModuleSources
    from downstream.kernels.sources import Touched
    from downstream.patched import PatchedTree
    from downstream.trees.session import Session


def add_options(prove: argparse.ArgumentParser) -> None:
    prove.add_argument(
        "--modules",
        metavar="LIST",
        help="the units of these modules instead, generated ones too: gen_NAME_module (for one: gemm_sm120)",
    )
    text = "for --modules: an interpreter that has torch and the generator's requirements (default: one is made)"
    prove.add_argument("--python", type=Path, metavar="FILE", help=text)


def read(
    options: argparse.Namespace, tree: PatchedTree, session: Session
) -> tuple[Touched, ModuleSources, ModuleSources]:
    """Return the units of ``--modules`` that the series touches, and both trees' sources."""
    from downstream.kernels.environment import TORCH, installed_wheel, interpreter
    from downstream.kernels.module_sources import module_sources, touched_units
    from downstream.trees.cache import default_folder
    from downstream.trees.open import wheel_files

    names = tuple(dict.fromkeys(options.modules.replace(",", " ").split()))
    if not names:
        raise UsageError(
            "--modules", "names none", "gemm_sm120 and cutlass_fused_moe_sm120 are two that FlashInfer has"
        )
    if options.python and not options.python.is_file():
        raise UsageError("--python", f"{options.python} is no interpreter", "name one that has torch, or leave it out")
    both = tuple(dict.fromkeys((*parse_targets(options.references), *parse_targets(options.targets))))
    cache, bar = default_folder(), progress(quiet=options.quiet)
    toolchain = toolchain_of(options)
    python = options.python or interpreter(options.root, cache, torch=TORCH, offline=options.offline, progress=bar)
    inherited = os.environ.get("PYTHONPATH", "") if options.python else ""
    layout = tree.pin.upstream.layout
    with tempfile.TemporaryDirectory(prefix="kernels-prove-") as name:
        wheels = (next(iter(wheel_files(tree.pin, session))), patched_wheel(options, tree.pin.line, Path(name)))
        before, after = (installed_wheel(python, wheel, cache, inherited=inherited) for wheel in wheels)
    old = module_sources(tree.base, layout, before, toolchain, names, both, progress=bar)
    changed = tuple(tree.changed)
    new = module_sources(tree, layout, after, toolchain, names, both, like=old, changed=changed, progress=bar)
    reach = touched_units(old, new, changed)
    fits = [unit for unit in reach.units if any(each.flags(unit, to) is not None for to in both for each in (old, new))]
    if not fits:
        compiles = (each for module in new.modules.values() for each in module.compiles.values())
        built = ", ".join(sorted({str(to) for each in compiles for to in each.targets}))
        problem = f"the series touches no unit of these modules, which are built for {built}, for these targets"
        raise UsageError("--modules", problem, "name other modules, or their targets with --targets and --references")
    return reach.keep(fits, "its module is not built for these targets and references"), old, new
