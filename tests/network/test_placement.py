"""What a base is worth: hunks placed that text search refuses, misplacements prevented, and no false verdict.

A series is what a release changed, one patch a file, written for the release
before it. It is carried to an older release (backport), to the release it came
from (all of it is there already) and to the one after. ``git merge-file`` is the
oracle for whole files; sabotaged trees have an answer that is known beforehand.

A distribution's series is carried to the next upstream version, too. There its own next series is a second oracle:
what people carried by hand, and still carry, is not upstream, and stands where they put it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pytest

from downstream.patches.parse import Parsed, parse, split_lines
from downstream.patches.series import load_series
from downstream.patches.text import FilePatch, Hunk, Patch
from downstream.patches.unified import unified
from downstream.pins import Upstream, load
from downstream.placing.enclosing import Span, enclosing, functions
from downstream.placing.file import FileOutcome
from downstream.placing.linemap import LineMap
from downstream.placing.merge import Change, apply, changes_of
from downstream.placing.push import Push, push
from downstream.placing.side import Side
from downstream.placing.textual import place_by_text
from downstream.placing.verdict import HunkResult, HunkStatus
from downstream.queue.foreign import read_tolerantly
from downstream.trees.cache import default_folder
from downstream.trees.folder import FolderTree
from downstream.trees.open import open_release
from downstream.trees.releases import releases
from downstream.trees.session import Session
from downstream.trees.tree import LayeredTree, MemoryTree
from downstream.trees.wheel import WheelTree

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
TEXT = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".jinja")
MOST = 300_000  # bytes of a file that is compared

Unpacked = Callable[[str, str, Path], Path]
Versions = Callable[[str], list[str]]
Upgrades = Callable[[str, Path], Iterator[tuple[Path, Path]]]


@dataclass(slots=True)
class Figures:
    """Hunks counted; the last three have to be 0."""

    hunks: int = 0
    by_text: int = 0  # placed by text search at fuzz 0
    by_map: int = 0  # placed with a base
    upstreamed: int = 0
    gained: int = 0  # placed or proved upstream with a base, refused by text
    prevented: int = 0  # placed by text where the base says: elsewhere, or not at all
    merges: int = 0  # whole files that git merge-file agrees on
    differing: list[str] = field(default_factory=list)  # whole files that git merges into something else
    false_placed: list[object] = field(default_factory=list)
    false_upstreamed: list[object] = field(default_factory=list)
    alike: int = 0  # changes placed where the distribution's own next series has them

    def row(self, title: str) -> str:
        counted = (self.hunks, self.by_text, self.by_map, self.upstreamed, self.gained, self.prevented)
        wrong = (len(self.differing), len(self.false_placed), len(self.false_upstreamed))
        return f"| {title} | {' | '.join(map(str, (*counted, self.merges, *wrong, self.alike)))} |"

    def __iadd__(self, other: Figures) -> Self:
        for name in ("hunks", "by_text", "by_map", "upstreamed", "gained", "prevented", "merges", "alike"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.differing += other.differing
        self.false_placed += other.false_placed
        self.false_upstreamed += other.false_upstreamed
        return self


def show(row: str) -> None:
    """One row of docs/placement.md; pytest shows it with -s or on failure."""
    sys.stdout.write(f"{row}\n")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(default_folder()) as one:
        yield one


def changed(upstream: Upstream, old: WheelTree, new: WheelTree) -> list[str]:
    """The text files of both releases whose checksums differ; a wheel's directory tells them without a download."""
    found = []
    for member in old.members():
        path = upstream.layout.to_repository(member)
        ours, theirs = old.directory.get(member), new.directory.get(member)
        if path and ours and theirs and ours.crc != theirs.crc and path.endswith(TEXT) and "3rdparty/" not in path:
            found += [path] if max(ours.size, theirs.size) < MOST else []
    return found


def series_of(old: dict[str, bytes], new: dict[str, bytes]) -> list[Patch]:
    made = [(path, unified(path, path, old[path], new[path])) for path in old if path in new]
    return [parse(content, name=path) for path, content in made if content]


