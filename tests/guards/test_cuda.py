"""Preprocessor guards: verdict, class, effect, kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from downstream.arches import parse_targets
from downstream.guards.audit import Scope, audit
from downstream.guards.model import Guard, Question
from downstream.trees.tree import MemoryTree

QUESTION = Question(references=parse_targets("90 100 103"), targets=parse_targets("120 121"))

ALLREDUCE = """\
#include <cuda_runtime.h>
// #if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1200
template <typename T>
__global__ void lamport_kernel(T* out) {
#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && \\
     (__CUDA_ARCH__ < 1200))  // oversight
  out[0] = T(1);
#endif
}
__global__ void norm_kernel(float* out) {
#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))
  asm volatile("griddepcontrol.wait;");
#endif
  out[0] = 1;
#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
"""


def guards(files: dict[str, str], question: Question = QUESTION) -> list[Guard]:
    tree = MemoryTree({path: text.encode() for path, text in files.items()})
    return list(audit(tree, Scope(question=question)).guards)


def only(text: str, *, path: str = "include/a.cuh") -> Guard:
    (guard,) = guards({path: text})
    return guard


def body(condition: str, code: str, *, otherwise: str = "") -> str:
    arm = f"#else\n{otherwise}\n" if otherwise else ""
    return f"__device__ void f(int* p) {{\n  int before;\n#if {condition}\n{code}\n{arm}#endif\n  int after;\n}}\n"


def test_the_oversight_of_the_all_reduce_header_is_found_line_by_line() -> None:
    found = guards({"include/flashinfer/comm/trtllm_allreduce.cuh": ALLREDUCE})
    seen = [(g.line, g.end_line, str(g.verdict_class), str(g.effect), g.function, g.whole_kernel) for g in found]
    assert seen == [
        (5, 7, "suspect", "empty-kernel", "lamport_kernel", True),
        (11, 12, "suspect", "no-sync", "norm_kernel", False),
        (15, 16, "suspect", "no-sync", "norm_kernel", False),
    ]
    assert all(guard.excluded for guard in found)
    assert {arch: str(verdict) for arch, verdict in found[0].arches.items()} == {
        "sm_90": "active",
        "sm_100": "active",
        "sm_103": "active",
        "sm_120": "inactive",
        "sm_121": "inactive",
    }
    assert found[0].condition == "(defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))"
    assert len({guard.fingerprint for guard in found}) == 3


@pytest.mark.parametrize(
    ("condition", "code", "otherwise", "verdict_class", "effect"),
    [
        ("__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200", "p[0] = 1;", "", "suspect", "feature-off"),
        ("__CUDA_ARCH__ <= 1199", "p[0] = 1;", "", "suspect", "feature-off"),
        ("__CUDA_ARCH__ == 900", "p[0] = 1;", "", "suspect", "feature-off"),
        ("__CUDA_ARCH__ == 900", "p[0] = 1;", "p[0] = 2;", "served", "fallback"),
        ("__CUDA_ARCH__ == 900", 'asm("wgmma.fence.sync.aligned;");', "", "hardware", "feature-off"),
        ("__CUDA_ARCH__ == 1000", 'asm volatile("tcgen05.wait::ld.sync.aligned;");', "", "hardware", "feature-off"),
        ("__CUDA_ARCH__ == 1000", 'asm("multimem.ld_reduce.f32 %0;");', "", "hardware", "feature-off"),
        ("__CUDA_ARCH__ == 1000", 'asm("cvt.rs.satfinite.e2m1x4.f32 %0;");', "", "hardware", "feature-off"),
        ("__CUDA_ARCH__ == 1000", 'asm("redux.sync.max.f32 %0;");', "", "hardware", "feature-off"),
        ("__CUDA_ARCH__ == 1000", 'asm("redux.sync.max.s32 %0;");', "", "suspect", "feature-off"),
        ("__CUDA_ARCH__ == 900", "cute::warpgroup_arrive();", "", "hardware", "feature-off"),
        ("__CUDA_ARCH__ == 900", "  p[0] = 1;  // like wgmma\n", "", "suspect", "feature-off"),
        ("__CUDA_ARCH__ == 900", "p[0] = 1;", "__trap();", "suspect", "feature-off"),
        ("__CUDA_ARCH__ == 900", "p[0] = 1;", 'asm volatile("trap;\\n");', "suspect", "feature-off"),
        ("__CUDA_ARCH__ == 900", "p[0] = 1;", "#error no", "suspect", "build-refused"),
        ("__CUDA_ARCH__ == 900", "cudaGridDependencySynchronize();", "", "suspect", "no-sync"),
        ("__CUDA_ARCH__ != 1000", "#error only SM100", "", "suspect", "build-refused"),
        ("__CUDA_ARCH__ >= 1000", 'asm("tcgen05.ld.sync.aligned;");', "", "over-inclusive", "other"),
        ("__CUDA_ARCH__ == 900 || FLAG", "p[0] = 1;", "", "unknown", "feature-off"),
        ("__CUDA_ARCH__ >= 900 && FLAG", "p[0] = 1;", "", "None", "None"),
        ("__CUDA_ARCH__ >= 900", "p[0] = 1;", "", "None", "None"),
        ("__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 1200 || __CUDA_ARCH__ == 1210", "p[0] = 1;", "", "None", "None"),
    ],
)
def test_each_exclusion_is_sorted(condition: str, code: str, otherwise: str, verdict_class: str, effect: str) -> None:
    found = guards({"a.cuh": body(condition, code, otherwise=otherwise)})[0]
    assert (str(found.verdict_class), str(found.effect)) == (verdict_class, effect), found.evidence


@pytest.mark.parametrize(
    "text",
    [
        "// #if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200\n// #endif\n",
        "/*\n#if __CUDA_ARCH__ < 1200\n#endif\n*/\n",
        'const char* s = R"(\n#if __CUDA_ARCH__ < 1200\n#endif\n)";\n',
        "int x;\n#endif // #if (__CUDA_ARCH__ < 1200)\n",
        "#if CUDA_VERSION >= 12080\nint x;\n#endif\n",
        "#if __CUDACC_VER_MAJOR__ >= 12\nint x;\n#endif\n",
        "#if 0 && __CUDA_ARCH__ >= 900\nint x;\n#endif\n",
        "#if 0\n#if __CUDA_ARCH__ == 900\nint x;\n#endif\n#endif\n",
        "#ifndef A_H\n#define A_H\n#ifdef ENABLE_BF16\n#endif\n#endif\n",
        "int sm = 900; // __CUDA_ARCH__ == 900\n",
    ],
)
def test_what_is_no_guard_is_not_reported(text: str) -> None:
    assert guards({"a.cuh": text}) == []


def test_every_branch_of_a_chain_is_a_guard_and_an_earlier_one_serves() -> None:
    text = body("__CUDA_ARCH__ >= 1200", "int a;").replace(
        "#endif", "#elif __CUDA_ARCH__ >= 1000\nint b;\n#else\nint c;\n#endif"
    )
    found = guards({"a.cuh": text})
    assert [(g.line, g.end_line, g.condition, str(g.verdict_class)) for g in found] == [
        (3, 4, "__CUDA_ARCH__ >= 1200", "None"),
        (5, 6, "__CUDA_ARCH__ >= 1000", "served"),
        (7, 8, "!(__CUDA_ARCH__ >= 1200) && !(__CUDA_ARCH__ >= 1000)", "served"),
    ]


def test_a_nested_guard_counts_the_one_around_it() -> None:
    text = "#if __CUDA_ARCH__ < 1200\n#if __CUDA_ARCH__ >= 900\nint a;\n#endif\n#endif\n"
    unknown = "#ifdef X\n#if __CUDA_ARCH__ < 1000\n#endif\n#endif\n"
    outer, inner, under_unknown = guards({"a.cuh": text + unknown})
    assert str(inner.arches["sm_120"]) == "inactive"
    assert (str(inner.verdict_class), inner.evidence) == (str(outer.verdict_class), f"inside line 1: {outer.evidence}")
    assert {arch: str(verdict) for arch, verdict in under_unknown.arches.items()} == {
        "sm_90": "unknown",
        "sm_100": "inactive",
        "sm_103": "inactive",
        "sm_120": "inactive",
        "sm_121": "inactive",
    }
    assert under_unknown.unknown == ("X",)


def test_the_second_of_two_nested_guards_is_the_oversight() -> None:
    # cudaUtils.h: the outer guard admits SM120, the inner one asks for SM90's own features.
    text = body("__CUDA_ARCH__ >= 900", "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n  return elect();\n#endif")
    outer, inner = guards({"a.cuh": text})
    assert (outer.excluded, inner.excluded, str(inner.verdict_class)) == (False, True, "suspect")
    assert {arch: str(verdict) for arch, verdict in inner.arches.items()} == {
        **{f"sm_{number}": "inactive" for number in (90, 100, 103, 120, 121)},
        "sm_90a": "active",
    }


def test_a_feature_list_that_lacks_the_family_build_is_found() -> None:
    # ln_silu_headers.cuh of 0.7.2: inactive under 120f, which is the default there.
    condition = "defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL)"
    found = guards({"a.cuh": body(condition, "int a;", otherwise="int b;")})[0]
    assert found.excluded
    assert (str(found.arches["sm_120a"]), str(found.arches["sm_120f"])) == ("active", "inactive")


def test_only_what_is_named_is_asked_about_when_somebody_names_it() -> None:
    question = Question(references=parse_targets("100a"), targets=parse_targets("120f"), variants=False)
    condition = "defined(__CUDA_ARCH_FEAT_SM100_ALL)"
    (found,) = guards({"a.cuh": body(condition, "int a;")}, question)
    assert {arch: str(verdict) for arch, verdict in found.arches.items()} == {
        "sm_100a": "active",
        "sm_120f": "inactive",
    }


def test_macros_of_other_files_are_followed_and_the_reason_is_shown() -> None:
    config = "#if __CUDA_ARCH__ == 1000\n#define CUTLASS_SM100_ENABLED 1\n#endif\n"
    files = {
        "3rdparty/cutlass/include/cutlass/arch/config.h": config,
        "include/a.cuh": '#include "cutlass/arch/config.h"\n#ifdef CUTLASS_SM100_ENABLED\nint a;\n#endif\n',
    }
    (found,) = guards(files)  # third-party code itself is left out
    assert (found.path, str(found.verdict_class)) == ("include/a.cuh", "suspect")
    assert found.because[0].startswith("CUTLASS_SM100_ENABLED is not defined on sm_90 (3rdparty/cutlass")


def test_a_build_flag_makes_the_guards_behind_it_unknown() -> None:
    # grid_dependency_control.h: whether the waits are compiled depends on -D in the Python side.
    text = """\
#ifndef GDC_ENABLED
#if defined(ENABLE_GDC_FOR_SM90) && __CUDA_ARCH__ >= 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GDC_ENABLED
#endif
#endif
__device__ void wait_on_dependent_grids() {
#if (defined(GDC_ENABLED))
  asm volatile("griddepcontrol.wait;");
#endif
}
"""
    found = guards({"gdc.h": text})
    assert [(g.line, str(g.verdict_class), str(g.effect)) for g in found] == [
        (2, "unknown", "feature-off"),
        (7, "unknown", "no-sync"),
    ]
    assert found[1].unknown == ("ENABLE_GDC_FOR_SM90",)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("__global__ void k() {\n#if __CUDA_ARCH__ < 1200\n  f();\n#endif\n}\n", True),
        ("__global__ void k() {\n  // why\n\n#if __CUDA_ARCH__ < 1200\n  f();\n#endif  // all\n}\n", True),
        ("__global__ void __launch_bounds__(128) k(int n)\n{\n#if __CUDA_ARCH__ < 1200\n  f();\n#endif\n}\n", True),
        ("__global__ void k() {\n  int i = 0;\n#if __CUDA_ARCH__ < 1200\n  f();\n#endif\n}\n", False),
        ("__global__ void k() {\n#if __CUDA_ARCH__ < 1200\n  f();\n#endif\n  g();\n}\n", False),
        ("__device__ void k() {\n#if __CUDA_ARCH__ < 1200\n  f();\n#endif\n}\n", False),
        ("#if __CUDA_ARCH__ < 1200\n__global__ void k() { f(); }\n#endif\n", False),
    ],
)
def test_whole_kernel_means_the_whole_body_of_a_global_function(text: str, whole: bool) -> None:
    found = only(text)
    assert found.whole_kernel is whole
    assert (str(found.effect) == "empty-kernel") is whole


@pytest.mark.parametrize("suffix", [".h", ".hpp", ".cuh", ".cu", ".cc", ".cpp", ".inl"])
def test_all_kinds_of_source_files_are_read(suffix: str) -> None:
    assert only("#if __CUDA_ARCH__ < 1200\nint a;\n#endif\n", path=f"csrc/x{suffix}").excluded


def test_what_does_not_balance_is_listed() -> None:
    tree = MemoryTree({"a.cuh": b"#if __CUDA_ARCH__ < 1200\nint a;\n"})
    assert audit(tree, Scope(question=QUESTION)).coverage.problems == ("a.cuh:1: unterminated conditional",)


def test_a_condition_that_is_no_expression_is_listed() -> None:
    tree = MemoryTree({"a.cuh": b"#if __CUDA_ARCH__ >= 900 &&\nint a;\n#endif\n"})
    assert audit(tree, Scope(question=QUESTION)).coverage.problems == ("a.cuh:1: malformed: ends too early",)


def test_the_order_and_the_fingerprints_do_not_depend_on_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"include/k{number}.cuh": ALLREDUCE for number in range(12)}
    alone = guards(files)
    monkeypatch.setattr("downstream.guards.workers.MANY", 2)
    together: Callable[[dict[str, str]], list[Guard]] = guards
    assert together(files) == alone
