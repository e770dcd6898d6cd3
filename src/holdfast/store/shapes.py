"""Which columns an ordinary step changes, and which it leaves alone: what is not changed is neither sent nor written.

An ordinary step moves a run on (`RUN_STEP`) and settles a work item (`WORK_SETTLE`); runs that end, pause or are taken
up again, and work that is counted, parked or claimed, change other columns too.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

RUN_STEP = ("version", "status", "remaining", "active", "gave_up", "entries", "started", "updated")
RUN_REST = (
    "result",
    "error",
    "definition",
    "token",
    "awaited",
    "superseded",
    "reason",
    "finished",
    "signature",
    "adopted",
    "base",
    "mailbox",
)
run_step, run_rest, run_full = attrgetter(*RUN_STEP), attrgetter(*RUN_REST), attrgetter(*RUN_STEP, *RUN_REST)

WORK_SETTLE = ("status", "result", "error", "outcome", "finished")
WORK_OTHER = ("completed", "token", "gate", "due", "worker", "parents", "ancestry", "failures", "losses", "started")
work_settle, work_other = attrgetter(*WORK_SETTLE), attrgetter(*WORK_OTHER)
work_full = attrgetter(*WORK_SETTLE, *WORK_OTHER)

Pairs = list[tuple[Any, Any]]


def only_step(runs: Pairs) -> bool:
    """Whether nothing but the columns of a step changes in any of these runs."""
    return all(run_rest(old) == run_rest(new) for old, new in runs)


def only_settled(work: Pairs) -> bool:
    """Whether nothing but the columns of a settled item changes in any of these."""
    return all(work_other(old) == work_other(new) for old, new in work)
