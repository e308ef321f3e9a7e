"""Debian's quilt series on trees nobody here wrote: GNU patch at fuzz 0 is the oracle, hunk by hunk and byte by byte.

Source packages come through the machine's own apt, with package indexes and
downloads in folders of ours. Each series is run on its own upstream, on that
upstream with lines lost, doubled and added, on its own patched tree, and on
the next upstream version among those of the distribution's releases.

Where we and GNU patch part ways, a rule says why, and each difference is counted:

refused     a body that goes on after its counts, a binary file, an unsafe path: we refuse it whole, GNU patch takes
            a part
ambiguous   the text stands at several places off its line: we ask, GNU patch takes the nearest
there       a file to be added is there with this content, a mode or a rename is made already: we see that nothing is
            left to do, GNU patch fails
half        a rename or copy whose hunks do not all fit: we leave both files alone, GNU patch makes it with what fits
spaces      a name with spaces, without quotes or a TAB after it: we read all of it, as git does; GNU patch ends it
            at the first space
indented    a diff quoted in a patch's prose, indented: it is prose to git and to us; GNU patch makes its changes
after       the file already differs by one of these
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from downstream.patches.parse import parse_tolerant
from downstream.patches.series import SeriesEntry, load_series
from downstream.patches.text import ChangeKind
from downstream.placing.push import push
from downstream.queue.foreign import read_tolerantly
from downstream.trees.folder import FolderTree

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.network

Versions = Callable[[str], list[str]]
Unpacked = Callable[[str, str, Path], Path]
Upgrades = Callable[[str, Path], Iterator[tuple[Path, Path]]]

FEW = ("cron", "unzip", "tar", "lua5.4", "openssh")
MANY = (
    "bash", "bind9", "cups", "curl", "emacs", "exim4", "git", "glibc", "gnupg2", "grub2", "imagemagick", "libxml2",
    "lighttpd", "mutt", "nginx", "openssl", "perl", "php8.2", "python3.11", "qemu", "ruby3.1", "samba", "sqlite3",
    "sudo", "systemd", "tcl8.6", "util-linux", "vim", "xz-utils",
)  # fmt: skip
NEWER = (
    "bash", "bind9", "cups", "curl", "exim4", "git", "glibc", "grub2", "libxml2", "lighttpd", "lua5.4", "nginx",
    "openssh", "openssl", "perl", "python3.13", "sqlite3", "sudo", "systemd", "tar", "util-linux", "vim", "xz-utils",
)  # fmt: skip

SAID = re.compile(rb"Hunk #(\d+) (succeeded|FAILED) at (\d+)(?: with fuzz (\d+))?(?: \(offset (-?\d+) lines?\))?")
NAMED = re.compile(
    rb"^(?:checking|patching) (?:file|symbolic link) (.*?)"
    rb"(?: \((?:renamed|copied|read) from .*\)| using Plan B)?$",
    re.MULTILINE,
)


@dataclass(slots=True)
class Comparison:
    """What both said, hunk by hunk; ``bad`` has to be empty."""

    hunks: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    bad: list[object] = field(default_factory=list)
    differing: set[str] = field(default_factory=set)  # paths on which a rule made us part ways

    def line(self, title: str) -> str:
        return f"{title}: {dict(self.hunks)} differences {dict(self.rules)} unexplained {len(self.bad)}"


def show(text: str) -> None:
    """The figures, which pytest shows with -s or on failure."""
    sys.stdout.write(f"{text}\n")


def checked(series: Path, tree: Path, out: Path, *, base: Path | None = None) -> dict[str, Any]:
    """Run ``pq.py check`` as anybody would; the answer is its JSON."""
    command = [sys.executable, str(ROOT / "tools/pq.py"), "check", "--series", str(series), "--tree", str(tree)]
    command += ["--json", "--quiet", "--offline", "--out", str(out)]
    command += ["--base", str(base)] if base else []
    run = subprocess.run(command, capture_output=True, check=False)
    assert run.returncode in (0, 1), run.stderr.decode(errors="replace")
    document: dict[str, Any] = json.loads(run.stdout)
    return document


def compare(patches: Path, tree: Path, scratch: Path) -> Comparison:
    """Run the series in *patches* on *tree* by us and by GNU patch, and compare verdicts and files."""
    document = checked(patches, tree, scratch / "out")
    theirs = scratch / "theirs"
    subprocess.run(["cp", "-al", str(tree), str(theirs)], check=True)  # GNU patch replaces files, never writes in them
    found = Comparison()
    entries = load_series(patches).entries
    assert [entry.name for entry in entries] == [patch["patch"] for patch in document["patches"]]
    for entry, ours in zip(entries, document["patches"], strict=True):
        _compare_patch(found, ours, entry, patches, theirs)
    changes = push(read_tolerantly(load_series(patches)), FolderTree(tree)).changes  # --out cannot show what is removed
    removed = {path for path, content in changes.items() if content is None}
    quoted = {path for entry in entries for path in _quoted((patches / entry.name).read_bytes())}
    _compare_files(found, tree, theirs, scratch / "out", removed, quoted)
    shutil.rmtree(theirs)
    return found


def _compare_patch(found: Comparison, ours: dict[str, Any], entry: SeriesEntry, patches: Path, theirs: Path) -> None:
    run = subprocess.run(
        ["patch", f"-p{entry.strip}", "--verbose", "--force", "--fuzz=0", "--no-backup-if-mismatch",
         "--reject-file=-", "-i", str(patches / entry.name)],
        cwd=theirs, capture_output=True, check=False, env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
    )  # fmt: skip
    marks = list(NAMED.finditer(run.stdout))
    ends = [*(mark.start() for mark in marks[1:]), len(run.stdout)][: len(marks)]
    # A rename, or a plain pair (f.c.orig, f.c), has two names, and GNU patch may print the other one.
    files = parse_tolerant((patches / entry.name).read_bytes(), name=entry.name, strip=entry.strip).patch.files
    pairs = [(file.old_path, file.new_path) for file in files if file.old_path and file.new_path]
    names = {path: pair for pair in pairs for path in pair if pair[0] != pair[1]}
    moved = [file for file in files if file.kind in (ChangeKind.RENAME, ChangeKind.COPY)]
    renamed = {path for file in moved for path in (file.old_path, file.new_path)}
    said: dict[str, list[dict[int, tuple[bool, int]]]] = {}
    for mark, end in zip(marks, ends, strict=True):
        hunks = SAID.findall(run.stdout[mark.end() : end])
        verdicts = {int(number): (verb == b"succeeded", int(offset or 0)) for number, verb, _, _, offset in hunks}
        if verdicts:
            said.setdefault(_plain(mark[1]), []).append(verdicts)
    for file in ours["files"]:
        path = file["path"]
        if file["status"] == "malformed":
            found.rules["refused"] += 1
            found.differing |= {path} if path else set(said)
            continue
        if not file["hunks"]:
            continue
        if path in renamed and file["status"] not in ("clean", "offset"):
            found.rules["half"] += 1
            found.differing |= {path, *names[path]}
        cut = path.partition(" ")[0]
        if cut != path and said.get(cut) and file["status"] == "upstreamed":
            found.rules["spaces"] += 1
            found.differing |= {path, cut}
        runs = [said[name] for name in (path, *names.get(path, ()), cut) if said.get(name)]
        verdicts = runs[0].pop(0) if runs else {}
        for hunk in file["hunks"]:
            found.hunks[hunk["status"]] += 1
            _compare_hunk(found, entry.name, path, file, hunk, verdicts.get(hunk["number"]))


def _compare_hunk(
    found: Comparison,
    patch: str,
    path: str,
    file: dict[str, Any],
    hunk: dict[str, Any],
    theirs: tuple[bool, int] | None,
) -> None:
    status = hunk["status"]
    if path in found.differing:
        found.rules["after"] += 1
        return
    if status == "ambiguous":
        agree = theirs is not None and theirs[0]
        found.rules["ambiguous"] += 1
        found.differing.add(path)
    elif status in ("clean", "offset"):
        agree = theirs == (True, hunk["offset"]) and (status == "clean") == (hunk["offset"] == 0)
    elif status == "upstreamed":
        agree = theirs is None or not theirs[0]
        found.rules["there"] += 1
    else:
        # What GNU patch is not even asked (no such file) it has not placed either.
        agree = theirs is None or not theirs[0]
        if file["status"] == "conflict" and "already has" in file["reason"]:
            found.rules["there"] += 1
            found.differing.add(path)
            return
    if not agree:
        found.bad.append((patch, path, hunk["number"], status, hunk["offset"], hunk["reason"], theirs))


def _plain(name: bytes) -> str:
    """A name as GNU patch prints it: in quotes where a shell would need them."""
    if name.startswith(b"'") and name.endswith(b"'"):
        name = name[1:-1]
    return name.decode("utf-8", "surrogateescape")


def _quoted(patch: bytes) -> set[str]:
    """The files of diffs that a patch's prose quotes with an indent."""
    return {os.fsdecode(name) for name in re.findall(rb"^[ \t]+diff --git a/\S+ b/(\S+)$", patch, re.MULTILINE)}


