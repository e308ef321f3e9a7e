"""``pq.py check --series … --tree …``: any series on any tree, with or without the tree that it was written for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from downstream.cli import FINDINGS, OK, colour_wanted
from downstream.errors import UsageError
from downstream.placing.push import push
from downstream.placing.verdict import PushReport
from downstream.queue.foreign import find_series, read_tolerantly, write_out
from downstream.report.context import ReportContext
from downstream.report.formats import rendered
from downstream.report.terminal import progress
from downstream.trees.layout import IDENTITY
from downstream.trees.spec import open_spec

if TYPE_CHECKING:
    from downstream.trees.session import Session


def check(options: argparse.Namespace) -> int:
    if not (options.series and options.tree):
        missing = "--tree" if options.series else "--series"
        raise UsageError(missing, "is missing", "write --series DIR --tree TREE")
    series = find_series(options.series, strip=options.strip)
    layout = IDENTITY
    if options.upstream:
        from downstream.pins import load

        layout = load(options.root).upstreams[options.upstream].layout
    with _session(options) as session:
        tree = open_spec(options.tree, layout=layout, session=session)
        base = open_spec(options.base, layout=layout, session=session) if options.base else None
        read = read_tolerantly(series)
        report = push(read, tree, base=base)
        written = write_out(report, tree, options.out) if options.out else ()
    context = ReportContext(
        command="check",
        base_tree=base.name if base else "",
        tree=tree.name,
        series=_shown(series.folder),
        patches={parsed.patch.name: parsed.patch for parsed in read},
        written=tuple(f"{_shown(options.out)}/{path}" for path in written),
    )
    colour = colour_wanted(options.color, sys.stdout)
    text = rendered(report.results, context=context, options=options, colour=colour)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    return OK if _fine(report) else FINDINGS


def _fine(report: PushReport) -> bool:
    """Nothing of the report waits for a person: a hunk in a folder of its own counts like a patch."""
    return report.clean and all(hunk.status.fine for result in report.results for hunk in result.hunks)


@contextmanager
def _session(options: argparse.Namespace) -> Iterator[Session | None]:
    """The network and the cache, which only a repository may need; without them a check starts in half the time."""
    if not any(tree and tree.startswith("git:") for tree in (options.tree, options.base)):
        yield None
        return
    from downstream.trees.cache import default_folder
    from downstream.trees.session import Session

    with Session(default_folder(), offline=options.offline, progress=progress(quiet=options.quiet)) as session:
        yield session


def _shown(path: Path) -> str:
    """A path as it may stand in a report: relative where it lies below the working folder."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.name
