from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from downstream.errors import DigestError, OfflineError, WheelError, WriteError
from downstream.pins import Pin, Upstream
from downstream.trees.open import open_pin, open_release, prefetch, wheel_files
from downstream.trees.session import Session
from downstream.trees.wheel import WheelTree

TOOLS = Path(__file__).parents[2] / "tools"
PACKAGE = "flashinfer-python"
NAME = "flashinfer_python-0.6.4-py3-none-any.whl"
FILE = f"/files/{NAME}"


@pytest.fixture
def wheel(far_apart: bytes, index: Any) -> bytes:
    """The published wheel of release 0.6.4."""
    index.publish(PACKAGE, {NAME: far_apart})
    return far_apart


@pytest.fixture
def pin(make_pin: Callable[..., Pin], wheel: bytes) -> Pin:
    return make_pin("0.6.4", **{NAME: hashlib.sha256(wheel).hexdigest()})


@pytest.fixture
def release(upstream: Upstream, session: Callable[..., Session]) -> Callable[..., WheelTree]:
    """Open release 0.6.4 in a new session on the same cache."""

    def make(**options: Any) -> WheelTree:
        return open_release(upstream, Version("0.6.4"), session(**options))

    return make


def read(tree: WheelTree, files: dict[str, bytes]) -> None:
    assert {path: tree.read(path) for path in files} == files


def test_only_what_is_read_is_fetched(
    pin: Pin, session: Callable[..., Session], files: dict[str, bytes], wheel: bytes, index: Any
) -> None:
    one = session()
    read(open_pin(pin, one), files)
    ranged = [asked for asked in index.asked if asked.path == FILE]
    assert all("range" in asked.headers for asked in ranged)
    assert one.fetched < len(wheel) / 5
    assert not (one.cache.folder / "files").exists()


def test_neighbours_come_in_one_request(
    release: Callable[..., WheelTree], files: dict[str, bytes], wheel: bytes, index: Any
) -> None:
    tree = release()
    prefetch(tree, [*files, "no/such/file.py", "README.md"])
    before = len(index.asked)
    assert index.count(FILE) == 3  # the directory, what lies before the noise, what lies behind it
    read(tree, files)
    assert len(index.asked) == before


