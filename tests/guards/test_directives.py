"""The scanner: which lines are directives, and how chains nest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from downstream.guards.directives import Directive, directives, scan
from downstream.guards.expressions import evaluate


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#if A\n#endif\n", [("if", "A", 1, 1), ("endif", "", 2, 2)]),
        ("  #  if  A /* b */ && C // d\n", [("if", "A && C", 1, 1)]),
        ("/* x */ #if A\n", [("if", "A", 1, 1)]),
        ("/* x\n y */ #if A\n", [("if", "A", 2, 2)]),
        ("int a; #if A\n", []),
        ("int a; /* x */ #if A\n", []),
        ("int a; /* x\n*/ #if A\n", []),
        ("// #if A\n", []),
        ("// continued \\\n#if A\n", []),
        ("/* #if A\n#if B */\n", []),
        ('const char* s = "\\\n#if A\\\n";\n', []),
        ('auto s = R"(\n#if A\n)";\n#if B\n', [("if", "B", 4, 4)]),
        ('auto s = R"x(\n)"\n#if A\n)x";\n', []),
        ("int n = 1'000'000;\n#if A\n", [("if", "A", 2, 2)]),
        ("char c = '\"';\n#if A\n", [("if", "A", 2, 2)]),
        ("#if 0\ndon't\n#endif\n", [("if", "0", 1, 1), ("endif", "", 3, 3)]),
        ("#if A && \\\n    B || \\\n    C\n#endif\n", [("if", "A && B || C", 1, 3), ("endif", "", 4, 4)]),
        ("#if A /* one\n two */ && B\n", [("if", "A && B", 1, 2)]),
        ("#if A\\\r\n && B\r\n#endif\r\n", [("if", "A && B", 1, 2), ("endif", "", 3, 3)]),
        ("#endif // if (A)\n", [("endif", "", 1, 1)]),
        ("%:if A\n", [("if", "A", 1, 1)]),
        ("#define F(x) #x\n#if A\n", [("define", "F(x) #x", 1, 1), ("if", "A", 2, 2)]),
        ("#define M \\\n  #if A \\\n  x\n", [("define", "M #if A x", 1, 3)]),
        ("foo \\\n#if A\n", []),
        ("\\\n#if A\n", [("if", "A", 2, 2)]),
        ("#pragma once\n#include <x>\n", [("include", "<x>", 2, 2)]),
        ("#if A", [("if", "A", 1, 1)]),
        ("/* never closed\n#if A\n", []),
        ("text\f\n#if A\n", [("if", "A", 2, 2)]),
    ],
)
def test_a_directive_is_what_the_preprocessor_takes_for_one(text: str, found: list[tuple[str, str, int, int]]) -> None:
    assert [(each.keyword, each.text, each.line, each.last_line) for each in directives(text)] == found


def test_branches_end_before_the_next_directive_of_their_chain() -> None:
    source = scan("#if A\n1\n#  if B\n2\n#  endif\n#elif C\n#else\n3\n4\n#endif\n")
    found = [(each.directive.keyword, each.directive.line, each.end_line, each.condition) for each in source.branches()]
    assert found == [
        ("if", 1, 5, "A"),
        ("if", 3, 4, "B"),
        ("elif", 6, 6, "C"),
        ("else", 7, 9, "!(A) && !(C)"),
    ]


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        ("#ifdef A // b", "defined(A)"),
        ("#ifndef A", "!defined(A)"),
        ("#if 0\n#elifdef A", "defined(A)"),
        ("#if 0\n#elifndef A", "!defined(A)"),
    ],
)
def test_short_forms_are_spelled_out(line: str, condition: str) -> None:
    assert list(scan(f"{line}\n#endif\n").branches())[-1].condition == condition


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("#endif\n", (1, "#endif without #if")),
        ("#else\n", (1, "#else without #if")),
        ("#if A\n#else\n#elif B\n#endif\n", (3, "#elif after #else")),
        ("\n#if A\nx\n", (2, "unterminated conditional")),
    ],
)
def test_what_does_not_balance_is_a_problem_with_a_line(text: str, problem: tuple[int, str]) -> None:
    assert scan(text).problems == [problem]


pieces = st.sampled_from(
    [
        "#if A", "#if B // x", "#ifdef A", "#ifndef B", "#elif A && B", "#else", "#endif", "#endif // #if A",
        "/* #if A */", "/* open", "close */", 'int x = 0; // "', "char q = '\\'';", 's = "#if A";', "#if A && \\", " B",
        "#define A 1", "#undef A", "#define B 0", "#undef B", "R\"(", ")\"", "x \\", "#if /* c */ A",
        "/**/ # /**/ if B", "don't", "",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pieces, max_size=14))
def test_generated_files_agree_with_gnu_cpp(
    cpp: Callable[[str, Mapping[str, str]], set[int]], lines: list[str]
) -> None:
    text = "\n".join([*lines, ""])
    source = scan(text)
    if source.problems or 'R"(' in text or "/* open" in text.split("close */")[-1]:
        return  # cpp gives up there, too, but not in the same way
    from downstream.guards.definitions import Definitions

    file = Definitions({"f": text.encode()}).file("f", None)
    kept = cpp(text, {})
    for number, branch in enumerate(source.branches()):
        truth = file.state(branch).value.truth
        assert truth is None or (number in kept) == truth, (text, branch.directive)


def test_an_empty_condition_is_unknown_not_false() -> None:
    assert evaluate(next(iter(scan("#if\n#endif\n").branches())).condition, lambda _: None).truth is None


def test_a_directive_knows_its_lines() -> None:
    assert list(directives("#if A \\\n&& B\n")) == [Directive("if", "A && B", 1, 2)]
