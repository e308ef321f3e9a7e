"""A series as commits and back: what nobody changed keeps its bytes, what was changed arrives whole."""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from packaging.version import Version

from downstream.errors import PatchError, StateError
from downstream.patches.header import Header
from downstream.patches.parse import parse
from downstream.patches.series import Series, load_series
from downstream.patches.unified import unified
from downstream.pins import Pin, Upstream
from downstream.placing.push import push
from downstream.queue import checkout
from downstream.queue.checkout import Extent
from downstream.queue.export import Export, Fate, export
from downstream.trees.layout import IDENTITY
from downstream.trees.session import Session
from downstream.trees.tree import MemoryTree

TODAY = datetime.date(2026, 11, 30)
PIN = Pin(
    line="stable",
    upstream=Upstream(
        name="up",
        package="up",
        repository="https://example.org/up",
        tag="v{version}",
        layout=IDENTITY,
        version_file="v",
    ),
    version=Version("1.0"),
    revision=1,
    sha256={},
)


def lines(count: int = 40, **changes: str) -> bytes:
    return b"".join(changes.get(f"n{n}", str(n)).encode() + b"\n" for n in range(1, count + 1))


RELEASE = MemoryTree(
    {
        "f.c": lines(),
        "g.py": lines(9) + b"return 1\n",
        "d/crlf.txt": b"a\r\nb\r\n",
        "d/no-newline": b"last",
        "untouched.h": b"#pragma once\n",
        "3rdparty/x.h": b"vendored\n",
        "link": b"f.c",
        "run.sh": b"#!/bin/sh\n",
        "\udce9.txt": b"\xe9\n",
    },
    name="up 1.0",
    modes={"link": 0o120000, "run.sh": 0o100755},
)


def header(subject: str, *, more: str = "") -> bytes:
    return (
        f"From: A Person <a@example.org>\nDate: Mon, 30 Nov 2026 12:00:00 +0000\nSubject: {subject}\n"
        f"Origin: vendor\nForwarded: no\nLast-Update: 2026-01-02\n{more}\n# breaks without it\n\n---\n\n"
    ).encode()


FIRST = header("first: change ten") + unified("f.c", "f.c", lines(), lines(n10="ten"))
SECOND = (
    # As git format-patch writes it, index line and signature included: those bytes stay, too.
    header("second: change thirty", more="Bug: https://example.org/1\nBug: https://example.org/2\n")
    + b"diff --git a/f.c b/f.c\nindex 1234567..89abcde 100644\n"
    + unified("f.c", "f.c", lines(n10="ten"), lines(n10="ten", n30="thirty")).split(b"\n", 1)[1]
    + unified("d/crlf.txt", "d/crlf.txt", b"a\r\nb\r\n", b"a\r\nc\r\n")
    + b"-- \n2.39.5\n\n"
)
THIRD = header("third: kinds") + b"".join(
    (
        unified("g.py", "h.py", lines(9) + b"return 1\n", lines(9) + b"return 2\n"),
        unified("d/no-newline", None, b"last", None),
        unified(None, "new/empty", None, b""),
        unified("run.sh", "run.sh", b"#!/bin/sh\n", b"#!/bin/sh\n", old_mode=0o100755, new_mode=0o100644),
        unified("link", "link", b"f.c", b"g.c", old_mode=0o120000, new_mode=0o120000),
        unified("\udce9.txt", "\udce9.txt", b"\xe9\n", b"\xe8\n"),
    )
)
PATCHES = {"first.patch": FIRST, "sub/second.patch": SECOND, "third.patch": THIRD}


