"""What a model is to the kernel, and the few moves that all models share.

A machine decides what follows when a run starts and when one of its work items is settled. It works
on the View alone: pure, no clock, no I/O. The kernel (`lifecycle.py`) guards leases, keeps counts and
records history; machines only say what becomes ready and when the run is over.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.core.codec import ErrorRecord, decode_error
from holdfast.core.decider_operations import DECIDER
from holdfast.core.errors import KeyConflict, UnknownWorkflow
from holdfast.core.function_operations import TURN
from holdfast.core.graph import Graph
from holdfast.core.ids import ancestry_hash
from holdfast.core.operations import Handed, LogLine, Offer, StartRun
from holdfast.core.queries import AllWork, HistoryPage, Holds, OpenWork, RunByKey, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CALL,
    CANCELLED,
    CHILD,
    DEAD,
    EFFECT,
    FAILED,
    GATE_OPEN,
    HISTORY,
    INBOX,
    LEASED,
    PAUSED,
    PENDING,
    PROJECTION,
    READY,
    RUNNING,
    RUNS,
    SET_IN_PLACE,
    TIMER,
    WAITS,
    WORK,
    History,
    Hold,
    Run,
    Work,
)
from holdfast.core.stored import read_stored
from holdfast.core.view import View
from holdfast.models.decider_code import DeciderCode
from holdfast.models.delivery import empty_mailbox, gate_for, tell_waiters
from holdfast.models.flow_code import FlowCode
from holdfast.models.state_code import GraphCode

FORKED: Final = "forked"  # in the history of both runs; of the new one it is the first entry
_facts_decoder = msgspec.json.Decoder(dict[str, Any])


class Definitions(Protocol):
    """The graphs that runs follow: stored ones, and those of the code that this process knows."""

    def graph(self, view: View, run: Run) -> Graph | None:
        """The stored graph of the run, else the one of its code; None if this process lacks that code."""

    def seen(self, run: Run, graph: Graph) -> int:
        """When this graph was first deployed as the code of the run's workflow: of two versions the later one wins."""

    def can_run(self, work: Work) -> bool:
        """Whether the code that this item needs is known here (I8)."""

    def decider(self, workflow: str) -> DeciderCode | None:
        """The decider of this name; None if this process lacks its code."""

    def flow(self, workflow: str, signature: str) -> FlowCode | None:
        """This version of the flow; None if this process lacks its code, FlowNotLoaded if it has to be read first."""

    def state_graph(self, workflow: str) -> GraphCode | None:
        """The state graph of this name; None if this process lacks its code."""


