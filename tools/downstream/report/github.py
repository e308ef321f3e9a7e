"""Results as GitHub workflow commands: an annotation on the patch file per hunk to act on."""

from __future__ import annotations

from collections.abc import Sequence

from downstream.placing.verdict import PatchResult
from downstream.report.context import Located, ReportContext, located, printable
from downstream.report.wording import level, meaning, since, to_review

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(results: Sequence[PatchResult], *, context: ReportContext) -> str:
    """Return one ``::error``, ``::warning`` (review) or ``::notice`` (upstreamed) line per hunk."""
    lines = [line for place in located(results, context) if (line := _annotation(place, context))]
    lines += [
        _command("error", context.patch_path(result.patch), 1, result.patch, result.reason or result.status.value)
        for result in results
        if not result.fine and not result.files
    ]
    return "".join(f"{line}\n" for line in lines)


def _annotation(place: Located, context: ReportContext) -> str:
    severity = level(place)
    if not severity:
        return ""
    message = to_review(place) if severity == "warning" else meaning(place)
    where = f"{place.file.path}:{place.old_line}" if place.old_line else place.file.path
    text = ": ".join(part for part in (where, message, since(place), context.title) if part)
    word = "review" if severity == "warning" else place.status.value
    return _command(COMMANDS[severity], place.path, place.at, f"{word}: {place.subject} of {place.patch.patch}", text)


def _command(name: str, path: str, line: int, title: str, message: str) -> str:
    return f"::{name} file={_property(path)},line={line},title={_property(title)}::{_escaped(message)}"


def _escaped(text: str) -> str:
    """Escape as the runner unescapes: %, CR and LF; all other control characters are made visible."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "%0A".join(printable(line).replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
