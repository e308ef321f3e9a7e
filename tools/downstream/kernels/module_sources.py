"""Whole modules for the proof: their sources, generated ones too, with the flags of FlashInfer's ninja files."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from downstream.arches import Target, parse_target
from downstream.errors import ToolchainError
from downstream.kernels.environment import BuildEnvironment, Spec, specs
from downstream.kernels.modules import arch_list
from downstream.kernels.sources import ROOTS, Sources, Touched
from downstream.kernels.toolchain import Toolchain
from downstream.kernels.units import Unit
from downstream.progress import SILENT, Progress
from downstream.trees.layout import Layout
from downstream.trees.tree import LayeredTree, Tree

GENERATED = "generated"  # where generated sources lie in a tree, by their place in FlashInfer's own folder
MEMORY = 8_000_000_000  # bytes one compile of a grouped GEMM takes, with room (7.6 GB measured)
_VARIABLE = re.compile(r"^(\w+) = (.*)$")
_OWN = re.compile(r"^\s+cuda_cflags = (.*)$")  # below a build line: in place of the file's own
_COMPILE = re.compile(r"^build (?:\$.|[^:])+: cuda_compile (.+)$")
_CODE = re.compile(r"sm_\d+[af]?")
# What would change flags or the host compiler from outside; the proof is of what a release does by itself.
_SEALED = r"FLASHINFER_\w+|CC|CXX"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """How a module compiles one source: all flags in their order, folders and targets apart."""

    folders: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """What a module's ninja file says: its CUDA sources by repository path, and how each is compiled."""

    name: str
    compiles: Mapping[str, Compile]


@dataclass(frozen=True)
class ModuleSources(Sources):
    """A tree with what its generators wrote. Its units have their flags, and their targets, from *modules*."""

    modules: Mapping[str, Module] = field(default_factory=dict)

    def compile(self, unit: Unit) -> Compile | None:
        module = self.modules.get(unit.module)
        return module.compiles.get(unit.source) if module else None

    def flags(self, unit: Unit, target: Target) -> tuple[str, ...] | None:
        found = self.compile(unit)
        return found.flags if found and target in found.targets else None

    def units(self) -> Iterator[Unit]:
        for module in self.modules.values():
            for source, how in module.compiles.items():
                yield Unit(source=source, include=how.folders, module=module.name)


def read_module(name: str, ninja: str, place: Callable[[str], str | None]) -> Module:
    """Read the text of a *ninja* file as FlashInfer writes it. *place* gives the repository path of a file or folder.

    Folders that have none (the toolkit's, Python's) are left out, and so are targets and --threads: who compiles a
    unit names one target. Raises ToolchainError for a source without a path, or where no target is named.
    """
    variables: dict[str, str] = {}
    own: dict[str, str] = {}
    source = ""
    for line in ninja.replace("$\n", " ").splitlines():
        if found := _COMPILE.match(line):
            path = found[1].strip().replace("$ ", " ").replace("$:", ":")
            if (placed := place(path)) is None:
                raise ToolchainError(name, f"compiles {path}, which is neither in the release nor generated")
            source = placed
            own[source] = "$cuda_cflags"
        elif found := _OWN.match(line):
            own[source] = found[1]
        elif found := _VARIABLE.match(line):
            variables[found[1]] = found[2]
    compiles = {}
    for source, text in own.items():
        how = _read_flags(shlex.split(_expanded(text, variables)), place)
        if not how.targets:
            raise ToolchainError(name, f"{source} is compiled for no target that its flags name")
        compiles[source] = how
    return Module(name=name, compiles=compiles)


