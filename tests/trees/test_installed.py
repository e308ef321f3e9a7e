from __future__ import annotations

import json
import shutil
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.errors import TreeError
from downstream.pins import Upstream
from downstream.trees.installed import open_installed

INFO = "flashinfer_python-0.6.3+sm120.1.dist-info"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("an env é") / "env"
    venv.EnvBuilder(symlinks=True).create(folder)
    return folder / "bin" / "python"


@pytest.fixture
def install(python: Path) -> Callable[..., Path]:
    """Lay files and a dist-info into the environment; return its site-packages."""
    site = Path(sysconfig.get_path("purelib", vars={"base": str(python.parents[1])}))

    def lay(files: dict[str, bytes], record: list[str] | None, **more: str) -> Path:
        for path in site.iterdir():
            shutil.rmtree(path)
        for name, content in files.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_bytes(content)
        (site / INFO).mkdir()
        (site / INFO / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: flashinfer_python\nVersion: 0.6.3+sm120.1\n"
        )
        if record is not None:
            (site / INFO / "RECORD").write_text("".join(f"{row}\n" for row in record))
        for name, text in more.items():
            (site / INFO / name.replace("__", ".")).write_text(text)
        return site

    return lay


def test_what_record_names_and_exists_is_the_tree(
    python: Path, install: Callable[..., Path], upstream: Upstream
) -> None:
    files = {"flashinfer/a.py": b"a", "flashinfer/data/include/b.cuh": b"b", "flashinfer/extra.py": b"not recorded"}
    record = [
        "flashinfer/a.py,sha256=x,1",
        "flashinfer/data/include/b.cuh,,",
        "flashinfer/__pycache__/a.cpython-311.pyc,,",
        "flashinfer/gone.py,,",
        "../../../bin/flashinfer,,",
        f"{INFO}/RECORD,,",
    ]
    site = install(files, record)
    tree = open_installed(upstream, python)
    assert list(tree.paths()) == ["flashinfer/a.py", "include/b.cuh"]
    assert tree.read("include/b.cuh") == b"b"
    assert tree.read("flashinfer/extra.py") is None
    assert tree.read("flashinfer/gone.py") is None
    assert tree.version == "0.6.3+sm120.1"
    assert tree.name == f"flashinfer 0.6.3+sm120.1 installed in {site}"


def test_an_edit_in_place_is_read(python: Path, install: Callable[..., Path], upstream: Upstream) -> None:
    site = install({"flashinfer/a.py": b"a"}, ["flashinfer/a.py,sha256=x,1"])
    tree = open_installed(upstream, python)
    (site / "flashinfer" / "a.py").write_bytes(b"edited")
    assert tree.read("flashinfer/a.py") == b"edited"


def test_an_editable_install_is_read_where_it_lies(
    python: Path, install: Callable[..., Path], upstream: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "check out" / "include").mkdir(parents=True)
    (tmp_path / "check out" / "include" / "a.cuh").write_bytes(b"mine")
    origin = {"url": (tmp_path / "check out").as_uri(), "dir_info": {"editable": True}}
    install({}, [f"{INFO}/RECORD,,"], direct_url__json=json.dumps(origin))
    tree = open_installed(upstream, python)
    assert list(tree.paths()) == ["include/a.cuh"]
    assert tree.read("include/a.cuh") == b"mine"
    assert "editable" in tree.name


def test_an_install_from_a_file_is_no_editable_one(
    python: Path, install: Callable[..., Path], upstream: Upstream
) -> None:
    origin = json.dumps({"url": "file:///x.whl", "archive_info": {}})
    install({"flashinfer/a.py": b"a"}, ["flashinfer/a.py,,"], direct_url__json=origin)
    assert list(open_installed(upstream, python).paths()) == ["flashinfer/a.py"]


def test_an_install_without_record_is_told(python: Path, install: Callable[..., Path], upstream: Upstream) -> None:
    install({"flashinfer/a.py": b"a"}, None)
    with pytest.raises(TreeError, match="has no RECORD"):
        open_installed(upstream, python)


def test_nothing_installed_is_told(python: Path, install: Callable[..., Path], upstream: Upstream) -> None:
    site = install({}, [])
    shutil.rmtree(site / INFO)
    with pytest.raises(TreeError) as caught:
        open_installed(upstream, python)
    assert str(caught.value).startswith(f"{python}: has no flashinfer-python installed")
    with pytest.raises(TreeError, match="this environment: has no flashinfer-python installed"):
        open_installed(upstream)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (None, "does not exist"),
        ("#!/bin/sh\necho hello\n", "does not answer as Python does"),
        ("#!/bin/sh\necho 'bad interpreter' >&2; exit 3\n", "does not answer as Python does: bad interpreter"),
        ("not a program", "cannot be run"),
    ],
)
def test_an_interpreter_that_is_none_is_told(
    tmp_path: Path, upstream: Upstream, script: str | None, problem: str
) -> None:
    path = tmp_path / "python"
    if script is not None:
        path.write_text(script)
        path.chmod(0o755)
    with pytest.raises(TreeError) as caught:
        open_installed(upstream, path)
    assert caught.value.place == str(path)
    assert problem in caught.value.problem


def test_the_callers_python_settings_have_no_effect(
    python: Path, install: Callable[..., Path], upstream: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install({"flashinfer/a.py": b"a"}, ["flashinfer/a.py,,"])
    (tmp_path / "json.py").write_text("raise SystemExit('wrong json')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert open_installed(upstream, python).read("flashinfer/a.py") == b"a"
