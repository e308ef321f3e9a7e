"""Architectures as builders list them: ``["9.0a", "12.0f"]``, ``"9.0;10.0+PTX"``, ``-gencode`` flags."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from downstream.arches import ComputeCapability
from downstream.guards.abstract import RANGE

_MAJORS = frozenset(range(7, 14))
_NUMBERS = frozenset({70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121})
_TEXT_KEY = re.compile(r"(?:sm_?)?(\d{2,3})[af]?")
_ENTRY = re.compile(r"(?:sm_?|compute_)?(\d{1,2})\.?(\d)([af]?)(\+PTX)?", re.IGNORECASE)
_GENCODE = re.compile(
    r"-?-?(?:gencode|generate-code)?[= ]?arch=compute_\w+,code=\[?((?:sm|compute)_\w+)(?:,[\w,]+)?\]?"
)
_ASKS = re.compile(r"arch|capab|gencode|\bsm_?\d|nvcc", re.IGNORECASE)


def architectures(keys: Sequence[object]) -> bool:
    """Whether *keys* of a dict are architectures: majors, numbers like 90 and 120, or their names."""
    if all(isinstance(key, int) and not isinstance(key, bool) for key in keys):
        known = set(keys)
        return (known <= _MAJORS and bool(known & {9, 10, 12})) or (known <= _NUMBERS and bool(known & {90, 100, 120}))
    if all(isinstance(key, str) for key in keys):
        found = [_TEXT_KEY.fullmatch(str(key)) for key in keys]
        numbers = {int(each[1]) for each in found if each}
        return all(found) and numbers <= _NUMBERS and bool(numbers & {90, 100, 120})
    return False


def built_for(node: ast.expr, statement: str) -> ast.expr | None:
    """The capabilities that a list of architectures builds for, as a tuple expression; None: *node* is no such list.

    *node* is a list of texts, or one text of several entries; *statement*, the
    source around it, has to speak of architectures.
    """
    entries = _entries(node)
    if len(entries) < 2 or not _ASKS.search(statement):
        return None
    served: dict[ComputeCapability, None] = {}
    for entry in entries:
        found = _capabilities(entry)
        if found is None:
            return None
        served.update(dict.fromkeys(found))
    texts: list[ast.expr] = [ast.Constant(str(capability.number)) for capability in served]
    return ast.copy_location(ast.Tuple(texts, ast.Load()), node)


def _entries(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return re.split(r"[\s;,]+", text.strip()) if len(text) < 200 else []
        case ast.List() | ast.Tuple() | ast.Set():
            texts = [each.value for each in node.elts if isinstance(each, ast.Constant)]
            known = [text for text in texts if isinstance(text, str)]
            return known if len(known) == len(node.elts) else []
    return []


def _capabilities(entry: str) -> list[ComputeCapability] | None:
    """What a build for *entry* runs on: CUDA programming guide, 5.1 (binary, family and PTX compatibility)."""
    flag = _GENCODE.fullmatch(entry)
    text = flag[1] if flag else entry
    found = _ENTRY.fullmatch(text)
    if not found or int(found[1] + found[2]) not in _NUMBERS:
        return None
    built = ComputeCapability(int(found[1]), int(found[2]))
    ptx = bool(found[4]) or (flag is not None and text.startswith("compute"))
    return list(_runs(built, found[3].lower(), ptx=ptx))


def _runs(built: ComputeCapability, suffix: str, *, ptx: bool) -> Iterator[ComputeCapability]:
    for capability in dict.fromkeys((built, *RANGE)):
        same = capability.major == built.major and capability.minor >= built.minor
        if capability == built or (suffix != "a" and (same or (ptx and not suffix and capability >= built))):
            yield capability
