"""What an environment has installed of an upstream, as a tree."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from downstream.errors import TreeError
from downstream.trees.folder import FolderTree
from downstream.trees.pipconf import file_path

if TYPE_CHECKING:
    from downstream.pins import Upstream

TIMEOUT = 60  # seconds for another interpreter to answer

# Runs in the environment that is asked, so: any Python 3.8, nothing but the standard library.
_QUESTION = """
import json, sys
from importlib import metadata
try:
    found = metadata.distribution(sys.argv[1])
except metadata.PackageNotFoundError:
    print("null")
else:
    files = [str(path) for path in found.files or ()]
    origin = found.read_text("direct_url.json")
    print(json.dumps([str(found.locate_file("")), found.version, files, origin]))
"""


class InstalledTree:
    """An installed package's files, those that its RECORD names and that exist, by repository path."""

    def __init__(self, folder: FolderTree, listed: Iterable[str], version: str) -> None:
        self.name = folder.name
        self.version = version  # with its local part: what an audit compares
        self._folder = folder
        self._listed = frozenset(listed)

    def read(self, path: str) -> bytes | None:
        return self._folder.read(path) if path in self._listed else None

    def mode(self, path: str) -> int | None:
        return self._folder.mode(path) if path in self._listed else None

    def paths(self) -> Iterable[str]:
        return sorted(path for path in self._listed if self._folder.mode(path) is not None)


def open_installed(upstream: Upstream, python: Path | None = None) -> InstalledTree:
    """Open what the environment of *python* (None: of this interpreter) has installed of *upstream*.

    An editable install is read where it lies, as a repository. Raises TreeError
    where nothing is installed, or the interpreter does not answer.
    """
    place = str(python) if python is not None else "this environment"
    answer = _asked(python or Path(sys.executable), upstream.package, place)
    if answer is None:
        step = f"name the environment's interpreter with --python, or install {upstream.package} in it"
        raise TreeError(place, f"has no {upstream.package} installed", step)
    location, version, files, origin = answer
    title = f"{upstream.name} {version} installed in {location}"
    if (checkout := _editable(origin)) is not None:
        folder = FolderTree(checkout, name=f"{upstream.name} {version} editable from {checkout}")
        return InstalledTree(folder, folder.paths(), version)
    if not files:
        step = "install it with pip, or audit its folder as a tree"
        raise TreeError(title, "has no RECORD, so its files are not known", step)
    folder = FolderTree(Path(location), name=title, layout=upstream.layout)
    mapped = (upstream.layout.to_repository(file) for file in files if not file.startswith(("../", "/")))
    return InstalledTree(folder, (path for path in mapped if path is not None and not _compiled(path)), version)


def _compiled(path: str) -> bool:
    return "__pycache__/" in path  # pip's RECORD names the bytecode it made


def _asked(python: Path, package: str, place: str) -> list[Any] | None:
    try:
        # -I: no PYTHONPATH, no user site of ours, and not this folder's modules.
        answer = subprocess.run(
            [str(python), "-I", "-c", _QUESTION, package], capture_output=True, check=True, timeout=TIMEOUT
        )
        found = json.loads(answer.stdout)
    except FileNotFoundError as exc:
        raise TreeError(place, "does not exist", "name a Python interpreter, such as ENV/bin/python") from exc
    except OSError as exc:
        raise TreeError(place, f"cannot be run: {exc.strerror}", "name a Python interpreter") from exc
    except subprocess.TimeoutExpired as exc:
        raise TreeError(place, f"did not answer within {TIMEOUT} s", "name a Python interpreter") from exc
    except (subprocess.CalledProcessError, ValueError) as exc:
        said = getattr(exc, "stderr", b"").decode("utf-8", "replace").strip().splitlines()
        problem = f"does not answer as Python does{': ' + said[-1] if said else ''}"
        raise TreeError(place, problem, "name a Python interpreter, such as ENV/bin/python") from exc
    return found if isinstance(found, list) else None


def _editable(origin: str | None) -> Path | None:
    """Return the folder of an editable install, from its direct_url.json (PEP 610)."""
    if not origin:
        return None
    found = json.loads(origin)
    return file_path(found["url"]) if found.get("dir_info", {}).get("editable") else None
