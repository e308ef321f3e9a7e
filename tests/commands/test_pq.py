"""tools/pq.py as its users run it: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from downstream.cli import FAILED, FINDINGS, OK
from downstream.patches.unified import unified
from downstream.trees.cache import default_folder
from downstream.trees.session import Session


def lines(count: int = 40, **changes: str) -> bytes:
    return b"".join(changes.get(f"n{n}", str(n)).encode() + b"\n" for n in range(1, count + 1))


FILES = {"up/f.c": lines(), "up/g.py": b"def g():\n    return 1\n", "src/k.cu": lines(20)}
HEAD = b"""From: A Person <a@example.org>
Subject: %s
Origin: vendor
Forwarded: no
Last-Update: 2026-11-01

Something breaks without it.

---

"""
FIRST = HEAD % b"first" + unified("up/f.c", "up/f.c", lines(), lines(n10="ten"))
SECOND = HEAD % b"second" + unified("up/f.c", "up/f.c", lines(n10="ten"), lines(n10="ten", n30="thirty"))

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(ask: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("SM120_OVERLAY_CACHE", str(tmp_path / "cache"))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Me")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "me@example.org")
    monkeypatch.chdir(tmp_path)

    return partial(ask, "pq")


@pytest.fixture
def overlay(tmp_path: Path, run: Run) -> Path:
    """An overlay whose pin is a wheel in the cache, with a series of two patches."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in {**FILES, "up-1.0.dist-info/METADATA": b"Name: up\nVersion: 1.0\n"}.items():
            archive.writestr(name.replace("src/", "up/src/"), text)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    with Session(default_folder(), offline=True) as session:
        wheel = session.cache.folder / "files" / digest / "up-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(content.getvalue())
    root = tmp_path / "overlay"
    home = root / "patches/stable/up"
    home.mkdir(parents=True)
    (root / "VERSIONS.toml").write_text(f"""schema = 1
[upstreams.up]
package = "up"
repository = "https://example.org/up"
tag = "v{{version}}"
version-file = "up/_version.py"
[upstreams.up.layout]
"up/" = "up/"
"src/" = "up/src/"
[lines.stable.up]
version = "1.0"
revision = 1
[lines.stable.up.sha256]
"{wheel.name}" = "{digest}"
""")
    (home / "series").write_bytes(b"# ours\nfirst.patch\nsecond.patch # next\n")
    (home / "first.patch").write_bytes(FIRST)
    (home / "second.patch").write_bytes(SECOND)
    return root


def state(root: Path) -> dict[str, bytes]:
    home = root / "patches/stable/up"
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def foreign(folder: Path, files: dict[str, bytes], series: bytes, patches: dict[str, bytes]) -> None:
    for name, content in {
        **{f"tree/{n}": c for n, c in files.items()},
        **{f"p/{n}": c for n, c in patches.items()},
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "p").mkdir(exist_ok=True)
    (folder / "p/series").write_bytes(series)


def plain(path: bytes, *hunks: bytes) -> bytes:
    return b"--- a/" + path + b"\n+++ b/" + path + b"\n" + b"".join(hunks)


def hunk(at: int, old: str, new: str) -> bytes:
    """One line changed, with a line of context on either side taken from ``lines()``."""
    return f"@@ -{at - 1},3 +{at - 1},3 @@\n {int(old) - 1}\n-{old}\n+{new}\n {int(old) + 1}\n".encode()


# ---------------------------------------------------------------- foreign material