@pytest.mark.parametrize(
    ("name", "most"), [("sglang", 150), pytest.param("sglang", 1000, marks=pytest.mark.slow),
                       pytest.param("flashinfer", 400, marks=pytest.mark.slow)]
)  # fmt: skip
def test_a_series_on_releases_around_its_own(session: Session, name: str, most: int, tmp_path: Path) -> None:
    pins = load(ROOT)
    upstream, pin = pins.upstreams[name], pins.pin("stable", name)
    known = [one.version for one in releases(upstream.package, session=session) if not one.version.is_prerelease]
    at = known.index(pin.version)
    before, old, new, after = (open_release(upstream, version, session) for version in known[at - 1 : at + 3])
    paths = changed(upstream, old, new)[:most]
    for tree in (before, old, new, after):
        tree.prefetch(paths)
    files = {tree.name: {path: found for path in paths if (found := tree.read(path)) is not None}
             for tree in (before, old, new, after)}  # fmt: skip
    series = series_of(files[old.name], files[new.name])
    assert series
    total = Figures()
    for tree in (before, new, after):
        figures = carried(series, files[old.name], files[new.name], files[tree.name], tmp_path)
        if tree is new:
            # Its own patched tree: nothing may be placed, and with nothing left to do nothing may change.
            figures.false_placed += list(_placed(series, files[old.name], files[new.name]))
        show(figures.row(f"{name}: {old.name} → {new.name} on {tree.name}"))
        total.differing += figures.differing
        total.false_placed += figures.false_placed
    figures = sabotaged((file, hunk, files[old.name][file.path]) for one in series for file in one.files
                        for hunk in file.hunks)  # fmt: skip
    show(figures.row(f"{name}: sabotaged"))
    assert not total.differing
    assert not total.false_placed
    assert not figures.false_placed
    assert not figures.false_upstreamed
    assert figures.hunks


def _placed(series: list[Patch], old: dict[str, bytes], new: dict[str, bytes]) -> Iterator[HunkResult]:
    report = push(series, MemoryTree(new), base=MemoryTree(old))
    for result in report.results:
        yield from (hunk for hunk in result.hunks if hunk.status.placed)


def carried(
    series: list[Patch], old: dict[str, bytes], ours: dict[str, bytes], theirs: dict[str, bytes], scratch: Path
) -> Figures:
    """Carry *series* from *old* to *theirs* by text and with the base, and compare."""
    figures = Figures()
    text = push(series, MemoryTree(theirs)).results
    report = push(series, MemoryTree(theirs), base=MemoryTree(old))
    for by_text, by_map in zip(text, report.results, strict=True):
        for one, other in zip(by_text.hunks, by_map.hunks, strict=True):
            figures.hunks += 1
            figures.by_text += one.status.placed
            figures.by_map += other.status.placed
            figures.upstreamed += other.status is HunkStatus.UPSTREAMED
            figures.gained += other.status.fine and not one.status.placed
            figures.prevented += one.status.placed and (not other.status.placed or one.offset != other.offset)
        path = by_map.patch
        if path not in theirs or not all(hunk.status.fine for hunk in by_map.hunks):
            continue
        merged = merge_file(scratch, old[path], ours[path], theirs[path])
        if merged is not None:
            figures.merges += 1
            if merged != report.changes.get(path, theirs[path]):
                figures.differing.append(path)
    return figures


