"""Launch flags and variables that make sense for what was found."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .build import Installation, distributions, public_of, version_of
from .driver import Gpu
from .finding import Finding, Level

_NORMALISED = (0, 6, 7)  # the first FlashInfer that turns a plain 12.0 in the list into 12.0a or 12.0f
_BACKEND_OPTION = (0, 5, 14)  # the first SGLang with --flashinfer-allreduce-fusion-backend


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", public_of(version))[:3])


def variables(installed: Installation, environment: Mapping[str, str]) -> list[Finding]:
    """Say which variables of *environment* hide or cause trouble."""
    findings = []
    targets = environment.get("FLASHINFER_CUDA_ARCH_LIST", "")
    words = targets.split()
    if words and not any(re.fullmatch(r"12\.[01][af]?", word) for word in words):
        text = f"FLASHINFER_CUDA_ARCH_LIST is '{targets}': modules are compiled without code for SM120"
        findings.append(Finding("environment", Level.PROBLEM, text, "set it to 12.0f, or unset it on the serving host"))
    elif {"12.0", "12.1"} & set(words) and _release(installed.version) < _NORMALISED:
        text = f"FLASHINFER_CUDA_ARCH_LIST is '{targets}': without a suffix, FP4 kernels do not assemble for SM120"
        findings.append(Finding("environment", Level.PROBLEM, text, "write 12.0f, or 12.0a with CUDA before 12.9"))
    if environment.get("FLASHINFER_DISABLE_VERSION_CHECK"):
        text = "FLASHINFER_DISABLE_VERSION_CHECK is set: FlashInfer will not notice siblings of another version"
        findings.append(
            Finding("environment", Level.NOTE, text, "unset it; the SM120 build's own rule admits its siblings")
        )
    if p2p_disabled(environment):
        text = "NCCL_P2P_DISABLE is set: NCCL goes through host memory, and the preflight of fused all-reduce refuses"
        advice = "where the doctor's --copy finds every pair right, unset it"
        findings.append(Finding("environment", Level.NOTE, text, advice))
    return findings


def p2p_disabled(environment: Mapping[str, str]) -> bool:
    """Say whether NCCL is told not to use peer access; it reads any number but 0 as yes."""
    return environment.get("NCCL_P2P_DISABLE", "").strip() not in ("", "0")


def flags(paths: list[str], gpus: list[Gpu], peers: Finding, environment: Mapping[str, str]) -> Finding:
    """Say which of SGLang's flags make sense on *gpus*."""
    usable = [gpu for gpu in gpus if gpu.is_sm12x]
    if not usable:
        text = "which launch flags make sense cannot be said without an SM12x GPU"
        return Finding("flags", Level.UNKNOWN, text)
    found = distributions("sglang", paths)
    backend = bool(found) and _release(version_of(found[0])) >= _BACKEND_OPTION
    fusion = "--flashinfer-allreduce-fusion-backend trtllm" if backend else "--enable-flashinfer-allreduce-fusion"
    always = ["--moe-runner-backend flashinfer_cutlass (NVFP4 and FP8 mixtures of experts)"]
    facts = {"gpus": len(usable), "moe": "--moe-runner-backend flashinfer_cutlass", "fusion": None}
    if len(usable) == 1:
        return Finding("flags", Level.NOTE, "; ".join(always), "one GPU: all-reduce flags do nothing", facts)
    if peers.level is not Level.OK:
        advice = f"leave out {fusion}: not every GPU reaches every other"
        return Finding("flags", Level.NOTE, "; ".join(always), advice, facts)
    if p2p_disabled(environment):
        advice = f"leave out {fusion}: NCCL_P2P_DISABLE is set, and its preflight refuses"
        return Finding("flags", Level.NOTE, "; ".join(always), advice, facts)
    facts["fusion"] = fusion
    sure = "" if peers.facts.get("copied") else "; run the doctor with --copy first"
    advice = f"measure before you keep it: over PCIe it gained with --tp 2 and lost with --tp 4{sure}"
    return Finding("flags", Level.NOTE, "; ".join([f"--tp {len(usable)} {fusion}", *always]), advice, facts)