def test_check_of_foreign_material_judges_each_hunk_and_writes_what_was_placed(run: Run, tmp_path: Path) -> None:
    foreign(
        tmp_path,
        {"f.c": lines(), "g.c": lines(), "h.c": lines()},
        b"mixed.patch\nsub/strip.patch -p0\nbad.patch\nlast.patch",
        {
            "mixed.patch": plain(b"f.c", hunk(10, "10", "ten"), hunk(22, "20", "twenty"))
            + plain(b"g.c", b"@@ -5 +5 @@\n-nowhere\n+x\n"),
            "sub/strip.patch": b"--- f.c\n+++ f.c\n" + hunk(30, "30", "thirty"),
            "bad.patch": plain(b"f.c", hunk(35, "35", "x"), b"+longer\n") + plain(b"new/n.c", b"@@ -0,0 +1 @@\n+n\n"),
            "last.patch": plain(b"f.c", hunk(10, "10", "again")),
        },
    )
    code, out, err = run("check", "--series", "p", "--tree", "tree", "--out", "out", "--json")
    report: dict[str, Any] = json.loads(out)
    assert (code, report["schema"], report["command"], report["ok"], err) == (FINDINGS, 1, "check", False, "")
    assert [(p["patch"], p["status"]) for p in report["patches"]] == [
        ("mixed.patch", "conflict"),
        ("sub/strip.patch", "unmodified"),
        ("bad.patch", "malformed"),
        ("last.patch", "conflict"),
    ]
    assert [
        (f["path"], h["number"], h["status"], h["line"], h["offset"])
        for p in report["patches"]
        for f in p["files"]
        for h in f["hunks"]
    ] == [
        ("f.c", 1, "clean", 9, 0),
        ("f.c", 2, "offset", 19, -2),
        ("g.c", 1, "conflict", None, None),
        ("f.c", 1, "clean", 29, 0),
        ("new/n.c", 1, "clean", 1, 0),
        ("f.c", 1, "malformed", None, None),
        ("f.c", 1, "conflict", None, None),
    ]
    written = {
        path.relative_to("out").as_posix(): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()
    }
    assert written == {"f.c": lines(n10="ten", n20="twenty", n30="thirty"), "new/n.c": b"n\n"}
    assert report["written"] == ["out/f.c", "out/new/n.c"]


@pytest.mark.parametrize("kind", ["folder", "tar.gz", "zip", "wheel", "git"])
def test_trees_of_every_kind(run: Run, tmp_path: Path, kind: str) -> None:
    foreign(tmp_path, {"f.c": lines()}, b"a.patch\n", {"a.patch": plain(b"f.c", hunk(10, "10", "ten"))})
    tree = {
        "folder": "tree",
        "tar.gz": "t.tar.gz",
        "zip": "t.zip",
        "wheel": "t-1-py3-none-any.whl",
        "git": "git:tree@v1",
    }[kind]
    if kind == "tar.gz":
        with tarfile.open(tree, "w:gz") as archive:
            archive.add("tree", "tree-1.0")
    elif kind in ("zip", "wheel"):
        with zipfile.ZipFile(tree, "w") as archive:
            archive.write("tree/f.c", "f.c")
    elif kind == "git":
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", "v1"]):
            subprocess.run(["git", *command], cwd="tree", check=True)
        Path("tree/f.c").write_bytes(b"not committed\n")
    code, out, err = run("check", "--series", "p/series", "--tree", tree, "--json")
    assert (code, err) == (OK, "")
    assert json.loads(out)["ok"] is True


def test_base_tells_look_alikes_apart(run: Run, tmp_path: Path) -> None:
    twice = lines(9) + b"same\n" + lines(9) + b"same\n" + lines(9)
    foreign(tmp_path, {"f.c": lines(9) + b"same\n" + lines(9)}, b"a.patch\n", {
        "a.patch": plain(b"f.c", b"@@ -19,3 +19,3 @@\n 9\n-same\n+other\n 1\n"),
    })  # fmt: skip
    Path("base").mkdir()
    Path("base/f.c").write_bytes(twice)
    code, out, _ = run("check", "--series", "p", "--tree", "tree", "--json")
    assert (code, json.loads(out)["patches"][0]["files"][0]["hunks"][0]["status"]) == (OK, "offset")
    code, out, _ = run("check", "--series", "p", "--tree", "tree", "--base", "base", "--json")
    assert (code, json.loads(out)["ok"]) == (FINDINGS, False)


