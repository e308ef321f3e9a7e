"""What SM12x lacks, and how source code shows that it needs it.

ptxas 13.0 rejects tcgen05, wgmma, cvt.rs and redux.sync on f32 for every
SM12x target; multimem assembles but needs an NVLink multicast object, which
PCIe boards do not have.
"""

from __future__ import annotations

import re

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
    r"#\s*include\s*[\"<]([^\">]*(?:wgmma|hgmma|gmma|umma|tcgen05|mma_sm90|mma_sm100|sm90_mma|sm100_mma|multimem|tmem)[^\">]*)[\">]",
    re.IGNORECASE,
)
# Instructions alone: what ptxas rejects wherever it meets it.
_REJECTED = re.compile(r"\b(?:tcgen05\.\w+|wgmma\.\w+|cvt\.rs\.|redux\.sync\.\w+(?:\.\w+)*\.f32)[\w.:]*", re.IGNORECASE)

SYNC = re.compile(
    r"griddepcontrol\.(?:wait|launch_dependents)|cudaGridDependencySynchronize|cudaTriggerProgrammaticLaunchCompletion"
    r"|\b(?:wait_on_dependent_grids|launch_dependent_grids|grid_dependency_(?:wait|launch)\w*)\b"
)
REFUSAL = re.compile(
    r"#\s*error\b|\bstatic_assert\s*\(\s*(?:false|0|sizeof\w*\s*\([^)]*\)\s*==\s*0|\w+<[^;]*>)"
    r"|\b(?:__trap|abort|__builtin_trap|__builtin_unreachable|CUTE_INVALID_CONTROL_PATH|CUTLASS_NOT_IMPLEMENTED)\b"
    r"|asm\s*(?:volatile)?\s*\(\s*\"trap;?\"|\bassert\s*\(\s*(?:false|0)\b|\b\w*(?:THROW|NOT_SUPPORTED|UNSUPPORTED)\w*\s*\("
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
