"""The runtime version: the file in which a package says at run time which version it is."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from downstream.errors import WheelError

_NAMES = ("__version__", "version")
_TUPLES = ("__version_tuple__", "version_tuple")


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """What a version file binds: its version, and its version tuple where it has one."""

    version: str
    parts: tuple[int | str, ...] | None


def read_runtime_version(source: bytes, *, place: str) -> RuntimeVersion:
    """Return what *source* binds ``__version__`` and ``__version_tuple__`` to, without running it.

    Raises WheelError where it is no Python, or binds one of them to no literal, to two values, or not at all.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError) as exc:
        raise WheelError(place, f"is no Python source ({exc})") from exc
    versions: list[object] = []
    tuples: list[object] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        for wanted, found in ((_NAMES, versions), (_TUPLES, tuples)):
            if names.intersection(wanted):
                found.append(_literal(value))
    if len(versions) != 1 or not isinstance(versions[0], str):
        raise WheelError(place, f"binds __version__ {len(versions)} times, not once to a text")
    parts = tuples[0] if tuples else None
    if len(tuples) > 1 or (tuples and not isinstance(parts, tuple)):
        raise WheelError(place, f"binds __version_tuple__ {len(tuples)} times, not once to a tuple")
    assert parts is None or isinstance(parts, tuple)
    return RuntimeVersion(versions[0], parts)


def edit_runtime_version(source: bytes, *, place: str, local: Version) -> bytes:
    """Return *source* with its version, and version tuple, made *local*; nothing else changes.

    Raises WheelError where the old value does not stand there exactly once.
    """
    old = read_runtime_version(source, place=place)
    try:
        known = Version(old.version)
    except InvalidVersion as exc:
        raise WheelError(place, f"__version__ is '{old.version}', which is no version (PEP 440)") from exc
    if known != Version(local.public):
        raise WheelError(place, f"says {known}, the pin is {local.public}", "pin the release's own version")
    edited = _once(source, rf"(=\s*[\"']){re.escape(old.version)}(?=[\"'])", str(local), place, old.version)
    if old.parts is not None:
        text = re.escape(repr(old.parts)[1:-1]).replace(r",\ ", r",\s*").replace("'", "[\"']")
        whole = ", ".join(repr(part) for part in (*old.parts, local.local))
        edited = _once(edited, rf"(=\s*\(){text}(?=\))", whole, place, repr(old.parts))
    new = read_runtime_version(edited, place=place)
    wanted = RuntimeVersion(str(local), None if old.parts is None else (*old.parts, str(local.local)))
    if new != wanted:
        raise WheelError(place, f"would say {new} after the edit, not {wanted}", "report this file")
    return edited


def _once(source: bytes, pattern: str, value: str, place: str, old: str) -> bytes:
    edited, count = re.subn(pattern.encode(), lambda found: found[1] + value.encode(), source)
    if count != 1:
        raise WheelError(place, f"'{old}' is assigned {count} times, not once", "the writer needs a new rule")
    return edited


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
