"""Host C++: comparisons on SM numbers in if, ternary, switch and CHECK-like macros."""

from __future__ import annotations

import pytest

from downstream.arches import parse_targets
from downstream.guards.audit import Scope, audit
from downstream.guards.model import Guard, Question
from downstream.trees.tree import MemoryTree

QUESTION = Question(references=parse_targets("90 100 103"), targets=parse_targets("120 121"))


def guards(text: str, path: str = "csrc/x.cu") -> list[Guard]:
    found = audit(MemoryTree({path: text.encode()}), Scope(question=QUESTION)).guards
    assert all(str(guard.kind) == "host" for guard in found)
    return list(found)


def shown(guard: Guard) -> str:
    return "".join(verdict.value[0] for verdict in guard.arches.values())


@pytest.mark.parametrize(
    ("code", "condition", "verdicts", "verdict_class"),
    [
        ("if (sm >= 90 && sm < 120) { f(); }", "sm >= 90 && sm < 120", "aaaii", "suspect"),
        ("if (major == 9 || major == 10) f();", "major == 9 || major == 10", "aaaii", "suspect"),
        ("if (prop.major == 9) { f(); } else { g(); }", "prop.major == 9", "aiiii", "served"),
        ("if (sm_version == 90) return (int)tile_config_sm90;", "sm_version == 90", "aiiii", "hardware"),
        ("if (mSM == kSM_100 || mSM == kSM_103) f();", "mSM == kSM_100 || mSM == kSM_103", "iaaii", "suspect"),
        ('CHECK(mSM == kSM_100 || mSM == kSM_103, "no");', "mSM == kSM_100 || mSM == kSM_103", "iaaii", "suspect"),
        ('TVM_FFI_ICHECK_EQ(major, 10) << "needs 10.x";', "TVM_FFI_ICHECK_EQ(major, 10)", "iaaii", "suspect"),
        (
            "TLLM_CHECK_WITH_INFO(sm_version >= 100 && sm_version < 120, x);",
            "sm_version >= 100 && sm_version < 120",
            "iaaii",
            "suspect",
        ),
        ('if (sm_version != 90) { throw std::runtime_error(""); }', "sm_version != 90", "aiiii", "suspect"),
        ("int n = sm == 100 ? 2 : 1;", "sm == 100", "iaiii", "suspect"),
        (
            "bool ok = getSMVersion() >= 90 && getSMVersion() < 120;",
            "getSMVersion() >= 90 && getSMVersion() < 120",
            "aaaii",
            "suspect",
        ),
        (
            "return (sm == 90 && fast) ||\n       (sm >= 100 && sm < 120);",
            "(sm == 90 && fast) || (sm >= 100 && sm < 120)",
            "aaaii",
            "suspect",
        ),
        ("if (100 <= sm && sm < 120) f();", "100 <= sm && sm < 120", "iaaii", "suspect"),
        ("if (flag && cudaArch == 900) f();", "flag && cudaArch == 900", "", ""),
        ("if (flag && cuda_arch == 900) f();", "flag && cuda_arch == 900", "aiiii", "suspect"),
        ("if (sm >= 90) f();", "sm >= 90", "aaaaa", "None"),
        ("if (sm == 89 || sm == 120 || sm == 121) f();", "sm == 89 || sm == 120 || sm == 121", "iiiaa", "None"),
        ("if (sm >= 100) { run_sm100_kernel(); }", "sm >= 100", "iaaaa", "over-inclusive"),
        ("switch (sm) { case 90: f(); break; case 100: g(); break; }", "switch (sm) case 90, 100", "aaiii", "suspect"),
        ("switch (sm) { case 90: f(); break; default: g(); }", "switch (sm) case 90 default", "", ""),
        ("switch (sm) { case 90: f(); break; default: throw 1; }", "switch (sm) case 90", "aiiii", "suspect"),
        ("if (not (sm < 90 || sm >= 120)) f();", "", "", ""),
        ("if (!(sm < 90 || sm >= 120)) f();", "!(sm < 90 || sm >= 120)", "aaaii", "suspect"),
    ],
)
def test_a_condition_says_whom_it_admits(code: str, condition: str, verdicts: str, verdict_class: str) -> None:
    found = guards(f"void host(int sm) {{\n  {code}\n}}\n")
    if not verdicts:
        assert [guard for guard in found if guard.verdict_class is not None] == []
        return
    (guard,) = found
    assert (guard.condition, shown(guard), str(guard.verdict_class)) == (condition, verdicts, verdict_class)
    assert guard.function == "host"


@pytest.mark.parametrize(
    "code",
    [
        "// if (sm == 90)",
        "/* sm >= 90 && sm < 120 */",
        'log("sm == 90");',
        "if (num_sm == 90) f();",
        "if (sm == other) f();",
        "if (count >= 90) f();",
        'ICHECK(strides[0] == 1) << "must be row-major";',
        "#define DISPATCH(sm) if (sm == 90) f()",
        "for (int major = 0; major < 3; ++major) f();",
    ],
)
def test_what_compares_no_sm_is_not_reported(code: str) -> None:
    assert guards(f"void host() {{\n  {code}\n}}\n") == []


def test_lines_are_those_of_the_whole_condition() -> None:
    (found,) = guards("void f(int sm) {\n  if (x &&\n      (sm >= 90 &&\n       sm < 120)) {\n    g();\n  }\n}\n")
    assert (found.line, found.end_line) == (2, 4)


def test_runners_of_cubins_are_right_to_refuse() -> None:
    (found,) = guards("void f() { ICHECK_EQ(major, 10); }\n", "csrc/trtllm_fused_moe_kernel_launcher.cu")
    assert str(found.verdict_class) == "hardware"
    assert "cubins" in found.evidence