class Desk:
    """A series folder, its checkout, and git as the user types it."""

    def __init__(self, root: Path, patches: Mapping[str, bytes]) -> None:
        self.root = root
        self.home = root / "patches/stable/up"
        self.folder = root / ".work/checkout"
        for name, content in patches.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_bytes(content)
        (self.home / "series").write_bytes(b"# ours\n" + b"".join(f"{name}\n".encode() for name in patches))

    @property
    def series(self) -> Series:
        return load_series(self.home)

    def checkout(self, extent: Extent = Extent.SOURCES, *more: str) -> checkout.Record:
        with Session(self.root / "cache", offline=True) as session:
            return checkout.make(self.folder, PIN, self.series, RELEASE, session, extent=extent, more=more)

    def export(self) -> Export:
        record = checkout.load(self.folder)
        assert record is not None
        return export(self.folder, record, self.series, RELEASE, today=TODAY)

    def fates(self) -> dict[str, Fate]:
        return {patch.name: patch.fate for patch in self.export().patches}

    def write(self, exported: Export) -> tuple[str, ...]:
        written = exported.write(self.root, self.home, self.series)
        record = checkout.load(self.folder)
        assert record is not None
        checkout.renew(self.folder, record, self.series)
        return written

    def git(self, *arguments: str, editor: str = "true") -> str:
        environment = {**os.environ, "GIT_SEQUENCE_EDITOR": editor, "GIT_EDITOR": "true"}
        for role in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{role}_NAME": "Me", f"GIT_{role}_EMAIL": "me@example.org"}
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    def commit(self, path: str, content: bytes, *arguments: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(content)
        self.git("add", "--force", path)
        self.git("commit", "--quiet", *arguments)


@pytest.fixture
def desk(tmp_path: Path) -> Callable[..., Desk]:
    def make(patches: Mapping[str, bytes] = PATCHES) -> Desk:
        return Desk(tmp_path, patches)

    return make


def test_checkout_has_one_commit_per_patch_and_the_release_below(desk: Callable[..., Desk]) -> None:
    one = desk()
    one.checkout()
    assert one.git("log", "--format=%s").splitlines() == [
        "third: kinds",
        "second: change thirty",
        "first: change ten",
        "up 1.0",
    ]
    assert one.git("log", "-1", "--format=%an <%ae>%n%(trailers:only)").splitlines() == [
        "A Person <a@example.org>",
        "Origin: vendor",
        "Forwarded: no",
        "Last-Update: 2026-01-02",
        "Patch-Name: third.patch",
        "",
    ]
    assert one.git("status", "--porcelain") == ""
    assert (one.folder / "link").readlink() == Path("g.c")
    assert (one.folder / "d/crlf.txt").read_bytes() == b"a\r\nc\r\n"
    assert one.git("rev-parse", "release") == one.git("rev-parse", "HEAD~3")


def test_checkout_is_the_same_each_time(desk: Callable[..., Desk]) -> None:
    one = desk()
    assert one.checkout() == one.checkout()


@pytest.mark.parametrize(
    ("extent", "more", "held", "left"),
    [
        (Extent.TOUCHED, (), "f.c", "untouched.h"),
        (Extent.TOUCHED, ("untouched.h",), "untouched.h", "3rdparty/x.h"),
        (Extent.TOUCHED, ("3rdparty",), "3rdparty/x.h", "untouched.h"),
        (Extent.TOUCHED, ("*.h",), "3rdparty/x.h", "nothing"),
        (Extent.SOURCES, (), "untouched.h", "3rdparty/x.h"),
        (Extent.FULL, (), "3rdparty/x.h", "nothing"),
    ],
)
def test_extents(desk: Callable[..., Desk], extent: Extent, more: tuple[str, ...], held: str, left: str) -> None:
    one = desk()
    one.checkout(extent, *more)
    assert (one.folder / held).exists()
    assert not (one.folder / left).exists()


def test_export_of_an_untouched_checkout_writes_nothing(desk: Callable[..., Desk]) -> None:
    one = desk()
    one.checkout()
    exported = one.export()
    assert {patch.name: patch.content for patch in exported.patches} == PATCHES
    assert set(one.fates().values()) == {Fate.UNMODIFIED}
    assert one.write(exported) == ()


@pytest.mark.parametrize(
    "configuration",
    [
        "[diff]\n\tnoprefix = true\n\tmnemonicPrefix = true\n\trenames = false\n\texternal = false\n\tcontext = 9\n",
        "[core]\n\tabbrev = 40\n\tautocrlf = true\n\tquotePath = false\n\thooksPath = /x\n[color]\n\tui = always\n",
        "[commit]\n\tgpgSign = true\n[format]\n\tuseAutoBase = true\n\tsignature = mine\n[user]\n\tsigningKey = none\n",
    ],
)
def test_the_users_configuration_has_no_effect(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, configuration: str
) -> None:
    one = desk()
    config = one.root / "gitconfig"
    config.write_text(configuration)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    one.checkout()
    assert set(one.fates().values()) == {Fate.UNMODIFIED}


def test_only_line_numbers_move_where_an_earlier_patch_grows(desk: Callable[..., Desk]) -> None:
    one = desk()
    one.checkout()
    one.git("rebase", "--interactive", "release", editor="sed -i '1s/^pick/edit/'")
    one.commit("f.c", b"0\n" + lines(n10="ten"), "--amend", "--no-edit")
    one.git("rebase", "--continue")
    exported = {patch.name: patch for patch in one.export().patches}
    assert [patch.fate for patch in exported.values()] == [Fate.REWRITTEN, Fate.REWRITTEN, Fate.UNMODIFIED]
    second = exported["sub/second.patch"].content
    assert second == SECOND.replace(b"@@ -27,7 +27,7 @@", b"@@ -28,7 +28,7 @@")
    first = exported["first.patch"].content
    assert first is not None
    assert first.startswith(header("first: change ten"))
    assert parse(first, name="x").files[0].hunks[0].new[0] == b"0\n"


def test_line_numbers_move_among_look_alikes_too(desk: Callable[..., Desk]) -> None:
    alike = b"".join(b"guard\n{\nold\n}\n\n" for _ in range(13))
    first = unified(None, "k.cu", None, alike)
    fourth = alike.split(b"old\n")
    changed = b"old\n".join(fourth[:4]) + b"new\n" + b"old\n".join(fourth[4:])
    second = unified("k.cu", "k.cu", alike, changed).replace(b" @@ old\n", b" @@ kernel of ours\n")
    assert b"kernel of ours" in second
    one = desk({"first.patch": header("first") + first, "second.patch": header("second") + second})
    one.checkout()
    one.git("rebase", "--interactive", "release", editor="sed -i '1s/^pick/edit/'")
    one.commit("k.cu", b"// more\n" + alike, "--amend", "--no-edit")
    one.git("rebase", "--continue")
    content = one.export().patches[1].content
    assert content == header("second") + second.replace(b"-15,7 +15,7", b"-16,7 +16,7")


def test_a_changed_file_leaves_the_bytes_of_the_others(desk: Callable[..., Desk]) -> None:
    one = desk({"sub/second.patch": SECOND.replace(b"ten\n", b"10\n")})
    one.checkout()
    one.commit("d/crlf.txt", b"a\r\nd\r\n", "--amend", "--no-edit")
    (patch,) = one.export().patches
    assert patch.content == SECOND.replace(b"ten\n", b"10\n").replace(b"+c\r\n", b"+d\r\n").replace(
        b"-- \n2.39.5\n\n", b""
    )


def test_commits_may_be_reordered_dropped_and_added(desk: Callable[..., Desk]) -> None:
    one = desk()
    one.checkout()
    one.git("rebase", "--interactive", "release", editor="sed -i -e '1{h;d}' -e '2{p;x}' -e '3d'")
    one.commit("new.c", b"new\n", "--message", "Add a new file (#12)\n\nWithout it: nothing.")
    exported = one.export()
    assert {patch.name: patch.fate for patch in exported.patches} == {
        "sub/second.patch": Fate.UNMODIFIED,
        "first.patch": Fate.UNMODIFIED,
        "add-a-new-file.patch": Fate.NEW,
        "third.patch": Fate.DROPPED,
    }
    one.write(exported)
    assert (one.home / "series").read_bytes() == b"sub/second.patch\n# ours\nfirst.patch\nadd-a-new-file.patch\n"
    assert not (one.home / "third.patch").exists()
    assert (one.home / "add-a-new-file.patch").read_bytes() == (
        b"From: Me <me@example.org>\nDate: Thu, 01 Jan 2026 00:00:00 +0000\nSubject: Add a new file (#12)\n"
        b"Forwarded: no\nLast-Update: 2026-11-30\n\nWithout it: nothing.\n\n---\n\n"
        + unified(None, "new.c", None, b"new\n")
    )
    assert push(one.series.patches(), RELEASE).clean
    # An exported checkout can be exported again, and is the same.
    assert set(one.fates().values()) == {Fate.UNMODIFIED}


def test_a_commit_split_in_two_becomes_two_patches(desk: Callable[..., Desk]) -> None:
    one = desk({"first.patch": FIRST})
    one.checkout()
    one.git("reset", "--quiet", "--soft", "HEAD~1")
    one.git("reset", "--quiet")
    one.commit("f.c", lines(n10="t"), "--message", "first half\n\nPatch-Name: first.patch")
    one.commit("f.c", lines(n10="ten"), "--message", "second half")
    assert one.fates() == {"first.patch": Fate.REWRITTEN, "second-half.patch": Fate.NEW}


@pytest.mark.parametrize(
    ("sed", "edited"),
    [
        ("s/^Forwarded: no/Forwarded: not-needed/", (b"Forwarded: no", b"Forwarded: not-needed")),
        ("s/^Last-Update: .*/Applied-Upstream: 1.1/", (b"Last-Update: 2026-01-02", b"Applied-Upstream: 1.1")),
        ("s/^first: change ten/first: change 10/", (b"Subject: first: change ten", b"Subject: first: change 10")),
        ("s/^# breaks without it/# it breaks/", (b"# breaks without it", b"# it breaks")),
    ],
)
def test_an_edited_message_changes_its_part_of_the_header(
    desk: Callable[..., Desk], sed: str, edited: tuple[bytes, bytes]
) -> None:
    one = desk({"first.patch": FIRST})
    one.checkout()
    message = one.git("log", "-1", "--format=%B")
    new = subprocess.run(["sed", sed], input=message, capture_output=True, check=True, text=True).stdout
    assert new != message
    one.git("commit", "--amend", "--quiet", "--message", new)
    (patch,) = one.export().patches
    assert patch.content == FIRST.replace(*edited)


def test_names_modes_and_kinds_survive_an_edit_elsewhere(desk: Callable[..., Desk]) -> None:
    one = desk({"third.patch": THIRD})
    one.checkout()
    one.commit("h.py", lines(9) + b"return 3\n", "--amend", "--no-edit")
    (patch,) = one.export().patches
    assert patch.content == THIRD.replace(b"+return 2", b"+return 3")


@pytest.mark.parametrize(
    ("upset", "problem"),
    [
        (lambda desk: (desk.folder / "f.c").write_bytes(b"x"), "not committed: f.c"),
        (lambda desk: (desk.home / "first.patch").write_bytes(FIRST + b"\n"), "has changed since"),
        (
            lambda desk: desk.commit("f.c", b"x\n", "--message", "x\n\nPatch-Name: third.patch"),
            "second commit for third",
        ),
        (lambda desk: desk.git("rebase", "-i", "release", editor="sed -i 1s/^pick/edit/"), "middle of a git rebase"),
        (lambda desk: desk.commit("3rdparty/x.h", b"x\n", "--message", "x"), "the release has it"),
    ],
)
def test_export_refuses_what_would_lose_work(
    desk: Callable[..., Desk], upset: Callable[[Desk], object], problem: str
) -> None:
    one = desk()
    one.checkout()
    upset(one)
    with pytest.raises(StateError, match=problem):
        one.export()


def test_git_am_takes_what_is_exported(desk: Callable[..., Desk]) -> None:
    one = desk()
    one.checkout()
    one.commit("new.c", b"new\n", "--message", "Add a new file\n\nWithout it: nothing.")
    one.commit("f.c", lines(n10="zehn", n30="thirty"), "--message", "Speak German")
    one.write(one.export())
    wanted = one.git("rev-parse", "HEAD^{tree}")
    one.git("checkout", "--quiet", "release")
    one.git("am", "--quiet", "--keep-cr", *(str(one.series.path(entry)) for entry in one.series))
    assert one.git("rev-parse", "HEAD^{tree}") == wanted
    assert one.git("log", "--format=%an|%s", "-5").splitlines() == [
        "Me|Speak German",
        "Me|Add a new file",
        "A Person|third: kinds",
        "A Person|second: change thirty",
        "A Person|first: change ten",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"a\n", b"a\n\n", id="ends in an added blank line"),
        pytest.param(b"a", b"b", id="no newline on either side"),
        pytest.param(b"a\r\nb\n", b"a\r\nc\rd\n", id="CR as content"),
        pytest.param(b"\x0c\n\xc2\x85\n", b"\x0c\n\xe2\x80\xa8--- a/x\n", id="FF, NEL, U+2028"),
        pytest.param(b"\xef\xbb\xbfa\n", b"\xef\xbb\xbf\xe9\n", id="BOM, Latin-1"),
    ],
)
def test_bytes_go_through_git_and_back(desk: Callable[..., Desk], old: bytes, new: bytes) -> None:
    one = desk({"first.patch": header("first") + unified(None, "n", None, old)})
    one.checkout()
    assert one.fates() == {"first.patch": Fate.UNMODIFIED}
    one.commit("n", new, "--message", "Second")
    content = one.export().patches[1].content
    assert content is not None
    assert content.endswith(b"---\n\n" + unified("n", "n", old, new))


