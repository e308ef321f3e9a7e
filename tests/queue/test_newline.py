"""A line begun as a copy of another."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from downstream.cli import FAILED, OK, door
from downstream.errors import PinError
from downstream.queue.newline import with_line

TEXT = """\
# what stays
schema = 1

[upstreams.up]
package = "up"
repository = "https://example.org/up"
tag = "v{version}"
version-file = "up/_version.py"
[upstreams.up.layout]
"up/" = "up/"

# how lines are written
[lines.stable.up]
version = "1.0"  # the pin
revision = 3

[ lines.stable.up.sha256 ]
"up-1.0-py3-none-any.whl" = "%s"

[lines.stable-old.up]
version = "0.9"
revision = 1
[lines.stable-old.up.sha256]
""" % ("0" * 64)  # fmt: skip

COPY = """
[lines.next.up]
version = "1.0"  # the pin
revision = 3

[ lines.next.up.sha256 ]
"up-1.0-py3-none-any.whl" = "%s"
""" % ("0" * 64)  # fmt: skip

FILES = {
    "series": b"# ours\nsub/first.patch\n",
    "sub/first.patch": b"Subject: first\n\xff\r\n",
    "guards.toml": b"schema = 1\n",
}


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    (tmp_path / "VERSIONS.toml").write_text(TEXT)
    for name, content in FILES.items():
        path = tmp_path / "patches/stable/up" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".work" not in path.parts
    }


def test_pins_comments_series_and_ledger_are_copied_byte_for_byte(
    overlay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(overlay)
    assert door("pq", ["line", "next", "--from", "stable", "--root", str(overlay)]) == OK
    told = capsys.readouterr().out.splitlines()
    after = files(overlay)
    assert after.pop("VERSIONS.toml").decode() == TEXT + COPY
    copied = {f"patches/next/up/{name}": content for name, content in FILES.items()}
    assert after == {name: content for name, content in before.items() if name != "VERSIONS.toml"} | copied
    assert sorted(row.split()[1] for row in told[:-1]) == sorted(["VERSIONS.toml", *copied])
    assert told[-1] == "next: tools/rebase.py --line next --upstream RELEASE (it stands on up=v1.0)"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("stable", "is a line of VERSIONS.toml already"),
        ("stable-old", "is a line of VERSIONS.toml already"),
        ("left", "is there already"),
        ("a.b", "is no name for a line"),
        ("../up", "is no name for a line"),
        ("", "is no name for a line"),
        ("Next", "is no name for a line"),
    ],
)
def test_a_name_that_is_taken_or_none_is_refused_and_nothing_is_written(
    overlay: Path, name: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (overlay / "patches/left").mkdir()
    before = files(overlay)
    assert door("pq", ["line", name, "--from", "stable", "--root", str(overlay)]) == FAILED
    assert problem in capsys.readouterr().err
    assert files(overlay) == before


def test_a_line_that_is_not_there_is_refused_with_those_that_are(
    overlay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert door("pq", ["line", "next", "--from", "other", "--root", str(overlay)]) == FAILED
    assert "choose one of: stable, stable-old" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        '[lines]\nstable = {up = {version = "1.0"}}\n',
        '[lines.stable]\nup = {version = "1.0"}\n[lines."stable".down]\nversion = "1"\n',
    ],
)
def test_a_line_whose_tables_cannot_be_copied_is_refused(text: str) -> None:
    with pytest.raises(PinError, match=r"is not written as \[lines.stable"):
        with_line(text, "next", "stable")


def test_the_copy_reads_as_the_same_pins() -> None:
    lines = tomllib.loads(with_line(TEXT, "next", "stable"))["lines"]
    assert lines["next"] == lines["stable"]
    assert list(lines) == ["stable", "stable-old", "next"]
