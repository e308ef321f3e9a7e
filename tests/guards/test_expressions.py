"""The value of a condition: by the standard, by GNU cpp, and in three values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from downstream.guards.expressions import evaluate
from downstream.guards.tokens import Macro, tokenize
from downstream.guards.values import Value, unknown

KNOWN = {"__CUDA_ARCH__": "1200", "EMPTY": "", "SUM": "1 + 1", "NEGATIVE": "-3", "BIG": "18446744073709551615u"}
OPEN = ("A", "B", "FLAG")


def lookup(name: str) -> Macro | Value | None:
    if name in KNOWN:
        return Macro(name, tokenize(KNOWN[name]))
    if name in OPEN:
        return unknown(f"defined({name})", frozenset({name}))
    return None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0x4B0u == 1200", 1),
        ("0b101 + 010", 13),
        ("1'000'000 == 1000000LL", 1),
        ("defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900)", 1),
        ("defined __CUDA_ARCH__ && __CUDA_ARCH__ < 1200", 0),
        ("(defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))", 0),
        ("!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 1300", 0),
        ("defined(__CUDA_ARCH__) and not (__CUDA_ARCH__ == 900)", 1),
        ("NOT_A_MACRO", 0),
        ("true && !false", 1),
        ("SUM * 2", 3),
        ("-1 > 0u", 1),
        ("-1 > 0", 0),
        ("NEGATIVE / 2", -1),
        ("NEGATIVE % 2", -1),
        ("1 << 63 < 0", 1),
        ("BIG > 0", 1),
        ("__CUDA_ARCH__ == 900 ? 1 : 2", 2),
        ("1 ? -1 : 0u", (1 << 64) - 1),
        ("'A' == 65 && '\\n' == 10", 1),
        ("0 && (1 / 0)", 0),
        ("(2, 3)", 3),
        ("~0u >> 63", 1),
        ("1 << -1", 0),
    ],
)
def test_a_known_expression_has_the_value_of_the_standard(text: str, value: int) -> None:
    assert evaluate(text, lookup).number == value


@pytest.mark.parametrize(
    ("text", "truth", "names"),
    [
        ("A", None, {"A"}),
        ("defined(A)", None, {"A"}),
        ("A && 0", False, set()),
        ("0 && A", False, set()),
        ("1 || A", True, set()),
        ("A || __CUDA_ARCH__ >= 900", True, set()),
        ("A && __CUDA_ARCH__ >= 900", None, {"A"}),
        ("__CUDA_ARCH__ >= A", None, {"A"}),
        ("A ? 1 : 0", None, {"A"}),
        ("FLAG(1, (2)) || defined(B)", None, {"FLAG", "B"}),
        ("FLAG(1) && __CUDA_ARCH__ < 1200", False, set()),
        ("!A", None, {"A"}),
        ("1 / 0", None, {"division by zero"}),
        ("__CUDA_ARCH__ >=", None, {"malformed: ends too early"}),
        ("defined()", None, {"malformed: 'defined' without a name"}),
        ("1.5 > 1", None, {"malformed: '1.5' is no integer"}),
        ("NOT_A_MACRO(3)", None, {"malformed: NOT_A_MACRO is no macro, yet is called"}),
        ("", None, {"malformed: no expression"}),
    ],
)
def test_what_is_not_known_stays_unknown_and_keeps_its_name(text: str, truth: bool | None, names: set[str]) -> None:
    value = evaluate(text, lookup)
    assert (value.truth, set(value.names)) == (truth, names)


def test_equal_residuals_mean_that_the_architecture_does_not_matter() -> None:
    def on(arch: str) -> Callable[[str], Macro | Value | None]:
        return lambda name: Macro(name, tokenize(arch)) if name == "__CUDA_ARCH__" else lookup(name)

    text = "__CUDA_ARCH__ >= 900 && defined(FLAG)"
    assert evaluate(text, on("900")).residual == evaluate(text, on("1200")).residual
    text = "__CUDA_ARCH__ >= 900 && (__CUDA_ARCH__ < 1200 || defined(FLAG))"
    assert evaluate(text, on("900")).truth is True
    assert evaluate(text, on("1200")).residual == "defined(FLAG)"


def test_function_like_macros_are_expanded_with_pasting() -> None:
    macros = {
        "__CUDA_ARCH_SPECIFIC__": Macro("__CUDA_ARCH_SPECIFIC__", tokenize("1200")),
        "HAS": Macro("HAS", tokenize("(defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ == N##0)"), ("N",)),
        "ANY": Macro("ANY", tokenize("HAS(A) || HAS(B)"), ("A", "B")),
        "SELF": Macro("SELF", tokenize("SELF + 1")),
    }
    assert evaluate("HAS(120)", macros.get).number == 1
    assert evaluate("HAS(90) || HAS(100)", macros.get).number == 0
    assert evaluate("ANY(90, 120)", macros.get).number == 1
    assert evaluate("SELF == 1", macros.get).number == 1


numbers = st.one_of(
    st.integers(0, 20).map(str),
    st.sampled_from(["900u", "0x4b0", "1200UL", "0", "1", "9223372036854775807", "18446744073709551615u", "'a'"]),
)
names = st.sampled_from(["__CUDA_ARCH__", "SUM", "NEGATIVE", "BIG", "NOWHERE", *OPEN])
tests = st.builds("defined({})".format, names) | st.builds("defined {}".format, names)
binary = st.sampled_from(
    [
        "||",
        "&&",
        "|",
        "^",
        "&",
        "==",
        "!=",
        "<",
        ">",
        "<=",
        ">=",
        "<<",
        ">>",
        "+",
        "-",
        "*",
        "/",
        "%",
        "and",
        "or",
        "bitand",
        "not_eq",
    ]
)
expressions = st.recursive(
    numbers | names | tests,
    lambda inner: st.one_of(
        st.builds("({})".format, inner),
        st.builds("{} {}".format, st.sampled_from(["!", "-", "+", "~", "not"]), inner),
        st.builds("{} {} {}".format, inner, binary, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(expressions, min_size=8, max_size=8),
    st.fixed_dictionaries({name: st.sampled_from([None, "0", "1", "-2", "7u"]) for name in OPEN}),
)
def test_generated_expressions_agree_with_gnu_cpp_whatever_the_unknown_names_are(
    cpp: Callable[[str, Mapping[str, str]], set[int]], texts: list[str], assignment: Mapping[str, str | None]
) -> None:
    defined = {name: value for name, value in assignment.items() if value is not None}
    values = [evaluate(text, lookup) for text in texts]
    # An #else tells an #if that is false from one that cpp could not read.
    kept = cpp("".join(f"#if {text}\n#else\n#endif\n" for text in texts), {**KNOWN, **defined})
    for number, (text, value) in enumerate(zip(texts, values, strict=True)):
        if value.truth is None:
            assert value.names, text
        elif not _refused(cpp, text, {**KNOWN, **defined}):
            assert (2 * number in kept) == value.truth, text


def _refused(cpp: Callable[[str, Mapping[str, str]], set[int]], text: str, macros: Mapping[str, str]) -> bool:
    """Whether cpp takes neither the condition nor its negation for true: a division by zero."""
    if "/" not in text and "%" not in text:
        return False
    return not cpp(f"#if {text}\n#endif\n#if !({text})\n#endif\n", macros)
