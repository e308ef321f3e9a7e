"""What is written beside the wheels of a line: constraints, SHA256SUMS and a manifest of what went in."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from downstream.pins import Line
from downstream.wheels.build import Built
from downstream.wheels.repack import GENERATOR
from downstream.wheels.writer import whole

MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
SCHEMA = 1


def write_beside(built: Iterable[Built], folder: Path, *, line: Line, epoch: int) -> tuple[Path, ...]:
    """Write constraints-<line>.txt, manifest.json and SHA256SUMS into *folder*; return their paths.

    A wheel of the line that an earlier run built, and that is still as its manifest
    says, stays listed: upstreams can be built one by one. No clock, no absolute path.
    """
    rows = {row["file"]: row for row in _kept(folder, line)}
    rows |= {one.path.name: _row(one) for one in built}
    wheels = [rows[name] for name in sorted(rows)]
    document = {
        "schema": SCHEMA,
        "line": line.name,
        "generator": GENERATOR,
        "source-date-epoch": epoch,
        "compression": {"copied": "as published", "written": "stored"},
        "zlib": zlib.ZLIB_RUNTIME_VERSION,  # inflates for the digests; nothing is deflated
        "cyclonedx-python-lib": metadata.version("cyclonedx-python-lib"),  # shapes the SBOM
        "wheels": wheels,
    }
    contents = {
        f"constraints-{line.name}.txt": _constraints(wheels, line),
        MANIFEST: json.dumps(document, indent=2, ensure_ascii=False) + "\n",
    }
    sums = {row["file"]: row["sha256"] for row in wheels}
    sums |= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
    contents[SUMS] = "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
    for name, text in contents.items():
        with whole(folder / name) as stream:
            stream.write(text.encode())
    return tuple(folder / name for name in contents)


def _constraints(wheels: list[dict[str, Any]], line: Line) -> str:
    text = f"# Line {line.name}: the patched packages, each at its exact build.\n"
    for package in sorted({row["package"] for row in wheels}):
        mine = [row for row in wheels if row["package"] == package]
        hashes = "".join(f" \\\n    --hash=sha256:{row['sha256']}" for row in mine)
        text += f"{package}=={mine[0]['version']}{hashes}\n"
    return text


def _row(built: Built) -> dict[str, Any]:
    pin = built.pin
    return {
        "file": built.path.name,
        "sha256": built.sha256,
        "size": built.size,
        "package": pin.upstream.package,
        "version": str(pin.local_version),
        "upstream": {
            "name": pin.upstream.name,
            "version": str(pin.version),
            "file": built.upstream_file,
            "sha256": pin.sha256[built.upstream_file],
        },
        "series": [{"patch": name, "sha256": _sha256(content)} for name, content in built.patches.items()],
        "overlay": [{"path": path, "sha256": _sha256(built.overlay[path])} for path in sorted(built.overlay)],
        "members": list(built.members),
        "outside": list(built.outside),
    }


def _kept(folder: Path, line: Line) -> Iterable[dict[str, Any]]:
    """Yield the rows of an earlier manifest whose wheels are there, unchanged, and still the line's builds."""
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        rows = document["wheels"] if document["schema"] == SCHEMA and document["generator"] == GENERATOR else []
    except (OSError, ValueError, KeyError, TypeError):
        return  # none, or none of ours: it is written anew
    current = {pin.upstream.package: str(pin.local_version) for pin in line.pins.values()}
    for row in rows:
        path = folder / row["file"]
        if current.get(row["package"]) == row["version"] and path.is_file():
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == row["sha256"]:
                    yield row


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
