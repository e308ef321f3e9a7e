"""A git working tree of our own making: written by fast-import, read back by diff, deaf to the user's configuration."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from downstream.errors import StateError
from downstream.patches.names import quote
from downstream.trees.git import command, git_folder, sealed_git
from downstream.trees.tree import EXECUTABLE, REGULAR, SYMLINK

BRANCH = "series"
# Any fixed moment: the commits are ours to make again, and should then be the same.
_WHEN = b"1767225600 +0000"
_US = b"sm120-overlay <sm120-overlay@localhost>"
_FULL = re.compile("No space left on device|Disk quota exceeded|File too large|Out of diskspace")
_ROOM = 1 << 20  # bytes; a disk with less is full
_LITTER = ("*.orig", "*.rej", "*~", ".*.sw?", ".#*", "#*#", "__pycache__/")

File = tuple[int, bytes]  # git's mode, content (a symlink's target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Files that change (None: are removed) and the message, bytes as they are."""

    changes: Mapping[str, File | None]
    message: bytes
    author: bytes = _US


class Worktree:
    """The working tree at *folder*, on branch ``series``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._git = sealed_git(folder)

    @classmethod
    def create(cls, folder: Path, commits: Sequence[Commit]) -> tuple[Worktree, str]:
        """Make the repository anew with *commits* and return it and its last commit; what was at *folder* is lost."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tree = cls(folder)
        tree._run("init", "--quiet", "--initial-branch", BRANCH)
        for key, value in (("core.autocrlf", "false"), ("core.safecrlf", "false"), ("advice.detachedHead", "false")):
            tree._run("config", key, value)
        # Upstream's attributes would change bytes on their way in and out.
        (folder / ".git" / "info").mkdir(exist_ok=True)
        (folder / ".git" / "info" / "attributes").write_text("* -text -filter -ident -eol\n", encoding="ascii")
        head = tree.add(commits, parent=None)
        tree.reset(head)
        return tree, head

    @classmethod
    def at(cls, folder: Path) -> Worktree:
        """Open one made before. Raises StateError where there is none."""
        if git_folder(folder) is None:
            raise StateError(str(folder), "is no longer a git working tree", "tools/rebase.py --abort starts over")
        return cls(folder)

    def add(self, commits: Sequence[Commit], *, parent: str | None) -> str:
        """Write *commits*, each on the one before, and return the last; the working tree stays as it is."""
        stream = BytesIO()
        for number, commit in enumerate(commits, 1):
            stream.write(_stream(commit, parent=parent if number == 1 else None))
        self._run(
            "fast-import", "--quiet", "--force", "--done", "--date-format=raw", feed=stream.getvalue() + b"done\n"
        )
        return self._run("rev-parse", f"refs/heads/{BRANCH}").decode().strip()

    def reset(self, commit: str) -> None:
        """Bring the working tree to *commit*: uncommitted changes and files git does not know are lost."""
        self._run("symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
        self._run("reset", "--quiet", "--hard", commit)
        self._run("clean", "--quiet", "-ffdx")

    def has(self, commit: str) -> bool:
        return self._succeeds("rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}")

    def write(self, path: str, file: File | None) -> None:
        """Put a file into the working tree, uncommitted; None removes it."""
        target = self.folder / path
        target.unlink(missing_ok=True)
        if file is None:
            return
        mode, content = file
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode == SYMLINK:
            target.symlink_to(content.decode("utf-8", "surrogateescape"))
            return
        target.write_bytes(content)
        target.chmod(0o755 if mode == EXECUTABLE else 0o644)

    def changes_since(self, commit: str) -> dict[str, File | None]:
        """Return every file that differs from *commit*, committed since or not; None for one that is gone.

        Leftovers of editors and of patch(1) do not count.
        """
        changed = self._run("diff", "--no-ext-diff", "--no-renames", "--name-only", "-z", commit)
        excluded = [f"--exclude={pattern}" for pattern in _LITTER]
        unknown = self._run("ls-files", "--others", "-z", *excluded)
        names = sorted({name for name in (changed + unknown).split(b"\0") if name})
        return {path: self._file(path) for path in (name.decode("utf-8", "surrogateescape") for name in names)}

    def _file(self, path: str) -> File | None:
        target = self.folder / path
        if target.is_symlink():
            return SYMLINK, str(target.readlink()).encode("utf-8", "surrogateescape")
        if not target.is_file():
            return None
        return EXECUTABLE if target.stat().st_mode & 0o100 else REGULAR, target.read_bytes()

    def _run(self, *arguments: str, feed: bytes = b"") -> bytes:
        from git.exc import GitCommandError

        line = command("--git-dir", str(self.folder / ".git"), "--work-tree", str(self.folder), *arguments)
        # A real file: GitPython hands it to the child as its stdin.
        with tempfile.TemporaryFile() as stream:
            stream.write(feed)
            stream.seek(0)
            try:
                out = self._git.execute(line, istream=stream, stdout_as_string=False, strip_newline_in_stdout=False)
            except GitCommandError as exc:
                said = str(exc.stderr).strip().removeprefix("stderr:").strip(" \n'").splitlines()
                problem = f"git {arguments[0]} fails there: {''.join(said[:1])}"
                # git does not always say why it could not write.
                full = shutil.disk_usage(self.folder).free < _ROOM or any(_FULL.search(line) for line in said)
                step = "make room there, then begin it anew" if full else "see git status there, or begin it anew"
                raise StateError(str(self.folder), problem, step) from exc
        assert isinstance(out, bytes)
        return out

    def _succeeds(self, *arguments: str) -> bool:
        line = command("--git-dir", str(self.folder / ".git"), *arguments)
        return self._git.execute(line, with_extended_output=True, with_exceptions=False)[0] == 0


def _stream(commit: Commit, *, parent: str | None) -> bytes:
    """One commit as fast-import reads it (git-fast-import(1))."""
    parts = [b"commit refs/heads/%s\n" % BRANCH.encode()]
    parts += [b"author %s %s\ncommitter %s %s\n" % (commit.author, _WHEN, _US, _WHEN), _counted(commit.message)]
    if parent is not None:
        parts.append(b"from %s\n" % parent.encode())
    for path, file in sorted(commit.changes.items()):
        name = quote(path.encode("utf-8", "surrogateescape"))
        if file is None:
            parts.append(b"D %s\n" % name)
        else:
            parts += [b"M %06o inline %s\n" % (file[0], name), _counted(file[1])]
    return b"".join(parts) + b"\n"


def _counted(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)
