"""Modules for the proof: FlashInfer's ninja files read, generated sources placed, and what a series touches of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from downstream.arches import Target, parse_target, parse_targets
from downstream.commands.kernels import main
from downstream.errors import ToolchainError, UsageError
from downstream.kernels.machine import Kernel
from downstream.kernels.module_sources import Compile, Module, ModuleSources, read_module, touched_units
from downstream.kernels.proof import Fault, Proof, prove_unit
from downstream.kernels.sources import Touched
from downstream.kernels.units import Unit
from downstream.trees.tree import LayeredTree, MemoryTree

NINJA = """\
ninja_required_version = 1.3
name = moe
cuda_home = /cuda
nvcc = $cuda_home/bin/nvcc
common_cflags = -DPy_LIMITED_API=0x03090000 $
    -I/site/csrc/nv $
    -I/out/generated/moe $
    -isystem $cuda_home/include $
    -isystem /site/include $
    -isystem /site/csrc
cuda_cflags = $common_cflags $
    --compiler-options=-fPIC $
    -std=c++17 $
    --threads=1 $
    -O3 $
    -gencode=arch=compute_120a,code=sm_120a $
    -gencode arch=compute_121a,code=sm_121a $
    -DENABLE_BF16 $
    -DGDC=1 -DENABLE_BF16

rule cuda_compile
  command = $nvcc $cuda_cflags -c $in -o $out

