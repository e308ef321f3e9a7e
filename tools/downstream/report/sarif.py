"""Results as SARIF 2.1.0, the format that code scanning services take (OASIS, 27 March 2020)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from downstream.placing.verdict import HunkStatus, PatchResult
from downstream.report.context import Located, ReportContext, located, printable
from downstream.report.json import dumps
from downstream.report.wording import ADVICE, MEANING, level, meaning, since, to_review

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
TOOL = "sm120-overlay"


def render(results: Sequence[PatchResult], *, context: ReportContext) -> str:
    """Return a log with a result per hunk that needs eyes, placed at the hunk in its patch file."""
    return together([(results, context)])


def together(reports: Sequence[tuple[Sequence[PatchResult], ReportContext]]) -> str:
    """Return one log about several upstreams."""
    rules = {status.value: MEANING[status] for status in ADVICE} | {
        HunkStatus.UPSTREAMED.value: MEANING[HunkStatus.UPSTREAMED],
        "review": "the hunk applies, but what is around it has changed",
    }
    return log((entry for results, context in reports for entry in _findings(results, context)), rules=rules)


def _findings(results: Sequence[PatchResult], context: ReportContext) -> Iterator[dict[str, Any]]:
    for place in located(results, context):
        if entry := _result(place, context):
            yield entry
    for patch in results:
        if not patch.fine and not patch.files:
            yield result(
                rule=HunkStatus.MALFORMED.value,
                level="error",
                message=patch.reason or patch.status.value,
                path=context.patch_path(patch.patch),
                line=1,
                identity=(context.patch_path(patch.patch),),
            )


def log(results: Iterable[Mapping[str, Any]], *, rules: Mapping[str, str]) -> str:
    """Return a SARIF log of *results* (see ``result``); *rules* maps each rule's id to its sentence."""
    ids = list(rules)
    described = [{"id": rule, "shortDescription": {"text": text}} for rule, text in rules.items()]
    run = {
        "tool": {"driver": {"name": TOOL, "rules": described}},
        "originalUriBaseIds": {"ROOT": {"description": {"text": "the overlay's folder"}}},
        "columnKind": "unicodeCodePoints",
        "results": [{**entry, "ruleIndex": ids.index(entry["ruleId"])} for entry in results],
    }
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def result(
    *,
    rule: str,
    level: str,
    message: str,
    path: str,
    line: int,
    identity: Sequence[str],
    end_line: int | None = None,
    upstream: str = "",
) -> dict[str, Any]:
    """Return one result for ``log``.

    *level* is ``error``, ``warning`` or ``note``; *path* is relative to the
    overlay; *identity* is what stays equal from run to run, so that a service
    knows a result again; *upstream* names the place in the release.
    """
    region = {"startLine": line} | ({"endLine": end_line} if end_line is not None else {})
    uri = quote(path.encode("utf-8", "surrogateescape"))
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": uri, "uriBaseId": "ROOT"}, "region": region}
    }
    if upstream:
        location["logicalLocations"] = [{"fullyQualifiedName": printable(upstream)}]
    digest = hashlib.sha256("\0".join((rule, *identity)).encode("utf-8", "surrogateescape")).hexdigest()
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": printable(message)},
        "locations": [location],
        "partialFingerprints": {"verdict/v1": digest[:32]},
    }


def _result(place: Located, context: ReportContext) -> dict[str, Any] | None:
    severity = level(place)
    if not severity:
        return None
    rule = "review" if severity == "warning" else place.status.value
    text = to_review(place) if severity == "warning" else meaning(place)
    parts = (place.subject, context.title, text, since(place), ADVICE.get(place.status, ""))
    where = f"{place.file.path}:{place.old_line}" if place.old_line else place.file.path
    return result(
        rule=rule,
        level=severity,
        message=": ".join(part for part in parts if part),
        path=place.path,
        line=place.at,
        identity=(place.path, place.file.path, place.subject),
        upstream=where,
    )
