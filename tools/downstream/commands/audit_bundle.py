"""tools/audit.py bundle: the audit in one file, for a host that has only Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from downstream.cli import OK, add_common_options, parser
from downstream.guards.bundle import LEFT_OUT, bundle
from downstream.guards.ledger import FILE
from downstream.pins import Pins, load

ENTRY = "downstream.commands.audit_remote"


def main(argv: Sequence[str]) -> int:
    options = parser("audit", f"Write the audit as one self-contained Python file. Left out: {LEFT_OUT}.")
    options.prog = "tools/audit.py bundle"
    options.epilog = (
        "example:\n  tools/audit.py bundle --out audit-remote.py\n  ssh host python3 - --installed < audit-remote.py"
    )
    options.add_argument("--line", metavar="LINE", help="whose ledgers to take along (default: the first)")
    options.add_argument("--out", type=Path, metavar="FILE", help="default: stdout")
    add_common_options(options)
    given = options.parse_args(argv)
    pins = load(given.root)
    text = bundle(Path(__file__).resolve().parents[2], ENTRY, facts(pins, given.line or next(iter(pins.lines))))
    if given.out is None:
        print(text, end="")
        return OK
    from downstream.guards.review import write

    write(given.out, text)
    print(f"wrote {given.out}: ssh host python3 - --installed < {given.out}")
    return OK


def facts(pins: Pins, line: str) -> dict[str, object]:
    """What the file knows about the project: packages, layouts, and the line's ledgers."""
    upstreams = []
    for name, pin in pins.line(line).pins.items():
        ledger = pins.series_folder(pin) / FILE
        upstreams.append(
            {
                "name": name,
                "package": pin.upstream.package,
                "layout": pin.upstream.layout.prefixes,
                "version": str(pin.version),
                "ledger": ledger.read_text(encoding="utf-8") if ledger.exists() else "",
            }
        )
    return {"line": line, "upstreams": upstreams}
