"""What holds a single item of work up. Items that the same thing holds up share a cause, and are told in one line."""

from __future__ import annotations

from typing import Final

from holdfast.core.codec import decode_error
from holdfast.core.rows import (
    BLOCKED,
    CALL,
    DEAD,
    GATE_DUE,
    GAVE_UP,
    JOB,
    LEASED,
    OPEN_WORK,
    PAUSED,
    READY,
    SLEEP,
    TIMER,
    WAIT,
    Hold,
    Work,
)
from holdfast.explain.situation import Situation
from holdfast.explain.words import brief
from holdfast.models.machine import was_taken
from holdfast.models.state_graph import asks_person

Cause = tuple[str, ...]
"""A kind, and whatever tells two causes of that kind apart."""

# In the order in which a reader wants them: what only a person can mend first, what mends itself last.
GAVE_UP_FOR_GOOD: Final = "gave up"
DEAD_LETTER: Final = "dead letter"
ASKS: Final = "asks"
WAITS: Final = "waits"
WAITS_FOR_NOTHING: Final = "waits for nothing"
HELD: Final = "held"
NO_WORKER: Final = "no worker"
NO_QUEUE: Final = "no queue"
UNKNOWN_STEP: Final = "unknown step"
UNKNOWN_JOB: Final = "unknown job"
OWNER_GONE: Final = "owner gone"
NO_SLOT: Final = "no slot"
BACKING_OFF: Final = "backing off"
ASKED_AGAIN: Final = "asked again"
DUE_LATER: Final = "due later"
SLEEPS: Final = "sleeps"
NODE_SLEEPS: Final = "node sleeps"
RUNS: Final = "runs"
TIMER_SET: Final = "timer set"
BEHIND: Final = "behind"
IS_BLOCKED: Final = "is blocked"
FOR_A_PERSON: Final = (
    GAVE_UP_FOR_GOOD,
    DEAD_LETTER,
    ASKS,
    WAITS,
    WAITS_FOR_NOTHING,
    HELD,
    NO_WORKER,
    NO_QUEUE,
    UNKNOWN_STEP,
    UNKNOWN_JOB,
)
BY_ITSELF: Final = (
    OWNER_GONE,
    NO_SLOT,
    BACKING_OFF,
    ASKED_AGAIN,
    DUE_LATER,
    RUNS,
    SLEEPS,
    NODE_SLEEPS,
    TIMER_SET,
    BEHIND,
    IS_BLOCKED,
)
ORDER: Final = (*FOR_A_PERSON, *BY_ITSELF)


def causes_of(s: Situation, item: Work) -> list[Cause]:
    """Why this item is not done: one cause, or two for a failed item that nobody would run when its time has come."""
    if s.is_instance:
        return _of_instance(s, item)
    if item.status in GAVE_UP and (item.kind == CALL or was_taken(item)):
        return []  # the function or flow was told, and it is for its code to do something about it
    if s.is_parked(item):
        return _of_parked(s, item)
    if item.status in GAVE_UP:
        return [(DEAD_LETTER if item.status == DEAD else GAVE_UP_FOR_GOOD, item.node)]
    if item.status == BLOCKED:
        awaits_runs = any(wait.address == item.node for wait in s.waits)
        if not awaits_runs and s.is_graph:  # one that waits for room is told with those that were not let in
            return [(ASKS, item.node)] if asks_person(item) else []
        return [(WAITS if awaits_runs else IS_BLOCKED, item.node)]
    if item.status == LEASED:
        return [_of_lease(s, item)]
    if item.status == READY and s.run.status != PAUSED:
        obstacle = _obstacle(s, item)
        if item.kind == WAIT and item.due > s.now:  # of a flow, for events or for that time
            return [(WAITS, item.node)] if obstacle[0] == NO_SLOT else [(WAITS, item.node), obstacle]
        if item.gate == GATE_DUE and item.due > s.now:
            delay = _of_delay(item)
            if obstacle[0] == NO_SLOT:
                return [delay]
            return [delay, obstacle] if delay[0] == BACKING_OFF else [obstacle]  # which tells the time as well
        return [obstacle]
    return []


def _of_instance(s: Situation, item: Work) -> list[Cause]:
    """An effect, a timer or the inbox of a decider's instance."""
    if item.status == DEAD:
        return [(DEAD_LETTER, item.node)]
    if item.status == BLOCKED:
        return [(BEHIND,)]
    if item.status == LEASED:
        return [_of_lease(s, item)]
    if item.status != READY or s.run.status == PAUSED:
        return []
    obstacle = _obstacle(s, item)
    if item.due <= s.now:
        return [obstacle]
    delay = (TIMER_SET, item.node) if item.kind == TIMER and not item.failures else _of_delay(item)
    # What a timer would give to an instance that has ended is ignored: it needs nobody.
    needs_nobody = obstacle[0] == NO_SLOT or (s.run.ended and item.kind == TIMER)
    return [delay] if needs_nobody else [delay, obstacle]


def _of_parked(s: Situation, item: Work) -> list[Cause]:
    """All that a function waits for; calls in the work table have causes of their own."""
    found: list[Cause] = [(WAITS, address) for address in dict.fromkeys(wait.address for wait in s.waits)]
    if item.status == READY:
        found.append((SLEEPS,))
    elif not found and not any(other.kind == CALL and other.status in OPEN_WORK for other in s.work):
        found.append((WAITS_FOR_NOTHING,))
    obstacle = _obstacle(s, item)
    # What would happen to it once it is woken matters only if that is not what everybody expects.
    return found if s.run.status == PAUSED or obstacle[0] == NO_SLOT else [*found, obstacle]


def _of_lease(s: Situation, item: Work) -> Cause:
    owner = next((worker for worker in s.workers if worker.id == item.worker), None)
    is_gone = owner is None or owner.lease_until < s.now
    return (OWNER_GONE if is_gone else RUNS, item.worker or "")


def _of_delay(item: Work) -> Cause:
    if item.failures and item.error is not None:
        failed = decode_error(item.error)
        return (BACKING_OFF, failed.type, brief(failed.message))
    if item.kind == SLEEP:
        return (NODE_SLEEPS, item.node)
    return (ASKED_AGAIN,) if item.attempt > 1 else (DUE_LATER,)


def _obstacle(s: Situation, item: Work) -> Cause:
    """What would keep the item from being claimed if its time had come; a free slot, if nothing else."""
    hold = hold_of(s, item)
    if hold is not None:
        return (HELD, hold.scope, hold.name)
    if not s.live:
        return (NO_WORKER, item.queue)
    serving = [worker for worker in s.live if item.queue in worker.queues]
    if not serving:
        return (NO_QUEUE, item.queue)
    if any(worker.knows(item) for worker in serving):
        return (NO_SLOT, item.queue)
    return (UNKNOWN_JOB, item.queue, item.name) if item.kind == JOB else (UNKNOWN_STEP, item.queue)


def hold_of(s: Situation, item: Work) -> Hold | None:
    """The maintenance that keeps the item from being claimed."""
    names = {"all": "", "workflow": item.workflow, "queue": item.queue}
    return next((hold for hold in s.holds if names.get(hold.scope) == hold.name), None)
