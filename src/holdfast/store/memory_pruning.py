"""Which ended runs that are kept in memory are still needed, as the other stores say it in SQL."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.rows import OPEN_WORK, SETTLES_AFTER_END, Run, Work


def is_needed(run: Run, work: Iterable[Work], parent: Run | None) -> bool:
    """What an instance's last decision asked for still happens (I34), and its run stays until then. A projection that
    stopped keeps its position: without it, it would take every event a second time. And a child stays for as long as
    its parent is open, which may not have been told of its end yet, or ask for it again (G3).
    """
    if run.model == "projection" or any(map(_settles, work)):
        return True
    return parent is not None and not parent.ended


def _settles(work: Work) -> bool:
    return work.kind in SETTLES_AFTER_END and work.status in OPEN_WORK
