"""The trees on the configured index and the real releases. Needs no cache: each test begins with an empty one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from downstream.errors import TreeError
from downstream.pins import Pins, load
from downstream.trees.open import digests, open_pin, open_release, prefetch, wheel_files
from downstream.trees.releases import latest, releases
from downstream.trees.requires import demands, verify
from downstream.trees.session import Session

pytestmark = pytest.mark.network

READ = (
    "flashinfer/jit/comm.py",
    "flashinfer/aot.py",
    "flashinfer/jit/env.py",
    "include/flashinfer/comm/trtllm_allreduce.cuh",
    "include/flashinfer/comm/trtllm_allreduce_fusion.cuh",
    "csrc/trtllm_allreduce.cu",
    "3rdparty/cutlass/include/cutlass/arch/grid_dependency_control.h",
)


@pytest.fixture(scope="module")
def pins() -> Pins:
    return load(Path(__file__).parents[2])


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session(tmp_path / "cache") as one:
        yield one


def test_the_pins_require_what_their_metadata_says(pins: Pins, session: Session) -> None:
    for line in pins.lines.values():
        verify(line, session)


def test_the_pinned_digests_are_the_published_ones(pins: Pins, session: Session) -> None:
    for line in pins.lines.values():
        for pin in line.pins.values():
            published = digests(pin.upstream, pin.version, session)
            assert dict(pin.sha256).items() <= published.items()


def test_seven_members_cost_a_few_per_cent_cold_and_nothing_warm(pins: Pins, session: Session) -> None:
    upstream = pins.upstreams["flashinfer"]
    version = Version("0.6.4")
    began = time.monotonic()
    tree = open_release(upstream, version, session)
    prefetch(tree, READ)
    found = {path: tree.read(path) for path in READ}
    assert time.monotonic() - began < 5
    assert all(found.values())
    size = next(
        release.files[0].size for release in releases(upstream.package, session=session) if release.version == version
    )
    assert size is not None
    assert session.fetched < size * 0.08
    fetched, asked = session.fetched, session.requests
    again = open_release(upstream, version, session)
    assert {path: again.read(path) for path in READ} == found
    assert (session.fetched, session.requests) == (fetched, asked)


def test_pieces_are_those_of_the_whole(pins: Pins, session: Session, tmp_path: Path) -> None:
    pin = pins.pin("stable", "sglang")
    with Session(tmp_path / "pieces") as other:
        pieces = open_pin(pin, other)
        (path,) = wheel_files(pin, session)
        whole = open_pin(pin, session)
        assert path.name in pin.sha256
        assert list(pieces.paths()) == list(whole.paths())
        chosen = list(whole.paths())[::200]
        prefetch(pieces, chosen)
        assert [pieces.read(one) for one in chosen] == [whole.read(one) for one in chosen]
        assert other.fetched < path.stat().st_size


def test_a_release_of_platform_wheels_is_read_from_the_fixed_one(pins: Pins, session: Session) -> None:
    tree = open_release(pins.upstreams["sglang"], Version("0.5.23"), session)
    assert "python/sglang/srt/server_args.py" in tree.paths()
    assert demands(tree, pins.upstreams.values()) == {"flashinfer-python": "==0.7.2"}


def test_an_unknown_version_names_near_ones(pins: Pins, session: Session) -> None:
    with pytest.raises(TreeError) as caught:
        open_release(pins.upstreams["flashinfer"], Version("0.6.99"), session)
    assert "0.7.0" in caught.value.next_step


def test_the_latest_release_is_no_prerelease(pins: Pins, session: Session) -> None:
    for upstream in pins.upstreams.values():
        found = latest(upstream.package, session=session)
        assert not found.version.is_prerelease
        assert found.version >= Version("0.5.9")
        assert found.uploaded
