"""Calls into calls: what a predicate answers, and that asking for it ends."""

from __future__ import annotations

import time

import pytest

from downstream.arches import ComputeCapability
from downstream.guards.abstract import FREE, Call
from downstream.guards.predicates import Predicates


def layers(count: int) -> bytes:
    """Classes whose forward() asks for the architecture and calls that of the others."""
    return b"".join(
        b"class L%d:\n    def forward(self, x):\n        y = self.a.forward(x) or self.b.forward(x)\n"
        b"        return y if get_device_capability()[0] == 9 else None\n" % number
        for number in range(count)
    )


@pytest.mark.parametrize("files", [1, 8])
def test_methods_of_one_name_that_call_each_other_are_not_followed_for_ever(files: int) -> None:
    texts = {f"m{number}.py": layers(5) for number in range(files)}
    start = time.monotonic()
    Predicates(texts).call("forward", ComputeCapability(12, 0), Call(positional=(FREE,), method=True), 0)
    assert time.monotonic() - start < 5
