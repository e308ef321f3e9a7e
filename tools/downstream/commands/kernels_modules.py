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
    from downstream.kernels.modular import ModuleSources
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
    from downstream.kernels.modular import module_sources, touched_units
    from downstream.trees.cache import default_folder
    from downstream.trees.open import wheel_files

    names = tuple(dict.fromkeys(options.modules.replace(",", " ").split()))
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
    fits = [unit for unit in reach.units if any(new.flags(unit, target) is not None for target in both)]
    if not fits:
        built = sorted({str(to) for module in new.modules.values() for to in module.targets})
        problem = "the series touches no unit of these modules for the targets and references"
        raise UsageError("--modules", problem, f"they are built for {', '.join(built) or 'none of them'}")
    return reach.keep(fits, "its module is not built for these targets and references"), old, new
