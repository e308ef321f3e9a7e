"""Python gates: what they admit, by reading predicates, and what that means for SM12x."""

from __future__ import annotations

import pytest

from downstream.arches import parse_targets
from downstream.guards.audit import Scope, audit
from downstream.guards.model import Guard, Question
from downstream.trees.tree import MemoryTree

QUESTION = Question(references=parse_targets("90 100 103"), targets=parse_targets("120 121"))

UTILS = """\
from functools import lru_cache, partial
import torch

def _check_cuda_device_version(device_capability_majors, cuda_version):
    if not is_cuda():
        return False
    return (
        torch.cuda.get_device_capability()[0] in device_capability_majors
        and tuple(map(int, torch.version.cuda.split(".")[:2])) >= cuda_version
    )

is_blackwell_supported = is_blackwell = lru_cache(maxsize=1)(
    partial(_check_cuda_device_version, device_capability_majors=[10, 11, 12], cuda_version=(12, 8))
)
is_sm120_supported = lru_cache(maxsize=1)(
    partial(_check_cuda_device_version, device_capability_majors=[12], cuda_version=(12, 8))
)
is_sm100_supported = lru_cache(maxsize=1)(
    partial(_check_cuda_device_version, device_capability_majors=[10], cuda_version=(12, 8))
)
is_sm90_supported = lru_cache(maxsize=1)(
    partial(_check_cuda_device_version, device_capability_majors=[9], cuda_version=(12, 3))
)

def is_sm121a_supported(device):
    major, minor = get_compute_capability(device)
    return major == 12 and minor == 1 and version_at_least(torch.version.cuda, "12.9")

class Platform:
    @classmethod
    def is_blackwell(cls):
        return torch.cuda.get_device_capability()[0] == 10
"""
UTILS_PATH = "python/sglang/srt/utils/common.py"


def guards(text: str, path: str = "python/sglang/srt/layers/x.py") -> list[Guard]:
    tree = MemoryTree({path: text.encode(), UTILS_PATH: UTILS.encode()})
    return [guard for guard in audit(tree, Scope(question=QUESTION)).guards if guard.path == path]


def shown(guard: Guard) -> str:
    """A letter per architecture: 90, 100, 103, 120, 121."""
    return "".join(verdict.value[0] for verdict in guard.arches.values())


