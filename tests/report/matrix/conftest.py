"""A matrix in which a hunk of every fate occurs, on the small overlay of the queue's tests."""

from __future__ import annotations

from ...queue.conftest import Overlay, overlay

__all__ = ["Overlay", "overlay"]
