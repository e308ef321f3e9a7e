from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema

from downstream.placing.verdict import PatchResult
from downstream.report import sarif
from downstream.report.context import ReportContext


def test_the_log_validates_and_places_each_finding_in_its_patch(
    results: Sequence[PatchResult], context: ReportContext, sarif_schema: dict[str, Any]
) -> None:
    log = json.loads(sarif.render(results, context=context))
    jsonschema.validate(log, sarif_schema)
    run = log["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert [
        (
            result["ruleId"],
            result["level"],
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].rpartition("/")[2],
            result["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for result in run["results"]
    ] == [
        ("conflict", "error", "guards.patch", 21),
        ("upstreamed", "note", "arch-list.patch", 9),
        ("review", "warning", "arch-list.patch", 18),
        ("review", "warning", "moved.patch", 8),
        ("file-gone", "error", "moved.patch", 18),
        ("ambiguous", "error", "hostile.patch", 5),
        ("misplaced", "error", "hostile.patch", 15),
        ("line-endings", "error", "endings.patch", 4),
        ("malformed", "error", "broken.patch", 1),
    ]


def test_a_clean_series_gives_a_valid_log_without_results(
    fine: Sequence[PatchResult], context: ReportContext, sarif_schema: dict[str, Any]
) -> None:
    log = json.loads(sarif.render(fine, context=context))
    jsonschema.validate(log, sarif_schema)
    assert log["runs"][0]["results"] == []


def test_a_finding_is_known_again_after_its_lines_moved() -> None:
    before, after = (
        sarif.result(rule="x", level="error", message="m", path="p", line=line, identity=("p", "hunk 1"))
        for line in (3, 30)
    )
    assert before["partialFingerprints"] == after["partialFingerprints"]


def test_a_path_that_is_no_uri_is_quoted() -> None:
    entry = sarif.result(rule="x", level="note", message="m", path="a b/ü%\udcff#.patch", line=1, identity=())
    uri = entry["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "a%20b/%C3%BC%25%FF%23.patch"
