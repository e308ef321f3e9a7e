"""A series carried to another release: whole, or not at all (DESIGN 8)."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.patches.series import load_series
from downstream.placing.push import push
from downstream.placing.verdict import HunkStatus
from downstream.queue import state, transaction
from downstream.queue.transaction import recover

from .conftest import Overlay, numbered


def release(overlay: Overlay, version: str, *, a: bytes | None = None, k: bytes | None = None) -> None:
    files = dict(overlay.releases["1.0"])
    files["kernels/a.py"] = a if a is not None else files["kernels/a.py"]
    files["include/k.cuh"] = k if k is not None else files["include/k.cuh"]
    overlay.publish(version, files)


def applies_exactly(overlay: Overlay, version: str) -> bool:
    """Whether the series stands on *version* with zero offset."""
    series = load_series(overlay.root / "patches/stable/kernels")
    report = push(series.patches(), overlay.tree(version))
    return all(hunk.status is HunkStatus.CLEAN for result in report.results for hunk in result.hunks)


def test_a_clean_rebase_moves_patches_and_pin_and_nothing_else(overlay: Overlay) -> None:
    release(overlay, "1.1", k=numbered(-4, 40))
    before = overlay.written()
    run = overlay.rebase("--upstream", "v1.1")
    assert run.code == 0, run.err
    after = overlay.written()
    assert applies_exactly(overlay, "1.1")
    assert after["patches/stable/kernels/ten.patch"] == before["patches/stable/kernels/ten.patch"]
    assert after["patches/stable/kernels/series"] == before["patches/stable/kernels/series"]
    assert after["patches/stable/kernels/guards.patch"] != before["patches/stable/kernels/guards.patch"]
    text = after["VERSIONS.toml"].decode()
    pin = tomllib.loads(text)["lines"]["stable"]["kernels"]
    assert (pin["version"], pin["revision"], list(pin["sha256"])) == ("1.1", 1, ["kernels_python-1.1-py3-none-any.whl"])
    assert "# a comment that stays" in text
    assert "# the pin" in text


def test_the_same_rebase_again_changes_nothing(overlay: Overlay) -> None:
    release(overlay, "1.1", k=numbered(-4, 40))
    overlay.rebase("--upstream", "v1.1")
    first = overlay.written()
    run = overlay.rebase("--upstream", "v1.1")
    assert (run.code, overlay.written()) == (0, first)
    assert "wrote" not in run.out


def test_there_and_back_gives_the_first_bytes(overlay: Overlay) -> None:
    release(overlay, "1.1", k=numbered(-4, 40))
    before = overlay.written()
    overlay.rebase("--upstream", "v1.1")
    assert overlay.rebase("--upstream", "v1.0").code == 0
    after = overlay.written()
    assert {path: content for path, content in after.items() if "patches/" in path} == {
        path: content for path, content in before.items() if "patches/" in path
    }


def test_check_writes_nothing_and_says_since_when(overlay: Overlay) -> None:
    release(overlay, "1.1")
    release(overlay, "1.2", k=numbered(1, 40, {30: "theirs"}))
    release(overlay, "1.3", k=numbered(1, 40, {30: "theirs"}), a=numbered(1, 20, {10: "TEN"}))
    before = sorted(path for path in overlay.root.rglob("*"))
    run = overlay.rebase("--upstream", "v1.3", "--check", "--json")
    assert run.code == 1
    document = json.loads(run.out)
    assert (document["schema"], document["command"], document["ok"]) == (1, "check", False)
    ten, guards = document["patches"]
    assert ten["status"] == "upstreamed"
    assert ten["files"][0]["hunks"][0]["since"] == "1.3"
    assert guards["status"] == "conflict"
    statuses = [(hunk["number"], hunk["status"], hunk["since"]) for hunk in guards["files"][0]["hunks"]]
    assert statuses == [(1, "clean", None), (2, "conflict", "1.2")]
    assert sorted(path for path in overlay.root.rglob("*")) == before


def test_a_merged_patch_is_dropped_and_a_partly_merged_one_shrinks(overlay: Overlay) -> None:
    release(overlay, "1.1", a=numbered(1, 20, {10: "TEN"}), k=numbered(1, 40, {10: "TEN"}))
    run = overlay.rebase("--upstream", "latest")
    assert run.code == 0, run.err
    assert overlay.series == ["guards.patch"]
    assert not (overlay.root / "patches/stable/kernels/ten.patch").exists()
    assert applies_exactly(overlay, "1.1")
    patch = (overlay.root / "patches/stable/kernels/guards.patch").read_bytes()
    assert (patch.count(b"+THIRTY"), patch.count(b"+TEN")) == (1, 0)


CONFLICT = numbered(1, 40, {30: "theirs"})


def test_a_conflict_leaves_everything_and_waits_in_a_checkout(overlay: Overlay) -> None:
    release(overlay, "1.1", k=CONFLICT)
    before = overlay.written()
    run = overlay.rebase("--upstream", "v1.1")
    assert run.code == 1
    assert overlay.written() == before
    text = (overlay.checkout / "include/k.cuh").read_bytes()
    assert (
        b"<<<<<<< upstream 1.1\ntheirs\n||||||| upstream 1.0\nline 30\n=======\nTHIRTY\n>>>>>>> guards.patch, hunk 2\n"
        in text
    )
    assert b"TEN\n" in text, "the hunk that found its place is made"
    for side, content in (("base", b"line 30\n"), ("ours", b"THIRTY\n"), ("theirs", b"theirs\n")):
        assert content in (overlay.root / ".work/rebase" / side / "include/k.cuh").read_bytes()
    status = overlay.rebase("--status")
    assert status.code == 1
    assert "waits              guards.patch" in status.out


def test_continue_takes_what_the_person_made_of_it(overlay: Overlay) -> None:
    release(overlay, "1.1", k=CONFLICT)
    overlay.rebase("--upstream", "v1.1")
    refused = overlay.rebase("--continue")
    assert refused.code == 2
    assert "conflict markers are left at include/k.cuh:30" in refused.err
    resolved = numbered(1, 40, {10: "TEN", 30: "theirs, THIRTY"})
    (overlay.checkout / "include/k.cuh").write_bytes(resolved)
    run = overlay.rebase("--continue")
    assert run.code == 0, run.err
    assert applies_exactly(overlay, "1.1")
    patch = (overlay.root / "patches/stable/kernels/guards.patch").read_bytes()
    assert b"-theirs\n+theirs, THIRTY\n" in patch
    assert patch.startswith(b"Subject: guards.patch\n"), "its header stays"
    assert not (overlay.root / ".work/rebase").exists()


def test_a_resolution_that_was_committed_counts_as_well(overlay: Overlay) -> None:
    import subprocess

    release(overlay, "1.1", k=CONFLICT)
    overlay.rebase("--upstream", "v1.1")
    (overlay.checkout / "include/k.cuh").write_bytes(numbered(1, 40, {10: "TEN", 30: "both"}))
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(overlay.checkout)]
    subprocess.run([*git, "commit", "-qam", "mine"], check=True)
    assert overlay.rebase("--continue").code == 0
    assert b"+both\n" in (overlay.root / "patches/stable/kernels/guards.patch").read_bytes()


def test_skip_drops_the_patch(overlay: Overlay) -> None:
    release(overlay, "1.1", k=CONFLICT)
    overlay.rebase("--upstream", "v1.1")
    assert overlay.rebase("--skip").code == 0
    assert overlay.series == ["ten.patch"]


def test_abort_leaves_no_trace(overlay: Overlay) -> None:
    release(overlay, "1.1", k=CONFLICT)
    before = overlay.written()
    overlay.rebase("--upstream", "v1.1")
    assert overlay.rebase("--abort").code == 0
    assert overlay.written() == before
    assert overlay.rebase("--status").code == 0
    assert overlay.rebase("--abort").code == 2, "there is nothing left to abort"


def test_two_conflicts_are_met_one_after_the_other(overlay: Overlay) -> None:
    release(overlay, "1.1", a=numbered(1, 20, {10: "other"}), k=CONFLICT)
    first = overlay.rebase("--upstream", "v1.1")
    assert "ten.patch waits" in first.out
    assert "guards.patch" in first.out, "one run names every patch that fails"
    (overlay.checkout / "kernels/a.py").write_bytes(numbered(1, 20, {10: "other TEN"}))
    second = overlay.rebase("--continue")
    assert second.code == 1
    assert "guards.patch waits" in second.out
    log = (overlay.checkout / "kernels/a.py").read_bytes()
    assert b"other TEN\n" in log, "the settled patch is under the waiting one"
    (overlay.checkout / "include/k.cuh").write_bytes(numbered(1, 40, {10: "TEN", 30: "both"}))
    assert overlay.rebase("--continue").code == 0
    assert applies_exactly(overlay, "1.1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--upstream", "v9.9"], "has a release 9.9"),
        (["--upstream", "nightly"], "is no version"),
        (["--upstream", "other=v1.1"], "has no upstream 'other'"),
        (["--upstream", "v1.1", "--line", "beta"], "has no line 'beta'"),
        (["--upstream", "v1.1", "--upstream", "kernels=latest"], "names an upstream twice"),
        (["--continue"], "no rebase is under way"),
        (["--skip"], "no rebase is under way"),
        (["--status", "--upstream", "v1.1"], "is known to the rebase under way"),
        ([], "--upstream: is missing"),
    ],
)
def test_what_cannot_be_done_says_why_and_what_next(overlay: Overlay, arguments: list[str], words: str) -> None:
    release(overlay, "1.1")
    before = overlay.written()
    run = overlay.rebase(*arguments)
    assert run.code == 2
    assert words in run.err
    assert "next: " in run.err
    assert overlay.written() == before


def test_a_second_rebase_is_refused_while_one_waits(overlay: Overlay) -> None:
    release(overlay, "1.1", k=CONFLICT)
    overlay.rebase("--upstream", "v1.1")
    run = overlay.rebase("--upstream", "v1.1")
    assert run.code == 2
    assert "is under way" in run.err
    assert overlay.rebase("--upstream", "v1.1", "--check").code == 1, "a check may always be asked for"


def test_two_at_once_do_not_meet(overlay: Overlay) -> None:
    release(overlay, "1.1", k=numbered(-4, 40))
    with state.exclusive(overlay.root):
        run = overlay.rebase("--upstream", "v1.1")
    assert run.code == 2
    assert "another rebase of this overlay is running" in run.err


def test_a_series_changed_under_a_waiting_rebase_is_noticed(overlay: Overlay) -> None:
    release(overlay, "1.1", k=CONFLICT)
    overlay.rebase("--upstream", "v1.1")
    with (overlay.root / "patches/stable/kernels/ten.patch").open("ab") as patch:
        patch.write(b"\n")
    run = overlay.rebase("--continue")
    assert run.code == 2
    assert "has changed since the rebase began" in run.err


def test_a_series_that_does_not_fit_its_own_pin_ends_before_anything_is_placed(overlay: Overlay) -> None:
    release(overlay, "1.1")
    patch = overlay.root / "patches/stable/kernels/ten.patch"
    patch.write_bytes(patch.read_bytes().replace(b" line 9\n", b" line nine\n"))
    run = overlay.rebase("--upstream", "v1.1", "--check")
    assert run.code == 2
    assert "does not apply to its own pin" in run.err
    assert "ten.patch" in run.err


def test_a_damaged_state_says_how_to_get_rid_of_it(overlay: Overlay) -> None:
    release(overlay, "1.1", k=CONFLICT)
    overlay.rebase("--upstream", "v1.1")
    (overlay.root / ".work/rebase/state.json").write_bytes(b"{")
    run = overlay.rebase("--continue")
    assert run.code == 2
    assert "--abort" in run.err
    assert overlay.rebase("--abort").code == 0


def test_a_folder_that_cannot_be_written_changes_nothing(overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every folder can be written, so the disk refuses instead: no room for the journal."""
    release(overlay, "1.1", k=numbered(-4, 40))
    before = overlay.written()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transaction, "_write_synced", full)
    run = overlay.rebase("--upstream", "v1.1")
    assert run.code == 2
    assert "No space left on device" in run.err
    assert overlay.written() == before


