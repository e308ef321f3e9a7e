from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from downstream.patched import PatchedTree
from downstream.pins import Line
from downstream.wheels.build import Built, build
from downstream.wheels.manifest import write_beside
from downstream.wheels.writer import EPOCH

House = tuple[tuple[Built, ...], Line, Path]


@pytest.fixture
def house(
    published: Callable[..., Any],
    line_of: Callable[..., Line],
    patched: Callable[..., PatchedTree],
    tmp_path: Path,
) -> House:
    wheel = published().write()
    line = line_of(wheel)
    tree = patched(line, wheel, {"attend/gate.py": b"x\n", "tests/t.py": b"t\n"}, overlay={"attend/sm120.py": b"x\n"})
    out = tmp_path / "dist"
    return build([wheel], tree, out, line=line, epoch=EPOCH), line, out


def test_sums_are_those_of_the_files_beside(house: House) -> None:
    built, line, out = house
    beside = write_beside(built, out, line=line, epoch=EPOCH)
    assert [path.name for path in beside] == ["constraints-stable.txt", "manifest.json", "SHA256SUMS"]
    checked = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=out, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count(": OK") == 3


def test_the_manifest_tells_inputs_and_digests_and_no_clock_or_folder(house: House) -> None:
    built, line, out = house
    write_beside(built, out, line=line, epoch=EPOCH)
    text = (out / "manifest.json").read_text()
    document = json.loads(text)
    (row,) = document["wheels"]
    pin = line.pins["attend"]
    name = "attend-1.0-py3-none-any.whl"
    assert row["upstream"] == {"name": "attend", "version": "1.0", "file": name, "sha256": pin.sha256[name]}
    assert row["sha256"] == built[0].sha256
    patch = built[0].patches["admit.patch"]
    assert row["series"] == [{"patch": "admit.patch", "sha256": hashlib.sha256(patch).hexdigest()}]
    assert row["overlay"] == [{"path": "attend/sm120.py", "sha256": hashlib.sha256(b"x\n").hexdigest()}]
    assert row["outside"] == ["tests/t.py"]
    assert document["zlib"]
    assert str(out) not in text
    write_beside(built, out, line=line, epoch=EPOCH)
    assert (out / "manifest.json").read_text() == text


def test_upstreams_can_be_built_one_by_one(house: House) -> None:
    built, line, out = house
    write_beside(built, out, line=line, epoch=EPOCH)
    pin = replace(line.pins["attend"], upstream=replace(line.pins["attend"].upstream, name="rest", package="rest"))
    both = Line(name="stable", pins=dict(line.pins) | {"rest": pin})
    other = replace(built[0], pin=pin, path=out / "rest-1.0+sm120.1-py3-none-any.whl", sha256="1" * 64)
    write_beside([other], out, line=both, epoch=EPOCH)
    files = [row["file"] for row in json.loads((out / "manifest.json").read_text())["wheels"]]
    assert files == ["attend-1.0+sm120.1-py3-none-any.whl", "rest-1.0+sm120.1-py3-none-any.whl"]
    assert (out / "constraints-stable.txt").read_text() == (
        "# Line stable: the patched packages, each at its exact build.\n"
        f"attend==1.0+sm120.1 \\\n    --hash=sha256:{built[0].sha256}\n"
        f"rest==1.0+sm120.1 \\\n    --hash=sha256:{'1' * 64}\n"
    )


@pytest.mark.parametrize("spoil", ["gone", "changed", "old revision", "no manifest"])
def test_what_is_no_longer_the_lines_build_is_not_listed(house: House, spoil: str) -> None:
    built, line, out = house
    write_beside(built, out, line=line, epoch=EPOCH)
    if spoil == "gone":
        built[0].path.unlink()
    elif spoil == "changed":
        built[0].path.write_bytes(b"other")
    elif spoil == "no manifest":
        (out / "manifest.json").write_text("[1")
    else:
        line = Line(name="stable", pins={"attend": replace(line.pins["attend"], revision=2)})
    write_beside([], out, line=line, epoch=EPOCH)
    assert json.loads((out / "manifest.json").read_text())["wheels"] == []


def test_pip_takes_the_constraints_and_refuses_other_bytes(house: House, tmp_path: Path) -> None:
    built, line, out = house
    write_beside(built, out, line=line, epoch=EPOCH)

    def install(target: str) -> subprocess.CompletedProcess[str]:
        pip = [sys.executable, "-m", "pip", "install", "--isolated", "--no-index", "--no-cache-dir", "--no-deps"]
        where = [
            "--target",
            str(tmp_path / target),
            "--find-links",
            str(out),
            "-c",
            str(out / "constraints-stable.txt"),
        ]
        return subprocess.run([*pip, *where, "attend"], capture_output=True, text=True, check=False)

    done = install("good")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "good" / "attend" / "sm120.py").is_file()
    assert (tmp_path / "good" / "attend-1.0+sm120.1.dist-info" / "sboms" / "attend.cdx.json").is_file()
    built[0].path.write_bytes(built[0].path.read_bytes() + b"\0")
    refused = install("bad")
    assert refused.returncode != 0
    assert "HASH" in refused.stderr.upper()
