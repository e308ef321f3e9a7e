"""The page of squares: what is dead is told from what lives, with and without colours."""

from __future__ import annotations

import re

from downstream.arches import parse_target
from downstream.kernels.machine import Kernel
from downstream.kernels.picture import page
from downstream.kernels.proof import Listings, join, prove_unit

SM90, SM120 = parse_target("90a"), parse_target("120a")


def kernels(*, lamport: int, waits: int) -> dict[str, Kernel]:
    def kernel(name: str, body: int, waits: int) -> Kernel:
        return Kernel(name=name, instructions=body + 3, body=body, waits=waits, triggers=waits, digest=f"{name}{body}")

    lamports = {f"_Z7lamportILi{n}E": kernel(f"_Z7lamportILi{n}E", lamport, waits if lamport else 0) for n in range(3)}
    return {**lamports, "_Z4norm": kernel("_Z4norm", 9, waits), "_Z4init": kernel("_Z4init", 5, 0)}


BEFORE: Listings = {SM90: kernels(lamport=40, waits=1), SM120: kernels(lamport=0, waits=0)}
AFTER: Listings = {SM90: kernels(lamport=40, waits=1), SM120: kernels(lamport=41, waits=1)}


def drawn(after: Listings = AFTER) -> str:
    proof = prove_unit("k.cu", BEFORE, after, references=[SM90], targets=[SM120], allowed={})
    units = {
        "k.cu": {
            (tree, to): each[to] for tree, each in (("unpatched", BEFORE), ("patched", after)) for to in (SM120, SM90)
        }
    }
    return page(units, join([proof], ["<this>"]), title="a & b", references=[SM90], targets=[SM120])


def figures(text: str) -> list[tuple[str, dict[str, int]]]:
    """Each figure's family, and how many squares of each state it has."""
    found = re.findall(r'<svg role="img" aria-label="(\w+): [^"]*"[^>]*>(.*?)</svg>', text)
    return [
        (family, {state: path.count("M") for state, path in re.findall(r'<path class="(\w+)" d="([^"]*)"', squares)})
        for family, squares in found
    ]


def test_dead_kernels_come_alive_beside_each_other() -> None:
    assert figures(drawn())[:6] == [
        ("lamport", {"dead": 3}),
        ("lamport", {"fine": 3}),
        ("init", {"none": 1}),
        ("init", {"none": 1}),
        ("norm", {"bare": 1}),
        ("norm", {"fine": 1}),
    ]


def test_the_answer_comes_first_and_everything_is_escaped() -> None:
    text = drawn()
    assert "<h1>a &amp; b</h1>" in text
    assert "the proof<b>holds</b>" in text
    assert "empty kernels on sm_120a<b>3 → 0</b>" in text
    assert "the same code on sm_90a<b>5 kernels</b>" in text
    assert "<li><code>&lt;this&gt;</code></li>" in text
    assert "3 empty; 3 instructions" in text
    assert "3 alive; 44 instructions" in text


def test_a_proof_that_fails_says_with_what() -> None:
    text = drawn(BEFORE)
    assert "the proof<b>fails</b>" in text
    assert "k.cu: sm_120a: 3 lamport empty, with a body on sm_90a" in text


def test_the_kernels_that_wait_are_counted_before_and_after() -> None:
    assert "kernels that wait on sm_120a<b>0 → 4</b><small>of 5</small>" in drawn()


def test_a_target_that_a_unit_has_no_kernel_on_is_not_drawn() -> None:
    """A module built for one family of GPUs has none on the others."""
    alone: list[Listings] = [{SM120: each[SM120]} for each in (BEFORE, AFTER)]
    proof = prove_unit("g.cu", *alone, references=[], targets=[SM120], allowed={})
    drawings = {
        (tree, to): each.get(to, {})
        for tree, each in zip(("unpatched", "patched"), alone, strict=True)
        for to in (SM120, SM90)
    }
    text = page({"g.cu": drawings}, join([proof], []), title="t", references=[SM90], targets=[SM120])
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["sm_120a: g.cu"]
    assert figures(text)[0] == ("lamport", {"dead": 3})