@pytest.mark.parametrize(
    ("text", "verdicts", "verdict_class", "condition"),
    [
        # Lists
        ("flags = get(supported_major_versions=[9, 10])", "aaaii", "suspect", "supported_major_versions=[9, 10]"),
        (
            "flags = get(\n    supported_major_versions=[\n        10,\n        11,  # no 12\n    ]\n)",
            "iaaii",
            "suspect",
            "supported_major_versions=[ 10, 11, ]",
        ),
        ("flags = get(supported_major_versions=[9, 10, 12])", "aaaaa", "None", ""),
        ("ARCHS = [9, 10]\nflags = get(supported_major_versions=ARCHS)", "aaaii", "suspect", ""),
        ("flags = get(supported_major_versions=archs())", "uuuuu", "unknown", ""),
        ("def gen_fmha_sm100_module():\n    return get(supported_major_versions=[10])", "iaaii", "hardware", ""),
        (
            "def gen_fmha_sm100_module():\n    return get(supported_major_versions=[10, 12])",
            "iaaaa",
            "over-inclusive",
            "",
        ),
        # Lists of architecture names in builders: a is exact, f is the family, +PTX is whatever comes later
        ('archs = ["9.0a", "10.0a"]', "aaiii", "suspect", 'archs = ["9.0a", "10.0a"]'),
        ('archs = ["9.0a", "10.0f", "12.0f"]', "aaaaa", "None", ""),
        ('archs = ["9.0a", "10.0a", "12.0a"]', "aaiai", "suspect", ""),
        ('os.environ["FLASHINFER_CUDA_ARCH_LIST"] = "9.0a 10.0f"', "aaaii", "suspect", ""),
        ('os.environ["FLASHINFER_CUDA_ARCH_LIST"] = "9.0 10.0+PTX"', "aaaaa", "None", ""),
        (
            'flags = ["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_100f,code=sm_100f"]',
            "aaaii",
            "suspect",
            "",
        ),
        # match
        (
            "match torch.cuda.get_device_capability()[0]:\n    case 9 | 10:\n        f()\n    case _:\n        raise E",
            "aaaii",
            "suspect",
            "match torch.cuda.get_device_capability()[0]: case 9 | 10",
        ),
        ("match get_compute_capability(d):\n    case (9, 0):\n        f()", "aiiii", "suspect", ""),
        # Texts put together
        ("if f'{major}{minor}' in ('90', '100'):\n    f()", "aaiii", "suspect", ""),
        # A dict's neighbours say nothing about it
        ("def is_sm100_here(major):\n    return 1\nSIZES = {9: 1, 10: 2}", "aaaii", "suspect", ""),
        # Decorators
        (
            "@supported_compute_capability([100, 103])\ndef _cudnn_mm():\n    return True",
            "iaaii",
            "suspect",
            "supported_compute_capability([100, 103])",
        ),
        ("@supported_compute_capability([90, 100, 103, 120, 121])\ndef f():\n    return 1", "aaaaa", "None", ""),
        # Capability comparisons and memberships
        (
            "major, _ = torch.cuda.get_device_capability()\nif major in (9, 10):\n    f()",
            "aaaii",
            "suspect",
            "major in (9, 10)",
        ),
        ("if torch.cuda.get_device_capability() == (10, 0):\n    f()", "iaiii", "suspect", ""),
        ("if torch.cuda.get_device_capability()[0] >= 9:\n    f()", "aaaaa", "None", ""),
        (
            "m, n = get_compute_capability(d)\narch = f'{m * 10 + n}'\nif arch not in ['100', '103']:\n    raise E",
            "iaaii",
            "suspect",
            "",
        ),
        (
            "cap = torch.cuda.get_device_capability()\nsm = cap[0] * 10 + cap[1]\nok = 90 <= sm < 120",
            "aaaii",
            "suspect",
            "90 <= sm < 120",
        ),
        (
            "props = torch.cuda.get_device_properties(0)\nif props.major == 9:\n    f()\nelse:\n    g()",
            "aiiii",
            "served",
            "",
        ),
        ("ok = [a for a in archs if a.major < 12]", "aaaii", "suspect", "a.major < 12"),
        ("x = a() if major == 10 else b()", "iaaii", "served", "major == 10"),
        ("assert major in [9, 10], 'no'", "aaaii", "suspect", ""),
        ("specs = [k for k in all_specs if k.sm in [80, 90, 100]]", "aaiii", "suspect", "k.sm in [80, 90, 100]"),
        # Predicates, resolved to what they admit
        ("if is_sm100_supported():\n    f()", "iaaii", "suspect", "is_sm100_supported()"),
        ("if is_sm90_supported() or is_sm100_supported():\n    f()", "aaaii", "suspect", ""),
        ("if flag and (is_sm90_supported() or is_sm100_supported()):\n    f()", "aaaii", "suspect", ""),
        ("if flag or is_sm100_supported():\n    f()", "aaaaa", "None", ""),
        ("if not is_sm100_supported():\n    raise ValueError('no')", "iaaii", "suspect", "not is_sm100_supported()"),
        ("if is_sm100_supported() or is_sm120_supported():\n    f()", "iaaaa", "None", ""),
        ("if is_blackwell():\n    backend = 'flashinfer_mxfp4'", "iaaaa", "over-inclusive", ""),
        ("if Platform.is_blackwell():\n    f()", "iaaii", "suspect", ""),
        ("_is_sm100 = is_cuda() and is_sm100_supported()\nif _is_sm100:\n    f()", "iaaii", "served", ""),
        # What follows serves the target, like an else; where SM90 and SM100 both have more, it is worth a look
        ("def f():\n    if is_sm90_supported():\n        return fast()\n    return slow()", "aiiii", "served", ""),
        ("def f():\n    if is_sm90_supported():\n        return {1: 2}\n    return {}", "aiiii", "suspect", ""),
        (
            "def f():\n    if is_sm90_supported() or is_sm100_supported():\n        return fused()\n    return slow()",
            "aaaii",
            "suspect",
            "",
        ),
        ("if major == 9:\n    b = 'marlin'\nelse:\n    b = Backend.FLASHINFER_TRTLLM", "aiiii", "suspect", ""),
        ("def f():\n    if major == 9:\n        return 1\n    return FLASHINFER_TRTLLM", "aiiii", "suspect", ""),
        ("flags = ['-g'] if is_sm90_supported() else []", "aiiii", "suspect", ""),
        (
            "def why():\n    if get_capability() != (12, 0):\n        return 'no SM120'\n    return ''",
            "iiiai",
            "None",
            "",
        ),
        ("limit = 128 if is_blackwell() else 64", "iaaaa", "None", ""),
        ("if is_blackwell():\n    backend = 'triton'", "iaaaa", "None", ""),
        ("if is_hopper_somewhere_else():\n    f()", "uuuuu", "unknown", ""),
        ("if is_sm100_supported():\n    backend = 'trtllm_mla'", "iaaii", "hardware", ""),
        ("if major == 12:\n    f()\nelif major >= 10:\n    g()", "iaaii", "served", "major >= 10"),
        # Dicts keyed by architecture
        (
            "_SIZES_BY_CAPABILITY = {\n    9: [4, 8],\n    10: [8],\n}",
            "aaaii",
            "suspect",
            "_SIZES_BY_CAPABILITY keyed by {9, 10}",
        ),
        ("modules_by_arch = {'90': a, '100': b, '103': c}", "aaaii", "suspect", ""),
        ("modules_by_arch = {'90': a, '100': b, '103': c, '120': d, '121': d}", "aaaaa", "None", ""),
        # AOT builders
        (
            "has_sm100 = caps['sm100']\nif has_sm100:\n    add(gen_trtllm_comm_module())\n    add(mnnvl())",
            "iaiii",
            "suspect",
            "has_sm100",
        ),
    ],
)
def test_a_gate_says_whom_it_admits(text: str, verdicts: str, verdict_class: str, condition: str) -> None:
    found = guards(text)
    if verdict_class == "None" and not found:
        assert verdicts == "aaaaa"  # a list that admits all is no guard at all
        return
    classes = {str(guard.verdict_class) for guard in found}
    assert verdict_class in classes, [(guard.condition, guard.evidence) for guard in found]
    (guard, *_) = [guard for guard in found if str(guard.verdict_class) == verdict_class]
    assert shown(guard) == verdicts
    if condition:
        assert guard.condition == condition