def test_strip_level_of_the_command_line_is_for_entries_without_one(run: Run, tmp_path: Path) -> None:
    foreign(
        tmp_path,
        {"f.c": lines()},
        b"a.patch\nb.patch -p1\n",
        {
            "a.patch": b"--- x/a/f.c\n+++ x/b/f.c\n" + hunk(10, "10", "ten"),
            "b.patch": plain(b"f.c", hunk(20, "20", "twenty")),
        },
    )
    assert run("check", "--series", "p", "--tree", "tree", "-p2", "-q")[0] == OK


def test_text_says_place_and_reason_and_only_that_when_quiet(run: Run, tmp_path: Path) -> None:
    foreign(tmp_path, {"f.c": lines()}, b"a.patch\n", {"a.patch": plain(b"f.c", b"@@ -5 +5 @@\n-nope\n+x\n")})
    code, out, _ = run("check", "--series", "p", "--tree", "tree", "--color", "never")
    assert code == FINDINGS
    assert "p/a.patch:3: f.c: conflict: hunk 1" in out
    code, out, _ = run("check", "--series", "p", "--tree", "tree", "-q")
    assert out.startswith("p/a.patch:3: f.c")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--series", "p"], "--tree: is missing"),
        (["--tree", "tree"], "--series: is missing"),
        (["--series", "nope", "--tree", "tree"], "nope: does not exist"),
        (["--series", "p", "--tree", "nope"], "nope: does not exist"),
        (["--series", "p", "--tree", "git:tree@x"], "no git repository"),
        (["--series", "p", "--tree", "tree"], "p/series:1: names 'gone.patch', and there is no such file"),
        (["--base", "tree"], "is for foreign material"),
        (["--series", "p", "--tree", "tree", "-p", "x"], "no strip level"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(run: Run, tmp_path: Path, arguments: list[str], problem: str) -> None:
    foreign(tmp_path, {"f.c": b""}, b"gone.patch\n", {})
    code, out, err = run("check", *arguments)
    assert (code, out) == (FAILED, "")
    assert problem in err


def test_out_goes_through_no_symlink(run: Run, tmp_path: Path) -> None:
    foreign(tmp_path, {"d/f.c": lines()}, b"a.patch\n", {"a.patch": plain(b"d/f.c", hunk(10, "10", "ten"))})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/d").symlink_to(tmp_path / "elsewhere")
    code, _, err = run("check", "--series", "p", "--tree", "tree", "--out", "out")
    assert code == FAILED
    assert "is a symlink" in err
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_out_keeps_modes_and_writes_a_symlink_as_one(run: Run, tmp_path: Path) -> None:
    link = b"diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+run.sh\n"
    link += b"\\ No newline at end of file\n"
    again = b"diff --git a/old b/old\nindex 1..2 120000\n--- a/old\n+++ b/old\n@@ -1 +1 @@\n-run.sh\n"
    again += b"\\ No newline at end of file\n+f.c\n\\ No newline at end of file\n"
    content = {"a.patch": plain(b"run.sh", hunk(10, "10", "ten")) + link + again}
    foreign(tmp_path, {"run.sh": lines()}, b"a.patch\n", content)
    (tmp_path / "tree/run.sh").chmod(0o755)
    (tmp_path / "tree/old").symlink_to("run.sh")
    assert run("check", "--series", "p", "--tree", "tree", "--out", "out", "--quiet") == (OK, "", "")
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o777 == 0o755
    assert [(tmp_path / "out" / name).readlink() for name in ("link", "old")] == [Path("run.sh"), Path("f.c")]


def test_out_has_the_files_whose_mode_alone_the_series_changes(run: Run, tmp_path: Path) -> None:
    chmod = b"diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
    foreign(tmp_path, {"run.sh": lines(), "f.c": lines()}, b"a.patch\n", {"a.patch": chmod})
    assert run("check", "--series", "p", "--tree", "tree", "--out", "out", "--quiet") == (OK, "", "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.sh"]
    assert (tmp_path / "out/run.sh").read_bytes() == (tmp_path / "tree/run.sh").read_bytes()
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o777 == 0o755


# ---------------------------------------------------------------- the project's own series


def test_check_of_a_sound_series(run: Run, overlay: Path) -> None:
    code, out, err = run("check", "--root", overlay)
    assert (code, err) == (OK, "")
    assert "2 patches: 2 unmodified; 2 hunks: 2 clean" in out
    code, out, _ = run("check", "--root", overlay, "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["lint"], report["upstream"]) == (OK, True, [], "up")


@pytest.mark.parametrize(
    ("name", "content", "place", "problem"),
    [
        ("series", b"first.patch\nsecond.patch\nfirst.patch\n", "series:3", "names first.patch again"),
        ("series", b"first.patch\n", "second.patch:1", "is in no series"),
        ("first.patch", FIRST.replace(b"Forwarded: no\n", b""), "first.patch:1", "has no Forwarded field"),
        ("first.patch", FIRST.replace(b"ded: no", b"ded: maybe"), "first.patch:1", "Forwarded is 'maybe'"),
        ("first.patch", FIRST.replace(b"2026-11-01", b"yesterday"), "first.patch:1", "Last-Update is 'yesterday'"),
        ("first.patch", FIRST.replace(b"Something breaks without it.\n", b""), "first.patch:1", "what breaks"),
        ("second.patch", SECOND.replace(b"-27,7 +27,7", b"-26,7 +26,7"), "second.patch:1", "applies with an offset"),
        ("second.patch", HEAD % b"x", "second.patch:1", "changes nothing yet"),
    ],
)  # fmt: skip
def test_lint(run: Run, overlay: Path, name: str, content: bytes, place: str, problem: str) -> None:
    (overlay / "patches/stable/up" / name).write_bytes(content)
    code, out, _ = run("check", "--root", overlay, "--color", "never")
    assert code == FINDINGS
    assert f"patches/stable/up/{place}: error: " in out
    assert problem in out
    code, out, _ = run("check", "--root", overlay, "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (FINDINGS, False)
    assert any(problem in finding["problem"] for finding in report["lint"])


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (FIRST.replace(b"Subject: first", b"Subject: [PATCH 1/2] first"), 2, "bears a number"),
        (FIRST.replace(b"\n--- a", b"\nindex 1234567..89abcde 100644\n--- a"), 12, "index lines"),
        (FIRST.replace(b"---\n\n", b"---\n 1 file changed, 1 insertion(+)\n\n"), 10, "diffstat"),
        (FIRST.replace(b"From: ", b"Author: "), 1, "git am needs"),
    ],
)
def test_warnings_do_not_fail_the_check(run: Run, overlay: Path, content: bytes, line: int, problem: str) -> None:
    (overlay / "patches/stable/up/first.patch").write_bytes(content)
    code, out, _ = run("check", "--root", overlay)
    assert code == OK
    assert f"patches/stable/up/first.patch:{line}: warning: " in out
    assert problem in out


def test_list(run: Run, overlay: Path) -> None:
    text = SECOND.replace(b"Forwarded: no", b"Forwarded: https://example.org/pull/2\nApplied-Upstream: 1.2")
    (overlay / "patches/stable/up/second.patch").write_bytes(text)
    code, out, _ = run("list", "--root", overlay, "--date", "2026-11-30")
    assert code == OK
    assert out.splitlines() == [
        "stable/up 1.0",
        "  unmodified   first.patch     29 d  forwarded: no",
        "  unmodified   second.patch    29 d  upstream: 1.2",
    ]
    code, out, _ = run("list", "--root", overlay, "--date", "2026-11-30", "--json")
    (series,) = json.loads(out)["series"]
    assert series["patches"][1] == {
        "patch": "second.patch",
        "status": "unmodified",
        "hunks": 1,
        "offset": 0,
        "subject": "second",
        "forwarded": "https://example.org/pull/2",
        "applied_upstream": "1.2",
        "age": 29,
    }


def test_checkout_edit_export(run: Run, overlay: Path) -> None:
    before = state(overlay)
    code, out, _ = run("checkout", "up", "--root", overlay)
    folder = overlay / ".work/checkout/stable/up"
    assert code == OK
    assert "next: tools/pq.py export up" in out
    assert (folder / "src/k.cu").exists()
    assert run("export", "up", "--root", overlay)[:2] == (OK, "2 of 2 patches unmodified\n")
    elsewhere = overlay.parent / "with space"
    _, out, _ = run("checkout", "up", "--line", "stable", "--dir", elsewhere, "--root", overlay)
    (step,) = [line for line in out.splitlines() if "pq.py export" in line]
    words = shlex.split(step.removeprefix("next: tools/pq.py "))
    said = run(*words, "--root", overlay)
    assert said[:2] == (OK, "2 of 2 patches unmodified\n"), said[2]
    (folder / "up/f.c").write_bytes(lines(n10="ten", n30="dreissig"))
    code, _, err = run("export", "--root", overlay)
    assert (code, state(overlay)) == (FAILED, before)
    assert "not committed: up/f.c" in err
    code, _, err = run("checkout", "--root", overlay)
    assert code == FAILED
    assert "has changes of yours" in err
    subprocess.run(["git", "commit", "-qa", "--amend", "--no-edit"], cwd=folder, check=True)
    code, out, _ = run("export", "--root", overlay, "--dry-run")
    assert (out, state(overlay)) == ("rewritten  second.patch\n1 of 2 patches unmodified\n", before)
    code, out, _ = run("export", "--root", overlay, "--json")
    assert json.loads(out)["written"] == ["patches/stable/up/second.patch"]
    assert state(overlay) == {**before, "second.patch": SECOND.replace(b"+thirty", b"+dreissig")}
    assert run("checkout", "--root", overlay)[0] == OK


def test_export_needs_a_checkout_and_checkout_an_empty_folder(run: Run, overlay: Path, tmp_path: Path) -> None:
    code, _, err = run("export", "--root", overlay)
    assert code == FAILED
    assert "is no checkout of ours" in err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x").write_bytes(b"")
    code, _, err = run("checkout", "--root", overlay, "--dir", "mine", "--force")
    assert code == FAILED
    assert (tmp_path / "mine/x").exists()


def test_import_of_a_diff_completes_its_header_and_settles_it(run: Run, overlay: Path) -> None:
    Path("fix k.diff").write_bytes(b"diff -u k\n--- src/k.cu\n+++ src/k.cu\n" + hunk(12, "10", "ten"))
    code, out, _ = run("import", "fix k.diff", "-p0", "--root", overlay, "--date", "2026-11-30")
    assert code == OK
    assert "wrote      patches/stable/up/fix-k.patch" in out
    assert state(overlay)["series"] == b"# ours\nfirst.patch\nsecond.patch # next\nfix-k.patch\n"
    assert state(overlay)["fix-k.patch"].startswith(
        b"Subject: fix k\nOrigin: other, fix k.diff\nForwarded: no\nLast-Update: 2026-11-30\n\n"
    )
    assert state(overlay)["fix-k.patch"].endswith(
        b"\n\ndiff --git a/src/k.cu b/src/k.cu\n--- a/src/k.cu\n+++ b/src/k.cu\n@@ -9,3 +9,3 @@\n 9\n-10\n+ten\n 11\n"
    )


MAIL = b"""From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001
From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
Date: Mon, 5 Jan 2026 10:00:00 +0000
Subject: [PATCH 2/7] Mend k
Message-Id: <x@y>
X-Mailer: git-send-email

Broken without it.
---
 src/k.cu | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/src/k.cu b/src/k.cu
index 1234567..89abcde 100644
--- a/src/k.cu
+++ b/src/k.cu
@@ -9,3 +9,3 @@
 9
-10
+ten
 11
diff --git a/tests/t.py b/tests/t.py
--- a/tests/t.py
+++ b/tests/t.py
@@ -1 +1 @@
-a
+b
%s
2.39.5

""".replace(b"%s", b"-- ")


def test_import_of_an_mbox_takes_out_what_is_the_mailers(run: Run, overlay: Path) -> None:
    second = MAIL.replace(b"Mend k", b"Mend k again").replace(b"-10\n+ten", b"-ten\n+TEN")
    Path("two.mbox").write_bytes(MAIL + second)
    code, out, _ = run("import", "two.mbox", "--root", overlay, "--date", "2026-11-30")
    assert code == OK
    assert "left out   tests/t.py" in out
    assert state(overlay)["mend-k.patch"] == (
        b"From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>\nDate: Mon, 5 Jan 2026 10:00:00 +0000\nSubject: Mend k\n"
        b"Forwarded: no\nLast-Update: 2026-11-30\n\nBroken without it.\n---\n\n"
        + unified("src/k.cu", "src/k.cu", lines(20), lines(20, n10="ten")).replace(
            b"@@ -7,7 +7,7 @@\n 7\n 8\n", b"@@ -9,3 +9,3 @@\n"
        ).replace(b" 12\n 13\n", b"")
    )  # fmt: skip
    assert state(overlay)["series"].endswith(b"mend-k.patch\nmend-k-again.patch\n")
    assert run("check", "--root", overlay, "-q")[:2] == (OK, "")


def test_import_of_a_quoted_printable_mail(run: Run, overlay: Path) -> None:
    mail = MAIL.replace(b"X-Mailer", b"Content-Transfer-Encoding: quoted-printable\nX-Mailer").replace(
        b"-- \n", b"--=20\n"
    )
    Path("q.eml").write_bytes(mail)
    assert run("import", "q.eml", "--root", overlay)[0] == OK
    assert b"+ten\n" in state(overlay)["mend-k.patch"]


def upstream_repository(folder: Path) -> None:
    """Upstream's history: 1.0 with three lines more above, then a fix."""

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=folder, check=True)

    for name, content in {"src/k.cu": b"a\nb\nc\n" + lines(20), "tests/t.py": b"a\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "start")
    (folder / "src/k.cu").write_bytes(b"a\nb\nc\n" + lines(20, n10="ten"))
    (folder / "tests/t.py").write_bytes(b"b\n")
    git("commit", "-qam", "Mend k (#7)\n\nBroken without it.")


def test_import_of_an_upstream_commit_is_carried_to_the_pin(run: Run, overlay: Path, tmp_path: Path) -> None:
    upstream_repository(tmp_path / "upstream")
    code, out, _ = run("import", "git:upstream@main", "--root", overlay, "--date", "2026-11-30")
    assert code == OK
    assert "left out   tests/t.py" in out
    head = subprocess.run(["git", "rev-parse", "main"], cwd="upstream", check=True, capture_output=True).stdout.strip()
    assert state(overlay)["mend-k.patch"] == (
        b"From: Me <me@example.org>\nDate: Thu, 01 Jan 2026 00:00:00 +0000\nSubject: Mend k (#7)\n"
        b"Origin: upstream, https://example.org/up/commit/" + head + b"\nForwarded: not-needed\n"
        b"Last-Update: 2026-11-30\n\nBroken without it.\n\n---\n\n"
        + unified("src/k.cu", "src/k.cu", lines(20), lines(20, n10="ten")).replace(b"+7,7 @@", b"+7,7 @@ c")
    )


def test_import_that_conflicts_writes_nothing(run: Run, overlay: Path) -> None:
    before = state(overlay)
    Path("x.diff").write_bytes(plain(b"up/f.c", b"@@ -10 +10 @@\n-10\n+zehn\n"))
    code, out, _ = run("import", "x.diff", "--root", overlay, "--color", "never")
    assert (code, state(overlay)) == (FINDINGS, before)
    assert "up/f.c: conflict: hunk 1" in out
    assert out.endswith("nothing was written\n")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("nope.diff", "is no file"),
        ("prose.txt", "holds no unified diff"),
        ("tests.diff", "nothing that a release ships"),
        ("evil.diff", "leaves the tree"),
        ("git:upstream", "names no repository and revision"),
        ("git:upstream@nope", "has no commit 'nope'"),
    ],
)
def test_import_refusals(run: Run, overlay: Path, tmp_path: Path, source: str, problem: str) -> None:
    upstream_repository(tmp_path / "upstream")
    Path("prose.txt").write_bytes(b"hello\n")
    Path("tests.diff").write_bytes(plain(b"tests/t.py", b"@@ -1 +1 @@\n-a\n+b\n"))
    Path("evil.diff").write_bytes(plain(b"../../x", b"@@ -1 +1 @@\n-a\n+b\n"))
    before = state(overlay)
    code, _, err = run("import", source, "--root", overlay)
    assert (code, state(overlay)) == (FAILED, before)
    assert problem in err


