"""A hunk carried through the map from the release it was written for (DESIGN 7, CASES "Placement")."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downstream.patches.parse import parse, split_lines
from downstream.patches.unified import unified
from downstream.placing.push import push
from downstream.placing.verdict import HunkResult, HunkStatus, PatchStatus
from downstream.trees.tree import MemoryTree


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def numbered(first: int, last: int, **changed: str) -> list[str]:
    """Lines ``line 1`` … with some replaced (``l7="other"``), dropped (``l7=""``) or split at ``|``."""
    found = []
    for number in range(first, last + 1):
        new = changed.get(f"l{number}")
        found += [f"line {number}"] if new is None else new.split("|") if new else []
    return found


def edited(changes: str) -> bytes:
    """The thirty lines with ``l15=OURS l2=a|b`` made."""
    return text(*numbered(1, 30, **dict(change.split("=") for change in changes.split())))


def carried(
    old: bytes, ours: bytes, theirs: bytes | None, path: str = "f.txt"
) -> tuple[HunkResult, bytes | None, PatchStatus]:
    """Write the patch old → ours, push it on *theirs*, and return its first hunk, the file and the patch's verdict."""
    patch = parse(unified(path, path, old, ours), name="p.patch")
    tree = MemoryTree({path: theirs} if theirs is not None else {})
    report = push([patch], tree, base=MemoryTree({path: old}))
    return report.results[0].hunks[0], report.changes.get(path, theirs), report.results[0].status


BASE = text(*numbered(1, 30))
OURS = text(*numbered(1, 30, l15="OURS"))


S = HunkStatus


@pytest.mark.parametrize(
    ("case", "theirs", "status", "line", "offset", "result"),
    [
        ("nothing changed", "", S.CLEAN, 12, 0, "l15=OURS"),
        ("a line more above", "l2=2|2b", S.OFFSET, 13, 1, "l2=2|2b l15=OURS"),
        ("a context line changed", "l13=other", S.MERGED, 12, 0, "l13=other l15=OURS"),
        ("outer context lines gone", "l12= l18=", S.MERGED, 12, 0, "l12= l15=OURS l18="),
        ("upstream took it", "l15=OURS", S.UPSTREAMED, None, None, "l15=OURS"),
        ("upstream took it, further down", "l3=x|y|z l15=OURS", S.UPSTREAMED, None, None, "l3=x|y|z l15=OURS"),
        ("upstream took it and added to it", "l15=OURS|more", S.UPSTREAMED, None, None, "l15=OURS|more"),
        ("upstream changed the line otherwise", "l15=THEIRS", S.CONFLICT, None, None, "l15=THEIRS"),
        ("upstream changed the line next to it, a conflict to git too", "l14=x", S.CONFLICT, None, None, "l14=x"),
        ("upstream removed the line", "l15=", S.CONFLICT, None, None, "l15="),
    ],
)
def test_a_hunk_carried_to_a_release(
    case: str, theirs: str, status: HunkStatus, line: int | None, offset: int | None, result: str
) -> None:
    hunk, after, _ = carried(BASE, OURS, edited(theirs))
    assert (hunk.status, hunk.line, hunk.offset) == (status, line, offset), f"{case}: {hunk.reason}"
    assert after == edited(result)
    assert hunk.reason or status in (S.CLEAN, S.OFFSET), "whatever is not plain says why"


def test_code_moved_within_its_file_is_refused_with_its_new_place() -> None:
    theirs = text(*numbered(1, 9), *numbered(20, 30), *numbered(10, 19))
    hunk, after, _ = carried(BASE, OURS, theirs)
    assert hunk.status is S.MISPLACED
    assert hunk.candidates == (23,)
    assert after == theirs


def test_a_conflict_shows_the_lines_in_the_way_and_where_the_old_ones_stand_now() -> None:
    theirs = text(*numbered(1, 14), "rewritten", *numbered(16, 30), "elsewhere", "line 15", "end")
    hunk, _, _ = carried(BASE, OURS, theirs)
    assert hunk.status is HunkStatus.CONFLICT
    assert hunk.found == ((15, b"rewritten\n"),)
    assert hunk.candidates == (32,)
    assert hunk.old_line == 12


