from __future__ import annotations

from collections.abc import Sequence

from downstream.placing.verdict import PatchResult
from downstream.report import github
from downstream.report.context import ReportContext


def test_each_finding_is_one_command_on_its_line_of_the_patch(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    lines = github.render(results, context=context).splitlines()
    assert [line.partition(" ")[0] for line in lines] == [
        "::error",
        "::notice",
        "::warning",
        "::warning",
        *["::error"] * 5,
    ]
    assert lines[0] == (
        "::error file=patches/stable/flashinfer/guards.patch,line=21,title=conflict%3A hunk 2 of guards.patch::"
        "include/flashinfer/comm/trtllm_allreduce.cuh:455: line 456 is not what the hunk removes: since 0.6.17: "
        "flashinfer 0.6.3 → 0.6.17 (line stable)"
    )
    assert lines[-1].endswith("::line 7: the hunk ends too early")


def test_no_name_can_end_a_command_or_begin_another(results: Sequence[PatchResult], context: ReportContext) -> None:
    (hostile,) = [line for line in github.render(results, context=context).splitlines() if "ambiguous" in line]
    assert "%250A::error" in hostile  # the runner turns %25 back into %, and sees no line end
    assert "\x1b" not in hostile


def test_a_clean_series_annotates_nothing(fine: Sequence[PatchResult], context: ReportContext) -> None:
    assert github.render(fine, context=context) == ""