def test_new_adds_a_header_to_fill_in(run: Run, overlay: Path) -> None:
    assert run("new", "admit-sm120", "--after", "first", "--date", "2026-11-30", "--root", overlay)[0] == OK
    assert state(overlay)["series"] == b"# ours\nfirst.patch\nadmit-sm120.patch\nsecond.patch # next\n"
    assert state(overlay)["admit-sm120.patch"] == (
        b"From: Me <me@example.org>\nSubject: admit sm120\nForwarded: no\nLast-Update: 2026-11-30\n\n"
        b"Say what breaks without it.\n\n---\n\n"
    )
    code, _, err = run("new", "admit-sm120.patch", "--root", overlay)
    assert code == FAILED
    assert "is there already" in err
    assert run("new", "../x", "--root", overlay)[0] == FAILED


def test_drop_renews_what_follows(run: Run, overlay: Path) -> None:
    longer = FIRST.replace(b"@@ -7,7 +7,7 @@", b"@@ -7,7 +7,8 @@").replace(b"+ten\n", b"+ten\n+more\n")
    second = SECOND.replace(b"@@ -27,7 +27,7 @@", b"@@ -28,7 +28,7 @@")
    (overlay / "patches/stable/up/first.patch").write_bytes(longer)
    (overlay / "patches/stable/up/second.patch").write_bytes(second)
    assert run("check", "--root", overlay)[0] == OK
    code, out, _ = run("drop", "first", "--root", overlay)
    assert code == OK
    assert "removed    patches/stable/up/first.patch" in out
    assert state(overlay) == {"series": b"# ours\nsecond.patch # next\n", "second.patch": SECOND}