def test_a_checkout_below_another_repository_is_its_own(desk: Callable[..., Desk]) -> None:
    one = desk()
    subprocess.run(["git", "init", "--quiet"], cwd=one.root, check=True)
    one.checkout()
    assert one.git("rev-parse", "--show-toplevel").strip() == str(one.folder)
    assert set(one.fates().values()) == {Fate.UNMODIFIED}


def test_a_merge_is_refused(desk: Callable[..., Desk]) -> None:
    one = desk()
    one.checkout()
    one.git("branch", "side", "HEAD~1")
    one.git("checkout", "--quiet", "side")
    one.commit("s.c", b"s\n", "--message", "side")
    one.git("checkout", "--quiet", "series")
    one.git("merge", "--quiet", "--no-edit", "side")
    with pytest.raises(StateError, match="is a merge"):
        one.export()


def test_a_patch_that_does_not_apply_to_its_pin_is_named(desk: Callable[..., Desk]) -> None:
    one = desk({"first.patch": FIRST, "again.patch": FIRST})
    with pytest.raises(PatchError, match=r"hunk 1 of f\.c does not apply"):
        one.checkout()


def test_a_patch_at_another_strip_level_is_rewritten_only_when_it_changes(desk: Callable[..., Desk]) -> None:
    one = desk({"first.patch": FIRST.replace(b"a/f.c", b"f.c").replace(b"b/f.c", b"f.c")})
    (one.home / "series").write_bytes(b"first.patch -p0 # old\n")
    one.checkout()
    assert one.fates() == {"first.patch": Fate.UNMODIFIED}
    one.commit("f.c", lines(n10="zehn"), "--amend", "--no-edit")
    exported = one.export()
    assert exported.series == b"first.patch # old\n"
    assert exported.patches[0].content == FIRST.replace(b"+ten", b"+zehn")


