"""A second opinion on a patch: unidiff reads the same hunks, and must find the same lines."""

from __future__ import annotations

from collections.abc import Sequence

from downstream.patches.hunks import MalformedError
from downstream.patches.text import Hunk, Patch

# git and GNU patch take any line that starts with a backslash for the marker; unidiff knows only the English one.
_MARKER = "\\ No newline at end of file\n"


def crosscheck(patch: Patch) -> None:
    """Raise MalformedError where unidiff reads another hunk, or other lines of one, than we did.

    Reading twice takes three times as long, so this is for what is ours to answer for: a series by its own rules,
    and what comes into one.
    """
    for file in patch.files:
        if file.hunks:
            _compare(file.hunks, patch=patch.name, path=file.path)


def _compare(hunks: Sequence[Hunk], *, patch: str, path: str) -> None:
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    fed = ["--- a/file\n", "+++ b/file\n"]
    for hunk in hunks:
        fed += _fed(hunk)
    try:
        # Counts are all that is asked for: its values are the lines that we feed it.
        files = PatchSet(fed, metadata_only=True)
    except UnidiffParseError as exc:
        problem = f"unidiff cannot read it: {str(exc).strip()}"
        raise MalformedError(problem, patch=patch, path=path, line=hunks[0].at) from exc
    theirs = [hunk for file in files for hunk in file]
    if len(files) != 1 or len(theirs) != len(hunks):
        raise MalformedError("unidiff reads another number of hunks", patch=patch, path=path, line=hunks[0].at)
    for ours, their in zip(hunks, theirs, strict=True):
        signs = [sign for sign, _ in ours.body]
        if (
            their.source_start,
            their.source_length,
            their.target_start,
            their.target_length,
            their.removed,
            their.added,
        ) != (ours.old_start, ours.old_count, ours.new_start, ours.new_count, signs.count("-"), signs.count("+")):
            raise MalformedError("unidiff reads other lines", patch=patch, path=path, hunk=ours.number, line=ours.at)


def _fed(hunk: Hunk) -> list[str]:
    """Split a hunk for unidiff: on LF only, so that no form feed or NEL is taken for a line break."""
    text = hunk.raw.decode("latin-1")
    lines = [line + "\n" for line in text.removesuffix("\n").split("\n")]
    if "\n\\" in text:
        lines = [_MARKER if line.startswith("\\") else line for line in lines]
    if "\n\t" in text:
        lines = [" " + line if line.startswith("\t") else line for line in lines]
    return lines
