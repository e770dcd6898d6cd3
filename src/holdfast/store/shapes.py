"""Which columns an ordinary step changes, and which it leaves alone: what is not changed is neither sent nor written.

An ordinary step moves a run on (`RUN_STEP`) and settles a work item (`WORK_SETTLE`); its last one ends it (`RUN_END`).
An input of a decider counts besides (`RUN_COUNTS`). Runs that fail, pause or are taken up again change other columns
too, and so does work that is counted, parked or claimed. Work that follows another graph, and a timer that is set anew,
change as a whole.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

RUN_STEP = ("version", "status", "remaining", "active", "gave_up", "entries", "started", "updated")
RUN_COUNTS = ("token", "base", "mailbox", "due")
RUN_END = ("result", "finished")
RUN_REST = ("error", "definition", "awaited", "superseded", "reason", "signature", "adopted")
RUN_FULL = RUN_STEP + RUN_COUNTS + RUN_END + RUN_REST
run_step, run_counts, run_end, run_rest = (
    attrgetter(*columns) for columns in (RUN_STEP, RUN_COUNTS, RUN_END, RUN_REST)
)

WORK_SETTLE = ("status", "result", "error", "outcome", "finished")
WORK_OTHER = ("completed", "token", "gate", "due", "worker", "parents", "ancestry", "failures", "losses", "started")
WORK_DEFINED = (
    "required",
    "name",
    "kind",
    "queue",
    "timeout",
    "policy",
    "payload",
    "codec",
    "priority",
    "created",
)
work_settle, work_other, work_defined = attrgetter(*WORK_SETTLE), attrgetter(*WORK_OTHER), attrgetter(*WORK_DEFINED)
work_full, work_whole = attrgetter(*WORK_SETTLE, *WORK_OTHER), attrgetter(*WORK_SETTLE, *WORK_OTHER, *WORK_DEFINED)

# What a new row leaves open, nearly always. Python's sqlite3 takes a third of a microsecond to bind a None or a bool.
RUN_OPEN = ("result", "error", "definition", "parent", "reason", "finished", "awaited", "superseded")
WORK_OPEN = ("timeout", "policy", "result", "error", "outcome", "finished")
run_open, work_open = attrgetter(*RUN_OPEN), attrgetter(*WORK_OPEN)
NEW_RUN, NEW_WORK = (None,) * 6 + (False, False), (None,) * 6

Pairs = list[tuple[Any, Any]]


def run_shape(runs: Pairs) -> str:
    """The narrowest shape that holds every change of these runs: step, ended, input or full."""
    shape = "step"
    for old, new in runs:
        own = run_shape_of(old, new)
        if own != "step" and own != shape:
            if own == "full" or shape != "step":
                return "full"
            shape = own
    return shape


def work_shape(work: Pairs) -> str:
    """The narrowest shape that holds every change of these items: settled, full or whole."""
    shape = "settled"
    for old, new in work:
        own = work_shape_of(old, new)
        if own == "whole":
            return own
        shape = own if shape == "settled" else shape
    return shape


def run_shape_of(old: Any, new: Any) -> str:
    if run_rest(old) != run_rest(new):
        return "full"
    if run_end(old) == run_end(new):
        return "step" if run_counts(old) == run_counts(new) else "input"
    return "ended" if run_counts(old) == run_counts(new) else "full"


def work_shape_of(old: Any, new: Any) -> str:
    if work_other(old) == work_other(new):
        return "settled" if work_defined(old) == work_defined(new) else "whole"
    return "full" if work_defined(old) == work_defined(new) else "whole"


RUN_SHAPES = {
    "step": run_step,
    "ended": attrgetter(*RUN_STEP, *RUN_END),
    "input": attrgetter(*RUN_STEP, *RUN_COUNTS),
    "full": attrgetter(*RUN_FULL),
}
WORK_SHAPES = {"settled": work_settle, "full": work_full, "whole": work_whole}
