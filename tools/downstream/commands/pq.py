"""tools/pq.py: the patch queue: what it holds, whether it is sound, and how it is edited."""

from __future__ import annotations

import argparse
import datetime
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path

from downstream.cli import add_common_options, parser
from downstream.report.formats import add_options as add_format_options

DESCRIPTION = """\
The patch queue: the series of each line and upstream, under patches/.

A change is made in a git working tree and brought back:
  tools/pq.py checkout flashinfer      one commit per patch, in .work/checkout/stable/flashinfer
  (edit; git commit, git rebase -i)
  tools/pq.py export flashinfer        the commits, back as patches; untouched ones keep every byte"""

CHECKOUT = """\
Make a git working tree of the pinned release with one commit per patch.

It holds all of the release but what is vendored (3rdparty/); --full holds that,
too. --touched holds only the files that the series touches, which is quick
without the wheel in the cache; --with names more (a file, a folder or a
pattern; may be repeated). A commit's message is the patch's subject, text and fields;
'Patch-Name:' says which file it is. Amend, reorder, split, drop and add commits
as you like (git rebase -i); a commit without Patch-Name becomes a new patch."""

EXPORT = """\
Bring the commits of a checkout back as patches: all of them, or nothing.

A commit that does what its patch did keeps the patch's bytes; where only line
numbers moved, only those change."""

IMPORT = """\
Add a patch to the end of a series, carried to the pinned release.

SOURCE is a diff, a mail or an mbox (each mail becomes a patch), '-' for stdin,
or git:REPO@COMMIT, REPO a clone or a clone URL. What the release does not ship
(an upstream commit's tests and docs) is left out and named."""

LINE = """\
Begin a line as a copy of another: its pins in VERSIONS.toml, its series and its
ledgers, written in one step or not at all. What differs is made from there:
  tools/pq.py line next --from stable
  tools/rebase.py --line next --upstream flashinfer=v0.7.2"""

CHECK = """\
Check the project's series (each entry once, no orphans, headers complete, every
hunk at its line on the pin), or with --series any series on any tree.

TREE is a folder, an archive, a wheel or git:REPO@REV. Without --base hunks are
placed by their text, at fuzz 0; with it, by where the code went since."""


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    module, name = options.run
    if options.command == "check" and (options.series or options.tree):
        module = "pq_foreign"
    return int(getattr(importlib.import_module(f"downstream.commands.{module}"), name)(options))


def build_parser() -> argparse.ArgumentParser:
    top = parser("pq", DESCRIPTION)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, run: tuple[str, str], summary: str, description: str = "") -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=summary,
            description=description or summary,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(run=run)
        return added

    listing = command("list", ("pq_check", "list_series"), "the series with its verdicts on the pin")
    _pin_options(listing, optional=True)
    _date_option(listing, "the day ages are counted to (default: today)")
    check = command("check", ("pq_check", "check"), "is a series sound?", CHECK)
    _pin_options(check, optional=True)
    foreign = check.add_argument_group("foreign material")
    foreign.add_argument("--series", type=Path, metavar="DIR", help="a series file or the folder that holds it")
    foreign.add_argument("--tree", metavar="TREE", help="what to apply it to")
    foreign.add_argument("--base", metavar="TREE", help="the tree it was written for")
    foreign.add_argument("-p", type=_strip, default=1, dest="strip", metavar="N", help="strip level (default: 1)")
    foreign.add_argument("--out", type=Path, metavar="DIR", help="write the files that the series changes")
    add_format_options(check)
    checkout = command("checkout", ("pq_edit", "checkout"), "a git working tree with one commit per patch", CHECKOUT)
    _pin_options(checkout)
    _folder_option(checkout)
    extent = checkout.add_mutually_exclusive_group()
    extent.add_argument("--touched", action="store_true", help="only the files that the series touches")
    extent.add_argument("--full", action="store_true", help="vendored files (3rdparty/), too")
    checkout.add_argument("--with", action="append", default=[], dest="more", metavar="PATH", help="these files, too")
    checkout.add_argument("--force", action="store_true", help="replace a checkout that has changes")
    export = command("export", ("pq_edit", "export"), "commits back to patches", EXPORT)
    _pin_options(export)
    _folder_option(export)
    _date_option(export, "Last-Update of new patches (default: today)")
    export.add_argument("-n", "--dry-run", action="store_true", help="say what would change")
    imports = command("import", ("pq_edit", "import_patches"), "add a diff, a mail or an upstream commit", IMPORT)
    imports.add_argument("source", metavar="SOURCE")
    _pin_options(imports)
    imports.add_argument("--name", metavar="NAME", help="the patch file's name (default: from its subject)")
    imports.add_argument("--subject", metavar="TEXT", help="for a diff without one")
    imports.add_argument("--origin", metavar="TEXT", help="DEP-3 Origin (default: from the source)")
    imports.add_argument("-p", type=_strip, default=1, dest="strip", metavar="N", help="strip level (default: 1)")
    _date_option(imports, "Last-Update (default: today)")
    _editing_commands(command)
    for added in commands.choices.values():
        add_common_options(added)
    return top


def _editing_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    new = command("new", ("pq_edit", "new"), "add an empty patch with a header to fill in")
    new.add_argument("name", metavar="NAME")
    _pin_options(new)
    new.add_argument("--subject", metavar="TEXT", help="default: the name in words")
    new.add_argument("--after", metavar="PATCH", help="where to put it (default: at the end)")
    _date_option(new, "Last-Update (default: today)")
    drop = command("drop", ("pq_edit", "drop"), "take patches out of the series, and delete them")
    drop.add_argument("names", nargs="+", metavar="PATCH")
    _pin_options(drop)
    fold = command("fold", ("pq_edit", "fold"), "make one patch of several")
    fold.add_argument("into", metavar="PATCH", help="the patch that stays")
    fold.add_argument("names", nargs="+", metavar="PATCH", help="those that go into it")
    _pin_options(fold)
    line = command("line", ("pq_line", "begin"), "begin a line as a copy of another", LINE)
    line.add_argument("name", metavar="NAME")
    line.add_argument("--from", dest="source", metavar="LINE", help="default: the first of VERSIONS.toml")
    refresh = command("refresh", ("pq_edit", "refresh"), "write line numbers anew where hunks apply with an offset")
    _pin_options(refresh)


def _pin_options(options: argparse.ArgumentParser, *, optional: bool = False) -> None:
    options.add_argument("--line", metavar="LINE", help="default: the first of VERSIONS.toml")
    what = "default: all of the line" if optional else "default: the only one of the line that has the patch named"
    options.add_argument("--upstream", metavar="NAME", help=what)


def _folder_option(options: argparse.ArgumentParser) -> None:
    options.add_argument("upstream_name", nargs="?", metavar="UPSTREAM", help="the same as --upstream")
    options.add_argument("--dir", type=Path, metavar="DIR", help="default: .work/checkout/<line>/<upstream>")


def _date_option(options: argparse.ArgumentParser, meaning: str) -> None:
    options.add_argument("--date", type=datetime.date.fromisoformat, metavar="YYYY-MM-DD", help=meaning)


def _strip(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is no strip level")
    return int(text)
