"""``pq.py line``: a line begun as a copy of another."""

from __future__ import annotations

import argparse

from downstream.cli import OK
from downstream.pins import load
from downstream.queue import newline, state
from downstream.queue.transaction import recover
from downstream.report import json as report_json
from downstream.report.context import printable


def begin(options: argparse.Namespace) -> int:
    with state.exclusive(options.root):
        recover(options.root)
        pins = load(options.root)
        source = options.source or next(iter(pins.lines))
        written = newline.begin(pins, options.name, source)
    pinned = [f"{pin.upstream.name}=v{pin.version}" for pin in pins.line(source).pins.values()]
    steps = [f"tools/rebase.py --line {options.name} --upstream RELEASE (it stands on {', '.join(pinned)})"]
    if options.json:
        document = {"line": options.name, "from": source, "written": list(written), "next": steps}
        print(report_json.dumps({"schema": report_json.SCHEMA, "command": "line", "ok": True, **document}), end="")
    elif not options.quiet:
        for path in written:
            print(f"{'wrote':<10} {printable(path)}")
        for step in steps:
            print(f"next: {step}")
    return OK