def test_drop_does_not_confuse_look_alikes(run: Run, overlay: Path) -> None:
    alike = b"".join(b"kernel_%d\na\nb\nc\nold\nd\ne\nf\n" % n for n in range(13))
    parts = alike.split(b"old\n")
    more = b"// more\n" * 8  # the height of one look-alike
    home = overlay / "patches/stable/up"
    add = unified(None, "up/k.cu", None, alike)
    shift = unified("up/k.cu", "up/k.cu", alike, more + alike)
    changed = b"old\n".join(parts[:4]) + b"new\n" + b"old\n".join(parts[4:])
    (home / "first.patch").write_bytes(HEAD % b"add" + add)
    (home / "second.patch").write_bytes(HEAD % b"shift" + shift)
    (home / "third.patch").write_bytes(HEAD % b"third" + unified("up/k.cu", "up/k.cu", more + alike, more + changed))
    (home / "series").write_bytes(b"first.patch\nsecond.patch\nthird.patch\n")
    code, out, _ = run("drop", "second", "--root", overlay)
    assert code == OK, out
    assert state(overlay)["third.patch"] == HEAD % b"third" + unified("up/k.cu", "up/k.cu", alike, changed)


def test_drop_of_what_a_later_patch_needs_is_refused(run: Run, overlay: Path) -> None:
    needs = HEAD % b"second" + unified("up/f.c", "up/f.c", lines(n10="ten"), lines(n10="TEN"))
    (overlay / "patches/stable/up/second.patch").write_bytes(needs)
    before = state(overlay)
    code, out, _ = run("drop", "first.patch", "--root", overlay)
    assert (code, state(overlay)) == (FINDINGS, before)
    assert "second.patch" in out
    assert out.endswith("nothing was written\n")
    assert run("drop", "nope", "--root", overlay)[0] == FAILED


