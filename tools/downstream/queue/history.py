"""The commits of a repository as values: who, what for, and each file before and after."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from downstream.errors import StateError
from downstream.queue.worktree import File
from downstream.trees.git import command, sealed_git

_NO_OBJECT = "0" * 40
_FOLDER_KINDS = ("160000",)  # a submodule is no file


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One file of a commit; paths are equal but for a rename or copy, None on the side where there is no file."""

    old_path: str | None
    new_path: str | None
    old: File | None
    new: File | None
    copy: bool = False

    @property
    def path(self) -> str:
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A commit as it stands in the repository."""

    object: str
    author: str  # Name <mail>
    date: str  # RFC 5322
    message: bytes
    changes: tuple[Change, ...]


class History:
    """Read-only access to the commits of the repository whose git folder is *git_dir*.

    No configuration of the user's or the system's has an effect, and nothing
    depends on names, prefixes or colours that a configuration could change.
    """

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir
        self._git = sealed_git(git_dir)

    def resolve(self, revision: str) -> str:
        """Return the full name of a commit. Raises StateError where there is none."""
        out = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", check=False)
        name = out.decode().strip()
        if not name:
            raise StateError(str(self.git_dir), f"has no commit '{revision}'", "name a commit, branch or tag it has")
        return name

    def commits(self, base: str, tip: str) -> list[Recorded]:
        """Return the commits after *base* up to *tip*, oldest first. Raises StateError for a merge."""
        out = self.run("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{tip}").decode()
        lines = [line.split() for line in out.splitlines()]
        for name, *parents in lines:
            if len(parents) != 1:
                raise StateError(
                    name[:12], "is a merge; a series is a line of commits", "git rebase it onto the series"
                )
        return self.read([name for name, _ in lines])

    def read(self, names: Sequence[str]) -> list[Recorded]:
        """Return these commits, each with its changes against its first parent."""
        if not names:
            return []
        raw = self._raw_changes(names)
        objects = {entry[side] for entries in raw.values() for entry in entries for side in (2, 3)} - {_NO_OBJECT}
        found = self._objects([*names, *sorted(objects)])
        return [_recorded(name, found[name], [_change(entry, found) for entry in raw[name]]) for name in names]

    def _raw_changes(self, names: Sequence[str]) -> dict[str, list[tuple[str, ...]]]:
        out = self.run(
            *("diff-tree", "--stdin", "--root", "-r", "-z", "--raw", "--no-abbrev", "-M", "--diff-merges=first-parent"),
            feed="".join(f"{name}\n" for name in names).encode(),
        )
        words = iter(out.split(b"\0"))
        raw: dict[str, list[tuple[str, ...]]] = {name: [] for name in names}
        current = names[0]
        for word in words:
            text = word.decode("utf-8", "surrogateescape").lstrip("\n")
            if text.startswith(":"):
                old_mode, new_mode, old, new, status = text[1:].split(" ")
                first = next(words).decode("utf-8", "surrogateescape")
                second = next(words).decode("utf-8", "surrogateescape") if status[0] in "RC" else first
                raw[current].append((old_mode, new_mode, old, new, status, first, second))
            elif text:
                current = text.split()[0]
        return raw

    def _objects(self, names: Iterable[str]) -> dict[str, bytes]:
        wanted = list(names)
        out = self.run("cat-file", "--batch", feed="".join(f"{name}\n" for name in wanted).encode())
        found: dict[str, bytes] = {}
        at = 0
        for name in wanted:
            end = out.index(b"\n", at)
            size = out[at:end].split()[-1]
            if not size.isdigit():
                found[name] = b""  # a submodule's commit: it is refused where it is used
                at = end + 1
                continue
            found[name] = out[end + 1 : end + 1 + int(size)]
            at = end + 2 + int(size)
        return found

    def parent(self, name: str) -> str | None:
        """Return the full name of a commit's first parent, None where it has none."""
        return self.run("rev-parse", "--verify", "--quiet", f"{name}^", check=False).decode().strip() or None

    def paths(self, revision: str) -> set[str]:
        """Return the paths of a commit's files."""
        out = self.run("ls-tree", "-r", "-z", "--name-only", revision)
        return {name.decode("utf-8", "surrogateescape") for name in out.split(b"\0") if name}

    def run(self, *arguments: str, feed: bytes = b"", check: bool = True) -> bytes:
        """Run git here and return what it prints. Raises StateError, unless *check* is False, where it fails."""
        # A real file: GitPython hands it to the child as its stdin.
        with tempfile.TemporaryFile() as stream:
            stream.write(feed)
            stream.seek(0)
            status, out, err = self._git.execute(
                command("--git-dir", str(self.git_dir), *arguments),
                istream=stream,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
            )
        assert isinstance(out, bytes)
        if status and check:
            said = str(err).strip().splitlines()
            raise StateError(str(self.git_dir), said[-1] if said else f"git {arguments[0]} failed", "git fsck")
        return out


def _recorded(name: str, raw: bytes, changes: Sequence[Change]) -> Recorded:
    head, _, message = raw.partition(b"\n\n")
    author = next(line for line in head.split(b"\n") if line.startswith(b"author "))[len(b"author ") :]
    who, seconds, zone = author.decode("utf-8", "surrogateescape").rsplit(" ", 2)
    return Recorded(object=name, author=who, date=_date(int(seconds), zone), message=message, changes=tuple(changes))


def _date(seconds: int, zone: str) -> str:
    import datetime
    from email.utils import format_datetime

    minutes = (int(zone[1:3]) * 60 + int(zone[3:5])) * (-1 if zone[0] == "-" else 1)
    there = datetime.timezone(datetime.timedelta(minutes=minutes))
    return format_datetime(datetime.datetime.fromtimestamp(seconds, tz=there))


def _change(entry: tuple[str, ...], objects: dict[str, bytes]) -> Change:
    old_mode, new_mode, old, new, status, first, second = entry
    if old_mode in _FOLDER_KINDS or new_mode in _FOLDER_KINDS:
        raise StateError(second, "is a submodule; a patch carries files", "leave it out of the commit")
    return Change(
        old_path=None if old == _NO_OBJECT else first,
        new_path=None if new == _NO_OBJECT else second,
        old=None if old == _NO_OBJECT else (int(old_mode, 8), objects[old]),
        new=None if new == _NO_OBJECT else (int(new_mode, 8), objects[new]),
        copy=status[0] == "C",
    )
