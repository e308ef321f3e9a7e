from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from junitparser import JUnitXml

from downstream.cli import add_common_options
from downstream.errors import UsageError
from downstream.placing.verdict import PatchResult
from downstream.report.context import ReportContext
from downstream.report.formats import FORMATS, add_options, rendered, rendered_together

Reports = tuple[tuple[Sequence[PatchResult], ReportContext], ...]


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_common_options(parser)
    add_options(parser)
    return parser.parse_args(words)


@pytest.fixture
def reports(results: Sequence[PatchResult], fine: Sequence[PatchResult], context: ReportContext) -> Reports:
    other = replace(context, upstream="sglang", series="patches/stable/sglang", patches={})
    return ((results, context), (fine, other))


@pytest.mark.parametrize("name", ["json", *FORMATS])
def test_one_report_together_is_the_report_alone(
    name: str, results: Sequence[PatchResult], context: ReportContext
) -> None:
    alone = rendered(results, context=context, options=options(f"--{name}"))
    assert alone == rendered_together([(results, context)], options=options(f"--{name}"))
    assert alone.endswith("\n")


def test_two_upstreams_are_one_valid_sarif_log(reports: Reports, sarif_schema: dict[str, Any]) -> None:
    log = json.loads(rendered_together(reports, options=options("--sarif")))
    jsonschema.validate(log, sarif_schema)
    assert len(log["runs"]) == 1


def test_two_upstreams_are_one_junit_document(reports: Reports) -> None:
    document = JUnitXml.fromstring(rendered_together(reports, options=options("--junit")).encode())
    assert [suite.name for suite in document][-2:] == [
        "patches/stable/flashinfer/fine.patch",
        "patches/stable/sglang/fine.patch",
    ]


def test_two_upstreams_are_one_json_document_with_all_patches(reports: Reports) -> None:
    document = json.loads(rendered_together(reports, options=options("--json")))
    assert [document[key] for key in ("schema", "command", "ok")] == [1, "check", False]
    assert [patch["patch"] for patch in document["patches"]][-2:] == ["flashinfer/fine.patch", "sglang/fine.patch"]
    assert [(one["upstream"], one["ok"], one["series"]) for one in document["upstreams"]] == [
        ("flashinfer", False, "patches/stable/flashinfer"),
        ("sglang", True, "patches/stable/sglang"),
    ]


def test_two_upstreams_in_text_stand_below_each_other(reports: Reports) -> None:
    shown = rendered_together(reports, options=options())
    assert "\n\nsglang 0.6.3 → 0.6.17 (line stable)\n" in shown
    assert rendered_together(reports[1:] * 2, options=options("--quiet")) == ""


def test_two_formats_at_once_are_refused(results: Sequence[PatchResult], context: ReportContext) -> None:
    with pytest.raises(UsageError, match="stdout holds one format"):
        rendered(results, context=context, options=options("--json", "--sarif"))