def merge_file(scratch: Path, old: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """What git makes of it; None where it finds a conflict."""
    for name, content in (("old", old), ("ours", ours), ("theirs", theirs)):
        (scratch / name).write_bytes(content)
    run = subprocess.run(
        ["git", "merge-file", "-p", "ours", "old", "theirs"], cwd=scratch, capture_output=True, check=False
    )
    return run.stdout if run.returncode == 0 else None


def sabotaged(hunks: Iterator[tuple[FilePatch, Hunk, bytes]]) -> Figures:
    """Each hunk on versions of its file that were spoiled around it; counted are the trees."""
    figures = Figures()
    for file, hunk, content in hunks:
        lines = split_lines(content)
        for title, tree, allowed in spoiled(file.path, lines, hunk):
            figures.hunks += 1
            patch = Patch(name=title, header=b"", files=(replace(file, hunks=(replace(hunk, number=1),)),))
            plain = push([patch], MemoryTree({file.path: b"".join(tree)})).results[0].hunks[0]
            report = push([patch], MemoryTree({file.path: b"".join(tree)}), base=MemoryTree({file.path: content}))
            result = report.results[0].hunks[0]
            figures.by_text += plain.status.placed
            figures.by_map += result.status.placed
            figures.gained += result.status.fine and not plain.status.placed
            figures.prevented += plain.status.placed and not result.status.placed
            if result.status is HunkStatus.UPSTREAMED:
                figures.false_upstreamed.append((file.path, hunk.number, title))
            made = report.changes.get(file.path)
            if made is not None and made not in [b"".join(one) for one in allowed]:
                figures.false_placed.append((file.path, hunk.number, title, result.status, result.line))
    return figures


Lines = list[bytes]


def spoiled(path: str, lines: Lines, hunk: Hunk) -> Iterator[tuple[str, Lines, list[Lines]]]:
    """Yield (what was done, the tree's file, what may be made of it) for a hunk that lies within a function."""
    at = hunk.old_start - 1
    changes = changes_of(hunk, at)
    span = enclosing(path, lines, changes[0].first) if hunk.old_count and changes else None
    if (
        span is None
        or span.first > at
        or at + len(hunk.old) > span.end
        or tuple(lines[at : at + len(hunk.old)]) != hunk.old
    ):
        return
    fixed = apply(lines, changes)
    grown = span.end + len(fixed) - len(lines)
    body, mended = lines[span.first : span.end], fixed[span.first : grown]
    above, below = lines[: span.first], lines[span.end :]
    name = span.name.rpartition(".")[2].encode("utf-8", "surrogateescape")
    copy, mended_copy = ([line.replace(name, name + b"_copy") for line in one] for one in (body, mended))
    yield "the function is gone", above + below, []
    yield "a copy stands above", above + copy + body + below, [above + copy + mended + below]
    yield "a copy stands below", above + body + copy + below, [above + mended + copy + below]
    yield "only a copy is mended", above + mended_copy + body + below, [above + mended_copy + mended + below]
    twins = [above + mended + body + below, above + body + mended + below]
    yield "it stands twice", above + body + body + below, twins
    following = _next(path, lines, span)
    if following is not None:
        between, other, rest = (
            lines[span.end : following.first],
            lines[following.first : following.end],
            lines[following.end :],
        )
        swapped = above + other + between
        yield "it changed places with the next", swapped + body + rest, [swapped + mended + rest]


def _next(path: str, lines: Lines, span: Span) -> Span | None:
    after = [one for one in functions(path, tuple(lines)) if one.first >= span.end]
    return min(after, key=lambda one: (one.first, -one.end), default=None)


FEW = ("cron", "unzip", "openssh")
MANY = ("bash", "curl", "git", "grub2", "imagemagick", "nginx", "perl", "python3.11", "samba", "systemd")


@pytest.mark.parametrize("package", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in MANY)])
def test_a_debian_series_with_its_base(versions: Versions, unpacked: Unpacked, package: str, tmp_path: Path) -> None:
    tree = FolderTree(unpacked(package, versions(package)[-1], tmp_path))
    series = read_tolerantly(load_series(tmp_path / "patches"))
    first = push(series, tree)
    own = push(series, tree, base=tree)
    assert [one.status for result in own.results for one in result.hunks if one.status is HunkStatus.UPSTREAMED] == []
    assert own.changes == first.changes
    patched = LayeredTree(tree, first.changes)
    again = push(series, patched, base=tree)
    figures = Figures()
    for by_text, by_map in zip(push(series, patched).results, again.results, strict=True):
        for one, other in zip(by_text.hunks, by_map.hunks, strict=True):
            figures.hunks += 1
            figures.by_text += one.status.placed
            figures.by_map += other.status.placed
            figures.upstreamed += other.status is HunkStatus.UPSTREAMED
            figures.gained += other.status.fine and not one.status.placed
            figures.prevented += one.status.placed and not other.status.placed
    asking = {hunk.path for result in again.results for hunk in result.hunks if not hunk.status.fine}
    altered = {path for path, content in again.changes.items() if content != patched.read(path)}
    doubled = {path: found for path in altered if (found := standing_already(path, series, tree, patched))}
    figures.false_placed += [*sorted(altered - asking), *sorted(doubled.items())]
    show(f"{package}: {len(asking)} files ask, {len(altered)} also changed: {sorted(altered)}")
    show(figures.row(f"{package} on its own patched tree"))
    seen: Counter[str] = Counter(file.path for parsed in series for file in parsed.patch.files)
    spoilt = sabotaged(
        (file, hunk, content) for parsed in series for file in parsed.patch.files
        if seen[file.path] == 1 and (content := tree.read(file.path)) is not None for hunk in file.hunks
    )  # fmt: skip
    show(spoilt.row(f"{package}: sabotaged"))
    assert not figures.false_placed
    assert not spoilt.false_placed
    assert not spoilt.false_upstreamed