@pytest.mark.parametrize(
    "text",
    [
        '"""Works if major == 10."""\n',
        "# if major in (9, 10): no\n",
        "print('is_sm100_supported()')\n",
        "if sys.version_info.major == 3 and version.major == 2:\n    f()\n",
        "if torch.version.cuda.major >= 13:\n    f()\n",
        "if column_count == 10:\n    f()\n",
        "x = {1: 'a', 2: 'b', 3: 'c'}\n",
        "backend = 'a' if x else 'b'\nif backend == 'a':\n    f()\n",
    ],
)
def test_what_is_no_gate_is_not_reported(text: str) -> None:
    assert guards(text) == []


def test_an_entry_that_is_commented_out_of_an_allow_list_is_found() -> None:
    text = """\
class ModelRunner:
    def _should_run(self, backend_str):
        if backend_str not in [
            "flashinfer_trtllm",
            "flashinfer_mxfp4",
            # TODO: flashinfer_cutlass will cause some errors. To be fixed.
            # "flashinfer_cutlass",
        ]:
            return False
"""
    (found,) = guards(text)
    assert (found.line, found.end_line, found.function) == (7, 7, "ModelRunner._should_run")
    assert (str(found.verdict_class), found.excluded) == ("suspect", True)


def test_lines_are_those_of_the_expression_and_the_function_has_its_class() -> None:
    text = """\
class A:
    def f(self):
        return (
            (is_sm90_supported() or is_sm100_supported())  # not SM12x
            and self.ready
        )
"""
    (found,) = guards(text)
    assert (found.line, found.end_line, found.function) == (4, 5, "A.f")
    assert found.condition == "(is_sm90_supported() or is_sm100_supported()) and self.ready"


def test_the_architecture_list_of_the_communication_module() -> None:
    text = """\
def gen_trtllm_comm_module() -> JitSpec:
    nvcc_flags = current_compilation_context.get_nvcc_flags_list(
        supported_major_versions=[9, 10]
    )
    return gen_jit_spec("trtllm_comm", sources, extra_cuda_cflags=nvcc_flags)
"""
    (found,) = guards(text, "flashinfer/jit/comm.py")
    assert (found.line, str(found.verdict_class), str(found.effect)) == (3, "suspect", "build-refused")
    assert found.evidence == "admits both SM90 and SM100"