class Machine(Protocol):
    """One of the models: dag, function, decider, graph."""

    cancels_gracefully: bool  # runs user code after a cancel is requested (functions do)

    def start(self, view: View, run: Run, operation: StartRun, handing: Handing, definitions: Definitions) -> None: ...

    def advance(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """`work` has just become completed or skipped: count it and say what follows."""

    def before_another(self, view: View, run: Run, work: Work, definitions: Definitions) -> Run | None:
        """Whether the run can do with another attempt of a node: the run as it is then; None if the node is gone."""

    def tried_again(self, view: View, run: Run, work: Work) -> None:
        """Another attempt of an item was made."""

    def idle(self, view: View, run: Run) -> None:
        """Nothing of the run is ready or running any more, and it has not ended."""

    def refresh(self, view: View, run: Run, definitions: Definitions) -> None:
        """The run was taken up again: see that it follows what this process's code says, and that something moves."""

    def cancel(self, view: View, run: Run, definitions: Definitions, by: str) -> None:
        """Begin a graceful cancel: the run's own code has the last word. Only asked of those that cancel gracefully."""

    def label(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        """What people call the node."""

    def position(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        """Where a node that gave up stands and what it holds up, to follow the sentence that says so; may be empty."""

    def find(self, view: View, run: Run, name: str, definitions: Definitions) -> str:
        """The id of the node that a person means; UnknownNode otherwise."""

    def parents(self, view: View, run: Run, node: str, definitions: Definitions) -> str | None:
        """The hash of the parents' attempts that an attempt made now would follow; None if that cannot be told."""

    def below(self, view: View, run: Run, node: str, definitions: Definitions) -> tuple[str, ...]:
        """Ids of everything that depends on the node."""

    def skip_unbegun(self, view: View, run: Run, node: str, definitions: Definitions) -> Work:
        """The row of a node that has none yet, as skipped."""

    def give_up(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """`work` has failed for good."""


class Handing:
    """Room that a worker of this process offers while one operation is decided."""

    __slots__ = ("_definitions", "_offer", "_room", "handed", "logged")

    def __init__(self, offer: Offer | None, definitions: Definitions | None = None) -> None:
        self._offer = offer
        self._definitions = definitions
        self._room = offer.room if offer is not None else 0
        self.handed: list[tuple[str, str, int]] = []
        self.logged: tuple[LogLine, ...] = ()  # what a flow's code logs, once this is committed

    def lease(self, view: View, work: Work) -> Work:
        """The item leased to the offering worker if it fits there, else as it was."""
        offer = self._offer
        if offer is None or self._room < 1 or work.gate != GATE_OPEN or work.queue not in offer.queues:
            return work
        if view.find(_HOLDS) and is_held(view, work.workflow, work.queue):
            return work
        if self._definitions is not None and not self._definitions.can_run(work):
            return work
        self._room -= 1
        self.handed.append((work.run, work.node, work.attempt))
        return replace(work, status=LEASED, token=work.token + 1, worker=offer.worker, started=view.now)

    def rows(self, view: View) -> tuple[Handed, ...]:
        """What was handed over, as it stands at the end of the operation."""
        if not self.handed:
            return ()
        handed = []
        for key in self.handed:
            work, row = view.get(WORK, key), view.get(RUNS, (key[0],))
            if work is not None and row is not None and work.status == LEASED:
                handed.append(Handed(work, row))
        return tuple(handed)


def is_held(view: View, workflow: str, queue: str) -> bool:
    """Whether maintenance keeps work of this workflow or queue from being started."""
    holds = _holds(view)
    return bool(holds) and any(
        hold.scope == "all"
        or (hold.scope == "workflow" and hold.name == workflow)
        or (hold.scope == "queue" and hold.name == queue)
        for hold in holds
    )


def is_draining(view: View, workflow: str) -> bool:
    return any(hold.scope == "drain" and hold.name == workflow for hold in _holds(view))


_HOLDS = Holds()  # asked for with every step


def _holds(view: View) -> list[Hold]:
    return view.find(_HOLDS)


def make_ready(view: View, run: Run, work: Work, handing: Handing) -> Work:
    """The item as ready, or already leased to the offering worker. The caller writes it."""
    ready = replace(work, status=READY, gate=gate_for(run, work.due, view.now))
    return handing.lease(view, ready)


TAKEN = "taken"
"""Stands where the parents' hash of a DAG's attempt does: the flow has gone on with this failure."""


def was_taken(work: Work) -> bool:
    """Whether a handler or a barrier of a flow has taken the failure: what followed would not know of another try."""
    return work.parents == TAKEN


def new_attempt(
    view: View,
    run: Run,
    before: Work,
    handing: Handing,
    *,
    due: int,
    failures: int,
    losses: int,
    parents: str | None = None,
) -> Run:
    """Insert the next attempt of a node. I3: the token goes on from the last one, it never restarts.

    It is active, unless a changed graph put something before the node meanwhile: then it waits for that (I31).
    """
    if before.kind in SET_IN_PLACE:
        again = replace(
            before, status=READY, worker=None, result=None, due=due, failures=failures, losses=losses, started=None
        )
        view.put(WORK, make_ready(view, run, replace(again, finished=None), handing))
        run = replace(run, active=run.active + 1)
        view.put(RUNS, run)
        return run
    parents = parents or before.parents
    attempt = replace(
        before,
        attempt=before.attempt + 1,
        status=READY,
        worker=None,
        result=None,
        outcome=None,  # the error stays: it is what the attempt is retried for, and begins the chain (I3)
        parents=parents,
        ancestry=ancestry_hash(before.node, before.attempt + 1, parents or ""),
        due=due,
        failures=failures,
        losses=losses,
        created=view.now,
        started=None,
        finished=None,
    )
    if waits_anew(view, before):
        view.insert(WORK, replace(attempt, status=BLOCKED))
    else:
        view.insert(WORK, make_ready(view, run, attempt, handing))
        run = replace(run, active=run.active + 1)
    view.put(RUNS, run)
    return run


def waits_anew(view: View, before: Work) -> bool:
    """Whether something was put before a node while it ran: its parents are counted in the row of its first attempt."""
    if before.kind in (TURN, CALL, EFFECT, TIMER, INBOX, PROJECTION):
        return False
    first = before if before.attempt == 1 else view.get(WORK, (before.run, before.node, 1))
    return first is not None and first.completed < first.required


def record(view: View, run: Run, kind: str, **data: object) -> Run:
    """Append an entry to the run's history."""
    sequence = run.entries + 1
    view.insert(
        HISTORY,
        History(run=run.id, sequence=sequence, kind=kind, at=view.now, data=msgspec.json.encode(data)),
    )
    run = replace(run, entries=sequence)
    view.put(RUNS, run)
    return run


def facts_of(entry: History) -> dict[str, Any]:
    """What `record` wrote."""
    return read_stored(_facts_decoder.decode, entry.data, f"entry {entry.sequence} of the history of run {entry.run}")


def already_forked(view: View, workflow: str, key: str | None, **asked: object) -> Run | None:
    """The run that just this fork has made under the key before (K8); KeyConflict if the key is another run's."""
    holders: list[Run] = [] if key is None else view.find(RunByKey(workflow, key))
    for taken in holders:
        entry = view.get(HISTORY, (taken.id, 1))
        if entry is not None and entry.kind == FORKED:
            known = facts_of(entry)
            if all(known.get(name) == fact for name, fact in asked.items()):
                return taken
        raise KeyConflict(
            f"key {key!r} of {workflow} belongs to run {taken.id}, which was not made by this fork",
            hint="fork under another key",
        )
    return None


def end_run(view: View, run: Run, status: str, *, result: bytes | None = None, reason: str | None = None) -> Run:
    """The run has ended. Work that is still open is cancelled, unless an operator may want to go on with it."""
    if status == CANCELLED:
        for work in view.find(OpenWork(run.id)):
            # I10: tokens grow relative to the stored value, so whatever in-flight code returns is stale.
            view.put(WORK, replace(work, status=CANCELLED, token=work.token + 1, finished=view.now))
        waits = view.find(WaitsOf(run.id))
        for wait in waits:
            view.delete(WAITS, wait)
        if run.model == "function":  # there `remaining` counts the waits
            run = replace(run, remaining=run.remaining - len(waits))
        elif run.model == DECIDER:  # and there the effects
            run = replace(run, remaining=0)
        run = replace(run, active=0)
    answered = run.gave_up and status != FAILED and (run.model != DECIDER or status == CANCELLED)
    for work in view.find(AllWork(run.id)) if answered else ():
        if work.status == DEAD:  # nobody can replay it any more, so it is no letter that waits for an answer
            view.put(WORK, replace(work, status=FAILED))
    run = replace(run, status=status, result=result, reason=reason, finished=view.now)
    if (
        run.model != DECIDER or status == CANCELLED
    ):  # else what waits in the inbox is still looked at, and ignored (I34)
        run = empty_mailbox(view, run)
    view.put(RUNS, run)
    for waiter in tell_waiters(view, run) if run.awaited else ():
        left = existing_run(view, waiter)
        if left.active == 0 and left.signature is not None and not left.ended:
            settle(view, left)
    return run


def settle(view: View, run: Run) -> None:
    """Nothing of a DAG is ready or running any more and nodes remain: it cannot go on by itself (I30)."""
    if view.find(WaitsOf(run.id)):
        return  # a node waits for another run, which goes on
    if run.gave_up == 0:  # G9: a run that nothing can move must not look as if it ran
        if pause_asked_for(view, run):
            return  # it waits for who asked for that; a resume comes by here again
        reason = f"{run.remaining} nodes are left and none can start; skip what holds them up and resume, or cancel"
        run = record(view, run, "paused", by="holdfast", reason=reason)
        view.put(RUNS, replace(run, status=PAUSED, reason=reason))
    elif run.on_failure == "pause":
        if run.status != PAUSED:
            run = record(view, run, "paused", by=ON_FAILURE, reason=run.reason)
            view.put(RUNS, replace(run, status=PAUSED))
    elif run.on_failure == "cancel":
        failure = _failure_of(view, run)
        run = record(view, run, "cancel requested", by=ON_FAILURE, reason=failure)
        end_run(view, run, CANCELLED, reason=failure)
    else:
        end_run(view, run, FAILED, reason=_failure_of(view, run))


ON_FAILURE: Final = "on_failure"  # who did what a run's policy asked for
PAUSED_BY_ITSELF: Final = (ON_FAILURE, "holdfast")  # who paused a run that could not go on
STARTED_PAUSED: Final = "started paused"
HISTORY_PAGE: Final = 100


def pause_asked_for(view: View, run: Run) -> str | None:
    """What to call the pause if somebody asked for it, which lasts until the resume (I11); None if a run is not
    paused, or paused because it could not go on, which ends with what is done about that."""
    if run.status != PAUSED:
        return None
    after = run.entries
    while after > 0:  # once, nearly always: a run that is paused records little
        after = max(0, after - HISTORY_PAGE)
        rows: list[History] = view.find(HistoryPage(run.id, after, HISTORY_PAGE))
        if not rows:
            break  # the run's row is damaged
        for entry in reversed(rows):
            if entry.kind == "paused":
                said = facts_of(entry)
                because = f": {said['reason']}" if said.get("reason") else ""
                return None if said["by"] in PAUSED_BY_ITSELF else f"paused by {said['by']}{because}"
    return STARTED_PAUSED


def reason_while_paused(asked_for: str, failure: str | None) -> str:
    """Of a run of which nodes had given up when it was paused: it may end for them before it is resumed (I30)."""
    return asked_for if failure is None else f"{asked_for}; {failure}"


_LETTER, _WAS_DISCARDED = "the dead letter of node ", " was discarded by "


def discarded_letter(name: str, by: str) -> str:
    """The reason of a run that failed because somebody closed a dead letter of it for good (I9)."""
    return f"{_LETTER}{name}{_WAS_DISCARDED}{by}"


def discarded_node(reason: str | None) -> str | None:
    """The node whose dead letter that was, if this is such a reason."""
    told, discarded, _ = (reason or "").partition(_WAS_DISCARDED)
    return told.removeprefix(_LETTER) if discarded and told.startswith(_LETTER) else None


def _failure_of(view: View, run: Run) -> str | None:
    """The reason that the run fails for, without that of a pause which came after it."""
    asked_for = pause_asked_for(view, run)
    if run.reason is None or asked_for is None:
        return run.reason
    return run.reason.removeprefix(reason_while_paused(asked_for, ""))


def mark_running(run: Run, now: int) -> Run:
    """The run has begun: also while it is paused, or it would be pending again when it is resumed."""
    if run.started is None:
        run = replace(run, started=now)
    return replace(run, status=RUNNING) if run.status == PENDING else run


def existing_run(view: View, run: str) -> Run:
    """The run; UnknownWorkflow if there is none."""
    row = view.run(run)
    if row is None:
        raise UnknownWorkflow(f"there is no run {run}", hint="`holdfast runs` lists the runs of this database")
    return row


def tried(work: Work) -> str:
    """How often what gave up was tried. To look at a run that it waits for is an attempt, but no try."""
    times = max(1, work.failures) if work.kind == CHILD else work.attempt
    return "1 attempt" if times == 1 else f"{times} attempts"


def why(work: Work, name: str) -> str:
    """What gave up, in a sentence that fits a listing."""
    times = tried(work)
    if work.error is None:
        return f"node {name} gave up after {times} ({work.status})"
    who = "" if work.kind == TURN else f"node {name} gave up after {times}: "
    return in_a_sentence(who, decode_error(work.error))


def in_a_sentence(who: str, error: ErrorRecord) -> str:
    """An error as the reason of a run has it, behind the words that say whose it is."""
    told = f"{who}{error.type}: {error.message}"
    if len(told) > REASON_LIMIT:  # half a list of ways out would mislead; the error itself has all of them
        told = f"{who}{error.type}: {error.fact}"
    # PostgreSQL's text holds no NUL, and a failure must not turn into a dead letter for its message.
    return told.replace("\0", "\\0")[:REASON_LIMIT]


REASON_LIMIT = 500
