from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.errors import NetworkError, OfflineError, TreeError, UsageError
from downstream.trees.git import GitTree
from downstream.trees.repository import open_git
from downstream.trees.session import Session
from downstream.trees.spec import open_spec
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK

LATIN = "caf\udce9.txt"  # a name that is no UTF-8


def git(folder: Path, *words: str) -> str:
    named = ["-c", "user.name=x", "-c", "user.email=x@x.example", "-c", "protocol.file.allow=always"]
    ended = subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True, text=True)
    return ended.stdout.strip()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every kind of entry: one commit tagged v1 (annotated), one more on main."""
    folder = tmp_path_factory.mktemp("template") / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "a b\tc.py").write_bytes(b"one\r\n\x0c\n")
    (folder / "run").write_bytes(b"#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("deep/er/nowhere")
    (folder / LATIN).write_bytes(b"\xe9\n\n")
    (folder / "empty").write_bytes(b"")
    git(folder, "add", ".")
    inner = folder.parent / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{git(inner, 'rev-parse', 'HEAD')},3rdparty/sub")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "tag", "-a", "-m", "v1", "v0.6.4")
    (folder / "run").write_bytes(b"two\n")
    git(folder, "commit", "-q", "-am", "two")
    return folder


@pytest.fixture
def repo(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "repo", symlinks=True))


def test_every_kind_of_entry(repo: Path) -> None:
    tree = open_spec(f"git:{repo}@v0.6.4")
    assert list(tree.paths()) == sorted(["deep/er/a b\tc.py", "empty", "link", "run", LATIN])
    assert tree.read("deep/er/a b\tc.py") == b"one\r\n\x0c\n"
    assert tree.read(LATIN) == b"\xe9\n\n"
    assert tree.read("empty") == b""
    assert (tree.read("link"), tree.mode("link")) == (b"deep/er/nowhere", SYMLINK)
    assert (tree.read("run"), tree.mode("run")) == (b"#!/bin/sh\n", EXECUTABLE)
    assert tree.mode(LATIN) == REGULAR
    for path in ("3rdparty/sub", "3rdparty", "deep/er", "link/x", "run/x", "none"):
        assert tree.read(path) is None
        assert tree.mode(path) is None


@pytest.mark.parametrize(
    ("revision", "content"),
    [
        ("v0.6.4", b"#!/bin/sh\n"),
        ("main", b"two\n"),
        ("HEAD", b"two\n"),
        ("HEAD~1", b"#!/bin/sh\n"),
        ("HEAD^{tree}", b"two\n"),
    ],
)
def test_any_revision_names_a_tree(repo: Path, revision: str, content: bytes) -> None:
    assert open_spec(f"git:{repo}@{revision}").read("run") == content


def test_an_abbreviated_commit_names_a_tree(repo: Path) -> None:
    assert open_spec(f"git:{repo}@{git(repo, 'rev-parse', '--short', 'HEAD')}").read("run") == b"two\n"


@pytest.mark.parametrize("name", ["with space", "at@sign", "ümläut", "-dash"])
def test_a_repository_may_have_any_name(repo: Path, tmp_path: Path, name: str) -> None:
    repo.rename(tmp_path / name)
    assert open_spec(f"git:{name}@main", base_dir=tmp_path).read("run") == b"two\n"


def test_bare_and_linked_repositories(repo: Path, tmp_path: Path) -> None:
    git(repo, "clone", "-q", "--bare", str(repo), str(tmp_path / "bare.git"))
    git(repo, "clone", "-q", "--mirror", str(repo), str(tmp_path / "mirror"))
    (tmp_path / "mirror" / "config").unlink()
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "v0.6.4")
    assert open_spec(f"git:{tmp_path}/bare.git@main").read("run") == b"two\n"
    assert open_spec(f"git:{tmp_path}/mirror@main").read("run") == b"two\n"
    assert open_spec(f"git:{tmp_path}/linked@HEAD").read("run") == b"#!/bin/sh\n"
    assert open_spec(f"git:{repo}/.git@main").read("run") == b"two\n"


def test_a_folder_below_a_repository_is_none(repo: Path) -> None:
    with pytest.raises(TreeError, match="is no git repository"):
        open_spec(f"git:{repo}/deep@HEAD")


def test_packed_objects_are_read(repo: Path) -> None:
    git(repo, "gc", "-q")
    assert open_spec(f"git:{repo}@v0.6.4").read("run") == b"#!/bin/sh\n"


def test_a_sha256_repository_is_read(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"b")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    assert open_spec(f"git:{tmp_path}@HEAD").read("a/b") == b"b"


def test_the_callers_environment_and_configuration_have_no_effect(
    repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blob = git(repo, "rev-parse", "HEAD:run")
    other = git(repo, "rev-parse", "HEAD:empty")
    git(repo, "replace", blob, other)
    (tmp_path / "gitconfig").write_text("[core]\n\tbare = true\nnonsense\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_INDEX_FILE", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "x")
    assert open_spec(f"git:{repo}@main").read("run") == b"two\n"


def test_one_child_serves_every_read_and_ends_with_the_tree(repo: Path) -> None:
    tree = open_git(f"{repo}@main")
    tree.read("run")
    child = tree._child
    for path in tree.paths():
        tree.read(path)
    assert tree._child is child
    tree.close()
    assert child.poll() is not None
    assert tree.read("run") == b"two\n"


@pytest.mark.parametrize(
    ("revision", "step"),
    [
        ("v0.6.5", "the nearest tags are v0.6.4"),
        ("zzz", "git tag"),
        ("0" * 40, "git"),
        ("main:run", "git"),
        ("--help", "git"),
        ("a b", "git"),
    ],
)
def test_a_revision_that_is_none_is_told(repo: Path, revision: str, step: str) -> None:
    with pytest.raises(TreeError) as caught:
        open_spec(f"git:{repo}@{revision}").read("run")
    assert caught.value.place == f"{repo}@{revision}"
    assert step in caught.value.next_step


def test_a_damaged_repository_is_told(repo: Path) -> None:
    blob = git(repo, "rev-parse", "HEAD:run")
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    tree = open_spec(f"git:{repo}@main")
    with pytest.raises(TreeError, match=f"lacks the object {blob}"):
        tree.read("run")
    assert tree.read("empty") == b""
    shutil.rmtree(repo / ".git" / "refs")
    with pytest.raises(TreeError):
        GitTree(repo / ".git", "main", "broken").read("run")


def test_git_that_is_not_installed_is_told(repo: Path, tmp_path: Path) -> None:
    script = "import sys; from downstream.trees.spec import open_spec; open_spec(sys.argv[1]).read('run')"
    ended = subprocess.run(
        [sys.executable, "-c", script, f"git:{repo}@main"],
        env={"PATH": str(tmp_path / "empty"), "PYTHONPATH": str(Path(__file__).parents[2] / "tools")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "git: is not installed" in ended.stderr.splitlines()[-2]


def test_a_clone_is_kept_and_a_tag_is_settled(repo: Path, session: Callable[..., Session]) -> None:
    one = session()
    assert open_spec(f"git:{repo.as_uri()}@v0.6.4", session=one).read("run") == b"#!/bin/sh\n"
    repo.rename(repo.with_name("gone"))
    assert open_spec(f"git:{repo.as_uri()}@v0.6.4", session=one).read("run") == b"#!/bin/sh\n"
    with pytest.raises(NetworkError):
        open_spec(f"git:{repo.as_uri()}@main", session=one)
    assert open_spec(f"git:{repo.as_uri()}@main", session=session(offline=True)).read("run") == b"two\n"


def test_a_branch_is_fetched_again(repo: Path, session: Callable[..., Session]) -> None:
    one = session()
    assert open_spec(f"git:{repo.as_uri()}@main", session=one).read("run") == b"two\n"
    (repo / "run").write_bytes(b"three\n")
    git(repo, "commit", "-qam", "three")
    assert open_spec(f"git:{repo.as_uri()}@main", session=one).read("run") == b"three\n"


def test_a_clone_that_was_killed_is_begun_again(repo: Path, session: Callable[..., Session]) -> None:
    one = session()
    open_spec(f"git:{repo.as_uri()}@main", session=one)
    (kept,) = (one.cache.folder / "git").glob("*.git")
    kept.rename(kept.with_suffix(".part"))
    (kept.with_suffix(".part") / "HEAD").unlink()
    assert open_spec(f"git:{repo.as_uri()}@main", session=one).read("run") == b"two\n"


def test_offline_without_a_clone_is_told(session: Callable[..., Session]) -> None:
    with pytest.raises(OfflineError) as caught:
        open_spec("git:https://user:secret@one.example/x@v1", session=session(offline=True))
    assert caught.value.place == "https://one.example/x"


def test_a_clone_that_fails_is_told_without_the_login(session: Callable[..., Session]) -> None:
    with pytest.raises(NetworkError) as caught:
        open_spec("git:http://user:secret@127.0.0.1:9/x@v1", session=session())
    assert "127.0.0.1" in caught.value.problem
    assert "secret" not in str(caught.value)
    with pytest.raises(NetworkError, match="does not appear to be a git repository"):
        open_spec("git:file:///no/such/repository@v1", session=session())


def test_a_protocol_that_runs_commands_is_refused(session: Callable[..., Session], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this protocol runs commands"):
        open_spec(f"git:ext://{tmp_path}/x@v1", session=session())
    assert not os.path.lexists(tmp_path / "x")
