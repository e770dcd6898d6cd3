"""Which ended runs that are kept in memory are still needed, as the other stores say it in SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.core.rows import CHILD, LEASED, OPEN_WORK, READY, SETTLES_AFTER_END, Run, Work


def is_needed(run: Run, parent: Run | None, work_of: Callable[[str], Iterable[Work]]) -> bool:
    """What an instance's last decision asked for still happens (I34), and its run stays until then. A projection that
    stopped keeps its position: without it, it would take every event a second time. And a child stays while its parent
    is open and has not been told of its end: a function that never awaited it, a flow or graph that has still to look:
    it would find no run, or start it once more (G3).
    """
    if run.model == "projection" or any(map(_settles, work_of(run.id))):
        return True
    if parent is None or parent.ended:
        return False
    return not run.awaited or any(map(_looks_at_child, work_of(parent.id)))


def _settles(work: Work) -> bool:
    return work.kind in SETTLES_AFTER_END and work.status in OPEN_WORK


def _looks_at_child(work: Work) -> bool:
    return work.kind == CHILD and work.status in (READY, LEASED)
