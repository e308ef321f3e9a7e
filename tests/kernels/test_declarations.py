"""Preprocessed C++ cut into declarations, and which of them the device compiler drops."""

from __future__ import annotations

import pytest

from downstream.kernels.declarations import declarations

G, D, H = (f"__attribute__(({word}))" for word in ("global", "device", "host"))


@pytest.mark.parametrize(
    ("text", "name", "host_only"),
    [
        (f"{G} void kernel(int a) {{ a = 1; }}", "kernel", False),
        (f"template <typename T, int N = (1)> {G} void __launch_bounds__(1024, 1) kernel(T a) {{ }}", "kernel", False),
        (f"{G} void __attribute__((launch_bounds(1024, 1))) kernel() {{ }}", "kernel", False),
        (f"static inline {D} float scale(float x) {{ return x; }}", "scale", False),
        (f"{H} {D} int both() {{ return 1; }}", "both", False),
        ("constexpr int folded() { return 1; }", "folded", False),
        ("int launch(float* x) { return g<<<1, 1>>>(x); }", "launch", True),
        ("template <> bool is_zero<half>(half x) { return true; }", "is_zero", True),
        ("void launch() { auto f = [=] " + D + " (int i) { return i; }; run(f); }", "launch", False),
        ("struct Params { int a; void set() { a = 1; } };", "struct Params", False),
        ("enum class Kind : char { A, B };", "enum class Kind :", False),
        ("static const int table[] = {1, 2};", "static const int table", False),
        ("std::map<int, int> cache{{1, 2}};", "std : : map", False),
    ],
)
def test_one_declaration(text: str, name: str, host_only: bool) -> None:
    (found,) = declarations(text)
    assert (found.name, found.host_only) == (name, host_only)


def test_namespaces_and_extern_c_are_gone_through() -> None:
    text = 'namespace a { namespace b::c { int f() { } } extern "C" { int g() { } } } inline namespace v1 { int h; }'
    assert [found.name for found in declarations(text)] == ["f", "g", "int h ;"]


def test_braces_in_strings_and_characters_do_not_count() -> None:
    text = """const char* a = "}{"; char b = '{'; const char* c = R"x(}}")x"; int f() { return 1'000; }"""
    assert [found.name for found in declarations(text)] == [
        "const char * a",
        "char b = '{'",
        "const char * c",
        "f",
    ]


@pytest.mark.parametrize("text", ["int f() { ", "} int f();", "namespace a { int b;", "int f(;"])
def test_what_does_not_pair_up_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="brace"):
        declarations(text)


def test_a_host_function_counts_by_its_head_alone() -> None:
    (before,), (after,) = declarations("int f(int a) { return 1; }"), declarations("int f(int a) { return 2; }")
    (other,) = declarations("int f(long a) { return 1; }")
    assert before.device_text == after.device_text != other.device_text
    assert before.text != after.text


def test_a_pragma_is_a_declaration_of_its_own_unless_it_stands_in_a_body() -> None:
    text = (
        "#pragma once\n#pragma GCC diagnostic push\nint f() { return 1; }\n" + G + " void k() {\n#pragma unroll\nx(); }"
    )
    assert [(found.name, found.host_only) for found in declarations(text)] == [
        ("#pragma once", False),
        ("#pragma GCC diagnostic push", False),
        ("f", True),
        ("k", False),
    ]
    assert "{ #pragma unroll x" in declarations(text)[3].text