def _compare_files(found: Comparison, tree: Path, theirs: Path, out: Path, removed: set[str], quoted: set[str]) -> None:
    """Every file that either changed is the same in both; a hard link that holds says GNU patch left a file alone."""
    before, after, ours = _files(tree), _files(theirs), _files(out)
    if (lost := before.keys() - after.keys() - found.differing) != removed - found.differing:
        found.bad.append(("removed", sorted(lost ^ removed)))
    changed = {path for path, inode in after.items() if before.get(path) != inode} | set(ours)
    for path in sorted(path for path in ours if " " in path):
        cut = path.partition(" ")[0]
        if cut in changed - set(ours) and _content(theirs / cut) == _content(out / path):
            found.rules["spaces"] += 1
            changed -= {cut, path}
    for path in sorted(changed & quoted - set(ours)):
        found.rules["indented"] += 1
        changed.discard(path)
    for path in sorted(changed - found.differing):
        wanted = _content(theirs / path) if path in after else None
        if wanted == (_content(tree / path) if path in before else None) and path not in ours:
            continue
        if (_content(out / path) if path in ours else None) != wanted:
            found.bad.append(("bytes", path, path in ours, path in after))


def _files(folder: Path) -> dict[str, int]:
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            if not name.endswith((".orig", ".rej")) or parent.startswith(str(folder / "out")):
                place = Path(parent) / name
                found[str(place.relative_to(folder))] = place.lstat().st_ino
    return found


