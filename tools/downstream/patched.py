"""A pinned release with its series and overlay applied: what guards, kernels and wheels accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from downstream.pins import Pin
from downstream.placing.verdict import PushReport
from downstream.trees.tree import LayeredTree, Tree


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