@pytest.mark.parametrize(
    ("theirs", "status"),
    [
        pytest.param(["x", "b", "y", "x", "b", "y"], HunkStatus.CLEAN, id="still there"),
        pytest.param(["x", "y", "x", "b", "y"], HunkStatus.UPSTREAMED, id="gone where it was"),
        pytest.param(["x", "b", "y", "x", "y"], HunkStatus.MERGED, id="gone at its double only"),
        pytest.param(["x", "c", "y", "x", "b", "y"], HunkStatus.CONFLICT, id="replaced, not gone"),
    ],
)
def test_a_pure_deletion_is_upstream_only_if_its_own_text_is_gone(theirs: list[str], status: HunkStatus) -> None:
    head, tail = numbered(1, 5), numbered(6, 10)
    old = text(*head, "x", "b", "y", "x", "b", "y", *tail)
    ours = text(*head, "x", "y", "x", "b", "y", *tail)
    hunk, _, _ = carried(old, ours, text(*head, *theirs, *tail))
    assert hunk.status is status, hunk.reason


def test_new_text_that_the_old_release_had_elsewhere_proves_nothing() -> None:
    """The reverse would fit at another block; upstream never took the change."""
    block, changed = ["begin", "value = 1", "end"], ["begin", "value = 2", "end"]
    old = text(*block, *numbered(1, 8), *changed)
    ours = text(*changed, *numbered(1, 8), *changed)
    theirs = text(*numbered(1, 8), *changed)  # the patched block deleted
    hunk, after, _ = carried(old, ours, theirs)
    assert hunk.status is HunkStatus.CONFLICT
    assert after == theirs


def test_upstreams_change_is_never_reversed() -> None:
    hunk, after, verdict = carried(BASE, OURS, OURS)
    assert hunk.status is HunkStatus.UPSTREAMED
    assert verdict is PatchStatus.UPSTREAMED
    assert after == OURS


def test_what_upstream_took_of_one_hunk_is_told_from_what_it_did_not() -> None:
    ours = text(*numbered(1, 30, l14="OURS 14", l16="OURS 16"))
    hunk, after, verdict = carried(BASE, ours, text(*numbered(1, 30, l14="OURS 14")))
    assert hunk.status is HunkStatus.MERGED
    assert hunk.reason == "1 of its 2 changes are upstream already"
    assert after == ours
    assert verdict is PatchStatus.PARTLY_UPSTREAMED


def test_an_insertion_between_repeated_lines_is_not_made_twice() -> None:
    """A diff may slide such an insertion; upstream's and ours are aligned alike before they are compared."""
    old = text(*numbered(1, 4), "}", "", "}", "", *numbered(5, 9))
    ours = text(*numbered(1, 4), "}", "", "added", "}", "", "}", "", *numbered(5, 9))
    theirs = text("new first", *numbered(1, 4), "}", "", "added", "}", "", "}", "", *numbered(5, 8), "changed 9")
    hunk, after, _ = carried(old, ours, theirs)
    assert hunk.status is HunkStatus.UPSTREAMED
    assert after == theirs


def test_a_placed_hunk_whose_function_changed_is_flagged_for_review() -> None:
    old = text("def f(x):", *(f"    a{i} = {i}" for i in range(20)), "    return x", "", "def g():", "    pass")
    ours = old.replace(b"a15 = 15", b"a15 = 99")
    theirs = old.replace(b"a1 = 1\n", b"a1 = 7\n")
    assert carried(old, ours, theirs, "m.py")[0].review == "f"
    elsewhere = old.replace(b"    pass", b"    return 1")
    assert carried(old, ours, elsewhere, "m.py")[0].review is None


def test_the_function_to_review_is_the_one_around_the_change_not_around_the_context() -> None:
    g = [f"    b{i} = {i}" for i in range(20)]
    old = text("def f(x):", "    return x", "", "", "def g():", *g)
    ours = old.replace(b"b0 = 0", b"b0 = 99")
    assert carried(old, ours, old.replace(b"b19 = 19", b"b19 = 7"), "m.py")[0].review == "g"
    assert carried(old, ours, old.replace(b"return x", b"return y"), "m.py")[0].review is None


