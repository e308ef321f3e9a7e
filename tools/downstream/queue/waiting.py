"""The patch that waits: a git checkout with one commit per settled patch, and the conflict in its working tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from downstream.errors import StateError
from downstream.patches.header import Header
from downstream.patches.parse import parse
from downstream.placing.push import Push, Pushed
from downstream.queue import state as states
from downstream.queue.conflict import marked
from downstream.queue.judged import touched
from downstream.queue.plan import Plan
from downstream.queue.sofar import base_so_far, new_so_far
from downstream.queue.state import State
from downstream.queue.worktree import Commit, File, Worktree
from downstream.trees.open import prefetch
from downstream.trees.tree import REGULAR, Tree

VENDORED = "3rdparty/"  # thousands of files of other projects, which no conflict is resolved in


def prepare(plan: Plan, state: State, waiting: Pushed) -> None:
    """Bring the checkout to *state* with *waiting* in its working tree, and save that it is ready.

    Killed on its way, it is simply done again: the state names the last commit that counts.
    """
    root = plan.pins.root
    folder = states.checkout(root)
    tree, head = _carried_on(plan, state, folder) or Worktree.create(
        folder, [_release(plan), *_commits(plan, state, 0)]
    )
    for path, content in marked(waiting, old=str(plan.pin.version), new=str(plan.target.version)).items():
        tree.write(path, (plan.new.mode(path) or REGULAR, content))
    _sides(plan, state, waiting)
    states.save(root, replace(state, head=head, at=len(state.done), ready=True))


def _carried_on(plan: Plan, state: State, folder: Path) -> tuple[Worktree, str] | None:
    """Bring the checkout of the step before to *state*; None where there is none, or none that git can go on with.

    A kill may have left git's own lock files, or half of the folder.
    """
    if not state.head:
        return None
    try:
        tree = Worktree.at(folder)
        if not tree.has(state.head):
            return None
        commits = list(_commits(plan, state, state.at))
        head = tree.add(commits, parent=state.head) if commits else state.head
        tree.reset(head)
    except StateError:
        return None
    return tree, head


def _release(plan: Plan) -> Commit:
    """The release as the first commit, so that a person can search all of it for where the code went."""
    wanted = {path for path in plan.new.paths() if not path.startswith(VENDORED)} | set(touched(plan.patches))
    with plan.session.progress.task(f"checking out {plan.target}", len(wanted), "files") as task:
        prefetch(plan.new, sorted(wanted))
        files: dict[str, File | None] = {}
        for path in sorted(wanted):
            content = plan.new.read(path)
            if content is not None:
                files[path] = (plan.new.mode(path) or REGULAR, content)
            task.advance(1, path)
    return Commit(changes=files, message=f"{plan.target}\n".encode())


def _commits(plan: Plan, state: State, at: int) -> Iterable[Commit]:
    """One commit for each settled patch from the *at*-th on."""
    strips = {entry.name: entry.strip for entry in plan.series.entries}
    run = Push.over(new_so_far(plan, replace(state, done=state.done[:at])))
    for done in state.done[at:]:
        if done.content is None:
            continue
        patch = parse(done.content, name=done.name, strip=strips[done.name])
        run.step(patch)
        header = Header.parse(patch.header)
        message = f"{header.subject or done.name}\n\nPatch: {done.name}\n\n{header.description}".rstrip() + "\n"
        paths = touched([patch])
        yield Commit(
            changes={path: _file(run, path) for path in paths}, message=message.encode("utf-8", "surrogateescape")
        )


def _file(run: Push, path: str) -> File | None:
    lines = run.new.lines(path)
    return None if lines is None else (run.new.mode(path) or REGULAR, b"".join(lines))


def _sides(plan: Plan, state: State, waiting: Pushed) -> None:
    """Lay the three texts of each file beside the checkout: base, ours (base with the patch), theirs (the release)."""
    base, theirs = base_so_far(plan, len(state.done)), new_so_far(plan, state)
    patched = Push.over(base)
    patched.step(waiting.patch)
    home = states.folder(plan.pins.root)
    for path in touched([waiting.patch]):
        ours = patched.new.lines(path)
        for side, content in (
            ("base", _read(base, path)),
            ("ours", None if ours is None else b"".join(ours)),
            ("theirs", _read(theirs, path)),
        ):
            target = home / side / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            if content is not None:
                target.write_bytes(content)


def _read(tree: Tree, path: str) -> bytes | None:
    return tree.read(path)
