"""What SM12x lacks, and how source code shows that it needs it.

ptxas 13.0 rejects tcgen05, wgmma, cvt.rs and redux.sync on f32 for every
SM12x target; multimem assembles but needs an NVLink multicast object, which
PCIe boards do not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Instructions, as they stand in inline assembly, and what wraps them, as it stands in code.
_EVIDENCE: tuple[tuple[str, str], ...] = (
    ("tcgen05", r"tcgen05\w*(?:\.\w+)*"),
    ("wgmma", r"wgmma(?:\.\w+)*|\b\w*wgmma\w*"),
    ("multimem", r"multimem(?:\.\w+)*|\b\w*multimem\w*"),
    ("cvt.rs", r"\bcvt\.rs(?:\.\w+)*|\b__cvt_rs_\w+|\bcvt_rs\w*"),
    ("redux.f32", r"\bredux\.sync(?:\.\w+)*\.f32|\bredux_sync_\w*f32\w*|\breduxf32\w*"),
    ("tcgen05 (tensor memory)", r"\b\w*(?:utcmma|umma_arrive|tmem_|_tmem|TMEM_|SM100_MMA_|SM100_TMEM|UMMA)\w*"),
    ("wgmma (warpgroup MMA)", r"\b\w*(?:warpgroup_(?:arrive|wait|commit|fence)|GMMA|hgmma|[^a]gmma_|SM90_64x)\w*"),
)
_PATTERN = re.compile(
    "|".join(f"(?P<e{number}>{pattern})" for number, (_, pattern) in enumerate(_EVIDENCE)), re.IGNORECASE
)
_HEADERS = re.compile(
    r"#\s*include\s*[\"<]"
    r"([^\">]*(?:wgmma|hgmma|gmma|umma|tcgen05|mma_sm90|mma_sm100|sm90_mma|sm100_mma|multimem|tmem)[^\">]*)[\">]",
    re.IGNORECASE,
)
# Instructions alone: what ptxas rejects wherever it meets it.
_REJECTED = re.compile(r"\b(?:tcgen05\.\w+|wgmma\.\w+|cvt\.rs\.|redux\.sync\.\w+(?:\.\w+)*\.f32)[\w.:]*", re.IGNORECASE)

# Names of code that needs what SM12x lacks, and why: for Python and host code, which hold no instructions.
_NEEDS: tuple[tuple[str, str], ...] = (
    (r"trtllm[_-]?gen\w*|TllmGen\w*", "TensorRT-LLM cubins of SM10x"),
    (
        r"trtllm_(?!comm|fmha_v2|all_?reduce|ar\b|custom|moe_allreduce|utils)\w+|flashinfer_trtllm",
        "TensorRT-LLM cubins of SM10x",
    ),
    (r"flashinfer_mxfp4", "MXFP4 cubins of SM10x"),
    (r"multimem|mnnvl|multicast|nvls|symm_mem", "multimem: needs an NVLink multicast object"),
    (r"\w*sm_?10[03][af]?\w*|\w*sm10x\w*", "named after SM10x: tcgen05"),
    (r"\w*sm_?90[af]?\w*|hopper|wgmma", "named after SM90: wgmma"),
    (r"\bfa3\b|flash_?attn_?3|_fa3\w*", "FlashAttention 3: wgmma"),
    (r"\bfa4\b|flash_?attn_?4|_fa4\w*", "FlashAttention 4: tcgen05"),
    (r"deep_?gemm\w*", "DeepGEMM: wgmma and tcgen05"),
    (r"flash_?mla\w*|cutlass_mla\w*", "MLA kernels of wgmma and tcgen05"),
    (r"tcgen05|tmem\w*|umma\w*", "tcgen05"),
    (r"\btgv\w*|_tgv_\w*", "TGV GEMM: tcgen05"),
)
_NAMES = tuple((re.compile(pattern, re.IGNORECASE), why) for pattern, why in _NEEDS)
ONLY_SM10X = re.compile(
    r"\w*sm_?10[03][af]?\w*|trtllm[_-]?gen\w*|trtllm_m[lh]a|flashinfer_mxfp4|flashinfer_trtllm|tcgen05|cutlass_mla|\w*cubin\w*",
    re.IGNORECASE,
)
FOR_SM12X = re.compile(r"sm_?12[01x]|\b12[01]\b", re.IGNORECASE)

SYNC = re.compile(
    r"griddepcontrol\.(?:wait|launch_dependents)|cudaGridDependencySynchronize|cudaTriggerProgrammaticLaunchCompletion"
    r"|\b(?:wait_on_dependent_grids|launch_dependent_grids|grid_dependency_(?:wait|launch)\w*)\b"
)
REFUSAL = re.compile(
    r"#\s*error\b|\bstatic_assert\s*\(\s*(?:false|0|sizeof\w*\s*\([^)]*\)\s*==\s*0|\w+<[^;]*>)"
    r"|\b(?:__trap|abort|__builtin_trap|__builtin_unreachable|CUTE_INVALID_CONTROL_PATH|CUTLASS_NOT_IMPLEMENTED)\b"
    r"|asm\s*(?:volatile)?\s*\(\s*\"\s*trap\b|\bassert\s*\(\s*(?:false|0)\b|\b\w*(?:THROW|NOT_SUPPORTED|UNSUPPORTED)\w*\s*\("
    r"|\bthrow\b"
)
BUILD_REFUSAL = re.compile(r"#\s*error\b|\bstatic_assert\s*\(\s*(?:false|0)\b")


def evidence(code: str) -> str:
    """The first thing in *code* (free of comments) that SM12x lacks, or an empty string."""
    header = _HEADERS.search(code)
    found = _PATTERN.search(code)
    if found and (not header or found.start() < header.start()):
        label = next(_EVIDENCE[number][0] for number in range(len(_EVIDENCE)) if found.group(f"e{number}"))
        text = found.group()
        return text if text.lower().startswith(label.split(" ", maxsplit=1)[0]) else f"{text}: {label}"
    return f'#include "{header[1]}"' if header else ""


def rejected(code: str) -> str:
    """The first instruction in *code* that ptxas rejects for SM12x, or an empty string."""
    found = _REJECTED.search(code)
    return found.group().rstrip(".") if found else ""


def needs(texts: Iterable[str]) -> str:
    """The first name in *texts* of something that SM12x cannot run, with the reason, or an empty string."""
    for text in texts:
        for pattern, why in _NAMES:
            found = pattern.search(text)
            if found:
                return f"{found.group()}: {why}"
    return ""
