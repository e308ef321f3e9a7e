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
from downstream.kernels.compile import FLAGS
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
_VARIABLE = re.compile(r"^(\w+) = (.*)$", re.MULTILINE)
_COMPILE = re.compile(r"^build (?:\$.|[^:])+: cuda_compile (.+)$", re.MULTILINE)
_CODE = re.compile(r"code=\[?(sm_\d+[af]?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """What a module's ninja file says: its CUDA sources, where they look for headers, and the flags of each compile."""

    name: str
    sources: tuple[str, ...]
    folders: tuple[str, ...]
    flags: tuple[str, ...]  # beyond compile.FLAGS
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class ModuleSources(Sources):
    """A tree with what its generators wrote. Its units have their flags, and their targets, from *modules*."""

    modules: Mapping[str, Module] = field(default_factory=dict)

    def flags(self, unit: Unit, target: Target) -> tuple[str, ...] | None:
        module = self.modules.get(unit.module)
        if module is None or unit.source not in module.sources or target not in module.targets:
            return None
        return module.flags

    def units(self) -> Iterator[Unit]:
        for module in self.modules.values():
            for source in module.sources:
                yield Unit(source=source, include=module.folders, module=module.name)


def read_module(name: str, ninja: str, place: Callable[[str], str | None]) -> Module:
    """Read the text of a *ninja* file as FlashInfer writes it. *place* gives the repository path of a file or folder.

    Folders that have none (the toolkit's, Python's) are left out, and so are the flags common to every module
    and the file's own targets: who compiles a unit names one. Raises ToolchainError for a source without a path.
    """
    text = ninja.replace("$\n", " ")
    variables = dict(_VARIABLE.findall(text))
    words = iter(shlex.split(_expanded("$cuda_cflags", variables)))
    folders: list[str] = []
    flags: list[str] = []
    targets: list[Target] = []
    for word in words:
        if word in ("-isystem", "-I"):
            folders.append(next(words, ""))
        elif word.startswith("-I"):
            folders.append(word[2:])
        elif word.startswith("-gencode"):
            code = word if "=" in word else next(words, "")
            targets += [parse_target(each) for each in _CODE.findall(code)]
        elif word not in FLAGS and not word.startswith("--threads"):
            flags.append(word)
    sources = []
    for written in _COMPILE.findall(text):
        path = written.strip().replace("$ ", " ").replace("$:", ":")
        if (source := place(path)) is None:
            raise ToolchainError(name, f"compiles {path}, which is neither in the release nor generated")
        sources.append(source)
    placed = [place(folder) for folder in folders]
    return Module(
        name=name,
        sources=tuple(dict.fromkeys(sources)),
        folders=tuple(dict.fromkeys(each for each in placed if each is not None and each not in ROOTS)),
        flags=tuple(dict.fromkeys(flags)),
        targets=tuple(dict.fromkeys(targets)),
    )


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
        _, found = specs(env, names, variables)
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
    """Return the units of both trees' modules that differ: in a file that they may include, in text, or in flags.

    A unit that one tree alone has, or builds for other targets, is left out with the reason.
    """
    old, new = set(before.units()), set(after.units())
    units, left = [], []
    files = frozenset(changed)
    for unit in sorted(old | new, key=lambda one: one.name):
        if unit not in old or unit not in new:
            left.append((unit, f"only the {'patched' if unit in new else 'unpatched'} tree has it"))
            continue
        same = before.modules[unit.module].flags == after.modules[unit.module].flags
        same = same and before.tree.read(unit.source) == after.tree.read(unit.source)
        if not same or not files.isdisjoint((*before.closure(unit), *after.closure(unit))):
            units.append(unit)
    return Touched(files=tuple(sorted(files)), units=tuple(units), other=(), idle=(), flags=(), left=tuple(left))
