"""A pinned release with its series and overlay applied: what guards, kernels and wheels accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from downstream.errors import PatchError
from downstream.patches.parse import parse
from downstream.patches.series import load_series
from downstream.pins import Pin, Pins
from downstream.placing.push import push
from downstream.placing.verdict import PushReport
from downstream.trees.folder import FolderTree
from downstream.trees.open import open_pin
from downstream.trees.session import Session
from downstream.trees.tree import REGULAR, LayeredTree, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedTree:
    """The type is the proof: every patch of the series was placed.

    ``changed`` maps repository paths to their new content, None for a removed
    file; overlay files are in it and also in ``overlay``.
    """

    pin: Pin
    base: Tree
    report: PushReport
    patches: Mapping[str, bytes]  # series entry -> patch file, in series order
    changed: Mapping[str, bytes | None]
    modes: Mapping[str, int]
    overlay: Mapping[str, bytes]

    @property
    def name(self) -> str:
        return f"{self.base.name} patched"

    @property
    def layered(self) -> LayeredTree:
        return LayeredTree(self.base, self.changed, self.modes)

    def read(self, path: str) -> bytes | None:
        return self.layered.read(path)

    def mode(self, path: str) -> int | None:
        return self.layered.mode(path)

    def paths(self) -> Iterable[str]:
        return self.layered.paths()


def build(pins: Pins, pin: Pin, session: Session) -> PatchedTree:
    """Open the pinned release, push its series and lay the overlay over it.

    Raises PatchError where a hunk does not apply or an overlay file is also
    upstream's; TreeError and its kin where the release cannot be read.
    """
    base = open_pin(pin, session)
    series = load_series(pins.series_folder(pin))
    patches = {entry.name: series.read(entry) for entry in series.entries}
    parsed = [parse(patches[entry.name], name=entry.name, strip=entry.strip) for entry in series.entries]
    home = f"patches/{pin.line}/{pin.upstream.name}"
    report = push(parsed, base)
    for result in report.results:
        if not result.fine:
            bad = [hunk for hunk in result.hunks if not hunk.status.fine]
            failed = f"hunk {bad[0].number} of {bad[0].path}: {bad[0].reason}" if bad else result.reason
            step = f"tools/pq.py check --line {pin.line} says more; tools/rebase.py carries a series to another release"
            raise PatchError(f"{home}/{result.patch}", f"does not apply to {pin}: {failed}", step)
    overlay, modes = _overlay(pins, pin)
    for path in overlay:
        if base.read(path) is not None:
            step = "change upstream's file with a patch, or give ours another name"
            raise PatchError(f"overlay/{pin.upstream.name}/{path}", f"is a file of {pin} itself", step)
    return PatchedTree(
        pin=pin,
        base=base,
        report=report,
        patches=patches,
        changed={**report.changes, **overlay},
        modes={**report.modes, **modes},
        overlay=overlay,
    )


def _overlay(pins: Pins, pin: Pin) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the overlay's files and their modes by repository path, without hidden files and __pycache__."""
    folder = pins.overlay_folder(pin.upstream)
    if not folder.is_dir():
        return {}, {}
    tree = FolderTree(folder)
    found: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    for path in tree.paths():
        content = tree.read(path)
        if content is None or any(part.startswith(".") or part == "__pycache__" for part in path.split("/")):
            continue
        found[path] = content
        if (mode := tree.mode(path)) not in (None, REGULAR):
            modes[path] = mode or REGULAR
    return found, modes
