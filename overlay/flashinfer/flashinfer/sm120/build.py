"""Which build is installed, whether its files are as installed, and whether its siblings pair with it."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .finding import Finding, Level

PACKAGE = "flashinfer-python"
LABEL = "sm120"
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)  # what a damaged METADATA ends in, by Python version
SHOWN = 5  # file names in a sentence


@dataclass(frozen=True)
class Installation:
    """The installed flashinfer-python. *root* is the folder that holds ``flashinfer/``."""

    distribution: metadata.Distribution
    version: str
    root: Path

    @property
    def package(self) -> Path:
        return self.root / "flashinfer"

    @property
    def ours(self) -> bool:
        return local_of(self.version).startswith(LABEL + ".")


def public_of(version: str) -> str:
    return version.partition("+")[0]


def local_of(version: str) -> str:
    return version.partition("+")[2].lower().replace("-", ".").replace("_", ".")


def distributions(name: str, paths: list[str]) -> list[metadata.Distribution]:
    """Return every installed distribution called *name*, the one that imports first.

    Found by the names of their folders: the METADATA of some other package may not be readable.
    """
    return list(metadata.distributions(name=name, path=paths))


def version_of(found: metadata.Distribution) -> str:
    """Return the version that METADATA says."""
    try:
        version: str | None = found.version
    except _UNREADABLE:
        version = None
    return version or "(version unknown)"


def recorded(installed: Installation) -> list[tuple[str, str]]:
    """Return path and digest (``sha256=...``) of every file in RECORD; importlib.metadata hides those that are gone."""
    try:
        text = installed.distribution.read_text("RECORD") or ""
    except UnicodeDecodeError:
        return []
    return [(fields[0], fields[1]) for fields in csv.reader(text.splitlines()) if len(fields) == 3]


def installation(paths: list[str]) -> Installation | None:
    """Return the installed flashinfer-python, None where there is none."""
    found = distributions(PACKAGE, paths)
    if not found:
        return None
    return Installation(found[0], version_of(found[0]), Path(str(found[0].locate_file(""))))


def identity(installed: Installation, paths: list[str]) -> list[Finding]:
    """Say which build this is, from its version, its SBOM and the version that runs."""
    findings = []
    facts: dict[str, Any] = {"version": installed.version, "root": str(installed.root)}
    reinstall = f"pip install --force-reinstall --no-deps {PACKAGE}=={installed.version} --index-url YOUR-INDEX"
    if installed.ours:
        ancestor, patches = _sbom(installed)
        facts.update(ancestor=ancestor and ancestor.get("purl"), patches=patches)
        if ancestor is None:
            text = f"{PACKAGE} {installed.version} has no SBOM that says what it was built from"
            findings.append(Finding("build", Level.PROBLEM, text, reinstall, facts))
        else:
            text = (
                f"{PACKAGE} {installed.version}: {ancestor['name']} {ancestor['version']} with {len(patches)} patches"
            )
            findings.append(Finding("build", Level.OK, text, facts=facts))
    else:
        text = f"{PACKAGE} {installed.version} is not an SM120 build"
        advice = f"pip install '{PACKAGE}=={public_of(installed.version)}+{LABEL}.N' --index-url YOUR-INDEX"
        findings.append(Finding("build", Level.PROBLEM, text, advice, facts))
    others = [version_of(other) for other in distributions(PACKAGE, paths)[1:]]
    others = [other for other in others if other != installed.version]
    if others:
        text = f"{PACKAGE} is recorded {len(others) + 1} times: {', '.join([installed.version, *others])}"
        findings.append(Finding("build", Level.PROBLEM, text, f"pip uninstall {PACKAGE}, until none is left; install"))
    runtime = _runtime_version(installed.package)
    if runtime != installed.version:
        said = f"says {runtime}" if runtime else "cannot be read"
        text = f"flashinfer/_build_meta.py {said}, the JIT cache is keyed by that and not by {installed.version}"
        findings.append(Finding("build", Level.PROBLEM, text, reinstall))
    return findings


def _sbom(installed: Installation) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the ancestor and the names of the patches, from a CycloneDX document in ``sboms/``."""
    for path, _ in recorded(installed):
        parts = path.split("/")
        if len(parts) == 3 and parts[0].endswith(".dist-info") and parts[1] == "sboms":
            try:
                document = json.loads((installed.root / path).read_text(encoding="utf-8"))
                component = document["metadata"]["component"]
                pedigree = component["pedigree"]
                ancestor = {"name": "?", "version": "?", **pedigree["ancestors"][0]}
                return ancestor, [_patch_name(patch, n) for n, patch in enumerate(pedigree.get("patches", []), 1)]
            except (OSError, ValueError, KeyError, IndexError, TypeError):
                continue
    return None, []


def _patch_name(patch: dict[str, Any], number: int) -> str:
    url = (patch.get("diff") or {}).get("url")
    names = [resolved.get("name") or resolved.get("id") for resolved in patch.get("resolves") or []]
    return str(url or next((name for name in names if name), f"patch {number}"))


