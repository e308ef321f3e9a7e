"""Going on with a rebase that waits: continue, skip, abort, status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from downstream.errors import StateError
from downstream.patches.text import Patch
from downstream.patches.unified import unified
from downstream.pins import Pins
from downstream.placing.verdict import PatchResult, PatchStatus
from downstream.queue import state as states
from downstream.queue.conflict import unresolved
from downstream.queue.plan import Plan, RebaseReport
from downstream.queue.rebase import carry, settle
from downstream.queue.sofar import new_so_far
from downstream.queue.state import Done, State
from downstream.queue.target import Target
from downstream.queue.transaction import recover
from downstream.queue.worktree import File, Worktree
from downstream.trees.session import Session
from downstream.trees.tree import Tree

RESOLVED, SKIPPED = "resolved", "skipped"
_NAMED = 10  # conflict markers named at the most

Settle = Callable[[Plan, State, Patch], Done]


def go_on(pins: Pins, session: Session) -> RebaseReport:
    """Take the waiting patch as the checkout now has it, and carry the rest."""
    return _with_waiting(pins, session, _resolved)


def skip(pins: Pins, session: Session) -> RebaseReport:
    """Drop the waiting patch, and carry the rest."""
    return _with_waiting(pins, session, lambda _plan, _state, patch: Done(name=patch.name, content=None, how=SKIPPED))


def abort(root: Path) -> State:
    """Forget the rebase under way; ``patches/`` and VERSIONS.toml were never touched by it."""
    with states.exclusive(root):
        recover(root)
        try:
            state = _loaded(root)
        except StateError:
            if not states.folder(root).exists():
                raise
            state = State(line="", upstream="", old="", new="", inputs="")  # damaged beyond reading, yet to be removed
        states.clear(root)
        return state


def under_way(root: Path) -> State | None:
    """Return the rebase that waits, None where there is none. Writes nothing."""
    return states.load(root)


def plan_of(pins: Pins, state: State, session: Session) -> Plan:
    """Return the plan of a rebase under way. Raises StateError where what it began from has changed."""
    pin = pins.pin(state.line, state.upstream)
    if states.digest(pins.root, pin) != state.inputs:
        raise StateError(
            f"patches/{state.line}/{state.upstream}",
            "has changed since the rebase began",
            "put it back (git checkout, git stash), or tools/rebase.py --abort and begin again",
        )
    return Plan.make(pins, state.line, Target(pin.upstream, Version(state.new)), session)


def _with_waiting(pins: Pins, session: Session, settled: Settle) -> RebaseReport:
    root = pins.root
    with states.exclusive(root):
        recover(root)
        state = _loaded(root)
        plan = plan_of(pins, state, session)
        earlier: tuple[PatchResult, ...] = ()
        if len(state.done) < len(plan.patches) and state.ready:
            done = settled(plan, state, plan.patches[len(state.done)])
            state = state.settled(done)
            states.save(root, state)  # from here on a crash costs nothing of what the person did
            earlier = (_verdict(done),)
        report = settle(plan, carry(plan, state))
        return replace(report, results=earlier + report.results)


def _loaded(root: Path) -> State:
    state = states.load(root)
    if state is None:
        raise StateError(str(root), "no rebase is under way", "tools/rebase.py --upstream v0.x begins one")
    return state


def _resolved(plan: Plan, state: State, patch: Patch) -> Done:
    folder = states.checkout(plan.pins.root)
    files = Worktree.at(folder).changes_since(state.head)
    if not files:
        raise StateError(
            str(folder),
            f"nothing has been changed there for {patch.name}",
            "resolve it and --continue, or --skip to drop the patch",
        )
    if left := unresolved({path: file[1] for path, file in files.items() if file}):
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        raise StateError(
            str(folder),
            f"conflict markers are left at {', '.join(left[:_NAMED])}{more}",
            "resolve them, then --continue",
        )
    content = _written(patch, new_so_far(plan, state), files)
    return Done(name=patch.name, content=content, how=RESOLVED)


def _written(patch: Patch, before: Tree, files: dict[str, File | None]) -> bytes:
    """The patch as the person left it: its own header, its files in their old order, then new ones."""
    order = {path: index for index, path in enumerate(file.path for file in patch.files)}
    parts = [patch.header]
    for path in sorted(files, key=lambda path: (order.get(path, len(order)), path)):
        old, new = before.read(path), files[path]
        parts.append(
            unified(
                None if old is None else path,
                None if new is None else path,
                old,
                None if new is None else new[1],
                old_mode=before.mode(path),
                new_mode=new[0] if new else None,
            )
        )
    trailer = patch.files[-1].trailer if patch.files else b""
    return b"".join(parts) + trailer


def _verdict(done: Done) -> PatchResult:
    if done.content is None:
        return PatchResult(patch=done.name, status=PatchStatus.UPSTREAMED, files=(), reason="dropped by --skip")
    return PatchResult(patch=done.name, status=PatchStatus.REFRESHED, files=(), reason="resolved by hand")