def test_fold_makes_one_patch_of_two(run: Run, overlay: Path) -> None:
    assert run("fold", "first", "second", "--root", overlay)[0] == OK
    folded = state(overlay)
    assert folded["series"] == b"# ours\nfirst.patch\n"
    assert folded["first.patch"] == (
        (HEAD % b"first").replace(b"\n---\n\n", b"\nsecond\n\nSomething breaks without it.\n\n---\n\n")
        + unified("up/f.c", "up/f.c", lines(), lines(n10="ten", n30="thirty"))
    )
    assert run("check", "--root", overlay)[0] == OK


def test_fold_keeps_the_bytes_of_files_that_one_alone_touches(run: Run, overlay: Path) -> None:
    third = unified("src/k.cu", "src/k.cu", lines(20), lines(20, n10="ten"), context=1)
    (overlay / "patches/stable/up/third.patch").write_bytes(HEAD % b"third" + third)
    (overlay / "patches/stable/up/series").write_bytes(b"first.patch\nsecond.patch\nthird.patch\n")
    assert run("fold", "first", "third", "--root", overlay)[0] == OK
    assert state(overlay)["first.patch"].endswith(FIRST[len(HEAD % b"first") :] + third)
    assert state(overlay)["second.patch"] == SECOND


def test_refresh_renews_line_numbers_only(run: Run, overlay: Path) -> None:
    moved = SECOND.replace(b"@@ -27,7 +27,7 @@", b"@@ -25,7 +25,7 @@")
    (overlay / "patches/stable/up/second.patch").write_bytes(moved)
    assert run("refresh", "--root", overlay)[0] == OK
    assert state(overlay)["second.patch"] == SECOND
    code, out, _ = run("refresh", "--root", overlay)
    assert (code, out) == (OK, "next: nothing to do\n")


@pytest.mark.parametrize("command", ["refresh", "check", "list"])
def test_every_command_first_finishes_what_a_killed_one_began(run: Run, overlay: Path, command: str) -> None:
    journal = overlay / ".work/transaction"
    (journal / "files").mkdir(parents=True)
    (journal / "files/0").write_bytes(FIRST)
    steps = [{"path": "patches/stable/up/back.patch", "file": "0"}]
    (journal / "journal.json").write_text(json.dumps({"schema": 1, "steps": steps, "folders": []}))
    run(command, "--root", overlay)
    assert state(overlay)["back.patch"] == FIRST
    assert not journal.exists()


def test_a_series_under_rebase_is_left_alone(run: Run, overlay: Path) -> None:
    from downstream.queue import state as states

    states.save(overlay, states.State(line="stable", upstream="up", old="1.0", new="1.1", inputs=""))
    code, _, err = run("drop", "first", "--root", overlay)
    assert code == FAILED
    assert "is being rebased" in err