def standing_already(path: str, series: Sequence[Parsed], tree: FolderTree, patched: LayeredTree) -> list[str]:
    """What was placed in a file of the series' own patched tree although it stands there, as the series left it.

    A patch of a series may take back what an earlier one adds. Then the patched tree is without it, the earlier one is
    placed, and the later one takes it back again, or asks: nothing of what was placed lives on to the series' end.
    """
    walk, again = Push.over(tree), Push.over(patched, base=tree)
    added: list[tuple[str, list[bytes], range]] = []
    for parsed in series:
        ours, theirs = walk.step(parsed), again.step(parsed)
        for outcome, other in zip(ours.outcomes, theirs.outcomes, strict=True):
            if path not in (outcome.path, other.path):
                continue
            after = list(walk.new.lines(path) or ())
            shift = 0
            for one, carried in zip(outcome.placements, other.placements, strict=True):
                for change in one.changes:
                    first = change.first + shift
                    shift += len(change.added) - (change.end - change.first)
                    if carried.result.status.placed:
                        where = f"{parsed.patch.name} hunk {one.hunk.number}"
                        added.append((where, after, range(first, first + len(change.added))))
    final, result = walk.new.lines(path) or [], again.new.lines(path) or []
    images = set(LineMap(final, result).to_new)
    more = {line for number, line in enumerate(result) if number not in images}
    found = []
    for where, after, lines in added:
        through = LineMap(after, final)
        if more.issuperset(after[line] for line in lines) and any(
            through.image(line) >= 0 and re.search(rb"\w", after[line]) for line in lines
        ):
            found.append(where)
    return found


