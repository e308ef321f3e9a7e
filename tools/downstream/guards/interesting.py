"""Which files can hold a preprocessor guard, without scanning them all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from downstream.guards.definitions import Definitions
from downstream.guards.directives import Chain, Directive
from downstream.guards.macros import ARCHITECTURE

_SEEDS = (b"__CUDA_ARCH", b"__CUDA_HAS_ARCH")


def asking_files(definitions: Definitions, paths: Iterable[str]) -> list[str]:
    """Those of *paths* whose conditions can depend on the architecture, through macros of the tree, too."""
    conditions = {path: definitions.reading(path).asked for path in definitions.texts}
    carriers = _carriers(definitions, conditions)
    return [path for path in paths if conditions[path] & carriers or _seeded(definitions.texts[path])]


def _seeded(content: bytes) -> bool:
    return any(seed in content for seed in _SEEDS)


def _carriers(definitions: Definitions, conditions: dict[str, frozenset[str]]) -> set[str]:
    """Macros whose definition depends on the architecture, by way of each other."""
    carriers: set[str] = set()
    while True:
        asking = [path for path, names in conditions.items() if names & carriers or _seeded(definitions.texts[path])]
        found = {name for path in asking for name in _carried(definitions.source(path).items, carriers, under=False)}
        if found <= carriers:
            return carriers
        carriers |= found


def _carried(items: Iterable[Chain | Directive], carriers: set[str], *, under: bool) -> Iterator[str]:
    for item in items:
        if isinstance(item, Chain):
            asks = under
            for branch in item.branches:
                asks = asks or _asks(branch.own or "", carriers)
                yield from _carried(branch.items, carriers, under=asks)
        elif item.keyword == "define":
            name, _, body = item.text.partition(" ")
            if under or _asks(body, carriers):
                yield name.split("(")[0]


def _asks(text: str, carriers: set[str]) -> bool:
    return ARCHITECTURE.search(text) is not None or any(name in carriers for name in re.findall(r"[A-Za-z_]\w*", text))
