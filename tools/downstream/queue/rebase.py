"""A series carried to another release: written back whole, or left waiting for a person (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from downstream.errors import PatchError, StateError, TreeError
from downstream.patches.text import Patch
from downstream.pins import FILE, moved
from downstream.placing.push import Push, Pushed, push
from downstream.placing.refresh import refresh
from downstream.placing.verdict import HunkStatus, PatchResult
from downstream.queue import state as states
from downstream.queue.plan import Plan, RebaseReport, since, unsatisfied
from downstream.queue.sofar import base_so_far, kept, new_so_far
from downstream.queue.state import Done, State
from downstream.queue.transaction import Transaction, recover
from downstream.queue.waiting import prepare
from downstream.trees.open import digests
from downstream.trees.requires import demands
from downstream.trees.wheel import WheelTree

RESOLVED, SKIPPED = "resolved", "skipped"


@dataclass(frozen=True, slots=True)
class Carried:
    """How far one run came: the state after it, the verdicts of the patches it judged, and the one that waits."""

    state: State
    results: tuple[PatchResult, ...]
    waiting: Pushed | None


def start(plan: Plan) -> RebaseReport:
    """Rebase the series of *plan*. A conflict leaves a state and a checkout behind; everything else stays untouched."""
    root = plan.pins.root
    with states.exclusive(root):
        recover(root)
        if (under_way := states.load(root)) is not None:
            raise StateError(
                str(root),
                f"a rebase of {under_way.line}/{under_way.upstream} to {under_way.new} is under way",
                "tools/rebase.py --status says where it stands; --continue, --skip or --abort ends it",
            )
        plan.verify_base()
        begun = State(
            line=plan.pin.line,
            upstream=plan.pin.upstream.name,
            old=str(plan.pin.version),
            new=str(plan.target.version),
            inputs=states.digest(root, plan.pin),
        )
        return settle(plan, carry(plan, begun))


def carry(plan: Plan, state: State) -> Carried:
    """Push what follows ``state.done`` and settle every patch up to the first that needs a person."""
    settled = len(state.done)
    run = Push.over(new_so_far(plan, state), base=base_so_far(plan, settled))
    waiting: Pushed | None = None
    for patch in plan.patches[settled:]:
        pushed = run.step(patch)
        if waiting is None and pushed.result.fine:
            state = state.settled(Done(name=patch.name, content=refresh(pushed), how=pushed.result.status.value))
        elif waiting is None:
            waiting = pushed
    return Carried(state, tuple(run.results), waiting)


def settle(plan: Plan, carried: Carried) -> RebaseReport:
    """Write the rebased series back, or the state that waits for a person."""
    report = RebaseReport(pin=plan.pin, target=plan.target, results=carried.results)
    report = replace(report, dropped=tuple(done.name for done in carried.state.done if done.content is None))
    if carried.waiting is None:
        report = replace(report, written=_write_back(plan, carried.state), warnings=_warnings(plan))
    else:
        states.save(plan.pins.root, carried.state)
        prepare(plan, carried.state, carried.waiting)
        with suppress(TreeError):
            requirements(plan)  # what the last step reads is fetched now, so that it can be taken offline
        report = replace(report, waiting=carried.waiting.patch.name)
    return since(plan, report)


def _write_back(plan: Plan, state: State) -> tuple[str, ...]:
    """Replace series, patches and pin in one step; then forget the state. Raises WriteError with nothing changed."""
    root, pin, version = plan.pins.root, plan.pin, plan.target.version
    _verify(plan, kept(plan, state))
    home = f"patches/{pin.line}/{pin.upstream.name}"
    transaction = Transaction(root)
    gone = {done.name for done in state.done if done.content is None}
    for done in state.done:
        if done.content is None:
            transaction.remove(f"{home}/{done.name}")
        else:
            transaction.write(f"{home}/{done.name}", done.content)
    if gone:
        entries = [entry for entry in plan.series.entries if entry.name not in gone]
        transaction.write(f"{home}/{plan.series.file}", plan.series.with_entries(entries))
    if version != pin.version:
        text = (root / FILE).read_text(encoding="utf-8")
        wheels = digests(pin.upstream, version, plan.session)
        text = moved(text, pin.line, pin.upstream.name, version, wheels, 1, requires=requirements(plan))
        transaction.write(FILE, text.encode())
    written = transaction.commit()
    states.clear(root)
    return written


def requirements(plan: Plan) -> dict[str, str]:
    """What the new release's METADATA demands of the line's other packages."""
    siblings = [
        pin.upstream for pin in plan.pins.line(plan.pin.line).pins.values() if pin.upstream != plan.pin.upstream
    ]
    return demands(plan.new, siblings) if isinstance(plan.new, WheelTree) else {}


def _verify(plan: Plan, patches: Sequence[Patch]) -> None:
    """Push the rewritten series once more: every hunk at its own line, or nothing is written."""
    for result in push(patches, plan.new).results:
        for hunk in result.hunks:
            if hunk.status is not HunkStatus.CLEAN:
                raise PatchError(
                    result.patch,
                    f"hunk {hunk.number} of {hunk.path}, as rewritten, does not stand at its line on {plan.target}: "
                    f"{hunk.status.value} {hunk.reason}",
                    "nothing was written; tools/rebase.py --status says where the rebase stands",
                )


def _warnings(plan: Plan) -> tuple[str, ...]:
    found = [f"{sentence}; move it too" for sentence in unsatisfied(plan, requirements(plan))]
    overlay = plan.pins.overlay_folder(plan.pin.upstream)
    files = [path.relative_to(overlay).as_posix() for path in sorted(overlay.rglob("*")) if path.is_file()]
    found += [
        f"overlay/{plan.pin.upstream.name}/{path}: the release now has this file"
        for path in files
        if plan.new.read(path)
    ]
    return tuple(found)
