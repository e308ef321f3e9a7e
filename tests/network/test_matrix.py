"""The matrix of line stable on the real releases says what DOMAIN, section 5, says of them."""

from __future__ import annotations

import contextlib
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from downstream.cli import door
from downstream.trees.cache import default_folder

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
ASKED = {"flashinfer": ">=0.5.0,<=0.7.4", "sglang": ">=0.5.6,<=0.5.23"}


class Asked:
    """One upstream's matrix, by release and by patch."""

    def __init__(self, document: dict[str, Any]) -> None:
        (self.matrix,) = document["matrices"]
        self.versions = [Version(release["version"]) for release in self.matrix["releases"]]

    def statuses(self, patch: str, number: int | None = None) -> dict[str, set[str]]:
        """Per release, the verdicts of a patch's hunks (or of the one that is the *number*-th of all)."""
        (one,) = [each for each in self.matrix["patches"] if each["patch"] == patch]
        rows = one["hunks"] if number is None else [one["hunks"][number]]
        return {
            str(version): {self.matrix["verdicts"][row["cells"][column]]["status"] for row in rows}
            for column, version in enumerate(self.versions)
        }

    def lives(self, patch: str) -> list[dict[str, Any]]:
        (one,) = [each for each in self.matrix["patches"] if each["patch"] == patch]
        return [row["lifetime"] for row in one["hunks"]]


@pytest.fixture(scope="module")
def asked(request: pytest.FixtureRequest) -> dict[str, Asked]:
    found = {}
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for upstream, releases in ASKED.items():
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                code = door("matrix", ["--upstream", upstream, "--releases", releases, "--json"])
            assert code in (0, 1)
            found[upstream] = Asked(json.loads(said.getvalue()))
    return found


def test_every_final_release_is_a_column_that_could_be_read(asked: dict[str, Asked]) -> None:
    assert len(asked["flashinfer"].versions) >= 43
    assert len(asked["sglang"].versions) >= 23
    for found in asked.values():
        assert [release["version"] for release in found.matrix["releases"] if release["skipped"]] == []
        assert all(release["date"] for release in found.matrix["releases"])


@pytest.mark.parametrize(
    "patch",
    [
        "allow-sm120-in-comm-arch-list.patch",
        "open-allreduce-header-guards.patch",
        "fix-lamport-pointer-stride.patch",
    ],
)
def test_arch_list_guards_and_stride_apply_to_0_6_16_post4_and_are_upstream_from_0_6_17_on(
    asked: dict[str, Asked], patch: str
) -> None:
    for version, statuses in asked["flashinfer"].statuses(patch).items():
        if Version(version) >= Version("0.6.17"):
            assert statuses == {"upstreamed"}
        else:
            assert statuses <= {"clean", "offset", "merged"}
    assert {(life["last"], life["ended"]) for life in asked["flashinfer"].lives(patch)} == {("0.6.16.post4", "0.6.17")}


def test_the_missing_return_is_upstreams_in_no_release(asked: dict[str, Asked]) -> None:
    assert "upstreamed" not in set().union(*asked["flashinfer"].statuses("return-launch-errors.patch").values())


def test_the_arch_lists_normalisation_arrived_in_0_6_7(asked: dict[str, Asked]) -> None:
    (life,) = asked["flashinfer"].lives("normalise-sm12x-in-the-arch-list.patch")
    assert (life["last"], life["ended"]) == ("0.6.6", "0.6.7")


@pytest.mark.parametrize(
    ("patch", "ended"),
    [
        ("grid-dependency-control-in-sm120-gemm.patch", "0.6.7"),
        ("grid-dependency-control-in-sm120-moe.patch", "0.6.8"),
    ],
)
def test_grid_dependency_control_arrived_with_2780_and_2913(asked: dict[str, Asked], patch: str, ended: str) -> None:
    assert {(life["fate"], life["ended"]) for life in asked["flashinfer"].lives(patch)} == {("is upstream", ended)}


def test_sglangs_autotune_list_changed_in_0_5_13_and_moved_in_0_5_14_and_0_5_15(asked: dict[str, Asked]) -> None:
    life = asked["sglang"].lives("autotune-flashinfer-cutlass-on-sm12x.patch")[-1]
    assert (life["last"], life["ended"]) == ("0.5.12.post1", "0.5.13")
    assert any('# "flashinfer_cutlass"' in line["text"] for line in life["before"])
    assert any('"flashinfer_cutlass"' in line["text"] and "#" not in line["text"] for line in life["after"])
    runner = "python/sglang/srt/model_executor/runner"
    assert life["moves"] == [
        {"version": "0.5.14", "path": f"{runner}/base_runner.py"},
        {"version": "0.5.15", "path": f"{runner}/flashinfer_autotune.py"},
    ]


def test_the_fusion_gate_left_communicator_py_in_0_5_21(asked: dict[str, Asked]) -> None:
    gone = asked["sglang"].statuses("fuse-allreduce-on-sm12x-when-asked.patch", 0)
    assert {version for version, statuses in gone.items() if statuses == {"file-gone"}} == {
        "0.5.21",
        "0.5.22",
        "0.5.23",
    }


def test_warm_it_takes_less_than_five_seconds_and_reads_nothing(
    asked: dict[str, Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert default_folder().is_dir()
    began = time.process_time()
    for upstream, releases in ASKED.items():
        assert door("matrix", ["--upstream", upstream, "--releases", releases, "--json", "--offline"]) in (0, 1)
    assert time.process_time() - began < 5
    assert capsys.readouterr().err == ""
