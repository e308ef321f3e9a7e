"""Results as JSON, schema 1 (documented in the README; guarded by a golden test)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from downstream.placing.verdict import FileResult, HunkResult, PatchResult
from downstream.report.context import ReportContext, decoded

SCHEMA = 1
SHARED = ("schema", "command")  # of the document as a whole

_SURROGATE = re.compile("[\ud800-\udfff]")


def render(results: Sequence[PatchResult], *, context: ReportContext) -> str:
    """Return the document of *results*, keys in schema order, ended by a newline.

    Equal results give equal bytes: no clock, no absolute path, no byte count
    that depends on a cache.
    """
    return dumps(document(results, context=context))


def document(results: Sequence[PatchResult], *, context: ReportContext) -> dict[str, Any]:
    """The document as plain values, for a command that adds keys of its own at the end."""
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "command": context.command,
        "ok": all(result.fine for result in results),
    }
    facts = {
        "line": context.line,
        "upstream": context.upstream,
        "from": context.old_version,
        "to": context.new_version,
        "base": context.base_tree,
        "tree": context.tree,
        "series": context.series,
    }
    head.update((key, value) for key, value in facts.items() if value)
    head["patches"] = [_patch(result) for result in results]
    tail = {"walked": context.walked, "written": context.written, "next": context.next_steps}
    head.update((key, list(value)) for key, value in tail.items() if value)
    return head


def together(reports: Sequence[tuple[Sequence[PatchResult], ReportContext]]) -> dict[str, Any]:
    """One document about several upstreams: their patches in one list, as ``upstream/name``, then the facts of each."""
    documents = [document(results, context=context) for results, context in reports]
    patches = []
    for one in documents:
        found = one.pop("patches")
        patches += [{**patch, "patch": f"{one['upstream']}/{patch['patch']}"} for patch in found]
    return {
        "schema": SCHEMA,
        "command": documents[0]["command"],
        "ok": all(one["ok"] for one in documents),
        "patches": patches,
        "upstreams": [{key: value for key, value in one.items() if key not in SHARED} for one in documents],
    }


def dumps(value: Any) -> str:
    """Serialize to text that is always UTF-8: a byte that was none stays as a ``\\udcXX`` escape."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _patch(result: PatchResult) -> dict[str, Any]:
    return {
        "patch": result.patch,
        "status": result.status.value,
        "reason": result.reason,
        "files": [_file(file) for file in result.files],
    }


def _file(file: FileResult) -> dict[str, Any]:
    return {
        "path": file.path,
        "status": file.status.value,
        "moved_to": file.moved_to,
        "reason": file.reason,
        "hunks": [_hunk(hunk) for hunk in file.hunks],
    }


def _hunk(hunk: HunkResult) -> dict[str, Any]:
    return {
        "number": hunk.number,
        "status": hunk.status.value,
        "line": hunk.line,
        "offset": hunk.offset,
        "hint_fuzz": hunk.hint_fuzz,
        "since": hunk.since,
        "reason": hunk.reason,
        "old_line": hunk.old_line,
        "candidates": list(hunk.candidates),
        "elsewhere": list(hunk.elsewhere),
        "found": [{"line": line, "text": decoded(text)} for line, text in hunk.found],
        "review": hunk.review,
        "tentative": hunk.tentative,
    }