def test_a_parameter_may_be_anything_a_caller_passes() -> None:
    body = "    if use is None:\n        use = is_sm100_supported()\n    if use:\n        g()\n"
    text = f"def f(use=None):\n{body}"
    assert [guard.line for guard in guards(text)] == [3]


def test_a_flag_that_is_set_elsewhere_decides_nothing() -> None:
    text = """\
class A:
    fusion: bool = False
    def f(self):
        if not self.fusion and is_sm90_supported():
            self.fusion = True
"""
    (found,) = guards(text)
    assert shown(found) == "aiiii"


def test_python_that_cannot_be_read_is_listed() -> None:
    tree = MemoryTree({"a.py": b"if major ==\n", UTILS_PATH: UTILS.encode()})
    assert audit(tree, Scope(question=QUESTION)).coverage.problems == ("a.py:1: this Python cannot read it",)


def test_cuda_in_a_string_is_a_guard_of_generated_code() -> None:
    text = '''\
KERNEL = r"""
void f() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
  int a;
#endif
}
"""
OTHER = "#if __CUDA_ARCH__ == 900\\n int a;\\n#endif"
'''
    found = guards(text, "flashinfer/jit/generator.py")
    assert [(g.line, g.end_line, str(g.kind), shown(g)[:5]) for g in found] == [
        (3, 4, "preprocessor", "aiiii"),
        (8, 8, "preprocessor", "aiiii"),
    ]


def test_what_is_decided_elsewhere_is_judged_there() -> None:
    text = """\
fast = flag and is_sm90_supported()

def usable(x):
    return x > 1 and is_sm100_supported()

class A:
    def __init__(self):
        self.fused = usable(2) and is_sm100_supported()

    def f(self, x):
        if fast:
            g()
        if usable(x):
            g()
        if self.fused and x:
            g()
        hopper = get_platform().is_sm90
        if hopper:
            g()
"""
    assert [(guard.line, str(guard.verdict_class), guard.evidence) for guard in guards(text)] == [
        (1, "suspect", "uses nothing that SM12x lacks"),
        (4, "suspect", "uses nothing that SM12x lacks"),
        (8, "suspect", "uses nothing that SM12x lacks"),
        (11, "served", "decided by fast: judged there"),
        (13, "served", "decided by usable(): judged there"),
        (15, "served", "decided by self.fused: judged there"),
        (18, "suspect", "uses nothing that SM12x lacks"),  # an attribute alone is no condition
    ]


def test_a_test_that_puts_its_own_predicate_in_place_says_nothing_about_the_real_one() -> None:
    tree = MemoryTree(
        {
            "a/platform.py": b"class P:\n    def is_hopper(self):\n        return get_capability() == (9, 0)\n",
            "a/test/unit/test_p.py": b"class P:\n    def is_hopper(self):\n        return capability\n",
            "a/x.py": b"if current.is_hopper():\n    f()\n",
        }
    )
    (found,) = (guard for guard in audit(tree, Scope(question=QUESTION)).guards if guard.path == "a/x.py")
    assert (shown(found), str(found.verdict_class)) == ("aiiii", "suspect")


@pytest.mark.parametrize(
    ("text", "verdict_class"),
    [
        ('def f():\n    assert is_sm100_supported(), "MXFP8 requires SM100"\n    return run(x)', "suspect"),
        (
            'def f():\n    assert is_sm100_supported(), "MXFP8 requires SM100"\n    return es_sm100_grouped_mm(x)',
            "hardware",
        ),
        (
            'def f():\n    assert is_sm100_supported(), "MXFP8 requires SM100"\n    return es_sm90_grouped_mm(x)',
            "suspect",
        ),
        ('if not (is_sm90_supported() or is_sm100_supported()):\n    raise E("requires SM90 or SM10X")', "suspect"),
        ('if "trtllm_mha" in backends:\n    if not is_sm100_supported():\n        raise E("no")', "hardware"),
        ('if backend != "trtllm_mha":\n    if not is_sm100_supported():\n        raise E("no")', "suspect"),
        ("hopper_tuned = is_sm90_supported() and size < 64", "suspect"),
        ("DEEPGEMM_BLACKWELL = ENABLE and is_sm100_supported()", "hardware"),
        ('if major == 9:\n    unsupported.append("Hopper")', "None"),  # SM90 is what it turns away
    ],
)
def test_what_is_asked_is_no_evidence_for_the_answer(text: str, verdict_class: str) -> None:
    assert [str(guard.verdict_class) for guard in guards(text)] == [verdict_class]