KERNEL = """\
template <typename T>
__global__ void {name}(T* in, T* out) {{
  int row = blockIdx.x;
#if (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200)
  wait();
#endif
  T value = in[row];
  out[row] = {name}_scale(value);
}}

"""
KERNELS = [KERNEL.format(name=name) for name in ("first", "second", "third")]
GUARDED = "".join(["#pragma once\n\n", *KERNELS, "// end\n"]).encode()
OPENED = GUARDED.replace(b" && (__CUDA_ARCH__ < 1200)", b"")


def opened(theirs: bytes) -> tuple[list[HunkStatus], list[str]]:
    """Open the guards on *theirs*; return the verdicts, and the kernels whose guard is open afterwards."""
    patch = parse(unified("k.cuh", "k.cuh", GUARDED, OPENED), name="p.patch")
    report = push([patch], MemoryTree({"k.cuh": theirs}), base=MemoryTree({"k.cuh": GUARDED}))
    after = (report.changes.get("k.cuh", theirs) or b"").decode()
    kernels = [piece for piece in after.split("template <typename T>\n") if "__global__" in piece]
    open_ones = [piece.split("void ")[1].split("(")[0] for piece in kernels if "< 1200" not in piece]
    return [hunk.status for hunk in report.results[0].hunks], open_ones


C, M, A = HunkStatus.CLEAN, HunkStatus.MISPLACED, HunkStatus.AMBIGUOUS


@pytest.mark.parametrize(
    ("order", "refused", "open_ones"),
    [
        pytest.param([0, 1, 2], [], ["first", "second", "third"], id="as it was"),
        pytest.param([1, 2], [1], ["second", "third"], id="first deleted"),
        pytest.param([0, 2], [2], ["first", "third"], id="second deleted"),
        pytest.param([0, 1], [3], ["first", "second"], id="third deleted"),
        pytest.param([0, 1, 1, 2], [2], ["first", "third"], id="second doubled"),
        pytest.param([0, 1, 2, 2], [3], ["first", "second"], id="third doubled"),
        pytest.param([0, 0, 1, 2], [1], ["second", "third"], id="first doubled"),
    ],
)
def test_a_look_alike_kernel_is_never_opened_in_place_of_another(
    order: list[int], refused: list[int], open_ones: list[str]
) -> None:
    theirs = "".join(["#pragma once\n\n", *(KERNELS[index] for index in order), "// end\n"]).encode()
    statuses, found = opened(theirs)
    assert [number for number, status in enumerate(statuses, 1) if not status.fine] == refused
    assert found == open_ones


LONG = [KERNEL.format(name=name).replace(f"{name}_scale", "scale") for name in ("first", "second", "copy")]
TAKEN = [kernel.replace(" && (__CUDA_ARCH__ < 1200)", "") for kernel in LONG]
FIRST, SECOND, COPY = range(3)


@pytest.mark.parametrize(
    ("ours", "theirs", "status"),
    [
        pytest.param(FIRST, [TAKEN[FIRST], LONG[SECOND]], HunkStatus.UPSTREAMED, id="upstream took it"),
        pytest.param(FIRST, [TAKEN[SECOND], LONG[FIRST]], HunkStatus.AMBIGUOUS, id="changed places, the other took it"),
        pytest.param(SECOND, [TAKEN[SECOND], LONG[FIRST]], HunkStatus.AMBIGUOUS, id="changed places, and took it"),
        pytest.param(FIRST, [TAKEN[COPY], TAKEN[SECOND], LONG[FIRST]], HunkStatus.MISPLACED, id="a new one took it"),
        pytest.param(FIRST, [LONG[COPY], LONG[SECOND], LONG[FIRST]], HunkStatus.MISPLACED, id="a new one in its place"),
        pytest.param(FIRST, [TAKEN[SECOND]], HunkStatus.CONFLICT, id="deleted, the other took it"),
    ],
)
def test_what_a_look_alike_kernel_has_says_nothing_of_another(ours: int, theirs: list[str], status: HunkStatus) -> None:
    old, new = LONG[FIRST] + LONG[SECOND], [LONG[FIRST], LONG[SECOND]]
    new[ours] = TAKEN[ours]
    hunk, after, _ = carried(old.encode(), "".join(new).encode(), "".join(theirs).encode(), "k.cuh")
    assert (hunk.status, after) == (status, "".join(theirs).encode())


