from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import filelock  # noqa: F401 - before the test that may not read where it is installed
import pytest

from downstream.errors import TreeError, WriteError
from downstream.trees.cache import VARIABLE, Cache, default_folder

TOOLS = Path(__file__).parents[2] / "tools"


def test_an_entry_comes_back_and_is_replaced(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.read("a/b") is None
    cache.write("a/b", b"one")
    cache.write("a/b", b"two\n")
    assert Cache(tmp_path).read("a/b") == b"two\n"
    assert cache.fault == ""


def test_the_folder_says_that_it_is_a_cache(tmp_path: Path) -> None:
    Cache(tmp_path).write("a", b"")
    assert (tmp_path / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[:20],
        lambda raw: b"",
        lambda raw: raw + b"x",
        lambda raw: raw.replace(b"content", b"cantent"),
        lambda raw: b"x" * len(raw),
    ],
    ids=["cut", "cut-header", "empty", "longer", "changed", "other"],
)
def test_a_damaged_entry_is_absent(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    cache = Cache(tmp_path)
    cache.write("entry", b"the content")
    path = cache.folder / "entry"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.read("entry") is None


def test_a_failed_block_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    target = tmp_path / "folder" / "file"
    with cache.replacing(target) as stream:
        stream.write(b"old")
    with suppress(RuntimeError), cache.replacing(target) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert list(target.parent.iterdir()) == [target]


def test_a_cache_that_cannot_be_written_keeps_its_answer_and_says_why() -> None:
    # As root the mode bits do not bind, so the test steps down for the moment it needs.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        cache = Cache(folder)
        cache.write("entry", b"kept")
        cache.folder.chmod(0o555)
        root = os.geteuid() == 0
        try:
            if root:
                os.seteuid(65534)
            assert cache.read("entry") == b"kept"
            cache.write("other", b"held")
            assert cache.read("other") == b"held"
            with pytest.raises(WriteError) as caught, cache.lock("entry"):
                pass
        finally:
            if root:
                os.seteuid(0)
            cache.folder.chmod(0o755)
        assert "other: cannot be written: Permission denied" in cache.fault
        assert VARIABLE in caught.value.next_step
        assert [path.name for path in cache.folder.iterdir()] == ["entry"]


def test_a_file_in_the_way_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "v1").write_bytes(b"")
    cache = Cache(tmp_path)
    cache.write("a/b", b"x")
    assert cache.read("a/b") == b"x"
    assert Cache(tmp_path).read("a/b") is None
    assert "cannot be written" in cache.fault


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from downstream.errors import WriteError
from downstream.trees.cache import Cache
cache = Cache(Path(sys.argv[1]))
cache.write("entry", b"old")
assert not cache.fault
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
cache.write("entry", b"n" * 100_000)
print(cache.fault)
try:
    with cache.replacing(cache.folder / "entry2") as stream:
        stream.write(b"n" * 100_000)
except WriteError as exc:
    print(exc.next_step)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        env=os.environ | {"PYTHONPATH": str(TOOLS)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = ended.stdout.splitlines()
    assert said[0].endswith("entry: cannot be written: File too large")
    assert said[1].startswith("make room there")
    assert Cache(tmp_path).read("entry") == b"old"
    assert [path.name for path in (tmp_path / "v1").iterdir()] == ["entry"]


def test_two_writers_and_a_reader_never_see_half(tmp_path: Path) -> None:
    contents = [bytes([letter]) * 50_000 for letter in b"ab"]
    cache = Cache(tmp_path)
    cache.write("entry", contents[0])
    seen: set[bytes | None] = set()

    def write(content: bytes) -> None:
        for _ in range(40):
            Cache(tmp_path).write("entry", content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.add(cache.read("entry"))
    assert seen <= set(contents)
    assert [path.name for path in cache.folder.iterdir()] == ["entry"]


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    order = []
    started = threading.Event()

    def other() -> None:
        started.set()
        with Cache(tmp_path).lock("one"):
            order.append("other")

    with Cache(tmp_path).lock("one"):
        thread = threading.Thread(target=other)
        thread.start()
        started.wait()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "relative/cache")
    assert default_folder() == Path.cwd() / "relative" / "cache"
    monkeypatch.delenv(VARIABLE)
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert default_folder() == tmp_path / "sm120-overlay"
        monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert default_folder().is_absolute()  # from the user database


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)  # in no user database
    with pytest.raises(TreeError) as caught:
        default_folder()
    assert VARIABLE in str(caught.value)


def test_a_cache_behind_a_symlink_is_a_cache(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").symlink_to("elsewhere", target_is_directory=True)
    cache = Cache(tmp_path / "cache")
    cache.write("a/b", b"one")
    assert Cache(tmp_path / "elsewhere").read("a/b") == cache.read("a/b") == b"one"
    assert (tmp_path / "cache").is_symlink()
