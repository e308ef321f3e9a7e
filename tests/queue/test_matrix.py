"""Every hunk on every release: verdicts, lifetimes, and which releases are asked about."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from downstream import pins as pinned
from downstream.progress import Task
from downstream.queue.matrix import Matrix, chosen, matrix, withdrawn
from downstream.queue.plan import Plan
from downstream.queue.target import Target
from downstream.trees.releases import Release, ReleaseFile, listing
from downstream.trees.session import Session

from .conftest import Overlay, numbered

ALL = ("--releases", ">=0.1")
LETTERS = {"clean": "c", "offset": "o", "upstreamed": "U", "conflict": "X", "file-gone": "G", "file-moved": "v"}


def asked(overlay: Overlay, *arguments: str) -> dict[str, Any]:
    """The one matrix of what the door prints as JSON."""
    run = overlay.matrix("--json", *arguments)
    assert run.code in (0, 1), run.err
    document = json.loads(run.out)
    assert document["ok"] is (run.code == 0)
    (found,) = document["matrices"]
    return dict(found)


def rows(found: dict[str, Any]) -> dict[tuple[str, int], str]:
    """A string of letters, one per release, for each hunk."""
    return {
        (patch["patch"], row["number"]): "".join(
            "-" if cell is None else LETTERS[found["verdicts"][cell]["status"]] for cell in row["cells"]
        )
        for patch in found["patches"]
        for row in patch["hunks"]
    }


def life(found: dict[str, Any], patch: str, number: int) -> dict[str, Any]:
    (row,) = [
        row for one in found["patches"] if one["patch"] == patch for row in one["hunks"] if row["number"] == number
    ]
    return dict(row["lifetime"])


def plan_of(overlay: Overlay, session: Session) -> Plan:
    pins = pinned.load(overlay.root)
    pin = pins.pin("stable", "kernels")
    return Plan.make(pins, "stable", Target(pin.upstream, pin.version), session)


def judged_all(overlay: Overlay, session: Session) -> Matrix:
    releases = chosen(
        listing("kernels-python", session=session).releases, Version("1.0"), SpecifierSet(">=0.1"), pre=False
    )
    return matrix(plan_of(overlay, session), releases)


def test_every_hunk_gets_a_verdict_on_every_release(story: Overlay) -> None:
    found = asked(story, *ALL)
    assert [one["version"] for one in found["releases"]] == ["0.8", "0.9", "1.0", "1.1", "1.2", "1.4", "1.5", "2.0"]
    assert rows(found) == {
        ("ten.patch", 1): "cocc" + "XX" + "-" + "G",
        ("guards.patch", 1): "ccc" + "UUU" + "-" + "U",
        ("guards.patch", 2): "cccccc" + "-" + "c",
    }


def test_the_verdicts_are_those_of_the_rebase_and_so_is_since(story: Overlay) -> None:
    found = asked(story, "--releases", ">=1.0,<1.5")
    for column, one in enumerate(found["releases"]):
        checked = json.loads(story.rebase("--check", "--json", "--upstream", f"v{one['version']}").out)
        for patch, theirs in zip(found["patches"], checked["patches"], strict=True):
            hunks = [hunk for file in theirs["files"] for hunk in file["hunks"]]
            for row, hunk in zip(patch["hunks"], hunks, strict=True):
                assert found["verdicts"][row["cells"][column]]["status"] == hunk["status"]
                if one["version"] == "1.4":
                    assert hunk["since"] == row["lifetime"]["ended"]


def test_a_lifetime_names_the_first_the_last_and_the_release_that_ended_it(story: Overlay) -> None:
    found = asked(story, *ALL)
    ten, first, second = life(found, "ten.patch", 1), life(found, "guards.patch", 1), life(found, "guards.patch", 2)
    assert (ten["first"], ten["last"], ten["ended"], ten["fate"]) == ("0.8", "1.1", "1.2", "needs a decision")
    assert (first["first"], first["last"], first["ended"], first["fate"]) == ("0.8", "1.0", "1.1", "is upstream")
    assert (second["first"], second["last"], second["ended"], second["fate"]) == ("0.8", "2.0", None, None)


def test_a_lifetime_shows_upstreams_lines_before_and_after(story: Overlay) -> None:
    found = asked(story, *ALL)
    ten, first = life(found, "ten.patch", 1), life(found, "guards.patch", 1)
    assert {"line": 10, "text": "line 10"} in ten["before"]
    assert {"line": 10, "text": "other"} in ten["after"]
    assert [line["line"] for line in first["before"]] == [7, 8, 9, 10, 11, 12, 13]
    assert first["before"][3] == {"line": 10, "text": "line 10"}
    assert first["after"][3] == {"line": 10, "text": "TEN"}


def test_a_life_is_the_unbroken_run_around_the_pin(overlay: Overlay) -> None:
    a, k = overlay.releases["1.0"]["kernels/a.py"], overlay.releases["1.0"]["include/k.cuh"]
    for version, content in {
        "0.7": a,
        "0.8": numbered(1, 20, {10: "older"}),
        "0.9": a,
        "1.1": a,
        "1.2": numbered(1, 20, {10: "newer"}),
        "1.3": a,
    }.items():
        overlay.publish(version, {"kernels/a.py": content, "include/k.cuh": k})
    found = asked(overlay, *ALL)
    assert rows(found)["ten.patch", 1] == "cXcccXc"
    ten = life(found, "ten.patch", 1)
    assert (ten["first"], ten["last"], ten["ended"]) == ("0.9", "1.1", "1.2")


def test_releases_without_a_verdict_are_named_and_counted(story: Overlay) -> None:
    found = asked(story, *ALL)
    skipped = {one["version"]: one["skipped"] for one in found["releases"] if one["skipped"]}
    assert set(skipped) == {"1.5"}
    assert "has no wheel on the index, only kernels-python-1.5.tar.gz" in skipped["1.5"]
    assert found["withdrawn"] == ["1.3"]
    assert found["not_releases"] == ["kernels_python-nightly-py3-none-any.whl"]
    said = story.matrix(*ALL).out
    assert "skipped 1.5: kernels 1.5: has no wheel" in said
    assert "yanked, so left out: 1.3" in said
    assert "no releases (1): kernels_python-nightly-py3-none-any.whl" in said


def test_a_damaged_wheel_is_a_column_that_says_so(story: Overlay) -> None:
    (story.index / "kernels-python" / "kernels_python-1.2-py3-none-any.whl").write_bytes(b"PK no longer")
    found = asked(story, *ALL)
    assert rows(found)["ten.patch", 1] == "cocc" + "-" + "X" + "-" + "G"
    assert next(one["skipped"] for one in found["releases"] if one["version"] == "1.2")


def test_what_was_read_once_needs_no_network(story: Overlay) -> None:
    online = story.matrix("--json", *ALL).out
    elsewhere = story.index.rename(story.index.with_name("gone"))
    offline = story.matrix("--json", "--offline", *ALL)
    assert (offline.out, offline.code) == (online, 1)
    elsewhere.rename(story.index)
    assert story.matrix("--json", *ALL).out == online


def test_offline_without_a_cache_cannot(story: Overlay) -> None:
    run = story.matrix("--offline", *ALL)
    assert run.code == 2
    assert run.out == ""
    assert "without --offline" in run.err


class Stopping:
    """Progress at which a person presses ^C once *releases* were judged."""

    def __init__(self, releases: int) -> None:
        self.left = releases

    @contextmanager
    def task(self, label: str, total: int | None = None, unit: str = "") -> Iterator[Task]:
        judging = "on its releases" in label
        outer = self

        class Counting:
            def advance(self, amount: int = 1, note: str = "") -> None:
                outer.left -= judging
                if outer.left < 0:
                    raise KeyboardInterrupt

        yield Counting()


def test_an_interrupted_matrix_goes_on_where_it_was(story: Overlay) -> None:
    with pytest.raises(KeyboardInterrupt), Session(story.cache, progress=Stopping(3)) as session:
        judged_all(story, session)
    kept = {path: path.stat().st_mtime_ns for path in story.cache.glob("v1/verdicts/*")}
    assert len(kept) == 3  # 0.8 and 1.0 have the same files
    with Session(story.cache) as session:
        found = judged_all(story, session)
    assert [column.verdicts is None for column in found.columns].count(True) == 1
    after = {path: path.stat().st_mtime_ns for path in story.cache.glob("v1/verdicts/*")}
    assert len(after) == 5
    assert kept.items() <= after.items()


def test_releases_that_share_the_files_share_the_verdict(story: Overlay) -> None:
    for patch in range(1, 11):
        story.publish(f"1.4.{patch}", story.releases["1.4"])
    found = asked(story, "--releases", ">=1.4,<1.5")
    assert len(found["releases"]) == 11
    assert len(list(story.cache.glob("v1/verdicts/*"))) == 1


def test_code_that_left_its_file_is_found_again(overlay: Overlay) -> None:
    telling = {line: f"a line long enough to be told from others, the {line}th of them" for line in range(8, 13)}
    old = numbered(1, 20, telling)
    overlay.publish("1.0", {**overlay.releases["1.0"], "kernels/gate.py": old})
    overlay.pin()
    overlay.add_patch(
        "gate.patch", {"kernels/gate.py": old}, {"kernels/gate.py": numbered(1, 20, {**telling, 10: "x"})}
    )
    left = numbered(1, 20)
    for version, home in (("1.1", "kernels/new/gate.py"), ("1.2", "kernels/newer/gate.py")):
        overlay.publish(version, {**overlay.releases["1.0"], "kernels/gate.py": left, home: b"# new\n" * 70 + old[60:]})
    gate = life(asked(overlay, *ALL), "gate.patch", 1)
    assert gate["ended"] == "1.1"
    assert gate["moves"] == [
        {"version": "1.1", "path": "kernels/new/gate.py"},
        {"version": "1.2", "path": "kernels/newer/gate.py"},
    ]


def published(*versions: str, yanked: tuple[str, ...] = ()) -> list[Release]:
    def file(version: str) -> ReleaseFile:
        return ReleaseFile(
            name=f"x-{version}-py3-none-any.whl", url="", sha256="", size=None, uploaded=None,
            yanked=version in yanked, requires_python=None,
        )  # fmt: skip

    return [Release(version=Version(one), files=(file(one),), yanked=one in yanked) for one in versions]


@pytest.mark.parametrize(
    ("asks", "pre", "found"),
    [
        pytest.param(None, False, "0.8 0.9 1.0 1.1 1.2.post1", id="default: from two before the pin on"),
        pytest.param(None, True, "0.9 1.0rc1 1.0 1.1 1.2rc1 1.2.post1", id="with pre-releases"),
        pytest.param(">=1.1", False, "1.1 1.2.post1", id="a specifier"),
        pytest.param(">=0.7,<1.0", True, "0.7 0.8 0.9", id="a bound excludes its own pre-releases, as PEP 440 says"),
        pytest.param(">=9", False, "", id="nothing"),
        pytest.param("==1.0.*", False, "1.0", id="a prefix"),
    ],
)
def test_which_releases_are_judged(asks: str | None, pre: bool, found: str) -> None:
    releases = published("0.7", "0.8", "0.9", "1.0rc1", "1.0", "1.1", "1.2rc1", "1.2", "1.2.post1", yanked=("1.2",))
    specifier = SpecifierSet(asks) if asks else None
    taken = chosen(releases, Version("1.0"), specifier, pre=pre)
    assert " ".join(str(release.version) for release in taken) == found
    assert withdrawn(releases, taken) == ((Version("1.2"),) if "1.2.post1" in found else ())


def test_a_pin_that_was_yanked_is_judged_all_the_same() -> None:
    releases = published("0.9", "1.0", yanked=("1.0",))
    assert [str(one.version) for one in chosen(releases, Version("1.0"), None, pre=False)] == ["0.9", "1.0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--releases", "0.6 and up"), "no version specifier"),
        (("--releases", ">=99"), "admits no release"),
        (("--json", "--markdown"), "one format"),
        (("--git", "kernels"), "NAME=FOLDER"),
        (("--git", "kernels=/nonexistent"), "no git repository"),
        (("--upstream", "cutlass"), "does not pin"),
    ],
)
def test_a_wrong_question_is_refused_with_a_next_step(story: Overlay, arguments: tuple[str, ...], said: str) -> None:
    run = story.matrix(*arguments)
    assert run.code == 2
    assert said in run.err
    assert "next:" in run.err


def test_the_newest_release_decides_the_exit_code(overlay: Overlay) -> None:
    overlay.publish("1.1", {"kernels/a.py": numbered(1, 20, {10: "other"})})
    assert overlay.matrix().code == 1
    overlay.publish("1.2", overlay.releases["1.0"])
    assert overlay.matrix().code == 0


def test_two_lines_are_two_maps_each_on_its_own_pin(story: Overlay, upstream: Path) -> None:
    pins = story.root / "VERSIONS.toml"
    stable = pins.read_text()
    story.pin("0.8")
    line = (
        pins.read_text().partition("[lines.stable")[2].replace("lines.stable", "lines.next").replace('"1.0"', '"0.8"')
    )
    pins.write_text(f"{stable}\n[lines.next{line}")
    shutil.copytree(story.root / "patches/stable", story.root / "patches/next")
    said = story.matrix("--json", *ALL, "--line", "stable")
    assert said.code in (0, 1), said.err
    document = json.loads(said.out)
    assert [one["line"] for one in document["matrices"]] == ["stable"]
    said = story.matrix("--json", *ALL, "--line", "all", "--git", f"kernels={upstream}")
    assert said.code in (0, 1), said.err
    document = json.loads(said.out)
    assert [(one["line"], one["pin"]) for one in document["matrices"]] == [("stable", "1.0"), ("next", "0.8")]
    assert life(document["matrices"][0], "guards.patch", 1)["commit"]["pull"] == 7
    assert said.err.count("note: kernels 1.2 has no tag v1.2") == 1
    twice = story.matrix("--json", *ALL, "--line", "next", "--line", "stable", "--line", "next")
    assert [one["line"] for one in json.loads(twice.out)["matrices"]] == ["next", "stable"]
    assert "no line 'nosuch'" in story.matrix(*ALL, "--line", "nosuch").err


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True).stdout.strip()


@pytest.fixture
def upstream(story: Overlay, tmp_path: Path) -> Path:
    """Upstream's repository: 1.0, a stranger's commit, the merge of hunk 1 (#7), another, then 1.1; 1.2 has no tag."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    git(folder, "init", "-q")

    def commit(title: str, files: dict[str, bytes]) -> None:
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", title)

    commit("start", story.releases["1.0"])
    git(folder, "tag", "v1.0")
    commit("elsewhere in the file (#6)", {"include/k.cuh": numbered(1, 40, {39: "late"})})
    commit("take the tenth line (#7)", {"include/k.cuh": numbered(1, 40, {10: "TEN", 39: "late"})})
    commit("and back (#8)", {"include/k.cuh": numbered(1, 40, {10: "TEN"})})
    git(folder, "tag", "v1.1")
    return folder


def test_the_commit_that_took_a_hunk_is_named_with_its_pull_request(story: Overlay, upstream: Path) -> None:
    found = asked(story, *ALL, "--git", f"kernels={upstream}")
    commit = life(found, "guards.patch", 1)["commit"]
    assert (commit["pull"], commit["title"]) == (7, "take the tenth line (#7)")
    assert commit["id"] == git(upstream, "rev-parse", "v1.1~1")
    # 1.2 is not tagged there: nobody is blamed for what it did.
    assert life(found, "ten.patch", 1)["commit"] is None
    said = story.matrix(*ALL, "--git", f"kernels={upstream}")
    assert "is upstream since 1.1 (#7: take the tenth line)" in said.out
    assert "note: kernels 1.2 has no tag v1.2" in said.err
