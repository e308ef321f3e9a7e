from __future__ import annotations

from collections.abc import Sequence

from junitparser import JUnitXml

from downstream.placing.verdict import PatchResult
from downstream.report import junit
from downstream.report.context import ReportContext


def test_a_parser_reads_a_suite_per_patch_and_a_case_per_hunk(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    document = JUnitXml.fromstring(junit.render(results, context=context).encode("utf-8"))
    assert {
        suite.name.removeprefix("patches/stable/flashinfer/"): (suite.tests, suite.failures, suite.errors)
        for suite in document
    } == {
        "guards.patch": (3, 1, 0),
        "arch-list.patch": (2, 0, 0),
        "moved.patch": (2, 1, 0),
        "hostile.patch": (2, 2, 0),
        "endings.patch": (1, 1, 0),
        "broken.patch": (1, 0, 1),
        "fine.patch": (1, 0, 0),
    }
    assert (document.tests, document.failures, document.errors) == (12, 5, 1)


def test_a_failure_holds_reason_release_and_the_lines_in_the_way(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    document = JUnitXml.fromstring(junit.render(results, context=context).encode("utf-8"))
    case = list(next(iter(document)))[1]
    failure = case.result[0]
    assert case.name == "include/flashinfer/comm/trtllm_allreduce.cuh hunk 2 line 455"
    assert failure.type == "conflict"
    assert failure.message == "conflict: line 456 is not what the hunk removes (since 0.6.17)"
    assert "456 | #if (defined(__CUDA_ARCH__))" in failure.text
    assert "caf\\xe9\\x1b[2J" in failure.text


def test_what_xml_cannot_hold_is_shown_escaped() -> None:
    assert junit.legal("a\x00b\ud800c\ufffed\ne") == "a\\x00b\\ud800c\\ufffed\ne"
