"""Calls into calls: what a predicate answers, and that asking for it ends."""

from __future__ import annotations

import ast
import time

import pytest

from downstream.arches import ComputeCapability
from downstream.guards.abstract import FREE, Call, Scope
from downstream.guards.interpreter import Interpreter
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


PLATFORM = b"""\
from functools import lru_cache, partial

def _sm_by_driver():
    return driver.sm() if driver else None

def get_device_sm():
    sm = _sm_by_driver()
    if sm is not None:
        return sm
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor

def _has_major(majors, cuda):
    if not is_cuda():
        return False
    return get_device_sm() // 10 in majors and torch.version.cuda >= cuda

is_sm100_supported = lru_cache(maxsize=1)(partial(_has_major, majors=[10], cuda=(12, 8)))
is_sm120_supported = lru_cache(maxsize=1)(partial(_has_major, majors=[12], cuda=(12, 8)))
is_blackwell_supported = is_blackwell = lru_cache(maxsize=1)(partial(_has_major, majors=[10, 11, 12], cuda=(12, 8)))

_PROBES: dict[str, str] = {
    "is_cuda": "is_cuda",
    "is_sm100": "is_sm100_supported",
    "is_sm120": "is_sm120_supported",
    "is_blackwell": "is_blackwell_supported",
}
_VALUES = {"device_sm": "get_device_sm"}

class Platform:
    def __getattr__(self, name):
        probe = _PROBES.get(name) or _VALUES.get(name)
        return getattr(utils, probe)()

    @property
    def is_sm90(self):
        return torch.cuda.get_device_capability()[0] == 9
"""
SHOWN = ((9, 0), (10, 0), (10, 3), (12, 0), (12, 1))


@pytest.mark.parametrize(
    ("condition", "admitted"),
    [
        ("get_platform().is_sm100", {(10, 0), (10, 3)}),
        ("get_platform().is_sm120", {(12, 0), (12, 1)}),
        ("get_platform().is_blackwell", {(10, 0), (10, 3), (12, 0), (12, 1)}),
        ("get_platform().is_sm90 or get_platform().is_sm120", {(9, 0), (12, 0), (12, 1)}),
        ("get_platform().device_sm == 100", {(10, 0)}),
        ("get_platform().device_sm // 10 == 10", {(10, 0), (10, 3)}),
        ("is_sm120_supported()", {(12, 0), (12, 1)}),
        ("get_platform().is_cuda", set(SHOWN)),  # nothing about the architecture
        ("other.is_sm110", set()),  # nobody defines it: its name is all there is
    ],
)
def test_the_platform_object_answers_what_its_probes_answer(condition: str, admitted: set[tuple[int, int]]) -> None:
    predicates = Predicates({"runtime.py": PLATFORM})
    node = ast.parse(condition, mode="eval").body
    answers = {
        pair: Interpreter(predicates, "runtime.py", ComputeCapability(*pair)).evaluate(node, Scope()).truths()[0]
        for pair in SHOWN
    }
    assert {pair for pair, possible in answers.items() if True in possible} == admitted
