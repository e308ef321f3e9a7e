"""tools/audit.py: every place that shuts SM120 out, and who has looked at it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from downstream.cli import add_common_options, parser
from downstream.commands.audit_options import add_scope
from downstream.errors import UsageError

DESCRIPTION = """\
Every guard that admits some GPU architectures and not the target: preprocessor conditions, host C++,
Python gates. Without a scope: the patched releases of the first line, held against their ledgers.
Exit code 1: somebody has to look at a guard."""
EPILOG = """\
commands:
  tools/audit.py review     add entries to a ledger, or prune it (review --help)
  tools/audit.py bundle     one self-contained file for a host that has only Python (bundle --help)

examples:
  tools/audit.py --upstream flashinfer
  tools/audit.py --tree flashinfer_python-0.6.3-py3-none-any.whl --paths 'include/*' --json
  tools/audit.py --diff 0.6.3 0.7.2 --upstream flashinfer
  tools/audit.py --reference sm_120 --target sm_121"""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["review"]:
        from downstream.commands import audit_review

        return audit_review.main(words[1:])
    if words[:1] == ["bundle"]:
        from downstream.commands import audit_bundle

        return audit_bundle.main(words[1:])
    options = build_parser().parse_args(words)
    _one_format(options)
    from downstream.commands import audit_run

    return audit_run.run(options)


def build_parser() -> argparse.ArgumentParser:
    options = parser("audit", DESCRIPTION)
    options.epilog = EPILOG
    add_scope(options)
    options.add_argument("--all", action="store_true", help="guards that are no findings, too")
    options.add_argument("--markdown", action="store_true", help="the answer as Markdown, fit for a pull request")
    options.add_argument("--sarif", action="store_true", help="the answer as SARIF 2.1.0, for code scanning")
    add_common_options(options)
    return options


def _one_format(options: argparse.Namespace) -> None:
    asked = [f"--{name}" for name in ("json", "markdown", "sarif") if getattr(options, name)]
    if len(asked) > 1:
        raise UsageError(" ".join(asked), "stdout holds one format", "choose one of them")
    scopes = [name for name in ("tree", "installed", "diff") if getattr(options, name)]
    if len(scopes) > 1:
        raise UsageError(" ".join(f"--{name}" for name in scopes), "are different scopes", "choose one of them")
    if options.python and not options.installed:
        raise UsageError("--python", "says whose environment", "add --installed")