def test_an_empty_patch_is_an_empty_commit_until_it_is_filled(desk: Callable[..., Desk]) -> None:
    one = desk({"empty.patch": header("to be filled")})
    one.checkout()
    assert one.fates() == {"empty.patch": Fate.UNMODIFIED}
    one.commit("f.c", lines(n10="ten"), "--amend", "--no-edit")
    (patch,) = one.export().patches
    assert patch.content == header("to be filled") + unified("f.c", "f.c", lines(), lines(n10="ten"))


def test_unexported_work_is_noticed(desk: Callable[..., Desk]) -> None:
    one = desk()
    record = one.checkout()
    assert checkout.unexported(one.folder, record) == []
    (one.folder / "f.c").write_bytes(b"x")
    assert checkout.unexported(one.folder, record) == ["f.c is changed and not committed"]
    one.git("commit", "--quiet", "--all", "--message", "x")
    (lost,) = checkout.unexported(one.folder, record)
    assert lost.startswith("its commit ")


def test_dep3_headers_without_mail_fields_are_kept(desk: Callable[..., Desk]) -> None:
    raw = b"Description: change ten\n Long text.\n .\n  indented\nAuthor: B <b@example.org>\nForwarded: no\n\n"
    one = desk({"first.patch": raw + FIRST[FIRST.index(b"diff --git") :]})
    one.checkout()
    assert one.fates() == {"first.patch": Fate.UNMODIFIED}
    assert Header.parse(raw).author == "B <b@example.org>"
    assert one.git("log", "-1", "--format=%an %s%n%b").startswith("B change ten\nLong text.\n\n indented\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
@pytest.mark.parametrize("kilobytes", [16, 64])
def test_a_full_disk_is_told_from_a_spoiled_checkout(desk: Callable[..., Desk], tmp_path: Path, kilobytes: int) -> None:
    small, made = tmp_path / "small", desk()
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    made.folder = small / "checkout"
    try:
        with pytest.raises(StateError) as caught:
            made.checkout()
        assert caught.value.next_step == "make room there, then begin it anew"
    finally:
        subprocess.run(["umount", str(small)], check=True)