def _runtime_version(package: Path) -> str | None:
    try:
        text = (package / "_build_meta.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    found = re.search(r"""^__version__\s*=\s*["']([^"']+)["']""", text, re.MULTILINE)
    return found.group(1) if found else None


def files(installed: Installation) -> list[Finding]:
    """Hash every file that RECORD names: an edit in place, or a half-finished upgrade, shows here."""
    rows = recorded(installed)
    if not rows:
        text = f"{PACKAGE} {installed.version} has no RECORD that can be read, so its files cannot be checked"
        return [Finding("files", Level.UNKNOWN, text)]
    missing, changed, hashed = [], [], 0
    for path, wanted in rows:
        if not wanted or path.endswith(".pyc"):
            continue
        kind, _, value = wanted.partition("=")
        try:
            digest = hashlib.new(kind, (installed.root / path).read_bytes()).digest()
        except OSError:
            missing.append(path)
            continue
        except ValueError:
            changed.append(path)
            continue
        hashed += 1
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != value:
            changed.append(path)
    facts = {"hashed": hashed, "missing": sorted(missing), "changed": sorted(changed)}
    if not missing and not changed:
        return [Finding("files", Level.OK, f"all {hashed} files are as installed", facts=facts)]
    said = [
        f"{len(names)} {word}: {_some(names)}" for names, word in ((changed, "changed"), (missing, "missing")) if names
    ]
    advice = f"pip install --force-reinstall --no-deps {PACKAGE}=={installed.version} --index-url YOUR-INDEX"
    return [Finding("files", Level.PROBLEM, "files are not as installed: " + "; ".join(said), advice, facts)]


def _some(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(sorted(names)[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def siblings(installed: Installation, paths: list[str]) -> list[Finding]:
    """Say whether SGLang, flashinfer-cubin and flashinfer-jit-cache pair with this build."""
    return [
        _sglang(installed, paths),
        _cubin(installed, paths),
        _jit_cache(installed, paths),
    ]


def _version(name: str, paths: list[str]) -> str | None:
    found = distributions(name, paths)
    return version_of(found[0]) if found else None


def _sglang(installed: Installation, paths: list[str]) -> Finding:
    found = distributions("sglang", paths)
    if not found:
        return Finding("sglang", Level.NOTE, "sglang is not installed here", facts={"version": None})
    version, required = version_of(found[0]), _required(found[0])
    facts = {"version": version, "requires": required}
    advice = "pip install sglang --upgrade --index-url YOUR-INDEX (it brings the matching flashinfer-python)"
    if not local_of(version).startswith(LABEL + "."):
        text = f"sglang {version} is not an SM120 build: it shuts SM120 out of fused all-reduce and MoE autotune"
        return Finding("sglang", Level.PROBLEM, text, advice, facts)
    if required != installed.version:
        wanted = f"requires flashinfer-python {required}" if required else "does not require an exact flashinfer-python"
        text = f"sglang {version} {wanted}, {installed.version} is installed"
        return Finding("sglang", Level.PROBLEM, text, advice, facts)
    return Finding("sglang", Level.OK, f"sglang {version} requires exactly this build", facts=facts)


def _required(sglang: metadata.Distribution) -> str | None:
    try:
        requirements = sglang.requires or []
    except _UNREADABLE:
        requirements = []
    for requirement in requirements:
        found = re.match(r"flashinfer[-_.]python(?:\[[^\]]*\])?\s*\(?={2,3}\s*([^\s;,)]+)", requirement, re.IGNORECASE)
        if found:
            return found.group(1)
    return None


def _cubin(installed: Installation, paths: list[str]) -> Finding:
    version = _version("flashinfer-cubin", paths)
    facts = {"version": version}
    if version is None:
        text = "flashinfer-cubin is not installed: kernels that are shipped as cubins are downloaded when first used"
        return Finding("cubin", Level.NOTE, text, facts=facts)
    public = public_of(installed.version)
    if version in (installed.version, public):
        return Finding("cubin", Level.OK, f"flashinfer-cubin {version} pairs with it", facts=facts)
    text = (
        f"flashinfer-cubin {version} does not pair with {PACKAGE} {installed.version}, which refuses to import with it"
    )
    return Finding("cubin", Level.PROBLEM, text, f"pip install flashinfer-cubin=={public}", facts)


def _jit_cache(installed: Installation, paths: list[str]) -> Finding:
    version = _version("flashinfer-jit-cache", paths)
    facts = {"version": version}
    if version is None:
        text = "flashinfer-jit-cache is not installed: modules are compiled when first used"
        return Finding("jit-cache", Level.NOTE, text, facts=facts)
    # Compiled code depends on the patches, so only this very build's will do: sm120.1 is not sm120.10.
    if re.fullmatch(re.escape(installed.version) + r"([+.]cu\d+)?", version):
        return Finding("jit-cache", Level.OK, f"flashinfer-jit-cache {version} pairs with it", facts=facts)
    text = f"flashinfer-jit-cache {version} was not built from {PACKAGE} {installed.version}, which refuses to import"
    advice = "pip uninstall flashinfer-jit-cache: modules are then compiled when first used"
    return Finding("jit-cache", Level.PROBLEM, text, advice, facts)
