"""The two releases as the settled part of a rebase has made them."""

from __future__ import annotations

from downstream.patches.parse import parse
from downstream.patches.text import Patch
from downstream.placing.push import push
from downstream.queue.plan import Plan
from downstream.queue.state import State
from downstream.trees.tree import LayeredTree, Tree


def kept(plan: Plan, state: State) -> tuple[Patch, ...]:
    """Return the settled patches that stay, as they read on the new release."""
    strips = {entry.name: entry.strip for entry in plan.series.entries}
    return tuple(
        parse(done.content, name=done.name, strip=strips[done.name]) for done in state.done if done.content is not None
    )


def new_so_far(plan: Plan, state: State) -> Tree:
    """The new release with the settled patches; they apply exactly, since that is how they were written."""
    report = push(kept(plan, state), plan.new)
    return LayeredTree(plan.new, report.changes, report.modes)


def base_so_far(plan: Plan, count: int) -> Tree:
    """The pinned release with the first *count* patches as they are in the series."""
    if not count:
        return plan.base
    report = push(plan.patches[:count], plan.base)
    return LayeredTree(plan.base, report.changes, report.modes)
