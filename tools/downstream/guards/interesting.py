"""Which files can hold a preprocessor guard, without scanning them all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from downstream.guards.definitions import Definitions
from downstream.guards.directives import Chain, Directive
from downstream.guards.macros import ARCHITECTURE


def asking_files(definitions: Definitions, paths: Iterable[str]) -> list[str]:
    """Those of *paths* whose conditions can depend on the architecture, through macros of the tree, too."""
    carriers = _carriers(definitions)
    known = definitions.profiles
    return [path for path in paths if known[path].seeded or not carriers.isdisjoint(known[path].asked)]


def _carriers(definitions: Definitions) -> set[str]:
    """Macros whose definition depends on the architecture, by way of each other."""
    carriers: set[str] = set()
    defining = {path: known for path, known in definitions.profiles.items() if known.defined}
    while True:
        asking = [path for path, known in defining.items() if known.seeded or not carriers.isdisjoint(known.asked)]
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
