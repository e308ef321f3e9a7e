from __future__ import annotations

import re
from collections.abc import Sequence

from downstream.placing.verdict import HunkStatus, PatchResult
from downstream.report import text
from downstream.report.context import ReportContext

WORD = re.compile(rf": ({'|'.join([status.value for status in HunkStatus] + ['review'])}): ")
ESCAPE = re.compile("\033\\[[0-9;]*m")


def test_a_conflict_names_patch_file_hunk_lines_reason_and_first_release(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    lines = text.render(results, context=context).splitlines()
    start = lines.index(
        "patches/stable/flashinfer/guards.patch:21: include/flashinfer/comm/trtllm_allreduce.cuh:455: conflict: "
        "hunk 2: line 456 is not what the hunk removes (since 0.6.17)"
    )
    assert lines[start + 1 : start + 7] == [
        "    in the way:",
        "        456 | #if (defined(__CUDA_ARCH__))",
        "        457 |   caf\\xe9\\x1b[2J",
        "    the lines it changes stand at: 455, 533",
        "    GNU patch would take it with fuzz 2; we never do",
        "    next: rewrite the change against the lines shown",
    ]


def test_the_head_says_what_was_compared_and_gives_each_patch_a_line(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    lines = text.render(results, context=context).splitlines()
    assert lines[:4] == [
        "flashinfer 0.6.3 → 0.6.17 (line stable)",
        "  conflict           guards.patch     3 hunks: 1 clean, 1 offset, 1 conflict (since 0.6.17)",
        "  partly-upstreamed  arch-list.patch  2 hunks: 1 merged, 1 upstreamed (since 0.6.17)",
        "  conflict           moved.patch      1 hunk: 1 file-moved",
    ]


def test_the_counts_come_last_before_the_next_step(results: Sequence[PatchResult], context: ReportContext) -> None:
    assert text.render(results, context=context).splitlines()[-2:] == [
        (
            "7 patches: 1 malformed, 4 conflict, 1 partly-upstreamed, 1 unmodified; "
            "10 hunks: 2 clean, 1 offset, 1 merged, 1 upstreamed, 1 misplaced, 1 ambiguous, 1 conflict, 1 file-moved, "
            "1 line-endings; 2 to review; 1.2 MB fetched"
        ),
        "next: tools/rebase.py --upstream flashinfer=v0.6.17",
    ]


def test_what_was_merged_of_a_partly_upstreamed_patch_and_what_to_review_is_shown(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    shown = text.render(results, context=context)
    place = "patches/stable/flashinfer/arch-list.patch"
    assert f"{place}:9: flashinfer/jit/comm.py:61: upstreamed: hunk 1: the release has the new lines at 61" in shown
    review = "review: hunk 2: gen_trtllm_comm_module changed around it: read it again"
    assert f"{place}:18: flashinfer/jit/comm.py:78→80: {review}" in shown


def test_a_hunk_that_was_followed_into_a_new_file_wants_a_look(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    review = "review: hunk 1: the file is now python/new.py: check that it is the same code"
    assert f"moved.patch:8: python/old.py:9→11: {review}" in text.render(results, context=context)


def test_a_file_that_comes_back_in_a_patch_is_told_apart(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    assert (
        "guards.patch:33: include/flashinfer/comm/trtllm_allreduce.cuh:485→490: offset: part 2 hunk 1"
        in text.render(results, context=context, verbose=True)
    )


def test_quiet_says_nothing_where_nothing_needs_a_person(fine: Sequence[PatchResult], context: ReportContext) -> None:
    assert text.render(fine, context=context, quiet=True) == ""


def test_quiet_keeps_every_finding_and_the_counts(results: Sequence[PatchResult], context: ReportContext) -> None:
    lines = text.render(results, context=context, quiet=True).splitlines()
    assert [WORD.findall(line)[0] for line in lines if line.startswith("patches/")] == [
        "conflict",
        "review",
        "review",
        "file-gone",
        "ambiguous",
        "misplaced",
        "line-endings",
        "malformed",
    ]
    assert lines[-1].startswith("7 patches: ")


def test_colour_only_repeats_the_words(results: Sequence[PatchResult], context: ReportContext) -> None:
    painted = text.render(results, context=context, colour=True)
    assert "\033[" in painted
    assert ESCAPE.sub("", painted) == text.render(results, context=context)


def test_no_control_character_of_a_name_or_line_reaches_the_terminal(
    results: Sequence[PatchResult], context: ReportContext
) -> None:
    shown = text.render(results, context=context, verbose=True)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    shown.encode("utf-8")  # no surrogate is left either
