"""Which macros the compiler defines for which target."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from downstream.arches import parse_target
from downstream.errors import UsageError
from downstream.guards.definitions import Definitions
from downstream.guards.expressions import evaluate
from downstream.guards.macros import ANY, Toolkit, compiler_lookup, parse_define, parse_toolkit, predefined

# target: __CUDA_ARCH__, FEAT, SPECIFIC, FAMILY_SPECIFIC (nvcc 13.0 -dryrun)
TABLE = {
    "sm_90": (900, None, None, None),
    "sm_90a": (900, "SM90", 900, 900),
    "sm_100": (1000, None, None, None),
    "sm_100a": (1000, "SM100", 1000, 1000),
    "sm_100f": (1000, None, None, 1000),
    "sm_103a": (1030, "SM103", 1030, 1030),
    "sm_103f": (1030, None, None, 1030),
    "sm_120": (1200, None, None, None),
    "sm_120a": (1200, "SM120", 1200, 1200),
    "sm_120f": (1200, None, None, 1200),
    "sm_121a": (1210, "SM121", 1210, 1210),
    "sm_121f": (1210, None, None, 1210),
    "sm_121": (1210, None, None, None),
}


@pytest.mark.parametrize("target", TABLE)
def test_the_table_is_nvccs(target: str) -> None:
    arch, feature, specific, family = TABLE[target]
    lookup = compiler_lookup(predefined(parse_target(target)))

    def truth(text: str) -> bool | None:
        return evaluate(text, lookup).truth

    assert truth(f"__CUDA_ARCH__ == {arch}") is True
    for name in ("SM90", "SM100", "SM103", "SM120", "SM121"):
        assert truth(f"defined(__CUDA_ARCH_FEAT_{name}_ALL)") is (name == feature)
        assert truth(f"__CUDA_ARCH_HAS_FEATURE__({name}_ALL)") is (name == feature)
    assert truth("defined(__CUDA_ARCH_SPECIFIC__)") is (specific is not None)
    assert truth(f"__CUDA_ARCH_SPECIFIC__ == {specific or 0}") is True
    assert truth("defined(__CUDA_ARCH_FAMILY_SPECIFIC__)") is (family is not None)
    assert truth(f"__CUDA_ARCH_FAMILY_SPECIFIC__ == {family or 0}") is True


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("defined(__CUDACC__) && defined(__cplusplus)", True),
        ("__CUDACC_VER_MAJOR__ >= 12", None),
        ("CUDA_VERSION >= 12080 && __CUDA_ARCH__ >= 1000", None),
        ("CUDA_VERSION >= 12080 && __CUDA_ARCH__ < 1000", False),
        ("defined(ENABLE_BF16)", None),
        ("defined(_MSC_VER) || defined(__HIPCC__)", False),
    ],
)
def test_versions_are_unknown_without_a_toolkit(text: str, truth: bool | None) -> None:
    assert evaluate(text, compiler_lookup(predefined(parse_target("120")))).truth is truth


def test_a_toolkit_makes_the_version_macros_known() -> None:
    lookup = compiler_lookup(predefined(parse_target("120"), Toolkit(12, 9)))
    assert evaluate("CUDA_VERSION == 12090 && __CUDACC_VER_MINOR__ == 9", lookup).truth is True
    assert str(parse_toolkit("13.0")) == "13.0"
    with pytest.raises(UsageError, match=r"write it as 13\.0"):
        parse_toolkit("thirteen")


def test_the_host_pass_has_no_architecture_and_no_target_has_an_unknown_one() -> None:
    host = compiler_lookup(predefined(None))
    assert evaluate("!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900", host).truth is True
    file = Definitions({"a.h": b"#if __CUDA_ARCH__ >= 900\n#endif\n#if 0 && __CUDA_ARCH__ >= 900\n#endif\n"})
    alive, dead = (file.file("a.h", ANY).state(branch).value.truth for branch in file.source("a.h").branches())
    assert (alive, dead) == (None, False)


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("A 1", "A", None),
        ("A", "A", None),
        ("F(x, y) x", "F", ("x", "y")),
        ("F() 1", "F", ()),
        ("V(...) 1", "V", ("...",)),
    ],
)
def test_a_definition_has_a_name_and_parameters(text: str, name: str, parameters: tuple[str, ...] | None) -> None:
    macro = parse_define(text)
    assert macro is not None
    assert (macro.name, macro.parameters) == (name, parameters)


@pytest.mark.nvcc
@pytest.mark.parametrize("target", TABLE)
def test_nvcc_itself_says_the_same(target: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on the path")
    source = tmp_path / "empty.cu"
    source.write_text("")
    run = subprocess.run(
        [nvcc, f"-arch={target}", "-cubin", "-dryrun", source], capture_output=True, text=True, check=True
    )
    arch, feature, specific, family = TABLE[target]
    for name, value in (("", arch), ("SPECIFIC__", specific), ("FAMILY_SPECIFIC__", family)):
        option = f"-D__CUDA_ARCH_{name or '_'}={value}" if name else f"-D__CUDA_ARCH__={value}"
        assert (option in run.stderr) is (value is not None)
    assert (f"-D__CUDA_ARCH_FEAT_{feature}_ALL" in run.stderr) is (feature is not None)
