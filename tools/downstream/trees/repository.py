"""Repositories whose commits are read as trees: on disk, or cloned into the cache."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any, cast

from downstream.errors import NetworkError, OfflineError, TreeError, UsageError
from downstream.trees.git import OBJECT_NAME, GitTree, command, git_folder, sealed_git
from downstream.trees.pipconf import redact
from downstream.trees.session import ONLINE, Session

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://.+|[^/]+@[^/:]+:.+", re.IGNORECASE)


def open_git(text: str, *, base_dir: Path = Path(), session: Session | None = None) -> GitTree:
    """Open ``REPO@REV``; the last ``@`` divides. REPO is a path, or (with a *session*) a URL to clone into the cache.

    Raises UsageError, TreeError, NetworkError, OfflineError.
    """
    repository, found, revision = text.rpartition("@")
    if not found or not repository or not revision or "\n" in revision:
        raise UsageError(f"git:{text}", "names no repository and revision", "write git:REPO@REV, REV a tag or commit")
    path = base_dir / repository
    if path.is_dir():
        folder = git_folder(path)
        if folder is None:
            raise TreeError(str(path), "is no git repository", "name a work tree, a bare repository, or a clone URL")
        return GitTree(folder.absolute(), revision, f"{repository}@{revision}")
    if not _REMOTE.fullmatch(repository):
        raise UsageError(f"git:{text}", f"there is no folder {path}", "write git:REPO@REV, REPO a folder or clone URL")
    if session is None:
        raise UsageError(f"git:{text}", "a clone URL is not allowed here", "clone it, and name the folder")
    return GitTree(_cloned(repository, revision, session), revision, f"{redact(repository)}@{revision}")


def _cloned(url: str, revision: str, session: Session) -> Path:
    """Return a bare clone of *url* that is as new as *revision* asks for: a tag or full object name it has is settled,
    anything else (a branch) is fetched again. Offline, what the cache holds is taken.
    """
    shown = redact(url)
    folder = session.cache.folder / "git" / f"{hashlib.sha256(shown.encode()).hexdigest()[:16]}.git"
    if _settled(folder, revision):
        return folder
    if session.offline:
        if folder.is_dir():
            return folder
        raise OfflineError(shown, "has no clone in the cache, and --offline forbids making one", ONLINE)
    with session.cache.lock(f"git/{folder.stem}"):
        _mirror(url, shown, folder, session)
    return folder


def _settled(folder: Path, revision: str) -> bool:
    """Whether *revision* can be in the clone and cannot have moved since: a full object name or a tag."""
    if not folder.is_dir():
        return False
    git = sealed_git(folder)
    wanted = revision if OBJECT_NAME.fullmatch(revision) else f"refs/tags/{revision}"
    asked = command("--git-dir", str(folder), "rev-parse", "--verify", "--quiet", f"{wanted}^{{tree}}")
    return git.execute(asked, with_extended_output=True, with_exceptions=False)[0] == 0


def _mirror(url: str, shown: str, folder: Path, session: Session) -> None:
    from git.exc import GitCommandError, UnsafeProtocolError
    from git.remote import RemoteProgress
    from git.repo import Repo

    # The user's own configuration stays: proxies and logins are in it.
    environment = {"GIT_TERMINAL_PROMPT": "0"}
    part = folder.with_suffix(".part")
    with session.progress.task(f"clone {shown}", 100, "%") as task:

        class Watch(RemoteProgress):
            percent = 0

            def update(
                self, op_code: int, cur_count: str | float, max_count: str | float | None = None, message: str = ""
            ) -> None:
                if op_code & self.OP_MASK == self.RECEIVING and max_count:
                    now = int(100 * float(cur_count) / float(max_count))
                    task.advance(now - self.percent, message)
                    self.percent = now

        watch = Watch()
        try:
            if folder.is_dir():
                with Repo(folder) as repo:
                    repo.git.update_environment(**environment)
                    repo.remotes["origin"].fetch(progress=watch)
                return
            shutil.rmtree(part, ignore_errors=True)  # a clone that was killed
            Repo.clone_from(url, part, progress=cast("Any", watch), env=environment, mirror=True).close()
        except UnsafeProtocolError as exc:
            raise UsageError(f"git:{shown}", "this protocol runs commands", "use https, ssh or a folder") from exc
        except GitCommandError as exc:
            shutil.rmtree(part, ignore_errors=True)
            # git's own words may repeat the URL with its login.
            lines = (*watch.error_lines, *str(exc.stderr).splitlines())
            said = [line.replace(url, shown) for line in lines if "fatal:" in line]
            problem = said[0].partition("fatal:")[2].strip(" '") if said else "cannot be cloned"
            raise NetworkError(shown, problem, "check the address and your login: git ls-remote URL") from None
    part.rename(folder)