def _content(place: Path) -> bytes:
    return os.fsencode(place.readlink()) if place.is_symlink() else place.read_bytes()


def upset(tree: Path, patches: Path, folder: Path, *, seed: int) -> Path:
    """Copy the files that a series touches with runs of lines lost, doubled and added, always the same way."""
    choose = random.Random(seed)
    names = {
        path
        for entry in load_series(patches).entries
        for path in re.findall(
            rb"^(?:---|\+\+\+) [^/\n]+/([^\t\r\n]+)", (patches / entry.name).read_bytes(), re.MULTILINE
        )
    }
    for name in sorted(names):
        source, target = (root / os.fsdecode(name) for root in (tree, folder))
        if source.is_symlink() or not source.is_file():
            continue
        lines = source.read_bytes().splitlines(keepends=True)
        for _ in range(max(1, len(lines) // 150)):
            at, size = choose.randrange(len(lines) + 1), choose.randrange(1, 12)
            kind = choose.randrange(4)
            if kind == 0:
                del lines[at : at + size]
            elif kind == 1:
                lines[at:at] = lines[at : at + size]
            elif kind == 2:
                lines[at:at] = [b"/* new */\n"] * size
            elif at < len(lines):
                lines[at] = b" " + lines[at]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(lines))
    return folder


def examine(versions: Versions, unpacked: Unpacked, package: str, scratch: Path) -> Comparison:
    """One package on its upstream, on upset upstreams and on its own patched tree."""
    tree = unpacked(package, versions(package)[-1], scratch)
    patches = scratch / "patches"
    total = Comparison()
    grounds = [("upstream", tree)]
    grounds += [(f"upset {seed}", upset(tree, patches, scratch / f"upset{seed}", seed=seed)) for seed in (1, 2)]
    grounds.append(("patched", scratch / "patched"))
    subprocess.run(["cp", "-al", str(tree), str(scratch / "patched")], check=True)
    overlay(checked(patches, tree, scratch / "ours"), scratch / "ours", scratch / "patched")
    for title, ground in grounds:
        work = scratch / f"compare {title}"
        work.mkdir()
        found = compare(patches, ground, work)
        show(found.line(f"{package} on {title}"))
        total.hunks += found.hunks
        total.rules += found.rules
        total.bad += [(title, *row) if isinstance(row, tuple) else row for row in found.bad]
        shutil.rmtree(work)
    return total


def overlay(document: dict[str, Any], changed: Path, tree: Path) -> None:
    """Lay the files that were written out over *tree*, whose files are hard links."""
    for path in document.get("written", ()):
        inner = path.split("/", 1)[1]
        target = tree / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copy(changed / inner, target)


@pytest.mark.parametrize("package", FEW)
def test_a_series_ends_where_gnu_patch_ends(
    versions: Versions, unpacked: Unpacked, package: str, tmp_path: Path
) -> None:
    found = examine(versions, unpacked, package, tmp_path)
    assert sum(found.hunks.values()) > 0
    assert not found.bad


@pytest.mark.slow
@pytest.mark.parametrize("package", MANY)
def test_many_series_end_where_gnu_patch_ends(
    versions: Versions, unpacked: Unpacked, package: str, tmp_path: Path
) -> None:
    found = examine(versions, unpacked, package, tmp_path)
    assert not found.bad


@pytest.mark.slow
@pytest.mark.parametrize("package", NEWER)
def test_a_series_on_the_next_upstream_ends_where_gnu_patch_ends(
    upgrades: Upgrades, package: str, tmp_path: Path
) -> None:
    total = Comparison()
    for old, new in upgrades(package, tmp_path):
        work = tmp_path / "compare"
        work.mkdir()
        found = compare(old / "patches", new / "tree", work)
        show(found.line(f"{old.name} on {new.name}"))
        total.hunks += found.hunks
        total.bad += [(old.name, new.name, row) for row in found.bad]
        shutil.rmtree(work)
    assert sum(total.hunks.values()) > 0
    assert not total.bad