@pytest.mark.parametrize("times", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_kill_9_at_any_moment_leaves_old_or_new(overlay: Overlay, times: int) -> None:
    release(overlay, "1.1", k=numbered(-4, 40))
    overlay.rebase("--upstream", "v1.1", "--check")  # warm the cache
    old = overlay.written()
    began = time.monotonic()
    overlay.rebase_elsewhere("--upstream", "v1.1").wait()
    lasted = time.monotonic() - began
    new = overlay.written()
    assert new != old
    dice = random.Random(9)
    met: set[str] = set()
    for _ in range(times):
        for path in new.keys() | old.keys():
            (overlay.root / path).unlink(missing_ok=True)
        for path, content in old.items():
            (overlay.root / path).write_bytes(content)
        child = overlay.rebase_elsewhere("--upstream", "v1.1")
        # Most of a run reads; the second half of it is where it writes.
        time.sleep(lasted * dice.uniform(0.4, 1.02))
        child.send_signal(signal.SIGKILL)
        child.wait()
        recover(overlay.root)
        now = overlay.written()
        assert now in (old, new)
        met.add("new" if now == new else "old")
    if times == 50:
        assert met == {"old", "new"}, "the moments missed the write"


def locked(git: Path, name: str) -> None:
    (git / name).write_bytes(b"")


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda git: locked(git, "index.lock"), id="index.lock"),
        pytest.param(lambda git: locked(git, "HEAD.lock"), id="HEAD.lock"),
        pytest.param(lambda git: locked(git, "refs/heads/series.lock"), id="the branch's lock"),
        pytest.param(lambda git: (git / "index").write_bytes(b"DIRC"), id="half an index"),
        pytest.param(lambda git: (git / "HEAD").unlink(), id="half a repository"),
        pytest.param(shutil.rmtree, id="no repository"),
    ],
)
def test_a_checkout_that_a_kill_left_unfit_is_made_again(overlay: Overlay, leave: Callable[[Path], None]) -> None:
    release(overlay, "1.1", a=numbered(1, 20, {10: "other"}), k=CONFLICT)
    overlay.rebase("--upstream", "v1.1")
    state = overlay.root / ".work/rebase/state.json"
    # Killed after the first patch was settled, while the checkout was brought to the second.
    state.write_bytes(state.read_bytes().replace(b'"ready": true', b'"ready": false'))
    leave(overlay.checkout / ".git")
    status = overlay.rebase("--status")
    assert (status.code, "--continue goes on where it stopped" in status.out) == (1, True)
    assert overlay.rebase("--status", "--json").code == 1
    run = overlay.rebase("--continue")
    assert (run.code, "ten.patch waits" in run.out) == (1, True), run.err
    (overlay.checkout / "kernels/a.py").write_bytes(numbered(1, 20, {10: "other TEN"}))
    assert "guards.patch waits" in overlay.rebase("--continue").out
    assert overlay.rebase("--skip").code == 0
    assert applies_exactly(overlay, "1.1")


def test_the_paths_a_message_names_are_relative(overlay: Overlay) -> None:
    release(overlay, "1.1", k=CONFLICT)
    run = overlay.rebase("--upstream", "v1.1", "--check")
    assert str(Path.home()) not in run.out
    assert "patches/stable/kernels/guards.patch:" in run.out
