"""What the GPUs of this host are, and whether all of them reach each other."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

from .driver import LIBRARY, Driver, DriverError, Gpu, from_nvidia_smi
from .finding import Finding, Level

PATIENCE = 60  # seconds for a copy; one that hangs is an answer, too
COPY = "copy-between"  # the hidden command that copies, in a process of its own


def gpus() -> tuple[list[Finding], list[Gpu], Driver | None]:
    """Return the findings about the GPUs, the GPUs, and the driver where it answers."""
    try:
        driver = Driver()
        found, version = driver.gpus(), driver.version()
    except DriverError as exc:
        listed = from_nvidia_smi()
        advice = "" if listed else "run the doctor on the serving host, inside the container that serves"
        return (
            [Finding("gpus", Level.UNKNOWN, f"no GPU can be asked: {exc}", advice), *_listed(listed, "")],
            listed,
            None,
        )
    return _listed(found, version), found, driver


def _listed(found: list[Gpu], version: str) -> list[Finding]:
    if not found:
        return []
    facts = {
        "cuda": version,
        "gpus": [{"number": gpu.number, "name": gpu.name, "capability": f"{gpu.major}.{gpu.minor}"} for gpu in found],
    }
    text = "; ".join(f"GPU {gpu.number} {gpu.name} ({gpu.major}.{gpu.minor})" for gpu in found)
    text += f"; the driver supports CUDA {version}" if version else ""
    others = [str(gpu.number) for gpu in found if not gpu.is_sm12x]
    if len(others) == len(found):
        advice = "stock FlashInfer and SGLang serve these GPUs as well"
        return [Finding("gpus", Level.NOTE, f"{text}: none is an SM12x", advice, facts)]
    if others:
        advice = "give each server GPUs of one kind with CUDA_VISIBLE_DEVICES"
        return [Finding("gpus", Level.NOTE, f"{text}: GPU {', '.join(others)} is no SM12x", advice, facts)]
    return [Finding("gpus", Level.OK, text, facts=facts)]


def peers(driver: Driver | None, found: list[Gpu], *, copy: bool) -> Finding:
    """Say whether every GPU can read every other's memory, which fused all-reduce needs.

    With *copy*, by copying and comparing: under an IOMMU the driver may say yes
    and the copy still corrupt or hang.
    """
    if driver is None:
        return Finding("peers", Level.UNKNOWN, "peer access cannot be asked without a driver")
    if len(found) < 2:
        finding = Finding("peers", Level.OK, "one GPU has no peers to reach", facts={"pairs": 0})
        return _copied([(found[0].number, found[0].number)], finding) if copy and found else finding
    pairs = list(itertools.permutations([gpu.number for gpu in found], 2))
    denied = [pair for pair in pairs if not driver.can_access(*pair)]
    facts = {"pairs": len(pairs), "denied": [list(pair) for pair in denied], "copied": False}
    if denied:
        said = ", ".join(f"{reader}→{owner}" for reader, owner in denied[:6])
        text = f"{len(denied)} of {len(pairs)} GPU pairs have no peer access: {said}"
        text += f" and {len(denied) - 6} more" if len(denied) > 6 else ""
        advice = (
            "fused all-reduce needs it; GeForce drivers and passed-through GPUs often lack it. Serve without fusion"
        )
        return Finding("peers", Level.NOTE, text, advice, facts)
    if copy:
        return _copied(pairs, Finding("peers", Level.OK, f"all {len(pairs)} GPU pairs have peer access", facts=facts))
    text = f"the driver grants peer access to all {len(pairs)} GPU pairs; nothing was copied"
    return Finding("peers", Level.OK, text, "--copy also copies between all pairs and compares", facts)


def _copied(pairs: list[tuple[int, int]], fine: Finding) -> Finding:
    failed = {f"{source}→{target}": why for source, target in pairs if (why := _copy(source, target))}
    facts = {**fine.facts, "copied": True, "failed": failed}
    if failed:
        said = "; ".join(f"{pair}: {why}" for pair, why in failed.items())
        advice = "turn the IOMMU's translation off (ACS, amd_iommu/intel_iommu), or serve without fused all-reduce"
        return Finding("peers", Level.PROBLEM, f"copies between GPUs fail: {said}", advice, facts)
    where = "on the GPU" if pairs[0][0] == pairs[0][1] else "between all pairs"
    return Finding("peers", Level.OK, f"{fine.text}; copies {where} arrive unchanged", facts=facts)


def _copy(source: int, target: int) -> str:
    """Copy in a process of its own; return what went wrong, "" for nothing."""
    command = [sys.executable, str(Path(__file__).resolve().parent), COPY, str(source), str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"hangs (stopped after {PATIENCE} s)"
    return "" if done.returncode == 0 else done.stdout.strip() or f"the copy died with code {done.returncode}"


def copy_between(source: int, target: int) -> int:
    """The other process: 0 if the bytes arrived, else 1 and the reason on stdout."""
    try:
        right = Driver(LIBRARY).copies_right(source, target)
    except DriverError as exc:
        print(exc)
        return 1
    if not right:
        print("the bytes that arrive are not those that were sent")
    return 0 if right else 1
