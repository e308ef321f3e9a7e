"""A git commit as a tree, read from the object store through one long-lived ``cat-file`` child."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from downstream.errors import TreeError
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK

if TYPE_CHECKING:
    from git.cmd import Git

# What a caller's environment may say about another repository, or about how this one is read.
LEAKS = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
SEALED = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}

_SUBMODULE = 0o160000
_FOLDER = 0o040000
OBJECT_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class _Node(NamedTuple):
    mode: int
    object: str


class GitTree:
    """The files of one commit of the repository at *git_dir*; submodules have none.

    User and system configuration, replacement objects and ``GIT_*`` variables
    have no effect, and nothing is fetched from a partial clone's remote.
    """

    def __init__(self, git_dir: Path, revision: str, name: str) -> None:
        self.name = name
        self._git_dir = git_dir
        self._revision = revision
        self._child: Any = None
        self._folders: dict[str, dict[str, _Node]] = {}

    @property
    def git_dir(self) -> Path:
        """The repository's git folder, for a caller that asks for more than a tree."""
        return self._git_dir

    @property
    def revision(self) -> str:
        return self._revision

    def read(self, path: str) -> bytes | None:
        node = self._node(path)
        return None if node is None else self._content(node.object)

    def mode(self, path: str) -> int | None:
        node = self._node(path)
        return None if node is None else _mode(node.mode)

    def paths(self) -> Iterable[str]:
        return sorted(self._below(""))

    def close(self) -> None:
        """End the child; the tree can still be read, by another one."""
        if self._child is not None:
            child, self._child = self._child, None
            for stream in (child.stdin, child.stdout, child.stderr):
                with suppress(OSError):
                    stream.close()
            child.wait()

    def __del__(self) -> None:
        # An interpreter that ends has taken parts of subprocess away already.
        with suppress(Exception):
            self.close()

    def _below(self, folder: str) -> Iterator[str]:
        for name, node in self._folder(folder).items():
            path = f"{folder}{name}"
            if node.mode == _FOLDER:
                yield from self._below(f"{path}/")
            elif node.mode != _SUBMODULE:
                yield path

    def _node(self, path: str) -> _Node | None:
        *folders, name = path.split("/")
        at = ""
        for folder in folders:
            node = self._folder(at).get(folder)
            if node is None or node.mode != _FOLDER:
                return None
            at = f"{at}{folder}/"
        node = self._folder(at).get(name)
        return None if node is None or node.mode in (_FOLDER, _SUBMODULE) else node

    def _folder(self, folder: str) -> dict[str, _Node]:
        """Return the entries of *folder* ("" or ending in a slash), which must exist."""
        if folder not in self._folders:
            if folder:
                parent, _, name = folder[:-1].rpartition("/")
                wanted = self._folder(f"{parent}/" if parent else "")[name].object
            else:
                wanted = f"{self._revision}^{{tree}}"
            self._folders[folder] = self._entries(*self._object(wanted))
        return self._folders[folder]

    @staticmethod
    def _entries(identity: str, raw: bytes) -> dict[str, _Node]:
        length = len(identity) // 2  # 20 bytes, 32 in a SHA-256 repository
        found, at = {}, 0
        while at < len(raw):
            space = raw.index(b" ", at)
            end = raw.index(b"\0", space)
            name = raw[space + 1 : end].decode("utf-8", "surrogateescape")
            found[name] = _Node(int(raw[at:space], 8), raw[end + 1 : end + 1 + length].hex())
            at = end + 1 + length
        return found

    def _content(self, identity: str) -> bytes:
        return self._object(identity)[1]

    def _object(self, wanted: str) -> tuple[str, bytes]:
        """Return an object's full name and its content."""
        if self._child is None:
            git = sealed_git(self._git_dir)
            self._child = git.execute(
                command("--git-dir", str(self._git_dir), "cat-file", "--batch"), as_process=True, istream=-1
            )
        try:
            self._child.stdin.write(wanted.encode("utf-8", "surrogateescape") + b"\n")
            self._child.stdin.flush()
            header = self._child.stdout.readline()
        except OSError:
            header = b""
        if not header:
            said = self._child.stderr.read().decode("utf-8", "replace").strip().splitlines()
            raise TreeError(self.name, said[-1] if said else "git ended early", "check the repository: git fsck")
        answer = header.split()
        if len(answer) != 3 or not answer[2].isdigit():
            raise self._absent(wanted, header)
        size = int(answer[2])
        content = self._child.stdout.read(size + 1)[:-1]
        if len(content) != size:
            raise TreeError(self.name, "git ended in the middle of an object", "check the repository: git fsck")
        return answer[0].decode(), content

    def _absent(self, wanted: str, header: bytes) -> TreeError:
        if OBJECT_NAME.fullmatch(wanted):
            step = "complete the clone: git fetch --refetch --filter=blob:limit=1g, or clone it anew"
            return TreeError(self.name, f"the repository lacks the object {wanted}", step)
        problem = (
            "names several objects" if header.rstrip().endswith(b"ambiguous") else "is no commit of the repository"
        )
        step = "fetch it, or choose another: git tag"
        if near := self._near():
            step = f"the nearest tags are {', '.join(near)}"
        return TreeError(self.name, problem, step)

    def _near(self) -> list[str]:
        import difflib

        git = sealed_git(self._git_dir)
        asked = command("--git-dir", str(self._git_dir), "for-each-ref", "--format=%(refname:strip=2)", "refs/tags")
        return difflib.get_close_matches(self._revision, str(git.execute(asked)).split("\n"), 5, 0.6)


def _mode(mode: int) -> int:
    # Old trees hold 100664 and the like; git itself looks at the owner's x bit only.
    return SYMLINK if mode == SYMLINK else EXECUTABLE if mode & 0o100 else REGULAR


def sealed_git(folder: Path) -> Git:
    """Return GitPython's command object for *folder*, deaf to user and system configuration.

    Raises TreeError where git is not installed.
    """
    try:
        from git.cmd import Git
    except ModuleNotFoundError:
        raise
    except ImportError as exc:
        raise TreeError("git", "is not installed", "install git (apt install git, brew install git)") from exc
    git = Git(str(folder))
    git.update_environment(**SEALED)
    return git


def command(*arguments: str) -> list[str]:
    """Return a git command line that inherits no repository from the environment.

    GitPython can add to a child's environment but not take away: env(1) does.
    """
    leaks = [name for name in LEAKS if name in os.environ]
    unset = [word for name in leaks for word in ("-u", name)]
    return [*(["env", *unset] if unset else []), "git", *arguments]


def git_folder(repository: Path) -> Path | None:
    """Return the git folder of a work tree, a linked work tree or a bare repository; None where it is none."""
    inner = repository / ".git"
    if inner.is_file():
        said = inner.read_text(encoding="utf-8", errors="surrogateescape").partition("gitdir:")[2].strip()
        return repository / said if said else None
    folder = inner if inner.is_dir() else repository
    return folder if (folder / "HEAD").exists() and (folder / "objects").exists() else None
