"""A series in which every verdict occurs, with names and lines that try to break a format."""

from __future__ import annotations

import pytest

from downstream.patches.text import ChangeKind, FilePatch, Hunk, Patch
from downstream.placing.verdict import FileResult, HunkResult, HunkStatus, PatchResult, PatchStatus
from downstream.report.context import ReportContext

KERNEL = "include/flashinfer/comm/trtllm_allreduce.cuh"
HOSTILE = "a ]]> <b>|`%0A::error::\x1b[31m \udcff, c: d"  # XML, Markdown, workflow commands, terminals, bytes


def _hunk_source(number: int, at: int) -> Hunk:
    line = (("-", b"old\n"), ("+", b"new\n"))
    return Hunk(
        number=number,
        old_start=at,
        old_count=1,
        new_start=at,
        new_count=1,
        section=b"",
        body=line,
        raw=b"@@ -1 +1 @@\n-old\n+new\n",
        at=at,
    )


def _source(name: str, *files: tuple[str, tuple[int, ...]]) -> Patch:
    return Patch(
        name=name,
        header=b"Description: x\n",
        files=tuple(
            FilePatch(
                kind=ChangeKind.MODIFY,
                old_path=path,
                new_path=path,
                hunks=tuple(_hunk_source(number, at) for number, at in enumerate(lines, 1)),
                at=lines[0] - 2,
            )
            for path, lines in files
        ),
    )


def _file(path: str, *hunks: HunkResult, moved_to: str | None = None) -> FileResult:
    worst = max(hunks, key=lambda hunk: not hunk.status.fine)
    return FileResult(path=path, status=worst.status, hunks=hunks, moved_to=moved_to)


@pytest.fixture
def results() -> tuple[PatchResult, ...]:
    """Seven patches; the file of guards.patch comes twice, as in the wild."""
    guards = _file(
        KERNEL,
        HunkResult(path=KERNEL, number=1, status=HunkStatus.CLEAN, line=417, offset=0, old_line=417),
        HunkResult(
            path=KERNEL,
            number=2,
            status=HunkStatus.CONFLICT,
            hint_fuzz=2,
            reason="line 456 is not what the hunk removes",
            candidates=(455, 533),
            found=((456, b"#if (defined(__CUDA_ARCH__))\r\n"), (457, b"  caf\xe9\x1b[2J\n")),
            old_line=455,
            since="0.6.17",
        ),
    )
    again = _file(
        KERNEL,
        HunkResult(path=KERNEL, number=1, status=HunkStatus.OFFSET, line=490, offset=5, old_line=485, tentative=True),
    )
    partly = _file(
        "flashinfer/jit/comm.py",
        HunkResult(
            path="flashinfer/jit/comm.py",
            number=1,
            status=HunkStatus.UPSTREAMED,
            line=61,
            old_line=61,
            since="0.6.17",
            reason="the release has the new lines at 61",
        ),
        HunkResult(
            path="flashinfer/jit/comm.py",
            number=2,
            status=HunkStatus.MERGED,
            line=80,
            offset=2,
            old_line=78,
            review="gen_trtllm_comm_module",
        ),
    )
    moved = _file(
        "python/old.py",
        HunkResult(path="python/old.py", number=1, status=HunkStatus.FILE_MOVED, line=11, offset=2, old_line=9),
        moved_to="python/new.py",
    )
    refused = _file(
        HOSTILE,
        HunkResult(
            path=HOSTILE,
            number=1,
            status=HunkStatus.AMBIGUOUS,
            old_line=3,
            reason=HOSTILE,
            candidates=(3, 30),
        ),
        HunkResult(path=HOSTILE, number=2, status=HunkStatus.MISPLACED, old_line=40, candidates=(90,)),
    )
    gone = FileResult(path="csrc/gone.cu", status=HunkStatus.FILE_GONE, hunks=(), reason="removed in the release")
    crlf = _file("win.txt", HunkResult(path="win.txt", number=1, status=HunkStatus.LINE_ENDINGS, old_line=1))
    return (
        PatchResult(patch="guards.patch", status=PatchStatus.CONFLICT, files=(guards, again)),
        PatchResult(patch="arch-list.patch", status=PatchStatus.PARTLY_UPSTREAMED, files=(partly,)),
        PatchResult(patch="moved.patch", status=PatchStatus.CONFLICT, files=(moved, gone)),
        PatchResult(patch="hostile.patch", status=PatchStatus.CONFLICT, files=(refused,)),
        PatchResult(patch="endings.patch", status=PatchStatus.CONFLICT, files=(crlf,)),
        PatchResult(
            patch="broken.patch", status=PatchStatus.MALFORMED, files=(), reason="line 7: the hunk ends too early"
        ),
        PatchResult(
            patch="fine.patch",
            status=PatchStatus.UNMODIFIED,
            files=(_file("VERSION", HunkResult(path="VERSION", number=1, status=HunkStatus.CLEAN, line=1, offset=0)),),
        ),
    )


@pytest.fixture
def fine(results: tuple[PatchResult, ...]) -> tuple[PatchResult, ...]:
    """The one patch that needs nobody."""
    return results[-1:]


@pytest.fixture
def context() -> ReportContext:
    sources = (
        _source("guards.patch", (KERNEL, (12, 21)), (KERNEL, (33,))),
        _source("arch-list.patch", ("flashinfer/jit/comm.py", (9, 18))),
        _source("moved.patch", ("python/old.py", (8,)), ("csrc/gone.cu", (20,))),
        _source("hostile.patch", (HOSTILE, (5, 15))),
        _source("endings.patch", ("win.txt", (4,))),
        _source("fine.patch", ("VERSION", (4,))),
    )
    return ReportContext(
        command="check",
        line="stable",
        upstream="flashinfer",
        old_version="0.6.3",
        new_version="0.6.17",
        base_tree="flashinfer 0.6.3",
        tree="flashinfer 0.6.17",
        series="patches/stable/flashinfer",
        patches={source.name: source for source in sources},
        walked=("0.6.4", "0.6.17"),
        fetched=1_234_567,
        next_steps=("tools/rebase.py --upstream flashinfer=v0.6.17",),
    )
