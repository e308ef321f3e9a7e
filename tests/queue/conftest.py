"""A small overlay over a small upstream with several releases, on an index that is a folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from downstream.patches.unified import unified
from downstream.trees.tree import MemoryTree, Tree

REPOSITORY = Path(__file__).resolve().parents[2]

PINS = """\
# a comment that stays
schema = 1

[upstreams.kernels]
package = "kernels-python"
repository = "https://example.org/kernels"
tag = "v{version}"
version-file = "kernels/_version.py"

[upstreams.kernels.layout]
"kernels/" = "kernels/"
"include/" = "kernels/data/include/"

[lines.stable.kernels]
version = "1.0"  # the pin
revision = 3

[lines.stable.kernels.sha256]
"""


def numbered(first: int, last: int, changed: Mapping[int, str] | None = None) -> bytes:
    """``line 1`` … ``line N`` with some replaced."""
    lines = [(changed or {}).get(number, f"line {number}") for number in range(first, last + 1)]
    return "".join(f"{line}\n" for line in lines).encode()


@dataclass
class Overlay:
    """A checkout of an overlay in *root*, and the index it reads from."""

    root: Path
    index: Path
    cache: Path
    ask: Callable[..., Any]
    releases: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def publish(self, version: str, files: Mapping[str, bytes]) -> None:
        """Put a release with *files* (repository paths) on the index."""
        self.releases[version] = dict(files)
        name = f"kernels_python-{version}-py3-none-any.whl"
        page = self.index / "kernels-python"
        page.mkdir(parents=True, exist_ok=True)
        info = f"kernels_python-{version}.dist-info"
        with zipfile.ZipFile(page / name, "w", zipfile.ZIP_DEFLATED) as wheel:
            for path, content in files.items():
                wheel.writestr(path.replace("include/", "kernels/data/include/", 1), content)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: kernels-python\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
        links = [
            f'<a href="{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">{path.name}</a>'
            for path in sorted(page.glob("*.whl"))
        ]
        (page / "index.html").write_text("<!DOCTYPE html>" + "<br>".join(links), encoding="utf-8")

    def pin(self, version: str = "1.0") -> None:
        name = f"kernels_python-{version}-py3-none-any.whl"
        digest = hashlib.sha256((self.index / "kernels-python" / name).read_bytes()).hexdigest()
        (self.root / "VERSIONS.toml").write_text(PINS + f'"{name}" = "{digest}"\n', encoding="utf-8")

    def add_patch(self, name: str, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
        """Write a patch that turns *before* into *after*, and append it to the series."""
        folder = self.root / "patches" / "stable" / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        header = f"Subject: {name}\nAuthor: A <a@example.org>\nForwarded: no\nLast-Update: 2026-01-01\n\nWhy.\n\n---\n"
        files = b"".join(
            unified(path, path, before.get(path), after.get(path)) for path in sorted(before.keys() | after.keys())
        )
        (folder / name).write_bytes(header.encode() + files)
        with (folder / "series").open("a", encoding="utf-8") as series:
            series.write(f"{name}\n")

    def tree(self, version: str) -> Tree:
        return MemoryTree(self.releases[version], name=f"kernels {version}")

    def rebase(self, *arguments: str) -> Any:
        return self.ask("rebase", *arguments, "--root", self.root, "--color", "never")

    def matrix(self, *arguments: str) -> Any:
        return self.ask("matrix", *arguments, "--root", self.root, "--color", "never")

    def list_file(self, name: str, *, yanked: bool = False, content: bytes = b"") -> None:
        """Name a file on the package's page, beside (or, to yank it, instead of) what is there."""
        page = self.index / "kernels-python" / "index.html"
        if not (page.parent / name).exists():
            (page.parent / name).write_bytes(content)
        digest = hashlib.sha256((page.parent / name).read_bytes()).hexdigest()
        others = [link for link in page.read_text(encoding="utf-8").split("<br>") if f">{name}<" not in link]
        link = f'<a href="{name}#sha256={digest}"{" data-yanked" if yanked else ""}>{name}</a>'
        page.write_text("<br>".join([*others, link]), encoding="utf-8")

    def rebase_elsewhere(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run the door as a process of its own, to be killed."""
        command = [sys.executable, str(REPOSITORY / "tools" / "rebase.py"), *arguments, "--root", str(self.root)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def written(self) -> dict[str, bytes]:
        """All that a rebase replaces: patches/ and VERSIONS.toml."""
        paths = [*self.root.glob("patches/**/*"), self.root / "VERSIONS.toml"]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths if path.is_file()}

    @property
    def checkout(self) -> Path:
        return self.root / ".work" / "rebase" / "checkout"

    @property
    def series(self) -> list[str]:
        return (self.root / "patches/stable/kernels/series").read_text(encoding="utf-8").split()


@pytest.fixture
def overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]) -> Overlay:
    """An overlay on release 1.0 with two patches: ``ten`` (a.py, line 10) and ``guards`` (k.cuh, lines 10 and 30)."""
    index, root = tmp_path / "index", tmp_path / "overlay"
    root.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("SM120_OVERLAY_CACHE", str(tmp_path / "cache"))

    made = Overlay(root, index, tmp_path / "cache", ask)
    base = {"kernels/a.py": numbered(1, 20), "include/k.cuh": numbered(1, 40), "kernels/_version.py": b"v = 1\n"}
    made.publish("1.0", base)
    made.pin()
    made.add_patch("ten.patch", {"kernels/a.py": base["kernels/a.py"]}, {"kernels/a.py": numbered(1, 20, {10: "TEN"})})
    guarded = numbered(1, 40, {10: "TEN", 30: "THIRTY"})
    made.add_patch("guards.patch", {"include/k.cuh": base["include/k.cuh"]}, {"include/k.cuh": guarded})
    return made


@pytest.fixture
def story(overlay: Overlay) -> Overlay:
    """Releases 0.8 to 2.0 in which hunks move, are merged, conflict and lose their file.

    ``ten`` is moved in 0.9, conflicts from 1.2 on, and its file is gone in 2.0.
    ``guards``: hunk 1 is upstream's from 1.1 on, hunk 2 applies everywhere.
    2.1rc1 is a pre-release; 1.5 has no wheel; 1.3 is yanked; one file's version is none.
    """
    a, k = overlay.releases["1.0"]["kernels/a.py"], overlay.releases["1.0"]["include/k.cuh"]
    merged, other = numbered(1, 40, {10: "TEN"}), numbered(1, 20, {10: "other"})
    overlay.publish("0.8", {"kernels/a.py": a, "include/k.cuh": k})
    overlay.publish("0.9", {"kernels/a.py": b"new\nlines\n" + a, "include/k.cuh": k})
    overlay.publish("1.1", {"kernels/a.py": a, "include/k.cuh": merged})
    overlay.publish("1.2", {"kernels/a.py": other, "include/k.cuh": merged})
    overlay.publish("1.3", {"kernels/a.py": other, "include/k.cuh": merged})
    overlay.publish("1.4", {"kernels/a.py": other, "include/k.cuh": merged})
    overlay.publish("2.0", {"include/k.cuh": merged})
    overlay.publish("2.1rc1", {"include/k.cuh": merged})
    overlay.list_file("kernels_python-1.3-py3-none-any.whl", yanked=True)
    overlay.list_file("kernels-python-1.5.tar.gz", content=b"an sdist")
    overlay.list_file("kernels_python-nightly-py3-none-any.whl", content=b"odd")
    return overlay
