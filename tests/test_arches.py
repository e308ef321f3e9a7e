from __future__ import annotations

import pytest

from downstream.arches import ComputeCapability, Suffix, Target, parse_target, parse_targets
from downstream.errors import UsageError


@pytest.mark.parametrize(
    ("text", "major", "minor", "suffix"),
    [
        ("sm_120", 12, 0, ""),
        ("sm120a", 12, 0, "a"),
        ("120f", 12, 0, "f"),
        ("12.0", 12, 0, ""),
        ("12.1a", 12, 1, "a"),
        ("12.0F", 12, 0, "f"),
        ("compute_90a", 9, 0, "a"),
        ("SM_103", 10, 3, ""),
        ("9.0a", 9, 0, "a"),
        ("75", 7, 5, ""),
        (" 8.9 ", 8, 9, ""),
    ],
)
def test_a_target_in_each_spelling(text: str, major: int, minor: int, suffix: str) -> None:
    assert parse_target(text) == Target(ComputeCapability(major, minor), Suffix(suffix))


@pytest.mark.parametrize("text", ["", "sm_", "hopper", "9", "12.", "1.2.0", "120b", "120af", "sm-120", "12.10", "-120"])
def test_what_is_no_target_is_told(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert caught.value.next_step == "write it as sm_120, 120a or 12.0f"


@pytest.mark.parametrize("text", ["sm_120", "sm_120a", "sm_121f", "sm_90a", "sm_103"])
def test_a_target_is_shown_as_nvcc_spells_it(text: str) -> None:
    assert str(parse_target(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.0a 12.1a", ["sm_120a", "sm_121a"]),
        ("9.0a,10.0a, 12.0f", ["sm_90a", "sm_100a", "sm_120f"]),
        ("120,sm_120,12.0", ["sm_120"]),
        ("", []),
        (" , ", []),
    ],
)
def test_a_list_keeps_its_order_and_no_target_twice(text: str, expected: list[str]) -> None:
    assert [str(target) for target in parse_targets(text)] == expected


def test_the_numbers_of_a_capability() -> None:
    blackwell = ComputeCapability(12, 1)
    assert (blackwell.number, blackwell.cuda_arch, str(blackwell)) == (121, 1210, "12.1")
    assert ComputeCapability(9, 0) < ComputeCapability(10, 0) < ComputeCapability(10, 3) < blackwell
    assert sorted(parse_targets("120f 90a 120 120a"), key=lambda target: (target.capability, target.suffix)) == list(
        parse_targets("90a 120 120a 120f")
    )