NEWER = (
    "bash", "bind9", "cups", "curl", "exim4", "git", "glibc", "grub2", "libxml2", "lighttpd", "lua5.4", "nginx",
    "openssh", "openssl", "perl", "python3.13", "samba", "sqlite3", "sudo", "systemd", "tar", "tcl8.6", "util-linux",
    "vim", "xz-utils",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("package", NEWER)
def test_a_debian_series_carried_to_the_next_upstream(upgrades: Upgrades, package: str, tmp_path: Path) -> None:
    total = Figures()
    for old, new in upgrades(package, tmp_path):
        figures = upgraded(old, new, tmp_path)
        show(figures.row(f"{old.name} on {new.name}"))
        total += figures
    assert total.hunks
    assert not total.differing
    assert not total.false_placed
    assert not total.false_upstreamed


def upgraded(old: Path, new: Path, scratch: Path) -> Figures:
    """Carry the series of *old* to the upstream of *new*, by text alone and with its own upstream as the base."""
    base, tree = FolderTree(old / "tree"), FolderTree(new / "tree")
    series = read_tolerantly(load_series(old / "patches"))
    own, run = Push.over(base), Push.over(tree, base=base)
    text = push(series, tree).results
    figures = Figures()
    asking: set[str] = set()
    carried: list[FileOutcome] = []
    for parsed, by_text in zip(series, text, strict=True):
        paths = {path for file in parsed.patch.files for path in (file.old_path, file.new_path) if path}
        before, there = ({path: joined(side, path) for path in paths} for side in (own.new, run.new))
        own.step(parsed)
        pushed = run.step(parsed)
        carried += pushed.outcomes
        for one, other in zip(by_text.hunks, pushed.result.hunks, strict=True):
            figures.hunks += 1
            figures.by_text += one.status.placed
            figures.by_map += other.status.placed
            figures.upstreamed += other.status is HunkStatus.UPSTREAMED
            figures.gained += other.status.fine and not one.status.placed
        figures.prevented += sum(prevented(outcome) for outcome in pushed.outcomes)
        asking |= {path for file in pushed.result.files for path in (file.path, file.moved_to or file.path)
                   if not file.status.fine or any(not hunk.status.fine for hunk in file.hunks)}  # fmt: skip
        for path in sorted(paths - asking):
            sides = before[path], joined(own.new, path), there[path]
            merged = None if None in sides else merge_file(scratch, *(side or b"" for side in sides))
            if merged is not None:
                figures.merges += 1
                figures.differing += [] if merged == joined(run.new, path) else [f"{parsed.patch.name}: {path}"]
    if (new / "patches").is_dir():
        walk = Push.over(tree)
        theirs = [outcome for parsed in read_tolerantly(load_series(new / "patches"))
                  for outcome in walk.step(parsed).outcomes]  # fmt: skip
        held_against(figures, once_touched(carried), once_touched(theirs), tree)
    return figures


def joined(side: Side, path: str) -> bytes | None:
    lines = side.lines(path)
    return None if lines is None else b"".join(lines)


def prevented(outcome: FileOutcome) -> int:
    """How many hunks text search would have put elsewhere in the very lines that the map was given."""
    if not outcome.before or any(one.hunk.number != at for at, one in enumerate(outcome.placements, 1)):
        return 0
    by_text = place_by_text(outcome.path, [one.hunk for one in outcome.placements], outcome.before)
    return sum(
        one.result.status.placed and (not other.result.status.placed or one.result.offset != other.result.offset)
        for one, other in zip(by_text, outcome.placements, strict=True)
    )


Outcomes = dict[str, FileOutcome]


def held_against(figures: Figures, ours: Outcomes, others: Outcomes, tree: FolderTree) -> None:
    """Compare with the distribution's own series for that upstream, where both change a file once and change it alike.

    A change is told by what it removes and adds, where that says it once in each patch.
    """
    for path in sorted(ours.keys() & others.keys()):
        lines = split_lines(tree.read(path) or b"")
        wanted = [change for one in others[path].placements for change in one.changes]
        times = Counter(text_of(change, lines) for change in wanted)
        where = {text_of(change, lines): apply(lines, [change]) for change in wanted}
        asked = [(text_of(change, one.hunk.old), one) for one in ours[path].placements
                 for change in changes_of(one.hunk, 0)]  # fmt: skip
        mine = Counter(text for text, _ in asked)
        for text, one in asked:
            if mine[text] != 1 or times[text] != 1:
                continue
            if one.result.status is HunkStatus.UPSTREAMED:
                figures.false_upstreamed.append((path, one.hunk.number, "still carried"))
            made = [change for change in one.changes if text_of(change, lines) == text]
            if made and apply(lines, made) == where[text]:
                figures.alike += 1
            elif made:
                figures.false_placed.append((path, one.hunk.number, "carried elsewhere"))


def once_touched(outcomes: Sequence[FileOutcome]) -> Outcomes:
    times = Counter(outcome.patch.path for outcome in outcomes)
    return {outcome.patch.path: outcome for outcome in outcomes if times[outcome.patch.path] == 1}


def text_of(change: Change, lines: Sequence[bytes]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    return tuple(lines[change.first : change.end]), change.added
