"""The proof's fast form, asked once for each content and remembered: what the audit cites."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from downstream.arches import Target
from downstream.errors import OfflineError, ToolchainError
from downstream.guards.citation import Citation, Proved
from downstream.kernels.fast import FastProof, prove_text
from downstream.kernels.proof import declared
from downstream.kernels.sources import DEVICE_SUFFIXES, Sources, Touched, touched
from downstream.kernels.toolchain import HEADERS, headers, run
from downstream.patched import PatchedTree
from downstream.progress import SILENT, Progress
from downstream.trees.session import Session


def cite(
    root: Path,
    tree: PatchedTree,
    session: Session,
    *,
    references: Sequence[Target],
    targets: Sequence[Target],
    progress: Progress = SILENT,
) -> Citation | None:
    """Return what the fast proof says of *tree*, or None where its series changes no device code.

    The answer is kept in the session's cache under everything it depends on: release, series, overlay,
    headers, preprocessor, targets and this program. Where there is no preprocessor, or its headers cannot be
    had, the citation says so; that is not kept.
    """
    files = sorted(path for path in tree.changed if path.endswith(DEVICE_SUFFIXES))
    if not files:
        return None
    try:
        name = f"proofs/{_key(root, tree, (*references, *targets))}.json"
        if (kept := session.cache.read(name)) is not None:
            return _read(json.loads(kept))
        before = Sources(tree.base)
        after = Sources(tree, before, tree.changed)
        reach = touched(before, after, tree.changed)
        outside = headers(root, session.cache.folder.parent, offline=session.offline, progress=progress)
        with progress.task("prove device text"):
            proof = prove_text(
                reach.units,
                before,
                after,
                changed=reach.files,
                references=references,
                targets=targets,
                allowed=declared(tree.patches),
                outside=outside,
            )
    except (ToolchainError, OfflineError) as exc:
        problem = f"{exc.place}: {exc.problem}".splitlines()[0]
        return Citation(files=dict.fromkeys(files, Proved(holds=None, words="not proved here")), problem=problem)
    found = Citation(files={path: _about(path, reach, proof, after) for path in files}, dead=len(proof.dead))
    session.cache.write(name, json.dumps(asdict(found), sort_keys=True).encode())
    return found


def _about(path: str, reach: Touched, proof: FastProof, sources: Sources) -> Proved:
    if path in reach.idle:
        return Proved(holds=None, words="no source file of the release includes it; generated ones may")
    units = [unit.name for unit in reach.units if path in sources.closure(unit)]
    # A macro of one file may move the text of another that the series does not change: that is for all to answer.
    faults = [str(each) for each in proof.findings if each.path == path or each.path not in reach.files]
    if faults:
        return Proved(holds=False, words="; ".join(dict.fromkeys(faults)))
    if not units:
        return Proved(holds=None, words="the flags of the modules that include it are not known")
    return Proved(holds=True, words=units[0] if len(units) == 1 else f"{len(units)} units, {units[0]} for one")


def _key(root: Path, tree: PatchedTree, targets: Sequence[Target]) -> str:
    try:
        asked = (root / HEADERS).read_bytes()
    except OSError as exc:
        raise ToolchainError(str(HEADERS), "cannot be read", "run from a checkout of the overlay") from exc
    total = hashlib.sha256()
    parts: list[bytes] = [asked, run(["g++", "--version"]).encode(), " ".join(map(str, targets)).encode()]
    parts += [f"{file} {digest}".encode() for file, digest in sorted(tree.pin.sha256.items())]
    for content in (*tree.patches.values(), *(tree.overlay[path] for path in sorted(tree.overlay))):
        parts.append(content)
    parts += [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()


def _read(document: Mapping[str, Any]) -> Citation:
    return Citation(
        files={path: Proved(**file) for path, file in document["files"].items()},
        dead=document["dead"],
        problem=document["problem"],
    )
