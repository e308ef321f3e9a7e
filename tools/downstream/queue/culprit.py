"""The commit behind a release: which of upstream's own commits broke or merged a hunk."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from downstream.patches.text import Patch
from downstream.pins import Upstream
from downstream.placing.push import push
from downstream.queue.judged import Place, verdicts_of
from downstream.queue.lifetimes import Fate, fate
from downstream.trees.git import GitTree, command, git_folder, sealed_git
from downstream.trees.tree import Tree

_PULL = re.compile(r"\(#(\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A commit of upstream's."""

    commit: str  # full object name
    title: str
    pull: int | None  # the number of the pull request that its title names
    date: str  # committer's, ISO 8601


class History:
    """Upstream's own repository (a work tree, a bare clone or a mirror), asked about one series."""

    def __init__(self, repository: Path, upstream: Upstream, patches: Sequence[Patch], base: Tree) -> None:
        self._folder = git_folder(repository) or repository
        self._upstream = upstream
        self._patches = patches
        self._base = base
        self._fates: dict[str, dict[Place, Fate]] = {}
        self.untagged: set[Version] = set()  # releases asked for whose tag the repository lacks

    def has(self, version: Version) -> bool:
        """Whether the repository has the tag of *version*."""
        found = (
            self._git("rev-parse", "--quiet", "--verify", f"refs/tags/{self._upstream.tag_of(version)}^{{commit}}")
            != ""
        )
        if not found:
            self.untagged.add(version)
        return found

    def culprit(self, place: Place, before: Version, ended: Version) -> Culprit | None:
        """Return the first commit between two releases after which the hunk has the fate it has in the later one.

        None where a tag is missing, or no single commit of the range that
        touches the file makes the difference (a merge, a rewritten tag).
        """
        if not (self.has(before) and self.has(ended)):
            return None
        patch = next(patch for patch in self._patches if patch.name == place[0])
        file = patch.files[place[1]]
        paths = sorted({path for path in (file.old_path, file.new_path) if path})
        tags = f"{self._upstream.tag_of(before)}..{self._upstream.tag_of(ended)}"
        listed = self._git("log", "--reverse", "--topo-order", "--format=%H", tags, "--", *paths).split()
        final = self._fate(self._upstream.tag_of(ended), place)
        for commit in listed:
            if self._fate(commit, place) is final:
                title, date = self._git("show", "--no-patch", "--format=%s%n%cI", commit).split("\n")[:2]
                pulls = _PULL.findall(title)
                return Culprit(commit=commit, title=title, pull=int(pulls[-1]) if pulls else None, date=date)
        return None

    def _fate(self, revision: str, place: Place) -> Fate | None:
        if revision not in self._fates:
            tree = GitTree(self._folder, revision, revision)
            found = verdicts_of(push(self._patches, tree, base=self._base).results)
            self._fates[revision] = {where: fate(verdict.status) for where, verdict in found.items()}
        return self._fates[revision].get(place)

    def _git(self, *arguments: str) -> str:
        asked = command("--git-dir", str(self._folder), *arguments)
        status, out, _ = sealed_git(self._folder).execute(asked, with_extended_output=True, with_exceptions=False)
        text = out.decode("utf-8", "surrogateescape") if isinstance(out, bytes) else str(out)
        return text if status == 0 else ""