def test_a_warm_cache_asks_nobody_and_imports_no_client(
    release: Callable[..., WheelTree], files: dict[str, bytes], wheel: bytes, index: Any, tmp_path: Path
) -> None:
    read(release(), files)
    asked = len(index.asked)
    script = """
import sys
from pathlib import Path
from packaging.version import Version
from downstream.pins import load
from downstream.trees.open import open_release
from downstream.trees.session import Session
upstream = load(Path(sys.argv[2])).upstreams["flashinfer"]
tree = open_release(upstream, Version("0.6.4"), Session(Path(sys.argv[1])))
assert tree.read("flashinfer/aot.py").startswith(b"line 0")
assert tree.read("flashinfer/none.py") is None
assert tree.mode("flashinfer/aot.py") == 0o100644
loaded = {"requests", "urllib3", "pypi_simple", "filelock", "git", "rich", "tomlkit", "ssl"} & set(sys.modules)
print(*sorted(loaded))
"""
    root = TOOLS.parent
    ended = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "cache", root],
        env=os.environ | {"PYTHONPATH": str(TOOLS)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == ""
    assert len(index.asked) == asked


@pytest.mark.parametrize("fault", ["no ranges", "wrong range", "no content range", "wrong bytes", "short"])
def test_a_server_whose_ranges_cannot_be_trusted_is_asked_for_the_whole(
    pin: Pin, session: Callable[..., Session], files: dict[str, bytes], wheel: bytes, index: Any, fault: str
) -> None:
    index.always[FILE] = fault
    one = session()
    read(open_pin(pin, one), files)
    kept = one.cache.folder / "files" / pin.sha256[NAME] / NAME
    assert kept.read_bytes() == wheel
    asked = len(index.asked)
    read(open_pin(pin, session()), files)
    assert len(index.asked) == asked


def test_ranges_that_begin_to_lie_end_in_the_whole(
    pin: Pin, session: Callable[..., Session], files: dict[str, bytes], wheel: bytes, index: Any
) -> None:
    index.faults[FILE] = ["", "wrong bytes"]
    read(open_pin(pin, session()), files)
    assert any("range" not in asked.headers for asked in index.asked if asked.path == FILE)


def test_a_file_that_changes_between_two_reads_is_noticed(
    pin: Pin,
    session: Callable[..., Session],
    files: dict[str, bytes],
    make_wheel: Callable[..., bytes],
    wheel: bytes,
    index: Any,
) -> None:
    tree = open_pin(pin, session())
    assert tree.read("setup.py") == files["setup.py"]
    other = make_wheel(files)
    other += bytes(len(wheel) - len(other))  # of the same size
    index.pages[FILE] = ("application/octet-stream", other)
    index.etags[FILE] = '"other"'
    with pytest.raises(DigestError) as caught:
        tree.read("flashinfer/aot.py")
    assert caught.value.problem == f"has sha256 {hashlib.sha256(other).hexdigest()}, expected {pin.sha256[NAME]}"
    assert index.asked[-2].headers["if-range"]


def test_an_index_with_another_digest_than_the_pin_is_refused(
    make_pin: Callable[..., Pin], session: Callable[..., Session], wheel: bytes, index: Any
) -> None:
    tree = open_pin(make_pin("0.6.4", **{NAME: "0" * 64}), session())
    with pytest.raises(DigestError, match=f"the index advertises sha256 {hashlib.sha256(wheel).hexdigest()}, the pin"):
        tree.read("setup.py")
    assert index.count(FILE) == 0


def test_an_index_without_digests_is_asked_for_the_whole(
    pin: Pin, session: Callable[..., Session], files: dict[str, bytes], wheel: bytes, index: Any
) -> None:
    index.publish(PACKAGE, {NAME: wheel}, **{NAME: {"hashes": {}}})
    read(open_pin(pin, session()), files)
    assert ["range" in asked.headers for asked in index.asked if asked.path == FILE] == [False]


def test_a_release_without_digests_is_read_whole(
    release: Callable[..., WheelTree], files: dict[str, bytes], wheel: bytes, index: Any
) -> None:
    index.publish(PACKAGE, {NAME: wheel}, **{NAME: {"hashes": {}}})
    read(release(), files)
    read(release(offline=True), files)
    assert index.count(FILE) == 1


def test_a_truncated_wheel_is_told(
    make_pin: Callable[..., Pin], session: Callable[..., Session], wheel: bytes, index: Any
) -> None:
    cut = wheel[:-30]
    index.publish(PACKAGE, {NAME: cut})
    tree = open_pin(make_pin("0.6.4", **{NAME: hashlib.sha256(cut).hexdigest()}), session())
    with pytest.raises(WheelError, match="is no complete zip file"):
        tree.read("setup.py")


def test_a_wheel_that_the_server_truncates_is_told(
    pin: Pin, session: Callable[..., Session], wheel: bytes, index: Any
) -> None:
    index.pages[FILE] = ("application/octet-stream", wheel[:-30])
    with pytest.raises(DigestError, match=f"has {len(wheel) - 30} bytes, the index says {len(wheel)}"):
        open_pin(pin, session()).read("setup.py")


@pytest.mark.parametrize("entry", ["directory", "member", "whole"])
def test_a_damaged_cache_is_fetched_again(
    pin: Pin, session: Callable[..., Session], files: dict[str, bytes], wheel: bytes, index: Any, entry: str
) -> None:
    one = session()
    read(open_pin(pin, one), files)
    if entry == "whole":
        wheel_files(pin, one)
        read(open_pin(pin, one), files)
    kept = sorted((one.cache.folder / "wheels" / pin.sha256[NAME]).iterdir())
    for path in kept:
        if entry == "whole" or (path.name == "directory") == (entry == "directory"):
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2] ^= 0xFF
            path.write_bytes(raw)
    if entry == "whole":
        (one.cache.folder / "files" / pin.sha256[NAME] / NAME).write_bytes(wheel[:-1])
    tree = open_pin(pin, session())
    read(tree, files)
    assert tree.mode("setup.py") == 0o100644
    if entry == "whole":
        assert [path.read_bytes() for path in wheel_files(pin, session())] == [wheel]


def test_offline_reads_what_the_cache_holds_and_names_what_it_lacks(
    pin: Pin, session: Callable[..., Session], files: dict[str, bytes], wheel: bytes, index: Any
) -> None:
    with pytest.raises(OfflineError) as caught:
        open_pin(pin, session(offline=True)).read("setup.py")
    assert caught.value.place == "flashinfer 0.6.4: its list of files"
    assert open_pin(pin, session()).read("setup.py") == files["setup.py"]
    asked = len(index.asked)
    offline = open_pin(pin, session(offline=True))
    assert offline.read("setup.py") == files["setup.py"]
    assert offline.read("no/such/file.py") is None
    assert "include/a.cuh" in offline.paths()
    with pytest.raises(OfflineError) as caught:
        offline.read("include/a.cuh")
    assert caught.value.place == "flashinfer 0.6.4: flashinfer/data/include/a.cuh"
    assert caught.value.next_step == "run the same command once without --offline"
    assert len(index.asked) == asked


def test_wheel_files_are_whole_and_verified(
    pin: Pin, session: Callable[..., Session], wheel: bytes, index: Any
) -> None:
    with pytest.raises(OfflineError):
        wheel_files(pin, session(offline=True))
    (path,) = wheel_files(pin, session())
    assert (path.name, path.read_bytes()) == (NAME, wheel)
    assert wheel_files(pin, session(offline=True)) == (path,)
    assert index.count(FILE) == 1


