"""Small wheels zipped by hand, and an index served on loopback for real clients."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from downstream.index.application import application
from downstream.index.folder import IndexFolder
from downstream.index.public import PublicIndex
from downstream.index.publish import publish
from downstream.index.serve import _listening, url_of


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Iterable[str] = (),
    requires_python: str | None = None,
    files: Mapping[str, bytes] | None = None,
    metadata_version: str | None = None,
    dist_info: str | None = None,
    moment: tuple[int, int, int, int, int, int] = (2026, 1, 2, 3, 4, 6),
) -> Path:
    """Zip a wheel by hand; *metadata_version* and *dist_info* make it lie about its version."""
    stem = name.replace("-", "_")
    dist = dist_info or f"{stem}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {metadata_version or version}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Requires-Dist: {one}" for one in requires]
    members = {
        **(files if files is not None else {f"{stem}/__init__.py": f'__version__ = "{version}"\n'.encode()}),
        f"{dist}/METADATA": ("\n".join(lines) + "\n").encode(),
        f"{dist}/WHEEL": b"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for member, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{member},sha256={digest},{len(content)}")
    members[f"{dist}/RECORD"] = ("\n".join([*rows, f"{dist}/RECORD,,"]) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member, date_time=moment), content)
    return path


def index_of(root: Path, *wheels: Path) -> Path:
    publish(wheels, root)
    return root


@contextmanager
def serving(root: Path, upstream: PublicIndex | None = None) -> Iterator[str]:
    """Serve *root* from a thread of this process; yields the index URL."""
    import uvicorn

    listener = _listening("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(application(IndexFolder(root), upstream), log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@pytest.fixture(name="wheel", scope="session")
def _wheel() -> Callable[..., Path]:
    return make_wheel


@pytest.fixture(name="index_of", scope="session")
def _index_of() -> Callable[..., Path]:
    return index_of


@pytest.fixture(name="serving", scope="session")
def _serving() -> Callable[..., AbstractContextManager[str]]:
    return serving


class Installer(Protocol):
    """A real client: pip or uv, run as a command of its own."""

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]: ...


def sealed(folder: Path) -> dict[str, str]:
    """Return an environment in which neither client knows any index, cache or configuration."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_", "PYTHON", "VIRTUAL"))}
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_RETRIES": "0",
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(folder / "uv-cache"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_HTTP_RETRIES": "0",
        "NO_COLOR": "1",
        "HOME": str(folder),
        "COLUMNS": "200",
    }


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@pytest.fixture
def environment(tmp_path: Path, _template: Path) -> Path:
    """An empty virtual environment."""
    return Path(shutil.copytree(_template, tmp_path / "env", symlinks=True))


@pytest.fixture
def installed(environment: Path) -> Callable[[], dict[str, str]]:
    """What the environment holds: normalized name to version."""

    def read() -> dict[str, str]:
        found = {}
        for folder in environment.glob("lib/python*/site-packages/*.dist-info"):
            name, _, version = folder.name.removesuffix(".dist-info").partition("-")
            found[name.replace("_", "-").lower()] = version
        return found

    return read


@pytest.fixture
def pip(environment: Path, tmp_path: Path) -> Installer:
    import pip as package

    runner = Path(package.__file__).parent / "__pip-runner__.py"  # what `pip --python` runs, without its detour

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(environment / "bin" / "python"), str(runner), *arguments]
        return subprocess.run(command, env=sealed(tmp_path), capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def uv(environment: Path, tmp_path: Path) -> Installer:
    from uv import find_uv_bin

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [find_uv_bin(), "pip", *arguments, "--python", str(environment / "bin" / "python")]
        return subprocess.run(command, env=sealed(tmp_path), capture_output=True, text=True, check=False)

    return run
