"""Publishing: what is refused, what is kept, and what survives a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from downstream.errors import DownstreamError, PublishError, UsageError, WheelError, WriteError
from downstream.index import folder as index_folder
from downstream.index import publish as publishing
from downstream.index.folder import IndexFolder
from downstream.index.pages import Status
from downstream.index.publish import Outcome, publish, reserve, set_status, wheels_in, yank
from downstream.index.verify import verify

Wheel = Callable[..., Path]
NAME = "flashinfer_python-0.6.3+sm120.1-py3-none-any.whl"


def everything(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != index_folder.LOCK
    }


def test_publishing_writes_wheel_metadata_and_both_pages(tmp_path: Path, wheel: Wheel) -> None:
    path = wheel(tmp_path, "flashinfer-python", "0.6.3+sm120.1", requires_python=">=3.10")
    (done,) = publish([path], tmp_path / "index")
    assert done.outcome is Outcome.PUBLISHED
    assert sorted(everything(tmp_path / "index")) == [
        f"simple/flashinfer-python/{NAME}",
        f"simple/flashinfer-python/{NAME}.metadata",
        "simple/flashinfer-python/index.html",
        "simple/flashinfer-python/index.json",
        "simple/index.html",
        "simple/index.json",
    ]
    assert json.loads((tmp_path / "index/simple/index.json").read_bytes())["projects"] == [
        {"name": "flashinfer-python"}
    ]
    assert (tmp_path / f"index/simple/flashinfer-python/{NAME}").stat().st_mode & 0o777 == 0o644


def test_a_web_server_can_read_all_of_it_whatever_the_umask(tmp_path: Path, wheel: Wheel) -> None:
    path = wheel(tmp_path, "x", "1.0")
    before = os.umask(0o077)
    try:
        publish([path], tmp_path / "srv" / "index")
        reserve(tmp_path / "srv" / "index", ["y"])
    finally:
        os.umask(before)
    simple = tmp_path / "srv" / "index" / "simple"
    for made in (simple.parent.parent, simple.parent, simple, *simple.rglob("*")):
        assert made.stat().st_mode & 0o777 == (0o755 if made.is_dir() else 0o644), made


def test_the_same_wheels_give_the_same_index_in_any_order(tmp_path: Path, wheel: Wheel) -> None:
    wheels = [wheel(tmp_path, "x", f"1.0+sm120.{number}") for number in (1, 2, 10)]
    publish(wheels, tmp_path / "one")
    for path in reversed(wheels):
        publish([path], tmp_path / "two")
    assert everything(tmp_path / "one") == everything(tmp_path / "two")


def test_publishing_the_same_bytes_again_changes_nothing(tmp_path: Path, wheel: Wheel) -> None:
    path = wheel(tmp_path, "x", "1.0+sm120.1")
    publish([path], tmp_path / "index")
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "index").rglob("*.*")}
    (again,) = publish([path], tmp_path / "index")
    assert again.outcome is Outcome.UNCHANGED
    assert {file: file.stat().st_mtime_ns for file in times} == times


def test_other_bytes_under_a_published_name_are_refused_and_nothing_is_written(tmp_path: Path, wheel: Wheel) -> None:
    root = tmp_path / "index"
    publish([wheel(tmp_path / "a", "flashinfer-python", "0.6.3+sm120.1")], root)
    before = everything(root)
    changed = wheel(tmp_path / "b", "flashinfer-python", "0.6.3+sm120.1", files={"flashinfer/__init__.py": b"# other"})
    another = wheel(tmp_path / "b", "sglang", "0.5.9+sm120.1")
    with pytest.raises(PublishError, match="other bytes") as caught:
        publish([another, changed], root)
    assert caught.value.place == NAME
    assert "publish 0.6.3+sm120.2" in caught.value.next_step
    assert everything(root) == before


def test_an_unlisted_wheel_with_other_bytes_is_refused_too(tmp_path: Path, wheel: Wheel) -> None:
    path = wheel(tmp_path, "x", "1.0+sm120.1")
    stray = IndexFolder(tmp_path / "index").file("x", path.name)
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"left by hand")
    with pytest.raises(PublishError, match="other bytes"):
        publish([path], tmp_path / "index")
    assert stray.read_bytes() == b"left by hand"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"metadata_version": "0.6.3"}, "METADATA names x 0.6.3"),
        ({"dist_info": "x-0.6.3.dist-info"}, "the wheel was renamed"),
        ({"dist_info": "y-0.6.3+sm120.1.dist-info"}, "the wheel was renamed"),
        ({"dist_info": "x-nonsense.dist-info"}, "the wheel was renamed"),
        ({"dist_info": "x"}, "it holds 0"),
        ({"requires_python": "three"}, "Requires-Python"),
        ({"metadata_version": "nonsense"}, "METADATA names x nonsense"),
    ],
    ids=["only METADATA", "only renamed", "other name", "no version", "no dist-info", "Requires-Python", "no PEP 440"],
)
def test_a_wheel_whose_parts_disagree_is_refused(
    tmp_path: Path, wheel: Wheel, fields: dict[str, str], problem: str
) -> None:
    path = wheel(tmp_path, "x", "0.6.3+sm120.1", **fields)
    with pytest.raises(WheelError, match=problem) as caught:
        publish([path], tmp_path / "index")
    assert caught.value.place == "x-0.6.3+sm120.1-py3-none-any.whl"
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(("name", "content"), [("x.whl", b""), ("x-1-py3-none-any.whl", b"no zip")])
def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WheelError) as caught:
        publish([tmp_path / name], tmp_path / "index")
    assert caught.value.place == name


def test_wheels_that_sha256sums_disowns_are_refused(tmp_path: Path, wheel: Wheel) -> None:
    path = wheel(tmp_path, "x", "1.0+sm120.1")
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  {path.name}\n")
    with pytest.raises(PublishError, match="not what SHA256SUMS beside it says"):
        publish([path], tmp_path / "index")
    (tmp_path / "SHA256SUMS").write_text(f"{index_folder.sha256_of(path)} *{path.name}\n")
    assert len(publish([path], tmp_path / "index")) == 1


def test_a_folder_without_wheels_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no wheels"):
        wheels_in(tmp_path)


@pytest.mark.parametrize(
    ("epoch", "given", "stated"),
    [
        (None, None, "2026-01-02T03:04:06.000000Z"),  # the newest member of the wheel
        ("86400", None, "1970-01-02T00:00:00.000000Z"),
        ("86400", datetime(2026, 5, 6, tzinfo=UTC), "2026-05-06T00:00:00.000000Z"),
    ],
)
def test_the_upload_time_needs_no_clock(
    tmp_path: Path,
    wheel: Wheel,
    monkeypatch: pytest.MonkeyPatch,
    epoch: str | None,
    given: datetime | None,
    stated: str,
) -> None:
    if epoch:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    publish([wheel(tmp_path, "x", "1")], tmp_path / "index", uploaded=given)
    (fields,) = json.loads((tmp_path / "index/simple/x/index.json").read_bytes())["files"]
    assert fields["upload-time"] == stated


def test_a_source_date_that_is_no_number_is_a_usage_error(
    tmp_path: Path, wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="yesterday"):
        publish([wheel(tmp_path, "x", "1")], tmp_path / "index")


def test_publishing_again_keeps_yank_and_upload_time(tmp_path: Path, wheel: Wheel) -> None:
    path, root = wheel(tmp_path, "x", "1"), tmp_path / "index"
    publish([path], root, uploaded=datetime(2026, 5, 6, tzinfo=UTC))
    yank(root, "x", "1", reason="broken")
    before = everything(root)
    publish([path], root)
    assert everything(root) == before


def test_a_yank_marks_every_wheel_of_the_version_and_can_be_undone(tmp_path: Path, wheel: Wheel) -> None:
    root = tmp_path / "index"
    publish([wheel(tmp_path, "x", "1.0+sm120.1"), wheel(tmp_path, "x", "1.0+sm120.2")], root)
    before = everything(root)
    assert yank(root, "X", "1.0+sm120.1", reason="bad kernels") == ("x-1.0+sm120.1-py3-none-any.whl",)
    marks = {str(offer.version): offer.yanked for offer in IndexFolder(root).page("x").offers}
    assert marks == {"1.0+sm120.1": "bad kernels", "1.0+sm120.2": None}
    yank(root, "x", "1.0+sm120.1", reason=None, undo=True)
    assert everything(root) == before


@pytest.mark.parametrize(
    ("project", "version", "reason", "undo", "problem"),
    [
        ("x", "1.0", None, False, "which has 1.0[+]sm120.1"),  # a version in part is not guessed at
        ("y", "1.0", None, False, "which has nothing"),
        ("x", "one", None, False, "is no version"),
        ("x", "1.0+sm120.1", " ", False, "must say something"),
        ("x", "1.0+sm120.1", "why", True, "goes with a yank"),
    ],
)
def test_what_cannot_be_yanked_is_said(
    tmp_path: Path, wheel: Wheel, project: str, version: str, reason: str | None, undo: bool, problem: str
) -> None:
    publish([wheel(tmp_path, "x", "1.0+sm120.1")], tmp_path / "index")
    before = everything(tmp_path / "index")
    with pytest.raises(DownstreamError, match=problem):
        yank(tmp_path / "index", project, version, reason=reason, undo=undo)
    assert everything(tmp_path / "index") == before


def test_status_and_reservation_are_pages_too(tmp_path: Path, wheel: Wheel) -> None:
    root = tmp_path / "index"
    publish([wheel(tmp_path, "x", "1")], root)
    set_status(root, "X", Status.DEPRECATED, reason="use y")
    assert IndexFolder(root).page("x").status is Status.DEPRECATED
    with pytest.raises(PublishError, match="not in the index"):
        set_status(root, "y", Status.ACTIVE)
    assert reserve(root, ["FlashInfer_JIT-cache", "x"]) == ("flashinfer-jit-cache",)
    assert IndexFolder(root).projects() == ("flashinfer-jit-cache", "x")
    assert IndexFolder(root).page("x").offers
    assert verify(root).clean


def test_two_publishers_at_once_both_arrive(tmp_path: Path, wheel: Wheel) -> None:
    script = (
        "import sys; from pathlib import Path; from downstream.index.publish import publish\n"
        "for path in sys.argv[2:]: publish([Path(path)], Path(sys.argv[1]))"
    )
    environment = dict(os.environ, PYTHONPATH=str(Path(publishing.__file__).parents[2]))
    halves = [[wheel(tmp_path, "x", f"1.{number}") for number in range(start, 12, 2)] for start in (0, 1)]
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "index"), *map(str, half)], env=environment)
        for half in halves
    ]
    assert [one.wait(60) for one in running] == [0, 0]
    assert verify(tmp_path / "index").clean
    assert len(IndexFolder(tmp_path / "index").page("x").offers) == 12


def test_a_killed_publisher_leaves_no_page_that_lies_and_the_next_run_completes(tmp_path: Path, wheel: Wheel) -> None:
    script = (
        "import sys, time; from pathlib import Path; from downstream.index import folder, publish\n"
        "folder.IndexFolder.write_page = lambda *_: (print('files are there', flush=True), time.sleep(60))\n"
        "publish.publish([Path(path) for path in sys.argv[2:]], Path(sys.argv[1]))"
    )
    root, paths = tmp_path / "index", [wheel(tmp_path, "x", "1.0"), wheel(tmp_path, "x", "1.1")]
    publish(paths[:1], root)
    environment = dict(os.environ, PYTHONPATH=str(Path(publishing.__file__).parents[2]))
    command = [sys.executable, "-c", script, str(root), *map(str, paths)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "files are there\n"
        running.send_signal(signal.SIGKILL)
    (IndexFolder(root).project_folder("x") / f"{index_folder.TEMPORARY}half").write_bytes(b"half")
    assert [str(offer.version) for offer in IndexFolder(root).page("x").offers] == ["1.0"]
    faults = verify(root).faults
    assert {fault.problem for fault in faults} == {"is left from a publish that was interrupted"}
    assert len(faults) == 3  # wheel, metadata, temporary file
    publish(paths, root)
    assert verify(root).clean


def test_a_publisher_waits_for_the_lock_no_longer_than_its_patience(tmp_path: Path) -> None:
    index = IndexFolder(tmp_path / "index")
    with index.locked():
        began = time.monotonic()
        with pytest.raises(PublishError, match="another publisher"), IndexFolder(index.root).locked(patience=0.1):
            pass
        assert time.monotonic() - began < 5


def test_an_index_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "index"
    publish([wheel(tmp_path, "x", "1.0")], root)
    before = everything(root)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="No space left on device"):
        publish([wheel(tmp_path, "x", "1.1")], root)
    assert everything(root) == before


def test_there_must_be_an_index(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="holds no index"):
        yank(tmp_path, "x", "1", reason=None)
