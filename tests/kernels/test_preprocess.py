"""The macros of each target, and preprocessed text taken apart by file."""

from __future__ import annotations

import pytest

from downstream.arches import parse_target
from downstream.kernels.preprocess import architecture_macros, by_file


@pytest.mark.parametrize(
    ("target", "arch", "feature", "specific", "family"),
    [
        ("120", "1200", None, None, None),
        ("120a", "1200", "SM120", "1200", "1200"),
        ("120f", "1200", None, None, "1200"),
        ("121a", "1210", "SM121", "1210", "1210"),
        ("121f", "1210", None, None, "1210"),
        ("90a", "900", "SM90", "900", "900"),
    ],
)
def test_macros_are_those_of_nvcc(
    target: str, arch: str, feature: str | None, specific: str | None, family: str | None
) -> None:
    """DOMAIN T9, read back from nvcc 13.0."""
    macros = architecture_macros(parse_target(target))
    assert macros["__CUDA_ARCH__"] == macros["__CUDA_ARCH_LIST__"] == arch
    assert [name for name in macros if "FEAT" in name] == ([f"__CUDA_ARCH_FEAT_{feature}_ALL"] if feature else [])
    assert macros.get("__CUDA_ARCH_SPECIFIC__") == specific
    assert macros.get("__CUDA_ARCH_FAMILY_SPECIFIC__") == family


def test_text_is_gathered_by_file_without_blank_lines_and_markers() -> None:
    text = '# 1 "a.cu"\nint a;\n\n# 1 "b.h" 1\n  int b;\n# 3 "a.cu" 2\nint c;\n# 9 "odd \\"name\\".h"\nint d;\n'
    assert by_file(text) == {"a.cu": "int a;\nint c;", "b.h": "int b;", 'odd \\"name\\".h': "int d;"}
