"""The proof's fast form: compares what the device compiler reads, not what it makes of it.

Equal text is equal machine code, since text, flags and compiler are all that
goes in. Host functions are left out but for their heads: the device compiler
parses and drops them. They do decide which kernels exist, which only the full
proof sees.
"""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from downstream.arches import Target
from downstream.errors import ToolchainError
from downstream.kernels import standin
from downstream.kernels.declarations import Declaration, declarations
from downstream.kernels.preprocess import by_file, device_text
from downstream.kernels.proof import Fault
from downstream.kernels.sources import Sources
from downstream.kernels.units import CSRC, NV_FOLDERS, Unit
from downstream.trees.tree import LayeredTree

_WAIT = re.compile(r"\bcudaGridDependencySynchronize\b|griddepcontrol\s*\.\s*wait")
_TRIGGER = re.compile(r"\bcudaTriggerProgrammaticLaunchCompletion\b|griddepcontrol\s*\.\s*launch_dependents")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFinding:
    """One declaration whose text on a target lacks what it has on the reference, or that the series moved."""

    fault: Fault
    unit: str
    target: str
    reference: str
    tree: str
    name: str
    path: str  # repository path of the header or source that holds it

    def __str__(self) -> str:
        words = {
            Fault.EMPTY: f"has no body, it has one on {self.reference}",
            Fault.ABSENT: f"is absent, {self.reference} has it",
            Fault.NO_WAIT: f"lacks the wait that {self.reference} has",
            Fault.NO_TRIGGER: f"lacks the trigger that {self.reference} has",
            Fault.MOVED: "is changed by the series, which no patch declares",
        }
        return f"{self.path}: {self.target}: {self.name} {words[self.fault]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """What comparing two texts of one unit gave, by function or type at namespace scope."""

    unit: str
    before: str  # "unpatched sm_90a"
    after: str
    files: int  # whose text is the same
    equal: int  # declarations with the same device text, in the other files
    host_only: tuple[str, ...]  # host functions whose bodies differ
    differ: tuple[str, ...]  # whatever else differs


@dataclass(frozen=True, slots=True, kw_only=True)
class FastProof:
    """The fast answer. ``dead`` is what the unpatched release lacks on the targets: why the series is there."""

    rows: tuple[TextRow, ...]
    findings: tuple[TextFinding, ...]
    declared: tuple[str, ...]  # what a patch declares to change, and did
    dead: tuple[TextFinding, ...]
    unknown: tuple[str, ...]  # differences that text alone cannot judge
    unproved: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    tree: str
    target: Target
    files: Mapping[str, str]  # what the tree's own files contribute

    @property
    def title(self) -> str:
        return f"{self.tree} {self.target}"


def prove_text(
    units: Sequence[Unit],
    unpatched: Sources,
    patched: Sources,
    *,
    changed: Sequence[str],
    references: Sequence[Target],
    targets: Sequence[Target],
    allowed: Mapping[str, str],
    outside: Sequence[Path],
    unproved: Sequence[str] = (),
    workers: int = 2,
) -> FastProof:
    """Compare *units* of both trees (DESIGN 11). *changed* are the series' device files, *outside* header folders.

    Unlike the full proof it names C++ functions, not instances, and knows
    nothing of what templates expand to.
    """
    rows: list[TextRow] = []
    findings: list[TextFinding] = []
    dead: list[TextFinding] = []
    unknown: list[str] = []
    declared: set[str] = set()
    for unit, trees in _readings(units, {"unpatched": unpatched, "patched": patched}):
        texts = _texts(unit, trees, [*references, *targets], outside, workers)
        for reference in references:
            before, after = texts["unpatched", reference], texts["patched", reference]
            row, differences = _compare(unit, before, after)
            rows.append(row)
            for path, name in differences:
                # A device function or type ("struct Reducer < T") is declared by its own name: text does not
                # tell into which kernels it goes.
                if words := set(name.split()) & allowed.keys():
                    declared |= words
                else:
                    findings.append(_finding(Fault.MOVED, unit, after, reference, name, path))
        for target in targets:
            model = texts["patched", references[0]]
            row, _ = _compare(unit, model, texts["patched", target], only=changed)
            rows.append(row)
            lacking, rest = _lacking(unit, model, texts["patched", target], changed)
            # What the release itself does on the reference is the measure, too: a wait that the series takes from
            # every GPU is missed here although a patch declares that the kernel changes.
            lost, _ = _lacking(unit, texts["unpatched", references[0]], texts["patched", target], changed)
            findings += dict.fromkeys((*lacking, *(each for each in lost if each.fault is not Fault.ABSENT)))
            unknown += rest
            dead += _lacking(unit, texts["unpatched", references[0]], texts["unpatched", target], changed)[0]
    return FastProof(
        rows=tuple(rows),
        findings=tuple(findings),
        declared=tuple(sorted(declared)),
        dead=tuple(dead),
        unknown=tuple(dict.fromkeys(unknown)),
        unproved=tuple(unproved),
    )


def _readings(units: Sequence[Unit], trees: Mapping[str, Sources]) -> Iterator[tuple[Unit, Mapping[str, Sources]]]:
    """What to preprocess: each unit, and those of the fused MoE as one, since they read the same headers."""
    for unit in units:
        if not unit.moe:
            yield unit, trees
    if moe := [unit.source for unit in units if unit.moe]:
        source = f"{CSRC}/fused MoE, {len(moe)} units"
        content = "".join(f'#include "{path.removeprefix(f"{CSRC}/")}"\n' for path in moe).encode()
        joint = {
            name: Sources(LayeredTree(tree.tree, {source: content}), tree, (source,)) for name, tree in trees.items()
        }
        yield Unit(source=source, include=NV_FOLDERS, moe=True), joint


def _texts(
    unit: Unit, trees: Mapping[str, Sources], targets: Sequence[Target], outside: Sequence[Path], workers: int
) -> dict[tuple[str, Target], _Text]:
    with tempfile.TemporaryDirectory(prefix="text-") as name:
        for tree, sources in trees.items():
            sources.lay(unit, Path(name) / tree)

        last = standin.flags(Path(name))

        def one(tree: str, target: Target) -> _Text:
            added = trees[tree].flags(unit, target) or ()
            own: dict[str, str] = {}
            for path, text in by_file(device_text(Path(name) / tree, unit, target, outside, added, last)).items():
                if path[0] not in "/<":
                    place = posixpath.normpath(path)
                    own[place] = f"{own[place]}\n{text}" if place in own else text
            return _Text(tree=tree, target=target, files=own)

        with ThreadPoolExecutor(max_workers=workers) as pool:
            wanted = [(tree, target) for target in targets for tree in trees]
            return dict(zip(wanted, pool.map(lambda pair: one(*pair), wanted), strict=True))


def _compare(
    unit: Unit, before: _Text, after: _Text, *, only: Sequence[str] | None = None
) -> tuple[TextRow, list[tuple[str, str]]]:
    same = equal = 0
    host: list[str] = []
    differences: list[tuple[str, str]] = []
    for path in sorted({*before.files, *after.files}):
        if only is not None and path not in only:
            continue
        if before.files.get(path) == after.files.get(path):
            same += 1
            continue
        old, new = _keyed(before, path), _keyed(after, path)
        for key in dict.fromkeys([*old, *new]):
            left, right = old.get(key), new.get(key)
            if left and right and left.device_text == right.device_text:
                equal += 1
                if left.text != right.text:
                    host.append(left.name)
            elif (left or right) and all(entry is None or entry.host_only for entry in (left, right)):
                host.append(key[0])
            else:
                differences.append((path, key[0]))
    row = TextRow(
        unit=unit.name,
        before=before.title,
        after=after.title,
        files=same,
        equal=equal,
        host_only=tuple(dict.fromkeys(host)),
        differ=tuple(dict.fromkeys(name for _, name in differences)),
    )
    return row, differences


@lru_cache(maxsize=256)
def _cut(text: str) -> list[Declaration]:
    return declarations(text)


def _keyed(text: _Text, path: str) -> dict[tuple[str, int], Declaration]:
    """Declarations by name and by how many of that name came before: overloads keep their order."""
    counts: dict[str, int] = {}
    keyed = {}
    try:
        entries = _cut(text.files.get(path, ""))
    except ValueError as exc:
        raise ToolchainError(f"{path}, {text.title}", f"cannot be cut into declarations: {exc}") from exc
    for entry in entries:
        counts[entry.name] = counts.get(entry.name, 0) + 1
        keyed[entry.name, counts[entry.name]] = entry
    return keyed


def _lacking(unit: Unit, model: _Text, found: _Text, changed: Sequence[str]) -> tuple[list[TextFinding], list[str]]:
    findings: list[TextFinding] = []
    unknown: list[str] = []
    for path in sorted(set(changed) & set(model.files)):
        have = _keyed(found, path)
        for key, entry in _keyed(model, path).items():
            if entry.host_only or (other := have.get(key)) is None:
                if not entry.host_only:
                    findings.append(_finding(Fault.ABSENT, unit, found, model.target, entry.name, path))
                continue
            if entry.device_text == other.device_text:
                continue
            faults = []
            if entry.kernel and _bodiless(other) and not _bodiless(entry):
                faults.append(Fault.EMPTY)
            else:
                faults += [Fault.NO_WAIT] if _WAIT.search(entry.text) and not _WAIT.search(other.text) else []
                faults += [Fault.NO_TRIGGER] if _TRIGGER.search(entry.text) and not _TRIGGER.search(other.text) else []
            findings += [_finding(fault, unit, found, model.target, entry.name, path) for fault in faults]
            if not faults:
                unknown.append(f"{path}: {entry.name} reads otherwise on {found.target} than on {model.target}")
    return findings, unknown


def _finding(fault: Fault, unit: Unit, text: _Text, reference: Target, name: str, path: str) -> TextFinding:
    return TextFinding(
        fault=fault,
        unit=unit.name,
        target=str(text.target),
        reference=str(reference),
        tree=text.tree,
        name=name,
        path=path,
    )


def _bodiless(entry: Declaration) -> bool:
    return re.search(r"\{ \}$", entry.text) is not None
