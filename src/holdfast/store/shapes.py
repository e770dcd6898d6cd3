"""Which columns an ordinary step changes, and which it leaves alone: what is not changed is neither sent nor written.

An ordinary step moves a run on (`RUN_STEP`) and settles a work item (`WORK_SETTLE`); its last one ends it (`RUN_END`).
An input of a decider counts besides (`RUN_COUNTS`). Runs that fail, pause or are taken up again change other columns
too, and so does work that is counted, parked or claimed. Work that follows another graph, and a timer that is set anew,
change as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

RUN_STEP = ("version", "status", "remaining", "active", "gave_up", "entries", "started", "updated")
RUN_COUNTS = ("token", "base", "mailbox", "due")
RUN_END = ("result", "finished")
RUN_REST = ("error", "definition", "awaited", "superseded", "reason", "signature", "adopted")
RUN_FULL = RUN_STEP + RUN_COUNTS + RUN_END + RUN_REST

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

# What a new row leaves open, nearly always. Python's sqlite3 takes a third of a microsecond to bind a None or a bool.
RUN_OPEN = ("result", "error", "definition", "parent", "reason", "finished", "awaited", "superseded")
WORK_OPEN = ("timeout", "policy", "result", "error", "outcome", "finished")

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


# Written out for every row of every batch: reading an attribute takes a quarter of what an `attrgetter` takes for it.


def run_shape_of(old: Any, new: Any) -> str:
    if not (
        old.error == new.error
        and old.definition == new.definition
        and old.awaited == new.awaited
        and old.superseded == new.superseded
        and old.reason == new.reason
        and old.signature == new.signature
        and old.adopted == new.adopted
    ):
        return "full"
    counts = old.token != new.token or old.base != new.base or old.mailbox != new.mailbox or old.due != new.due
    if old.result == new.result and old.finished == new.finished:
        return "input" if counts else "step"
    return "full" if counts else "ended"


def work_shape_of(old: Any, new: Any) -> str:
    if not (
        old.required == new.required
        and old.name == new.name
        and old.kind == new.kind
        and old.queue == new.queue
        and old.timeout == new.timeout
        and old.policy == new.policy
        and old.payload == new.payload
        and old.codec == new.codec
        and old.priority == new.priority
        and old.created == new.created
    ):
        return "whole"
    settles_only = (
        old.completed == new.completed
        and old.token == new.token
        and old.gate == new.gate
        and old.due == new.due
        and old.worker == new.worker
        and old.parents == new.parents
        and old.ancestry == new.ancestry
        and old.failures == new.failures
        and old.losses == new.losses
        and old.started == new.started
    )
    return "settled" if settles_only else "full"


def run_step(run: Any) -> tuple[Any, ...]:
    """The columns of `RUN_STEP`."""
    columns = run.version, run.status, run.remaining, run.active, run.gave_up, run.entries, run.started, run.updated
    return columns


def new_run(run: Any) -> tuple[Any, ...] | None:
    """A new row without the columns of `RUN_OPEN`; None if one of them is not open."""
    if (
        run.awaited
        or run.superseded
        or not (run.result is run.error is run.definition is run.parent is run.reason is run.finished is None)
    ):
        return None
    given = run.id, run.workflow, run.model, run.key, run.status, run.version, run.input, run.codec, run.input_digest
    options = run.on_failure, run.queue, run.priority, run.tags, run.token
    counts = run.remaining, run.active, run.gave_up, run.entries, run.due, run.created, run.started, run.updated
    code = run.signature, run.adopted, run.base, run.mailbox, run.depth
    return given + options + counts + code


def new_work(work: Any) -> tuple[Any, ...] | None:
    """A new row without the columns of `WORK_OPEN`; None if one of them is not open."""
    if not (work.timeout is work.policy is work.result is work.error is work.outcome is work.finished is None):
        return None
    given = work.run, work.node, work.attempt, work.workflow, work.kind, work.name, work.status, work.required
    state = work.completed, work.token, work.queue, work.priority, work.gate, work.due, work.worker, work.payload
    rest = work.codec, work.parents, work.ancestry, work.failures, work.losses, work.created, work.started
    return given + state + rest


RUN_SHAPES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "step": run_step,
    "ended": attrgetter(*RUN_STEP, *RUN_END),
    "input": attrgetter(*RUN_STEP, *RUN_COUNTS),
    "full": attrgetter(*RUN_FULL),
}
WORK_SHAPES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "settled": attrgetter(*WORK_SETTLE),
    "full": attrgetter(*WORK_SETTLE, *WORK_OTHER),
    "whole": attrgetter(*WORK_SETTLE, *WORK_OTHER, *WORK_DEFINED),
}
