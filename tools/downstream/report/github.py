"""Results as GitHub workflow commands: an annotation on the patch file per hunk to act on."""

from __future__ import annotations

from collections.abc import Sequence

from downstream.placing.verdict import HunkStatus, PatchResult
from downstream.report.context import Located, ReportContext, located, printable
from downstream.report.wording import meaning, since, to_review


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
    if not place.status.fine:
        level, message = "error", meaning(place)
    elif review := to_review(place):
        level, message = "warning", review
    elif place.status is HunkStatus.UPSTREAMED:
        level, message = "notice", meaning(place)
    else:
        return ""
    where = f"{place.file.path}:{place.old_line}" if place.old_line else place.file.path
    text = ": ".join(part for part in (where, message, since(place), context.title) if part)
    word = "review" if level == "warning" else place.status.value
    return _command(level, place.path, place.at, f"{word}: {place.subject} of {place.patch.patch}", text)


def _command(level: str, path: str, line: int, title: str, message: str) -> str:
    return f"::{level} file={_property(path)},line={line},title={_property(title)}::{_escaped(message)}"


def _escaped(text: str) -> str:
    """Escape as the runner unescapes: %, CR and LF; all other control characters are made visible."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "%0A".join(printable(line).replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
