"""The same answers with no HOME, another locale, another umask, and paths with odd names."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
NAME = "flashinfer_python-0.6.4-py3-none-any.whl"

SCRIPT = """
import json, os, sys
from pathlib import Path
from packaging.version import Version
from downstream.pins import load
from downstream.trees.open import open_release
from downstream.trees.spec import open_spec
from downstream.trees.session import Session
cache, root, folder = map(Path, sys.argv[1:])
if "UMASK" in os.environ:
    os.umask(int(os.environ["UMASK"], 8))
upstream = load(root).upstreams["flashinfer"]
with Session(cache) as session:
    tree = open_release(upstream, Version("0.6.4"), session)
    paths = list(tree.paths())
    found = {path: tree.read(path).decode() for path in paths}
    assert not session.cache.fault, session.cache.fault
names = list(open_spec(str(folder)).paths())
git = list(open_spec(f"git:{folder}@HEAD").paths())
assert names == git, (names, git)
print(json.dumps([found, names]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository whose path and files have names that are not ASCII, one no UTF-8 either."""
    made = tmp_path / "a földer with @ and spaces"
    made.mkdir()
    (made / "ünïcode.py").write_bytes(b"x")
    (made / "plain.py").write_bytes(b"x")
    (made / os.fsdecode(b"latin\xe9.py")).write_bytes(b"x")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=made, check=True)
    return made


@pytest.mark.parametrize(
    ("removed", "added"),
    [
        (
            ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
            {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "UMASK": "077"},
        ),
        ((), {"PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"}),
    ],
    ids=["bare", "strict"],
)
def test_the_surroundings_change_nothing(
    index: Any,
    make_wheel: Callable[..., bytes],
    files: dict[str, bytes],
    folder: Path,
    tmp_path: Path,
    removed: tuple[str, ...],
    added: dict[str, str],
) -> None:
    index.publish("flashinfer-python", {NAME: make_wheel(files)})
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "a cäche", TOOLS.parent, folder],
        env=environment | {"PYTHONPATH": str(TOOLS)} | added,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    found, names = json.loads(ended.stdout)
    # The project's own layout has no setup.py: the wheel's other files are what it maps.
    assert found == {path: content.decode() for path, content in files.items() if path != "setup.py"}
    assert names == ["latin\udce9.py", "plain.py", "ünïcode.py"]
    if added.get("UMASK"):
        kept = [path for path in (tmp_path / "a cäche").rglob("*") if path.is_file()]
        assert kept
        assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