def _read_flags(words: Sequence[str], place: Callable[[str], str | None]) -> Compile:
    rest = iter(words)
    folders: list[str | None] = []
    flags: list[str] = []
    targets: list[Target] = []
    for word in rest:
        option, _, value = word.partition("=")
        if option in ("-isystem", "--system-include", "-I", "--include-path"):
            folders.append(place(value or next(rest, "")))
        elif word.startswith("-I"):
            folders.append(place(word[2:]))
        elif option in ("-gencode", "--generate-code", "-arch", "--gpu-architecture"):
            targets += [parse_target(code) for code in _CODE.findall(value or next(rest, ""))]
        elif option not in ("--threads", "-t"):
            flags.append(word)
    kept = dict.fromkeys(each for each in folders if each is not None and each not in ROOTS)
    return Compile(folders=tuple(kept), flags=tuple(flags), targets=tuple(dict.fromkeys(targets)))


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    for _ in range(len(variables) + 1):
        text = re.sub(r"\$\{?(\w+)\}?", lambda found: variables.get(found[1], ""), text)
    return text


def module_sources(
    tree: Tree,
    layout: Layout,
    env: BuildEnvironment,
    toolchain: Toolchain,
    names: Sequence[str],
    targets: Sequence[Target],
    *,
    like: Sources | None = None,
    changed: Sequence[str] = (),
    progress: Progress = SILENT,
) -> ModuleSources:
    """Ask the FlashInfer installed in *env*, which is *tree*'s, for the modules *names*.

    Raises UsageError for a name that no generator has, ToolchainError where one refuses. *like* and *changed*
    are those of Sources.
    """
    # Not where modules are built: nothing is compiled here, and a build may be under way there for minutes.
    with tempfile.TemporaryDirectory(prefix="modules-") as work, progress.task("ask for the modules"):
        variables = {
            "CUDA_HOME": str(toolchain.home),
            "FLASHINFER_CUDA_ARCH_LIST": arch_list(targets),
            "FLASHINFER_WORKSPACE_BASE": work,
            "FLASHINFER_DISABLE_VERSION_CHECK": "1",
            "PYTHONHASHSEED": "0",
        }
        _, found = specs(env, names, variables, without=_SEALED)
        written = {
            f"{GENERATED}/{path.relative_to(spec.generated).as_posix()}": path.read_bytes()
            for spec in found[:1]
            for path in sorted(spec.generated.rglob("*"))
            if path.is_file()
        }
        modules = {spec.name: _read(spec, env, layout) for spec in found}
    whole = LayeredTree(tree, dict(written))
    return ModuleSources(whole, like, (*changed, *written), modules=modules)


def _read(spec: Spec, env: BuildEnvironment, layout: Layout) -> Module:
    site, generated = env.site.resolve(), spec.generated.resolve()

    def place(text: str) -> str | None:
        path = Path(text).resolve()
        if path.is_relative_to(generated):
            return f"{GENERATED}/{path.relative_to(generated).as_posix()}".removesuffix("/.")
        if not path.is_relative_to(site):
            return None
        # A folder's prefix ends with a slash in the layout: ask for a file in it.
        found = layout.to_repository(f"{path.relative_to(site).as_posix()}/x")
        return None if found is None else found.removesuffix("/x")

    return read_module(spec.name, spec.ninja.read_text(encoding="utf-8"), place)


def touched_units(before: ModuleSources, after: ModuleSources, changed: Sequence[str]) -> Touched:
    """Return the units of both trees' modules that differ: in a file that they may include, in text, flags or targets.

    *changed* are the series' files; generated ones are compared. A unit that one tree alone has is left out,
    with the reason.
    """
    old, new = ({(unit.module, unit.source): unit for unit in tree.units()} for tree in (before, after))
    written = {path for path in before.paths | after.paths if path.startswith(f"{GENERATED}/")}
    files = {*changed, *(path for path in written if before.tree.read(path) != after.tree.read(path))}
    units, left = [], []
    for key in sorted({*old, *new}):
        unit = new.get(key) or old[key]
        if key not in old or key not in new:
            left.append((unit, f"only the {'patched' if key in new else 'unpatched'} tree has it"))
            continue
        same = before.compile(unit) == after.compile(unit)
        if not same or not files.isdisjoint((*before.closure(unit), *after.closure(unit))):
            units.append(unit)
    return Touched(files=tuple(sorted(files)), units=tuple(units), other=(), idle=(), flags=(), left=tuple(left))
