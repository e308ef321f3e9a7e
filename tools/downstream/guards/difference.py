"""What a new release does to the guards: new, gone and moved ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from downstream.guards.model import Audit, Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The findings of *new* against those of *old*."""

    old: str
    new: str
    appeared: tuple[Guard, ...]
    gone: tuple[Guard, ...]
    moved: tuple[tuple[Guard, Guard], ...]  # same guard, other line or file
    changed: tuple[tuple[Guard, Guard], ...]  # same guard, other class
    kept: int


def difference(old: Audit, new: Audit, *, everything: bool = False) -> Difference:
    """Compare two audits; *everything* counts guards that are no findings, too."""
    before = list(old.guards if everything else old.concerns)
    after = list(new.guards if everything else new.concerns)
    pairs = _paired(before, after, key=lambda guard: guard.fingerprint)
    matched_old, matched_new = {id(a) for a, _ in pairs}, {id(b) for _, b in pairs}
    rest_old = [guard for guard in before if id(guard) not in matched_old]
    rest_new = [guard for guard in after if id(guard) not in matched_new]
    # The file moved: the same guard in the same function elsewhere, if there is one such only.
    elsewhere = _paired(rest_old, rest_new, key=lambda guard: guard.shape)
    pairs += elsewhere
    matched_old |= {id(a) for a, _ in elsewhere}
    matched_new |= {id(b) for _, b in elsewhere}
    moved = tuple((a, b) for a, b in pairs if (a.path, a.line) != (b.path, b.line))
    changed = tuple((a, b) for a, b in pairs if a.verdict_class != b.verdict_class)
    return Difference(
        old=old.tree,
        new=new.tree,
        appeared=tuple(guard for guard in after if id(guard) not in matched_new),
        gone=tuple(guard for guard in before if id(guard) not in matched_old),
        moved=tuple(sorted(moved, key=lambda pair: (pair[1].path, pair[1].line))),
        changed=changed,
        kept=len(pairs) - len(moved),
    )


def _paired(old: Iterable[Guard], new: Iterable[Guard], *, key: Callable[[Guard], str]) -> list[tuple[Guard, Guard]]:
    by_key: dict[str, list[Guard]] = defaultdict(list)
    for guard in new:
        by_key[key(guard)].append(guard)
    pairs = []
    for guard in old:
        found = by_key.get(key(guard), [])
        if len(found) == 1:
            pairs.append((guard, found.pop()))
    return pairs
