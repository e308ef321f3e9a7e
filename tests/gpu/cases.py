"""The calls that are tried: every shape a server decodes with, and the awkward ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

Case = dict[str, Any]

TOKENS = (1, 7, 8, 16, 17, 33, 128, 512, 2048)
HIDDEN = (4096, 6144, 7168, 8192, 9216)
TOLERANCE = {"bf16": 1e-2, "fp16": 1.25e-3}  # 2-norm, relative; the widest seen right were 6.4e-3 and 5.9e-4


def cases(
    api: str,
    world: int,
    *,
    tokens: Sequence[int] = TOKENS,
    hidden: Sequence[int] = HIDDEN,
    dtypes: Sequence[str] = ("bf16", "fp16"),
    shots: Sequence[int] = (1, 2),
    pdls: Sequence[bool] = (False, True),
    ops: Sequence[str] = ("norm",),
    **more: Any,
) -> list[Case]:
    """Return the product. Two-shot takes more tokens than ranks, and messages that the ranks share evenly."""
    seed = itertools.count(1)
    return [
        {"api": api, "tokens": t, "hidden": h, "dtype": d, "shot": s, "pdl": p, "op": o, "seed": next(seed), **more}
        for t, h, d, s, p, o in itertools.product(tokens, hidden, dtypes, shots, pdls, ops)
        if s == 1 or (t > world and t * h % (8 * world) == 0)
    ]


def main_matrix(world: int) -> list[Case]:
    """Everything for *world* ranks that one random order of calls goes through."""
    both: Iterable[str] = ("fusion", "custom")
    found = [case for api in both for case in cases(api, world)]
    found += [case for api in both for case in cases(api, world, tokens=(8, 2048), ops=("sum",))]
    found += cases("fusion", world, tokens=(1, 16, 128), hidden=(4096, 9216), shots=(1,), trigger_at_end=False)
    return found


def title(case: Case) -> str:
    words = [case["api"], case["op"], case["dtype"], f"h{case['hidden']}", f"t{case['tokens']}"]
    words += ["oneshot" if case["shot"] == 1 else "twoshot", "pdl" if case["pdl"] else "plain"]
    words += ["early"] if not case.get("trigger_at_end", True) else []
    words += ["minuszero"] if case.get("negative_zero") else []
    return "-".join(words)
