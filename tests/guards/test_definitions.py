"""Macros that the tree defines: decided where that can be, with the reason, else unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from downstream.arches import parse_target
from downstream.guards.definitions import Definitions
from downstream.guards.macros import Toolkit

CONFIG = b"""\
#pragma once
#if !defined(LIB_SM100_ENABLED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1000
  #define LIB_SM100_ENABLED 1
  #if defined(__CUDA_ARCH_FEAT_SM100_ALL)
    #define LIB_SM100A_ENABLED
  #endif
#endif
#define LIB_FAMILY(N) (__CUDA_ARCH_FAMILY_SPECIFIC__ == N)
#if LIB_FAMILY(1200)
#define LIB_SM120F
#endif
#ifndef LIB_LEVEL
#define LIB_LEVEL 3
#endif
#if defined(BUILD_FLAG) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LIB_FLAGGED
#endif
"""

Truth = Callable[[str, str], bool | None]


@pytest.fixture
def truth() -> Truth:
    """(condition in a file that includes the configuration, target) -> whether it holds."""

    def ask(condition: str, target: str) -> bool | None:
        user = f'#include "lib/config.h"\n#if {condition}\n#endif\n'.encode()
        definitions = Definitions({"include/lib/config.h": CONFIG, "src/user.cuh": user}, toolkit=Toolkit())
        branch = next(iter(definitions.source("src/user.cuh").branches()))
        return definitions.file("src/user.cuh", parse_target(target)).state(branch).value.truth

    return ask


@pytest.mark.parametrize(
    ("condition", "on"),
    [
        ("defined(LIB_SM100_ENABLED)", {"90": False, "100": True, "100a": True, "120": False}),
        ("LIB_SM100_ENABLED", {"90": False, "100": True, "120a": False}),
        ("defined(LIB_SM100A_ENABLED)", {"100": False, "100a": True, "100f": False, "120a": False}),
        ("defined(LIB_SM120F)", {"120": False, "120a": True, "120f": True, "121f": False}),
        ("LIB_FAMILY(1210)", {"121f": True, "120f": False}),
        ("LIB_LEVEL == 3", {"120": True}),
        ("defined(LIB_FLAGGED)", {"80": False, "90": None, "120": None}),
        ("defined(NOBODY_KNOWS)", {"120": None}),
        ("defined(NOBODY_KNOWS) && __CUDA_ARCH__ < 1200", {"90": None, "120": False}),
    ],
)
def test_a_macro_of_the_tree_is_what_its_definition_makes_it(
    truth: Truth, condition: str, on: dict[str, bool | None]
) -> None:
    assert {target: truth(condition, target) for target in on} == on


def test_the_reason_names_the_definition_and_its_condition() -> None:
    user = b"#ifdef LIB_SM100A_ENABLED\n#endif\n"
    definitions = Definitions({"lib/config.h": CONFIG, "user.h": user})
    branch = next(iter(definitions.source("user.h").branches()))
    (why,) = definitions.file("user.h", parse_target("120a")).state(branch).why
    assert why.startswith("LIB_SM100A_ENABLED is not defined on sm_120a (lib/config.h:5 is under !defined(LIB_SM100_")
    (why,) = definitions.file("user.h", parse_target("100a")).state(branch).why
    assert why == "LIB_SM100A_ENABLED is defined on sm_100a (lib/config.h:5)"


def test_the_unknown_name_is_the_one_at_the_root() -> None:
    definitions = Definitions({"lib/config.h": CONFIG, "user.h": b"#ifdef LIB_FLAGGED\n#endif\n"})
    branch = next(iter(definitions.source("user.h").branches()))
    value = definitions.file("user.h", parse_target("120")).state(branch).value
    assert value.truth is None
    assert value.names == {"BUILD_FLAG"}


def test_a_build_flag_given_with_d_decides() -> None:
    texts = {"lib/config.h": CONFIG, "user.h": b"#ifdef LIB_FLAGGED\n#endif\n"}
    definitions = Definitions(texts, defines={"BUILD_FLAG": "1"})
    branch = next(iter(definitions.source("user.h").branches()))
    assert definitions.file("user.h", parse_target("120")).state(branch).value.truth is True


@pytest.mark.parametrize(
    ("text", "active"),
    [
        ("#define A 1\n#if A\n#endif\n", [True]),
        ("#define A 1\n#undef A\n#ifdef A\n#endif\n", [False]),
        ("#if A\n#endif\n#define A 1\n#if A\n#endif\n", [False, True]),
        ("#if __CUDA_ARCH__ >= 900\n#define A\n#endif\n#ifdef A\n#endif\n", [True, True]),
        ("#if __CUDA_ARCH__ < 900\n#define A\n#endif\n#ifdef A\n#endif\n", [False, False]),
        ("#ifdef X\n#define A 1\n#endif\n#define A 2\n#if A == 2\n#endif\n", [None, True]),
        ("#ifdef X\n#define A 1\n#endif\n#ifdef A\n#endif\n", [None, None]),
        ("#if X\n#if __CUDA_ARCH__ < 900\n#endif\n#endif\n", [None, False]),
        ("#if __CUDA_ARCH__ < 900\n#if X\n#endif\n#endif\n", [False, False]),
        ("#if X\n#elif 1\n#else\n#endif\n", [None, None, False]),
        ("#if 1\n#elif X\n#endif\n", [True, False]),
        ("#ifndef GUARD_H\n#define GUARD_H\n#if __CUDA_ARCH__ >= 900\n#endif\n#endif\n", [True, True]),
    ],
)
def test_a_file_is_read_top_to_bottom_and_nesting_counts(text: str, active: list[bool | None]) -> None:
    definitions = Definitions({"f.h": text.encode()})
    file = definitions.file("f.h", parse_target("120"))
    assert [file.state(branch).value.truth for branch in definitions.source("f.h").branches()] == active


def test_files_that_define_each_others_macros_do_not_loop() -> None:
    texts = {
        "a.h": b'#include "b.h"\n#ifdef B\n#define A\n#endif\n',
        "b.h": b'#include "a.h"\n#ifdef A\n#define B\n#endif\n',
        "user.h": b"#if defined(A) || defined(B)\n#endif\n",
    }
    definitions = Definitions(texts)
    branch = next(iter(definitions.source("user.h").branches()))
    value = definitions.file("user.h", parse_target("120")).state(branch).value
    assert (value.truth, bool(value.names & {"A", "B"})) == (None, True)


def test_definitions_that_disagree_leave_the_value_open() -> None:
    texts = {
        "a.h": b"#define LEVEL 1\n",
        "b.h": b"#define LEVEL 2\n",
        "user.h": b"#if LEVEL == 2\n#endif\n#ifdef LEVEL\n#endif\n",
    }
    definitions = Definitions(texts)
    file = definitions.file("user.h", parse_target("120"))
    assert [file.state(branch).value.truth for branch in definitions.source("user.h").branches()] == [None, True]
