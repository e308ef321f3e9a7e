"""What an audit found out before, by the digest of what it was found in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from downstream.guards.model import Class, Effect, Guard, Kind, Verdict

Found = tuple[list[Guard], list[str]]  # the guards of one file, and what could not be understood there

_TEXTS = ("path", "wheel_path", "condition", "function", "evidence")
_PLAIN = ("line", "end_line", "excluded", "whole_kernel", "ordinal")


class Store(Protocol):
    """Entries by name (trees.cache.Cache is one)."""

    def read(self, name: str) -> bytes | None:
        """The entry, or None."""

    def write(self, name: str, content: bytes) -> None:
        """Keep an entry."""


class Kept:
    """One kind of knowledge about one state of the world: rows of JSON by key, in one entry of *store*."""

    def __init__(self, store: Store | None, kind: str, world: Iterable[str]) -> None:
        self._store = store
        self._name = f"audit/{kind}/{_digest([rules(), *world])}.json" if store else ""
        kept = store.read(self._name) if store else None
        self._rows: dict[str, Any] = json.loads(kept) if kept else {}
        self._changed = False

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Any:
        return self._rows[key]

    def add(self, key: str, row: Any) -> None:
        self._rows[key] = row
        self._changed = True

    def save(self, keys: Iterable[str] | None = None) -> None:
        """Write what was added; with *keys*, only what is known of them."""
        if self._store is None or not self._changed:
            return
        rows = self._rows if keys is None else {key: self._rows[key] for key in keys if key in self._rows}
        self._store.write(self._name, json.dumps(dict(sorted(rows.items())), separators=(",", ":")).encode())


@cache
def rules() -> str:
    """A digest of the audit's own modules: what another version of them found is not taken over."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def written(guard: Guard) -> dict[str, Any]:
    """*guard* as JSON; ``read`` reads it."""
    return {
        **{name: getattr(guard, name) for name in (*_TEXTS, *_PLAIN, "unknown", "because")},
        "kind": guard.kind.value,
        "class": guard.verdict_class.value if guard.verdict_class else None,
        "effect": guard.effect.value if guard.effect else None,
        "arches": {arch: verdict.value for arch, verdict in guard.arches.items()},
    }


def read(row: Mapping[str, Any]) -> Guard:
    return Guard(
        **{name: row[name] for name in (*_TEXTS, *_PLAIN)},
        unknown=tuple(row["unknown"]),
        because=tuple(row["because"]),
        kind=Kind(row["kind"]),
        verdict_class=Class(row["class"]) if row["class"] else None,
        effect=Effect(row["effect"]) if row["effect"] else None,
        arches={arch: Verdict(value) for arch, value in row["arches"].items()},
    )