def test_a_verified_whole_takes_the_place_of_pieces_on_trust(
    pin: Pin, session: Callable[..., Session], files: dict[str, bytes], wheel: bytes
) -> None:
    one = session()
    assert open_pin(pin, one).read("setup.py") == files["setup.py"]
    for path in (one.cache.folder / "wheels" / pin.sha256[NAME]).iterdir():
        if path.name != "directory":
            one.cache.write(f"wheels/{pin.sha256[NAME]}/{path.name}", b"what a server said once")
    assert open_pin(pin, one).read("setup.py") == b"what a server said once"
    wheel_files(pin, one)
    assert open_pin(pin, one).read("setup.py") == files["setup.py"]


def test_a_wheel_of_the_pin_that_the_index_lacks_is_told(
    make_pin: Callable[..., Pin], session: Callable[..., Session], wheel: bytes
) -> None:
    other = "flashinfer_python-0.6.4-cp311-cp311-linux_x86_64.whl"
    with pytest.raises(Exception, match=f"the index has no {other}"):
        wheel_files(make_pin("0.6.4", **{other: "0" * 64}), session())


def test_a_file_uploaded_later_is_found(
    make_pin: Callable[..., Pin],
    session: Callable[..., Session],
    wheel: bytes,
    release: Callable[..., WheelTree],
    index: Any,
) -> None:
    release()
    later = "flashinfer_python-0.6.4-cp311-cp311-linux_x86_64.whl"
    index.publish(PACKAGE, {NAME: wheel, later: b"later"})
    (path,) = wheel_files(make_pin("0.6.4", **{later: hashlib.sha256(b"later").hexdigest()}), session())
    assert path.read_bytes() == b"later"


def test_an_index_in_a_folder_is_read_where_it_lies(
    pin: Pin,
    session: Callable[..., Session],
    files: dict[str, bytes],
    wheel: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "an index é"
    (folder / PACKAGE).mkdir(parents=True)
    (folder / NAME).write_bytes(wheel)
    (folder / PACKAGE / "index.html").write_text(f'<a href="../{NAME}#sha256={pin.sha256[NAME]}">{NAME}</a>')
    monkeypatch.setenv("PIP_INDEX_URL", folder.as_uri())
    one = session(offline=False)
    read(open_pin(pin, one), files)
    assert one.requests == 0
    assert [path.read_bytes() for path in wheel_files(pin, one)] == [wheel]
    (folder / NAME).write_bytes(wheel + b"x")
    with pytest.raises(DigestError):
        open_pin(pin, session(cache=tmp_path / "another")).read("setup.py")


def test_a_cache_that_cannot_be_written_costs_speed_only(
    pin: Pin, session: Callable[..., Session], files: dict[str, bytes], wheel: bytes, index: Any, tmp_path: Path
) -> None:
    (tmp_path / "blocked").write_bytes(b"")
    one = session(cache=tmp_path / "blocked")
    read(open_pin(pin, one), files)
    asked = len(index.asked)
    read(open_pin(pin, one), files)
    assert len(index.asked) == asked
    assert index.count(f"/simple/{PACKAGE}/") == 1
    assert "cannot be written" in one.cache.fault
    with pytest.raises(WriteError):
        wheel_files(pin, one)


def test_two_processes_fetch_a_whole_file_once(pin: Pin, wheel: bytes, index: Any, tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from packaging.version import Version
from downstream.pins import Pin, load
from downstream.trees.open import wheel_files
from downstream.trees.session import Session
cache, root, name, digest = sys.argv[1:]
upstream = load(Path(root)).upstreams["flashinfer"]
pin = Pin(line="stable", upstream=upstream, version=Version("0.6.4"), revision=1, sha256={name: digest})
with Session(Path(cache)) as session:
    print(wheel_files(pin, session)[0].stat().st_size)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "cache"), str(TOOLS.parent), NAME, pin.sha256[NAME]]
    environment = os.environ | {"PYTHONPATH": str(TOOLS)}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    assert [int(one.communicate()[0]) for one in both] == [len(wheel)] * 2
    assert [one.returncode for one in both] == [0, 0]
    assert index.count(FILE) == 1


def test_what_a_killed_download_left_is_cleared(pin: Pin, session: Callable[..., Session], wheel: bytes) -> None:
    one = session()
    folder = one.cache.folder / "files" / pin.sha256[NAME]
    folder.mkdir(parents=True)
    (folder / f".{NAME}.1.part").write_bytes(b"half")
    wheel_files(pin, one)
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_members_outside_the_layout_are_read_by_their_name(release: Callable[..., WheelTree], wheel: bytes) -> None:
    tree = release()
    metadata = "flashinfer_python-0.6.4.dist-info/METADATA"
    assert metadata in tree.members()
    assert metadata not in tree.paths()
    assert tree.read(metadata) is None
    assert (tree.member(metadata) or b"").startswith(b"Metadata-Version")
    assert tree.member("no/such/member") is None