build /out/moe/a.o: cuda_compile /site/csrc/a.cu
build /out/moe/g$ 1.o: cuda_compile /out/generated/moe/g$ 1.cu
build /out/moe/log.o: compile /site/csrc/log.cpp
build /out/moe/moe.so: link /out/moe/a.o
"""


def place(path: str) -> str | None:
    for start, ours in (("/site/", ""), ("/out/generated/", "generated/")):
        if path.startswith(start):
            return ours + path.removeprefix(start)
    return None


def test_a_ninja_file_gives_sources_folders_flags_and_targets() -> None:
    how = Compile(
        folders=("csrc/nv", "generated/moe"),
        flags=(
            *("-DPy_LIMITED_API=0x03090000", "--compiler-options=-fPIC", "-std=c++17", "-O3"),
            *("-DENABLE_BF16", "-DGDC=1", "-DENABLE_BF16"),
        ),
        targets=parse_targets("120a,121a"),
    )
    found = read_module("moe", NINJA, place)
    assert (found.name, dict(found.compiles)) == ("moe", {"csrc/a.cu": how, "generated/moe/g 1.cu": how})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    -O3 $\n", ""),  # a flag that all modules share
        ("    -O3 $\n", "    -O3 -O0 $\n"),
        ("    -O3 $\n", "    -Xptxas -v -Xptxas -O3 $\n"),
        ("-DGDC=1 -DENABLE_BF16", "-DENABLE_BF16 -DGDC=1"),
    ],
)
def test_every_flag_counts_in_its_order(old: str, new: str) -> None:
    assert read_module("moe", NINJA, place) != read_module("moe", NINJA.replace(old, new), place)


def test_a_source_s_own_flags_replace_the_file_s() -> None:
    """FlashInfer 0.7.2 writes them below a build line."""
    build = "build /out/moe/a.o: cuda_compile /site/csrc/a.cu\n"
    ninja = NINJA.replace(
        build, f"{build}  cuda_cflags = $common_cflags $\n    -DOWN -gencode=arch=compute_90a,code=sm_90a\n"
    )
    own, other = read_module("moe", ninja, place).compiles.values()
    assert (own.flags, own.targets) == (("-DPy_LIMITED_API=0x03090000", "-DOWN"), parse_targets("90a"))
    assert other == read_module("moe", NINJA, place).compiles["generated/moe/g 1.cu"]


@pytest.mark.parametrize("option", ["-arch=sm_120a", "--generate-code arch=compute_120a,code=[sm_120a,sm_121a]"])
def test_targets_are_read_however_they_are_written(option: str) -> None:
    ninja = f"cuda_cflags = -isystem=/site/csrc/nv {option}\nbuild a.o: cuda_compile /site/csrc/a.cu\n"
    how = read_module("moe", ninja, place).compiles["csrc/a.cu"]
    assert (how.folders, how.flags) == (("csrc/nv",), ())
    assert how.targets[0] == TARGET
    assert len(how.targets) == option.count("sm_")


def test_a_source_without_a_target_is_refused() -> None:
    with pytest.raises(ToolchainError, match="for no target"):
        read_module("moe", "cuda_cflags = -O3\nbuild a.o: cuda_compile /site/csrc/a.cu\n", place)


def test_a_source_that_no_tree_has_is_refused_by_name() -> None:
    with pytest.raises(ToolchainError, match=r"/elsewhere/a\.cu, which is neither"):
        read_module("moe", NINJA.replace("/site/csrc/a.cu", "/elsewhere/a.cu"), place)


TARGET = parse_target("120a")
FILES = {
    "csrc/a.cu": b'#include "launcher.inl"\n',
    "csrc/b.cu": b"int b;\n",
    "csrc/launcher.inl": b"// one\n",
    "generated/moe/config.inc": b"#define GDC 0\n",
    "generated/moe/g.cu": b'#include "launcher.inl"\nINSTANTIATE(1)\n',
    "generated/moe/h.cu": b'#include "config.inc"\nINSTANTIATE(2)\n',
}
SOURCES = ("csrc/a.cu", "csrc/b.cu", "generated/moe/g.cu", "generated/moe/h.cu")


def module(*flags: str, sources: tuple[str, ...] = SOURCES, targets: str = "120a") -> Module:
    how = Compile(flags=flags, targets=parse_targets(targets))
    return Module(name="moe", compiles=dict.fromkeys(sources, how))


def reach(changes: dict[str, bytes | None], old: Module, new: Module) -> Touched:
    """Generated files are in no list of what the series changes: they are compared."""
    base = MemoryTree(FILES)
    before = ModuleSources(base, modules={"moe": old})
    after = ModuleSources(LayeredTree(base, changes), before, tuple(changes), modules={"moe": new})
    return touched_units(before, after, [path for path in changes if not path.startswith("generated/")])


@pytest.mark.parametrize(
    ("changes", "flags", "expected"),
    [
        ({}, (), []),
        ({"csrc/launcher.inl": b"// two\n"}, (), ["moe/a.cu", "moe/g.cu"]),
        ({"generated/moe/h.cu": b"INSTANTIATE(3)\n"}, (), ["moe/h.cu"]),
        ({"generated/moe/config.inc": b"#define GDC 1\n"}, (), ["moe/h.cu"]),
        ({}, ("-DGDC=1",), ["moe/a.cu", "moe/b.cu", "moe/g.cu", "moe/h.cu"]),
    ],
)
def test_a_unit_is_touched_by_what_it_includes_its_text_or_its_flags(
    changes: dict[str, bytes | None], flags: tuple[str, ...], expected: list[str]
) -> None:
    assert [unit.name for unit in reach(changes, module(), module(*flags)).units] == expected


def test_a_unit_that_is_built_for_more_targets_is_touched() -> None:
    assert len(reach({}, module(), module(targets="90a,120a")).units) == len(SOURCES)


def test_a_unit_that_one_tree_alone_builds_is_named_as_not_proved() -> None:
    found = reach({}, module(sources=SOURCES[:1]), module(sources=SOURCES[:2]))
    assert found.unproved == ("moe/b.cu: only the patched tree has it",)


def test_units_are_chosen_by_path_module_or_file_name() -> None:
    found = reach({}, module(), module("-DGDC=1"))
    for pattern in ("generated/moe/g.cu", "moe/g.cu", "g.cu"):
        assert [unit.name for unit in found.only([pattern]).units] == ["moe/g.cu"]


def test_flags_and_targets_are_the_module_s_and_reach_the_digest() -> None:
    plain = ModuleSources(MemoryTree(FILES), modules={"moe": module()})
    flagged = ModuleSources(MemoryTree(FILES), modules={"moe": module("-DGDC=1")})
    unit = next(unit for unit in plain.units() if unit.name == "moe/b.cu")
    there, elsewhere = parse_targets("120a,90a")
    assert (flagged.flags(unit, there), flagged.flags(unit, elsewhere)) == (("-DGDC=1",), None)
    assert flagged.flags(Unit(source="csrc/b.cu"), there) is None
    assert plain.digest(unit, there) != flagged.digest(unit, there)


def kernel(name: str, *, body: int = 9, waits: int = 1) -> Kernel:
    return Kernel(name=name, instructions=body + 3, body=body, waits=waits, triggers=0, digest="d")


def alone(before: list[Kernel], after: list[Kernel]) -> Proof:
    listings: list[dict[Target, dict[str, Kernel]]] = [
        {TARGET: {one.name: one for one in kernels}} for kernels in (before, after)
    ]
    return prove_unit("moe/g.cu", *listings, references=[], targets=[TARGET], allowed={})


@pytest.mark.parametrize(
    ("before", "after", "fault", "words"),
    [
        ([kernel("k", waits=0)], [kernel("k")], None, ""),
        ([kernel("k")], [kernel("k", waits=0)], Fault.NO_WAIT, "without the wait that the release has"),
        ([kernel("k")], [], Fault.ABSENT, "absent, present on the release"),
        ([kernel("k")], [kernel("k", body=0, waits=0)], Fault.EMPTY, "empty, with a body on the release"),
        ([kernel("k", body=0)], [kernel("k", body=0)], Fault.EMPTY, "k empty, and on no reference"),
        ([], [kernel("k", body=0)], Fault.EMPTY, "k empty, and on no reference"),
        ([], [kernel("EmptyKernel", body=0)], None, ""),
    ],
)
def test_without_a_reference_the_release_is_the_measure(
    before: list[Kernel], after: list[Kernel], fault: Fault | None, words: str
) -> None:
    proof = alone(before, after)
    assert [finding.fault for finding in proof.findings] == ([fault] if fault else [])
    assert all(words in str(finding) for finding in proof.findings)


STUB = kernel("k", body=0, waits=0)


@pytest.mark.parametrize(
    ("reference", "before", "after", "fault"),
    [
        ([STUB], [kernel("k")], [STUB], Fault.EMPTY),
        ([], [kernel("k")], [], Fault.ABSENT),
        ([kernel("k", waits=0)], [kernel("k")], [kernel("k", waits=0)], Fault.NO_WAIT),
        ([kernel("l")], [kernel("l"), STUB], [kernel("l"), STUB], Fault.EMPTY),
        ([STUB], [STUB], [STUB], None),  # meant to be empty, on every GPU
    ],
)
def test_what_the_target_alone_has_is_measured_by_the_release_beside_a_reference(
    reference: list[Kernel], before: list[Kernel], after: list[Kernel], fault: Fault | None
) -> None:
    other = parse_target("90a")
    listings: list[dict[Target, dict[str, Kernel]]] = [
        {TARGET: {one.name: one for one in kernels}, other: {one.name: one for one in reference}}
        for kernels in (before, after)
    ]
    proof = prove_unit("u", *listings, references=[other], targets=[TARGET], allowed={})
    assert [finding.fault for finding in proof.findings] == ([fault] if fault else [])


def test_a_proof_without_a_kernel_does_not_hold_and_names_the_unit() -> None:
    proof = alone([], [])
    assert (proof.holds, proof.findings, proof.no_kernels) == (False, (), ("moe/g.cu",))


def test_the_waits_of_both_trees_are_counted() -> None:
    proof = alone([kernel("k", waits=0), kernel("l")], [kernel("k"), kernel("l")])
    before, after = (proof.totals(tree, "sm_120a") for tree in ("unpatched", "patched"))
    assert ((before.waits, before.kernels), (after.waits, after.kernels)) == ((1, 2), (2, 2))


@pytest.mark.parametrize(
    ("words", "about"),
    [(["--fast", "--modules", "moe"], "--fast"), (["--python", "python3"], "--python")],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], about: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=about):
        main(["prove", *words, "--root", str(tmp_path)])
