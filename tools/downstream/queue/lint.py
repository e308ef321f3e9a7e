"""What is wrong with a series by its own rules, before any tree is looked at (DESIGN 6)."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from downstream.patches.crosscheck import crosscheck
from downstream.patches.header import Header
from downstream.patches.parse import MalformedError, Parsed
from downstream.patches.series import Series
from downstream.patches.text import Patch
from downstream.placing.verdict import HunkStatus, PatchResult

_FORWARDED = re.compile(r"(no|not-needed)\b|https?://\S+", re.IGNORECASE)
_NUMBERED = re.compile(rb"^Subject: *\[[^\]]*\d+/\d+\]", re.MULTILINE)
_INDEX = re.compile(rb"^index [0-9a-f]{7,}\.\.", re.MULTILINE)
_DIFFSTAT = re.compile(rb"^ \d+ files? changed", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to mend. A warning does not make the check fail."""

    patch: str  # the entry's name; the series file's where no patch is at fault
    line: int  # 1-based, of that file
    problem: str
    next_step: str = ""
    warning: bool = False


def lint(series: Series, read: Sequence[Parsed]) -> list[Finding]:
    """Return what is wrong with *series*, whose patches are *read* in order, in the order of the series."""
    findings = [*_entries(series), *_orphans(series)]
    for entry, parsed in zip(series.entries, read, strict=True):
        findings += _patch(parsed)
        if entry.strip != 1:
            problem = f"is applied at -p{entry.strip}; git am takes -p1 only"
            findings.append(_at_series(series, entry.line, f"{entry.name} {problem}", "export it again", warning=True))
    return findings


def unsettled(results: Sequence[PatchResult]) -> list[Finding]:
    """Return a finding per patch whose hunks do not stand where they say, on the release they are for."""
    found = []
    for result in results:
        moved = [hunk for hunk in result.hunks if hunk.status is HunkStatus.OFFSET]
        if moved:
            places = ", ".join(f"{hunk.path} hunk {hunk.number} by {hunk.offset:+d}" for hunk in moved)
            step = "tools/pq.py refresh writes the line numbers anew"
            found.append(
                Finding(patch=result.patch, line=1, problem=f"applies with an offset: {places}", next_step=step)
            )
    return found


def _at_series(series: Series, line: int, problem: str, step: str = "", *, warning: bool = False) -> Finding:
    return Finding(patch=series.file, line=line, problem=problem, next_step=step, warning=warning)


def _entries(series: Series) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for entry in series:
        if entry.name in seen:
            problem = f"names {entry.name} again (first in line {seen[entry.name]})"
            yield _at_series(series, entry.line, problem, "take one of the two lines out")
        seen.setdefault(entry.name, entry.line)


def _orphans(series: Series) -> Iterator[Finding]:
    named = {entry.name for entry in series}
    for path in sorted(_patch_files(series.folder)):
        if path not in named:
            yield Finding(patch=path, line=1, problem="is in no series", next_step="add it to the series, or remove it")


def _patch_files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.suffix in (".patch", ".diff") and path.is_file():
            yield path.relative_to(folder).as_posix()


def _patch(parsed: Parsed) -> Iterator[Finding]:
    patch = parsed.patch

    def finding(problem: str, step: str = "", *, line: int = 1, warning: bool = False) -> Finding:
        return Finding(patch=patch.name, line=line, problem=problem, next_step=step, warning=warning)

    if not patch.files and not parsed.faults:
        yield finding("changes nothing yet", "tools/pq.py checkout, commit the change, tools/pq.py export")
    header = Header.parse(patch.header)
    for field in header.missing():
        yield finding(f"has no {field} field", f"add '{field}: …' to its header (DEP-3)")
    if header.forwarded and not _FORWARDED.match(header.forwarded):
        yield finding(f"Forwarded is '{header.forwarded}'", "write a URL, 'no' or 'not-needed'")
    if header.last_update and age(header, datetime.date.max) is None:
        yield finding(f"Last-Update is '{header.last_update}'", "write it as YYYY-MM-DD")
    if header.subject and not header.description:
        yield finding("does not say what breaks without it", "write a paragraph under its fields")
    if not header.get("From") or header.get("Subject") is None:
        yield finding("git am needs From and Subject fields", "rename Author and Description", warning=True)
    try:
        crosscheck(patch)
    except MalformedError as exc:
        yield finding(exc.problem, exc.next_step, line=exc.line)
    yield from _churn(patch, finding)


def _churn(patch: Patch, finding: Callable[..., Finding]) -> Iterator[Finding]:
    content = patch.to_bytes()
    signs = (
        (_NUMBERED, "its subject bears a number", "the series alone gives the order"),
        (_INDEX, "has index lines, whose hashes depend on the clone", "export it again, or take them out"),
        (_DIFFSTAT, "has a diffstat", "take it out: it changes with every line"),
    )
    for pattern, problem, step in signs:
        if found := pattern.search(content):
            yield finding(problem, step, line=content.count(b"\n", 0, found.start()) + 1, warning=True)
    for file in patch.files:
        for hunk in file.hunks:
            for offset, line in enumerate(hunk.raw.split(b"\n")[1:-1], start=1):
                if not line:
                    step = "an editor ate its space; write one blank"
                    yield finding("a blank context line has no space", step, line=hunk.at + offset, warning=True)
                    break


def age(header: Header, today: datetime.date) -> int | None:
    """Return the days since Last-Update, None where there is no such date."""
    try:
        return (today - datetime.date.fromisoformat((header.last_update or "").strip())).days
    except ValueError:
        return None
