"""Parts of a build: what one machine made, and how the parts of many become one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from downstream.errors import UsageError, WriteError
from downstream.kernels.modules import Module, Shard

MANIFEST = "kernels.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Built modules and everything that must be the same in the parts they are joined with."""

    version: str  # FlashInfer's, local label included
    cuda: str  # 13.0.88
    toolchain: str  # Toolchain.identity
    source: str  # sha256 of the patched wheel: release, series and overlay in one
    targets: tuple[str, ...]
    wanted: tuple[str, ...]  # all modules asked for, over every shard
    machine: str  # x86_64
    shard: Shard
    modules: tuple[Module, ...]

    def manifest(self) -> bytes:
        """Return kernels.json: sorted, no clock, no path."""
        document = {
            "schema": SCHEMA,
            **{key: getattr(self, key) for key in _SAME},
            "shard": str(self.shard),
            "modules": [
                {"name": one.name, "sha256": one.sha256, "size": one.size, "kernels": dict(one.kernels)}
                for one in sorted(self.modules, key=lambda module: module.name)
            ],
        }
        return (json.dumps(document, indent=2) + "\n").encode()


_EMPTY = Part(
    version="", cuda="", toolchain="", source="", targets=(), wanted=(), machine="", shard=Shard(), modules=()
)
_SAME = ("version", "cuda", "toolchain", "source", "targets", "wanted", "machine")


def write(part: Part, folder: Path) -> Path:
    """Write *part*'s manifest beside its modules in *folder*, last, so that a folder without one is no part."""
    path = folder / MANIFEST
    try:
        path.write_bytes(part.manifest())
    except OSError as exc:
        raise WriteError(str(path), f"cannot be written: {exc.strerror}") from exc
    return path


def read(folder: Path) -> Part:
    """Read the part in *folder*; its modules must be as its manifest says. Raises UsageError where they are not."""
    place = str(folder / MANIFEST)
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise UsageError(place, f"schema is {document['schema']!r}, this tool reads {SCHEMA}")
        index, count = document["shard"].split("/")
        modules = tuple(_module(folder, one) for one in document["modules"])
        same: dict[str, Any] = {
            key: tuple(value) if isinstance(value := document[key], list) else value for key in _SAME
        }
        return replace(_EMPTY, **same, shard=Shard(index=int(index), count=int(count)), modules=modules)
    except OSError as exc:
        raise UsageError(place, f"cannot be read: {exc.strerror}", "name folders that build --shard wrote") from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise UsageError(place, f"is no manifest of a part ({exc})", "name folders that build --shard wrote") from exc


def _module(folder: Path, entry: dict[str, Any]) -> Module:
    path = folder / entry["name"] / f"{entry['name']}.so"
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise UsageError(str(path), "is not the file that its manifest names", "copy the shard again")
    return Module(name=entry["name"], path=path, sha256=entry["sha256"], size=entry["size"], kernels=entry["kernels"])


def merge(parts: Sequence[Part]) -> Part:
    """Join every shard of one build.

    Raises UsageError where toolchain, source, targets or anything else that
    reaches the code differs, or a shard is missing or there twice.
    """
    if not parts:
        raise UsageError("merge", "needs the folders of the shards")
    first = parts[0]
    for other in parts[1:]:
        for key in _SAME:
            ours, theirs = getattr(first, key), getattr(other, key)
            if ours != theirs:
                step = "build all shards from one checkout with one toolchain"
                raise UsageError(f"shard {other.shard}", f"{key} is {theirs}, in shard {first.shard} {ours}", step)
    indexes = sorted(part.shard.index for part in parts)
    counts = {part.shard.count for part in parts}
    if len(counts) > 1 or indexes != list(range(1, first.shard.count + 1)):
        have = ", ".join(str(part.shard) for part in parts)
        raise UsageError("merge", f"the shards are {have}", f"give each of 1 to {first.shard.count} once")
    modules = sorted((module for part in parts for module in part.modules), key=lambda module: module.name)
    return replace(first, shard=Shard(), modules=tuple(modules))
