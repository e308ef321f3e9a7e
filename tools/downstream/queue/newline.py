"""A new line, begun as a copy of another: the same pins and the same series, to be rebased from there."""

from __future__ import annotations

import re
import tomllib

from downstream.errors import PinError, UsageError
from downstream.pins import FILE, Pins
from downstream.queue.transaction import Transaction

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_TABLE = re.compile(r"[ \t]*\[[ \t]*lines[ \t]*\.[ \t]*([A-Za-z0-9_-]+)[ \t]*(?=[.\]])")
_ANY_TABLE = re.compile(r"[ \t]*\[")


def begin(pins: Pins, name: str, source: str) -> tuple[str, ...]:
    """Make line *name* from line *source*, pins, series and ledgers, in one step; return the paths written.

    Raises UsageError for a name that is taken or is none, PinError where
    *source* is not there or its tables cannot be copied.
    """
    line = pins.line(source)
    if not _NAME.fullmatch(name):
        raise UsageError(name, "is no name for a line", "use lower-case letters, digits, - and _")
    if name in pins.lines:
        raise UsageError(name, f"is a line of {FILE} already", "choose another name")
    home = pins.root / "patches" / name
    if home.exists() or home.is_symlink():
        raise UsageError(f"patches/{name}", "is there already", "choose another name, or move it away")
    change = Transaction(pins.root)
    text = (pins.root / FILE).read_text(encoding="utf-8")
    change.write(FILE, with_line(text, name, source).encode())
    for pin in line.pins.values():
        folder = pins.series_folder(pin)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                change.write(home / pin.upstream.name / path.relative_to(folder), path.read_bytes())
    return change.commit()


def with_line(text: str, name: str, source: str) -> str:
    """Return *text* (of VERSIONS.toml) with the tables of line *source* once more, at its end, as line *name*.

    Lines are copied as they are, comments included. Raises PinError where that
    does not give the same pins, as with a line that is written inline.
    """
    copied: list[str] = []
    inside = False
    for row in text.splitlines(keepends=True):
        if _ANY_TABLE.match(row):
            found = _TABLE.match(row)
            inside = found is not None and found[1] == source
            if inside and found:
                row = row[: found.start(1)] + name + row[found.end(1) :]  # noqa: PLW2901
        if inside:
            copied.append(row)
    longer = text.rstrip("\n") + "\n\n" + "".join(copied).rstrip("\n") + "\n"
    wanted = tomllib.loads(text)
    wanted["lines"][name] = wanted["lines"][source]
    try:
        same = tomllib.loads(longer) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise PinError(FILE, f"line '{source}' is not written as [lines.{source}.…] tables", "copy it by hand")
    return longer
