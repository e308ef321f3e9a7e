"""The options that say what tools/audit.py looks at, and for which architectures."""

from __future__ import annotations

import argparse
from pathlib import Path

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