@pytest.mark.parametrize("path", ["broken.py", "unknown.rs"])
@pytest.mark.parametrize(
    ("theirs", "status"),
    [
        pytest.param("zero:guard first:guard second:guard third:guard", HunkStatus.OFFSET, id="they stay"),
        pytest.param("first:guard second:OPEN third:guard", HunkStatus.UPSTREAMED, id="upstream took it"),
        pytest.param("second:guard|more first:guard third:guard", HunkStatus.MISPLACED, id="they changed places"),
    ],
)
def test_where_functions_cannot_be_told_the_line_above_that_stands_once_is_heeded(
    path: str, theirs: str, status: HunkStatus
) -> None:
    def source(functions: str) -> bytes:
        parts = [function.split(":") for function in functions.split()]
        bodies = [
            [f"def {name}(:", "  a0", "  a1", *body.split("|"), "  go", "  else", "  stop", "", ""]
            for name, body in parts
        ]
        return text(*(line for body in bodies for line in body))

    old = source("first:guard second:guard third:guard fourth:guard")
    ours = source("first:guard second:OPEN third:guard fourth:guard")
    after = source(theirs + " fourth:guard")
    hunk, result, _ = carried(old, ours, after, path)
    assert hunk.status is status
    assert (result == after) == (status is not HunkStatus.OFFSET)


def test_two_kernels_that_changed_places_are_not_both_placed() -> None:
    theirs = "".join(["#pragma once\n\n", KERNELS[1], KERNELS[0], KERNELS[2], "// end\n"]).encode()
    statuses, open_ones = opened(theirs)
    assert [status.placed for status in statuses].count(True) == len(open_ones) < 3
    assert "third" in open_ones


def test_a_renamed_copy_does_not_make_the_original_doubtful() -> None:
    copy = KERNELS[1].replace("second", "second_v2")
    theirs = "".join(["#pragma once\n\n", KERNELS[0], KERNELS[1], copy, KERNELS[2], "// end\n"]).encode()
    statuses, open_ones = opened(theirs)
    assert all(status.placed for status in statuses)
    assert open_ones == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("case", "theirs", "status"),
    [
        ("taken, and gone on with", "l15=line 15|two fish|red fish|a new fish", HunkStatus.CONFLICT),
        ("taken one line further", "l16=line 16|one fish|two fish|red fish|", HunkStatus.CONFLICT),
        ("taken with another indent", "l16=line 16|  one fish|  two fish|  red fish|", HunkStatus.CONFLICT),
        ("taken far away, and gone on with", "l2=line 2|one fish|two fish|a new fish l13=x", HunkStatus.CONFLICT),
        ("another text", "l16=line 16|a bird|red fish", HunkStatus.MERGED),
        ("a line far away", "l2=line 2|red fish l13=x", HunkStatus.MERGED),
    ],
)
def test_what_upstream_took_and_went_on_with_is_not_added_again(case: str, theirs: str, status: HunkStatus) -> None:
    """Met in Debian's curl and cron, whose later patches rewrite what earlier ones add."""
    changes = dict(change.split("=") for change in theirs.replace(" l13=", "\tl13=").split("\t"))
    new = text(*numbered(1, 30, **changes))
    ours = text(*numbered(1, 30, l14="line 14|one fish|two fish|red fish"))
    result, content, _ = carried(text(*numbered(1, 30)), ours, new)
    assert result.status is status, (case, result.reason)
    assert (content == new) == (status is HunkStatus.CONFLICT)


CAST = "int cast(double x)\n{\n  if (bad(x))\n    return 0;\n  return wide(x);\n}\n"
ROUND = "int round(double x)\n{\n  return near(x);\n}\n"
METHOD = "class A:\n  def a(self):\n    pass\n"
FLOOR = "int floor(double x)\n{\n  double y = x;\n  y = down(y);\n  return y;\n}\n"


