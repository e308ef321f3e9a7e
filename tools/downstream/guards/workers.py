"""Work shared out to forked processes where that pays."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

MANY = 64  # things to do before a second process pays
AT_ONCE = 4

_T = TypeVar("_T")
_R = TypeVar("_R")

_work: Callable[[Any], Any] | None = None  # what a forked process does; it never sees more than one kind


@contextmanager
def unhurried() -> Iterator[None]:
    """Leave the garbage to the end: syntax trees have no cycles, and looking for some takes longer than parsing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def shared_out(work: Callable[[_T], _R], items: Sequence[tuple[_T, int]], *, apart: bool) -> Iterator[tuple[_T, _R]]:
    """*work* done on each of *items* (with its weight), in any order; *apart*: other processes can do it, too."""
    global _work  # noqa: PLW0603 - fork is how what the work knows reaches the children without a copy
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if not apart or len(items) < MANY or cores < 2 or not hasattr(os, "fork"):
        for item, _ in items:
            yield item, work(item)
        return
    import multiprocessing

    _work = work
    heavy_first = [item for item, _ in sorted(items, key=lambda each: -each[1])]
    gc.freeze()  # what is there stays where it is, so that its pages stay shared
    pool = multiprocessing.get_context("fork").Pool(min(AT_ONCE, cores))
    try:
        yield from pool.imap_unordered(_one, heavy_first, chunksize=16 if len(items) > 1000 else 4)
    finally:
        gc.unfreeze()
        _work = None
        pool.terminate()
        pool.join()


def _one(item: Any) -> tuple[Any, Any]:
    assert _work is not None
    return item, _work(item)
