"""Published wheels zipped by hand, and the patched trees made of them."""

from __future__ import annotations

import hashlib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.version import Version

from downstream.patched import PatchedTree
from downstream.patches.unified import unified
from downstream.pins import Line, Pin, Upstream
from downstream.placing.verdict import PushReport
from downstream.trees.layout import Layout
from downstream.trees.tree import REGULAR, MemoryTree

METADATA = (
    b"Metadata-Version: 2.4\n"
    b"Name: attend\n"
    b"Version: 1.0\n"
    b"Summary: a summary that an email library would fold because it has more than the 78 columns it likes\n"
    b"License-Expression: Apache-2.0\n"
    b"License-File: LICENSE\n"
    b"Requires-Dist: click\n"
    b"Dynamic: license-file\n"
    b"\n"
    b"# attend\n\nVersion: not this one\n"
)
WHEEL = b"Wheel-Version: 1.0\nGenerator: setuptools (80.0)\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
FILES = {
    "attend/__init__.py": b"from attend._version import __version__\n",
    "attend/_version.py": b'"""Build metadata."""\n__version__ = "1.0"\n__git_version__ = "abc"\n',
    "attend/gate.py": b"majors = [9, 10]\n",
    "attend/data/csrc/kernel.cu": b"// kernel\n" * 200,
    "attend/tool.sh": b"#!/bin/sh\n",
}
LAYOUT = Layout((("attend/", "attend/"), ("csrc/", "attend/data/csrc/")))


@dataclass
class Published:
    """A wheel that upstream might have published; ``write`` zips it. Every field is there to be spoiled."""

    folder: Path
    distribution: str = "attend"
    version: str = "1.0"
    tags: str = "py3-none-any"
    metadata: bytes = METADATA
    wheel: bytes = WHEEL
    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    more_info: dict[str, bytes] = field(
        default_factory=lambda: {"licenses/LICENSE": b"Apache\n", "top_level.txt": b"a"}
    )
    modes: dict[str, int] = field(default_factory=lambda: {"attend/tool.sh": 0o100775})
    record: Callable[[bytes], bytes] = lambda text: text
    info: str = ""

    def write(self) -> Path:
        info = self.info or f"{self.distribution}-{self.version}.dist-info"
        path = self.folder / f"{self.distribution}-{self.version}-{self.tags}.whl"
        members = dict(self.files)
        members |= {f"{info}/{name}": content for name, content in self.more_info.items()}
        members |= {f"{info}/METADATA": self.metadata, f"{info}/WHEEL": self.wheel}
        rows = "".join(record_row(name, content) for name, content in members.items())
        members[f"{info}/RECORD"] = self.record(f"{rows}{info}/RECORD,,\n".encode())
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                entry = zipfile.ZipInfo(name, (2026, 2, 5, 21, 20, 24))
                entry.external_attr = self.modes.get(name, 0o100664) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        return path


def record_row(name: str, content: bytes) -> str:
    digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return (
        f"{name},sha256={digest},{len(content)}\n" if "," not in name else f'"{name}",sha256={digest},{len(content)}\n'
    )


@pytest.fixture
def published(tmp_path: Path) -> Callable[..., Published]:
    """Make a Published in a folder of its own."""
    count = 0

    def make(**fields: object) -> Published:
        nonlocal count
        count += 1
        folder = tmp_path / f"published-{count}"
        folder.mkdir()
        return Published(folder, **fields)  # type: ignore[arg-type]

    return make


@pytest.fixture
def line_of() -> Callable[..., Line]:
    """Make a line that pins *wheels* as upstream ``attend`` 1.0, and any other pins."""

    def make(*wheels: Path, revision: int = 1, others: Mapping[str, Pin] | None = None) -> Line:
        upstream = Upstream(
            name="attend",
            package="attend",
            repository="https://example.org/attend",
            tag="v{version}",
            layout=LAYOUT,
            version_file="attend/_version.py",
        )
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
        pin = Pin(line="stable", upstream=upstream, version=Version("1.0"), revision=revision, sha256=digests)
        return Line(name="stable", pins={"attend": pin, **(others or {})})

    return make


@pytest.fixture
def patched() -> Callable[..., PatchedTree]:
    """Make a patched tree of a line's pin ``attend``: *edits* by repository path, *overlay* files, *modes*."""

    def make(
        line: Line,
        wheel: Path,
        edits: Mapping[str, bytes | None] | None = None,
        *,
        overlay: Mapping[str, bytes] | None = None,
        modes: Mapping[str, int] | None = None,
        header: bytes = b"Subject: admit SM120\nForwarded: https://example.org/attend/pull/7\n",
    ) -> PatchedTree:
        pin = line.pins["attend"]
        edits = {"attend/gate.py": b"majors = [9, 10, 12]\n"} if edits is None else edits
        overlay = overlay or {}
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            paths = {path: LAYOUT.to_wheel(path) for path in [*edits, *overlay, *(modes or {})]}
            base = {path: archive.read(name) for path, name in paths.items() if name in names}
        diff = b"".join(
            unified(
                path if path in base else None,
                path if new is not None else None,
                base.get(path),
                new,
                old_mode=REGULAR,
                new_mode=REGULAR,
            )
            for path, new in edits.items()
        )
        patches = {"admit.patch": header + b"\n---\n" + diff} if edits else {}
        return PatchedTree(
            pin=pin,
            base=MemoryTree(base),
            report=PushReport(results=()),
            patches=patches,
            changed={**edits, **overlay},
            modes=modes or {},
            overlay=overlay,
        )

    return make
