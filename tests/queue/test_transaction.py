"""Several files written as one: all of the old or all of the new, whenever the process dies."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from downstream.errors import StateError, WriteError
from downstream.queue import transaction
from downstream.queue.transaction import Transaction, recover


def state(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".work" not in path.parts
    }


def tree(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def test_commit_writes_replaces_and_removes_together(tmp_path: Path) -> None:
    tree(tmp_path, {"VERSIONS.toml": b"1", "patches/s/a": b"a", "patches/s/b": b"b", "patches/s/sub/c": b"c"})
    change = Transaction(tmp_path)
    change.write("VERSIONS.toml", b"2")
    change.write(tmp_path / "patches/s/a", b"A")
    change.write("patches/s/new/d", b"d")
    change.remove("patches/s/b")
    assert state(tmp_path)["VERSIONS.toml"] == b"1"
    assert change.commit() == ("VERSIONS.toml", "patches/s/a", "patches/s/b", "patches/s/new/d")
    assert state(tmp_path) == {
        "VERSIONS.toml": b"2",
        "patches/s/a": b"A",
        "patches/s/new/d": b"d",
        "patches/s/sub/c": b"c",
    }
    assert not recover(tmp_path)
    assert not list((tmp_path / ".work").iterdir())


def test_unchanged_content_touches_nothing(tmp_path: Path) -> None:
    tree(tmp_path, {"patches/a": b"a"})
    before = (tmp_path / "patches/a").stat()
    change = Transaction(tmp_path)
    change.write("patches/a", b"a")
    change.remove("patches/absent")
    assert change.commit() == ()
    assert (tmp_path / "patches/a").stat() == before


def test_modes_stay(tmp_path: Path) -> None:
    tree(tmp_path, {"patches/a": b"a", "patches/b": b"b"})
    (tmp_path / "patches/a").chmod(0o600)
    change = Transaction(tmp_path)
    change.write("patches/a", b"A")
    change.write("patches/b", b"B")
    change.commit()
    assert (tmp_path / "patches/a").stat().st_mode & 0o777 == 0o600


def test_without_the_system_call_files_are_replaced_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "exchange", lambda first, second: False)
    tree(tmp_path, {"patches/a": b"a", "patches/b": b"b"})
    change = Transaction(tmp_path)
    change.write("patches/a", b"A")
    change.remove("patches/b")
    change.commit()
    assert state(tmp_path) == {"patches/a": b"A"}


def test_the_users_working_folder_is_not_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, {"patches/a": b"a", "patches/b": b"b"})
    monkeypatch.chdir(tmp_path / "patches")
    change = Transaction(tmp_path)
    change.write("patches/a", b"A")
    change.write("patches/b", b"B")
    change.commit()
    assert Path("a").read_bytes() == b"A"


def test_a_folder_in_the_way_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    tree(tmp_path, {"patches/a/x": b"x", "patches/b": b"b"})
    change = Transaction(tmp_path)
    change.write("patches/a", b"A")
    change.write("patches/b", b"B")
    with pytest.raises(WriteError, match="is a folder"):
        change.commit()
    assert state(tmp_path) == {"patches/a/x": b"x", "patches/b": b"b"}


def test_a_full_disk_while_staging_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, {"patches/a": b"a", "patches/b": b"b"})

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    change = Transaction(tmp_path)
    change.write("patches/a", b"A")
    change.write("patches/b", b"B")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="nothing was changed"):
        change.commit()
    assert state(tmp_path) == {"patches/a": b"a", "patches/b": b"b"}
    assert not list((tmp_path / ".work").iterdir())


def test_what_may_not_be_written_is_said_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, {"patches/a": b"a", "VERSIONS.toml": b"1"})
    change = Transaction(tmp_path)
    change.write("VERSIONS.toml", b"2")
    change.write("patches/new", b"x")
    # Root may write everywhere, so the answer of the system is given here.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "patches")
    with pytest.raises(WriteError, match="patches/new: cannot be written; nothing was changed"):
        change.commit()
    assert state(tmp_path) == {"patches/a": b"a", "VERSIONS.toml": b"1"}


def test_a_broken_journal_is_named(tmp_path: Path) -> None:
    tree(tmp_path, {".work/transaction/journal.json": b"{"})
    with pytest.raises(StateError, match="journal"):
        recover(tmp_path)


def test_paths_outside_the_root_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="is not below"):
        Transaction(tmp_path).write("../x", b"")


def write_generations(root: Path, progress: int) -> None:
    """Write one generation after the other, until killed; tell each by a byte."""
    recover(root)
    generation = int((root / "VERSIONS.toml").read_bytes())
    while True:
        generation += 1
        change = Transaction(root)
        change.write("VERSIONS.toml", b"%d" % generation)
        for number in range(6):
            name = f"patches/stable/flashinfer/{number}.patch"
            if (generation + number) % 3:
                change.write(name, b"%d" % generation)
            else:
                change.remove(name)
        change.commit()
        os.write(progress, b".")


def consistent(root: Path) -> int:
    """The generation that every file belongs to; fails where files of two are mixed."""
    generation = int((root / "VERSIONS.toml").read_bytes())
    folder = root / "patches/stable/flashinfer"
    for number in range(6):
        path = folder / f"{number}.patch"
        assert path.exists() == bool((generation + number) % 3)
        assert not path.exists() or path.read_bytes() == b"%d" % generation
    return generation


@pytest.mark.parametrize("exchanges", [True, False], ids=["exchange", "one by one"])
def test_kill_9_at_fifty_moments_leaves_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    files = {f"patches/stable/flashinfer/{n}.patch": b"1" for n in range(6) if (1 + n) % 3}
    tree(tmp_path, {"VERSIONS.toml": b"1", "patches/stable/flashinfer/series": b"", **files})
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a killed process loses no page cache
    if not exchanges:
        monkeypatch.setattr(transaction, "exchange", lambda first, second: False)
    chance = random.Random(7)
    generations, interrupted = set(), 0
    for _ in range(50):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                write_generations(tmp_path, writer)
            finally:
                os._exit(1)
        os.read(reader, 1)  # the child is under way, however busy the machine is
        time.sleep(chance.random() * 0.005)
        os.kill(child, signal.SIGKILL)
        os.close(reader)
        os.close(writer)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        interrupted += recover(tmp_path)
        generations.add(consistent(tmp_path))
    assert len(generations) > 3
    assert interrupted, "no kill fell between the commit point and its end"
