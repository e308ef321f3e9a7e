"""Compiled modules: which of them lack code for the GPU, and whether the JIT cache holds another build's."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .build import Installation, public_of
from .fatbin import FatbinError, Image, images
from .finding import Finding, Level

Capability = tuple[int, int]

# A module whose name ends in another architecture is not looked for on this one.
_OTHER_ARCHITECTURE = re.compile(r"(?:sm|_)(?:75|80|86|89|90|100|103|110)[af]?(?:_|$)")
_SOURCES = re.compile(r"(/[^\s:$]*/flashinfer)/data/(?:include|csrc)\b")


def aot_folders(installed: Installation, paths: list[str]) -> list[Path]:
    """Return where ahead-of-time modules lie; FlashInfer loads one from there without asking what is in it."""
    folders = [installed.package / "data" / "aot"]
    # From 0.7.0 on, flashinfer_jit_cache may be a shim for packages that are named after it.
    folders += [
        folder for path in paths if path for folder in sorted(Path(path).glob("flashinfer_jit_cache*/jit_cache"))
    ]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def aot(installed: Installation, paths: list[str], wanted: list[Capability]) -> list[Finding]:
    """Say which ahead-of-time modules lack code for the capabilities *wanted*."""
    names = "/".join(f"{major}.{minor}" for major, minor in wanted)
    libraries = sorted(path for folder in aot_folders(installed, paths) for path in folder.rglob("*.so"))
    if not libraries:
        return [Finding("aot", Level.OK, "no ahead-of-time modules are installed, so none lacks code")]
    lacking: dict[str, list[str]] = {}
    foreign, unread, good = [], {}, 0
    for path in libraries:
        try:
            held = images(path)
        except FatbinError as exc:
            unread[str(path)] = str(exc)
            continue
        if not held or _covers(held, wanted):
            good += 1
        elif _OTHER_ARCHITECTURE.search(path.stem):
            foreign.append(path.stem)
        else:
            lacking[str(path)] = [str(image) for image in held]
    facts: dict[str, Any] = {
        "lacking": lacking,
        "other_architectures": sorted(foreign),
        "unreadable": unread,
        "good": good,
    }
    findings = []
    if lacking:
        stems = sorted(Path(path).stem for path in lacking)
        text = (
            f"{len(lacking)} of {len(libraries)} ahead-of-time modules have no code for {names}: {', '.join(stems[:5])}"
        )
        text += f" and {len(stems) - 5} more" if len(stems) > 5 else ""
        advice = (
            "FlashInfer loads them all the same ('no kernel image is available'): pip uninstall flashinfer-jit-cache"
        )
        findings.append(Finding("aot", Level.PROBLEM, text, advice, facts))
    elif good:
        text = f"{good} ahead-of-time modules have code for {names}"
        text += f", {len(foreign)} are for other GPUs by their name" if foreign else ""
        findings.append(Finding("aot", Level.OK, text, facts=facts))
    else:
        text = f"all {len(foreign)} ahead-of-time modules are for other GPUs by their name"
        findings.append(Finding("aot", Level.NOTE, text, facts=facts))
    if unread:
        text = f"{len(unread)} ahead-of-time modules cannot be read: {'; '.join(sorted(unread.values())[:3])}"
        findings.append(Finding("aot", Level.PROBLEM, text, "install the package again", facts))
    return findings


def _covers(held: tuple[Image, ...], wanted: list[Capability]) -> bool:
    return all(any(image.runs_on(*capability) for image in held) for capability in wanted)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return FlashInfer's cache folder, by the rule of its own ``jit/env.py``."""
    return Path(environment.get("FLASHINFER_WORKSPACE_BASE") or Path.home()) / ".cache" / "flashinfer"


def jit(installed: Installation, environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Say whether the JIT cache holds modules of another build, and whether they would be used."""
    folder = cache_folder(environment)
    if not folder.is_dir():
        return [Finding("jit", Level.OK, "the JIT cache is empty", facts={"folder": str(folder)})]
    public = public_of(installed.version)
    others = {
        child.name: count
        for child in sorted(folder.iterdir())
        if child.name != installed.version and (count := len(list(child.glob("*/cached_ops/*/*.so"))))
    }
    own = sorted((folder / installed.version).glob("*/cached_ops/*/*.so"))
    strangers = {str(path): source for path in own if (source := _other_source(path, installed))}
    facts: dict[str, Any] = {"folder": str(folder), "own": len(own), "others": others, "strangers": strangers}
    findings = []
    if strangers:
        text = f"{len(strangers)} cached modules of this version were built from another installation's sources: "
        text += ", ".join(sorted({Path(path).stem for path in strangers})[:5])
        advice = f"rm -r '{folder / installed.version}'; they are compiled again when first used"
        findings.append(Finding("jit", Level.PROBLEM, text, advice, facts))
    related = {name: count for name, count in others.items() if public_of(name) == public}
    if related:
        text = f"the JIT cache also holds {_counted(related)} of other builds of {public}; this build does not use them"
        advice = "; ".join(f"rm -r '{folder / name}'" for name in related) + ", unless another environment needs them"
        findings.append(Finding("jit", Level.NOTE, text, advice, facts))
    if not findings:
        text = f"the JIT cache holds {len(own)} modules of this build and none of another {public}"
        findings.append(Finding("jit", Level.OK, text, facts=facts))
    return findings


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} modules ({name})" for name, count in counts.items())


def _other_source(module: Path, installed: Installation) -> str | None:
    """Return the package folder that *module* was compiled from, if it is not the installed one."""
    try:
        rules = (module.parent / "build.ninja").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None  # nothing says where it comes from
    own = {str(installed.package), str(installed.package.resolve())}
    named = [found for found in _SOURCES.findall(rules) if found not in own]
    return named[0] if named else None


def torch_installed() -> bool:
    """Whether torch could be imported; it is not."""
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):
        return False