@pytest.mark.parametrize(
    ("case", "path", "ours", "theirs", "status", "line"),
    [
        ("far below, another body", "c.c", [ROUND, CAST, FLOOR],
         [ROUND, FLOOR, "\n" * 30, "int cast(double x)\n{\n  return 7;\n}\n"], S.CONFLICT, 41),
        ("another signature, and a context line changed", "c.h", [ROUND, CAST, FLOOR],
         [ROUND.replace("near", "nearest"), FLOOR, "static long cast(float y)\n{\n  return y;\n}\n"], S.CONFLICT, 11),
        ("only called there", "c.c", [ROUND, CAST, FLOOR], [ROUND, FLOOR, "int use(int x)\n{\n  return cast(x);\n}\n"],
         S.CLEAN, None),
        ("a language that is not read", "c.txt", [ROUND, CAST, FLOOR],
         [ROUND, FLOOR, "\n" * 30, "int cast(double x)\n{\n  return 7;\n}\n"], S.CLEAN, None),
        ("a method of another class", "c.py", [METHOD, "  def b(self):\n    pass\n", "\n" * 9],
         [METHOD, "\n" * 9, "class B:\n  def b(self):\n    pass\n"], S.CLEAN, None),
        ("a method of the same class", "c.py", [METHOD, "  def b(self):\n    pass\n"],
         ["class A:\n  def b(self):\n    return 1\n", METHOD.partition("\n")[2]], S.CONFLICT, 2),
    ],
)  # fmt: skip
def test_no_function_is_defined_twice(
    case: str, path: str, ours: list[str], theirs: list[str], status: HunkStatus, line: int | None
) -> None:
    """Met in Debian's imagemagick, whose later patches give a function that an earlier one adds another body."""
    old = "".join(part for part in ours if part is not ours[1])
    result, content, _ = carried(old.encode(), "".join(ours).encode(), "".join(theirs).encode(), path)
    assert result.status is status, (case, result.reason)
    assert (content == "".join(theirs).encode()) == (status is S.CONFLICT)
    assert line is None or result.candidates == (line,)


def test_lines_that_upstream_moved_as_the_hunk_does_are_not_added_again() -> None:
    """Met in Debian's imagemagick: declarations changed places, and the line above them changed."""
    old = text("void f()", "{", "  char", "    *p,", "    *value;", "", "  ssize_t", "    i;", "", "  size_t",
               "    tokens;", "", "  go();", "}")  # fmt: skip
    ours = text("void f()", "{", "  char", "    *p,", "    *value;", "", "  size_t", "    tokens;", "", "  ssize_t",
                "    i;", "", "  go();", "}")  # fmt: skip
    theirs = ours.replace(b"    *p,\n    *value;\n", b"    *p;\n")
    result, content, _ = carried(old, ours, theirs, "f.c")
    assert content == theirs, result.reason


short = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30)


@settings(max_examples=300, deadline=None)
@given(base=short, ours=short)
def test_a_patch_on_its_own_result_is_upstreamed_or_refused_and_changes_nothing(
    base: list[str], ours: list[str]
) -> None:
    """No patch may be applied twice, however repetitive the text."""
    old, new = text(*base), text(*ours)
    patch_bytes = unified("f.txt", "f.txt", old, new)
    if not patch_bytes:
        return
    report = push([parse(patch_bytes, name="p")], MemoryTree({"f.txt": new}), base=MemoryTree({"f.txt": old}))
    assert report.changes == {}, [hunk for hunk in report.results[0].hunks if hunk.status.placed]


@settings(max_examples=300, deadline=None)
@given(base=short, ours=short, theirs=short)
def test_upstreamed_is_never_said_of_a_tree_that_lacks_the_change(
    base: list[str], ours: list[str], theirs: list[str]
) -> None:
    old, new = text(*base), text(*ours)
    patch_bytes = unified("f.txt", "f.txt", old, new)
    if not patch_bytes:
        return
    tree = text(*theirs)
    report = push([parse(patch_bytes, name="p")], MemoryTree({"f.txt": tree}), base=MemoryTree({"f.txt": old}))
    for hunk, result in zip(parse(patch_bytes, name="p").files[0].hunks, report.results[0].hunks, strict=True):
        if result.status is HunkStatus.UPSTREAMED:
            standing = split_lines(tree)
            added = [line for sign, line in hunk.body if sign == "+"]
            assert all(line in standing for line in added)
            assert tree != old
