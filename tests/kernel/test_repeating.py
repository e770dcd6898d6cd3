"""K8: repeating an operation is harmless, whichever it is, also when nobody knows whether it was committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.dag_document import stored_nodes
from holdfast.core.decider_operations import DrainInbox, Executed, ForgetSnapshot, RefuseInput
from holdfast.core.errors import StoreUnavailable
from holdfast.core.every_operation import AnyOperation
from holdfast.core.flow_waits import AwaitEvents, WakeAhead
from holdfast.core.function_operations import (
    TURN,
    BroadcastEvent,
    ContinueAs,
    Delivered,
    DropEvent,
    Entry,
    OpenWait,
    Queued,
    QueuedCall,
    RedeliverEvent,
    Refusal,
    SendEvent,
    Stepped,
    TakeTurn,
    TargetNotFound,
    stored_event_id,
)
from holdfast.core.operations import (
    BuryUnknown,
    CancelRun,
    Changed,
    ClaimWork,
    CompleteWork,
    DiscardDead,
    FailWork,
    ForkRun,
    KillWork,
    LapseWork,
    Offer,
    Operation,
    PauseRun,
    ReattemptNode,
    RecordProgress,
    ReleaseWork,
    ReshapeRun,
    ResumeRun,
    RetryRun,
    SetHold,
    Settled,
    SkipNode,
    Started,
    StartRun,
    SteerWork,
    StoreGraph,
)
from holdfast.core.projection_operations import (
    AdvanceProjection,
    EventPlace,
    FailProjection,
    RebuildProjection,
    SkipEvent,
)
from holdfast.core.state_operations import AnswerPerson, AskPerson, ForkGraph, RecordCall
from holdfast.store.contract import Store
from tests.kernel.kernels import GRAPHS, complete, opened_kernel, start
from tests.kernel.little_graph import begin, done
from tests.kernel.tally import INSTANCE, enqueue, execute
from tests.kernel.waiting_flow import begin_flow, begin_waiting, sleeps_and_acts
from tests.support.stores import Site, empty, every_row

AT: dict[str, Any] = {"run": "r", "node": "only", "attempt": 1, "token": 1}
LEASED = [start("r", lease=True)]
READY = [start("r")]
GAVE_UP = [*LEASED, FailWork(**AT, error=b"{}")]
DEAD = [*LEASED, KillWork(**AT, error=b"{}")]

FUNCTION = StartRun(run="r", workflow="f", model="function", offer=Offer(worker="w", room=1, queues=("default",)))
AT_TURN: dict[str, Any] = AT | {"node": TURN}
WAIT = OpenWait(address="#1", name="wait", digest="d", events=("go",))
CALL = QueuedCall(address="#1", action="a", name="a", digest="d", queue="q", payload=b"", codec="json")
WAITING = [FUNCTION, TakeTurn(**AT_TURN, known=0, opens=(WAIT,), park=True)]

SLEEPING = [begin_flow("r", sleeps_and_acts), ClaimWork(**AT | {"node": "sleep"}, worker="w")]
AWAIT = AwaitEvents(**AT | {"node": "wait_for"}, events=("go",))
STORED = stored_event_id("r", "e")
AT_INBOX: dict[str, Any] = AT | {"run": INSTANCE, "node": "inbox"}
AT_EFFECT: dict[str, Any] = AT | {"run": INSTANCE, "node": "effect/1.0"}
AT_TIMER: dict[str, Any] = AT | {"run": INSTANCE, "node": "timer/k"}
PROJECTION = StartRun(
    run="r", workflow="projection:p", model="projection", offer=Offer(worker="w", room=1, queues=("default",))
)
AT_PROJECTION: dict[str, Any] = AT | {"node": "projection"}
PLACE = EventPlace(position=8, type="Happened", workflow="d", key="k", sequence=3)
STOPPED = [PROJECTION, FailProjection(**AT_PROJECTION, error=b"{}", place=PLACE)]
IN_INBOX = [enqueue("s1"), enqueue("s2"), ClaimWork(**AT_INBOX, worker="w")]
AT_NODE: dict[str, Any] = AT | {"node": "a@1"}
ASK = AskPerson(**AT_NODE, recording=1, call=1, request=b"{}", request_hash="q")
# Without a command id, a second submission is another input: only the coordinator, who lost an answer, repeats one.
ONLY_REPEATED_BY_THE_COORDINATOR: dict[str, tuple[Sequence[Operation], Operation]] = {
    "execute": ([execute("s1")], execute("s2", effects=1)),
    "execute, the first input of an instance": ([], execute("s1", timers={"k": 5_000_000})),
    "execute, observed": ([], execute("s1", "c", observe="payload", effects=1)),  # a duplicate would be observed as one
    "record a call": (
        [begin("r")],
        RecordCall(**AT_NODE, recording=1, call=1, name="search", request=b"{}", request_hash="q", response=b"1"),
    ),
}

DEAD_EVENT = [FUNCTION, SendEvent(run="r", event="e", name="go", on_target_end="dead"), CancelRun(run="r", force=True)]

CASES: dict[str, tuple[Sequence[Operation], Operation]] = {
    "start": ([], start("r", "join")),
    "start, handed over": ([], start("r", "join", lease=True)),
    "start, with a key": ([], start("r", key="k")),
    "start, key taken": ([start("first", key="k")], start("r", key="k")),
    "restart": ([*[start("first", key="k"), CancelRun(run="first")]], start("r", key="k", if_exists="restart")),
    "claim": (READY, ClaimWork(**AT, worker="w")),
    "complete": (LEASED, complete("r")),
    "complete, handing over": ([start("r", "diamond", lease=True)], complete("r", "top", lease=True)),
    "fail, with a retry": (LEASED, FailWork(**AT, error=b"{}", retryable=True, attempts=3)),
    "fail, for good": (LEASED, FailWork(**AT, error=b"{}")),
    "fail, skipped": ([start("r", lease=True, on_failure="skip")], FailWork(**AT, error=b"{}", timed_out=True)),
    "steer, skip": (LEASED, SteerWork(**AT, wish="skip")),
    "steer, pause": (LEASED, SteerWork(**AT, wish="pause")),
    "steer, cancel": (LEASED, SteerWork(**AT, wish="cancel")),
    "steer, reattempt": (LEASED, SteerWork(**AT, wish="reattempt", after=5_000_000)),
    "steer, finish": ([start("r", "join", lease=True)], SteerWork(**AT | {"node": "x"}, wish="finish")),
    "kill": (LEASED, KillWork(**AT, error=b"{}")),
    "kill, skipped": ([start("r", lease=True, on_failure="skip")], KillWork(**AT, error=b"{}")),
    "release": (LEASED, ReleaseWork(**AT)),
    "lapse": (LEASED, LapseWork(**AT)),
    "lapse, once too often": (LEASED, LapseWork(**AT, lost_limit=1)),
    "progress": (
        [*LEASED, LapseWork(**AT), ClaimWork(**AT | {"attempt": 2, "token": 2}, worker="w")],
        RecordProgress(**AT | {"attempt": 2, "token": 2}),
    ),
    "bury": (READY, BuryUnknown(run="r", node="only", attempt=1, error=b"{}")),
    "cancel": (LEASED, CancelRun(run="r")),
    "pause": (READY, PauseRun(run="r")),
    "resume": ([start("r", paused=True)], ResumeRun(run="r")),
    "resume after a failure": (
        [start("r", lease=True, on_failure="pause"), FailWork(**AT, error=b"{}")],
        ResumeRun(run="r"),
    ),
    "retry": (GAVE_UP, RetryRun(run="r")),
    "reattempt": (GAVE_UP, ReattemptNode(run="r", node="only")),
    "skip": (GAVE_UP, SkipNode(run="r", node="only")),
    "skip, not started": ([start("r", "chain")], SkipNode(run="r", node="a")),
    "skip, without a row": ([start("r", "chain")], SkipNode(run="r", node="b")),
    "fork": (
        [start("s", "chain", lease=True), complete("s", "a", lease=True)],
        ForkRun(run="r", source="s", from_node="b"),
    ),
    "store a graph": (
        [start("r", "chain", lease=True), complete("r", "a")],
        StoreGraph(run="r", nodes=stored_nodes(GRAPHS["chain"]), signature=GRAPHS["chain"].signature),
    ),
    "reshape": ([start("r", "chain")], ReshapeRun(run="r")),
    "await events": ([begin_waiting("r")], AWAIT),
    "await events, one is there": ([BroadcastEvent(event="e", name="go"), begin_waiting("r")], AWAIT),
    "send to a flow that waits": ([begin_waiting("r"), AWAIT], SendEvent(run="r", event="e", name="go", payload=b"1")),
    "wake ahead of the time": (SLEEPING, WakeAhead(**AT | {"node": "sleep"})),
    "turn, an entry": (
        [FUNCTION],
        TakeTurn(**AT_TURN, known=0, entries=(Entry(address="#1", kind="result", name="a", value=b"1"),)),
    ),
    "turn, a queued call": ([FUNCTION], TakeTurn(**AT_TURN, known=0, calls=(CALL,), park=True)),
    "turn, a queued call that is given up": (
        [FUNCTION, TakeTurn(**AT_TURN, known=0, calls=(CALL,))],
        TakeTurn(**AT_TURN, known=0, withdraws=("#1",), park=True),
    ),
    "turn, a wait": ([FUNCTION], TakeTurn(**AT_TURN, known=0, opens=(WAIT,), park=True)),
    "turn, a wait whose event is there": (
        [BroadcastEvent(event="e", name="go"), FUNCTION],
        TakeTurn(**AT_TURN, known=0, opens=(WAIT,), park=True),
    ),
    "turn, until a time": ([FUNCTION], TakeTurn(**AT_TURN, known=0, park=True, due=9_000_000_000)),
    "turn, ahead of its time": (
        [
            *[FUNCTION, TakeTurn(**AT_TURN, known=0, park=True, due=9_000_000_000)],
            ClaimWork(**AT_TURN | {"token": 2}, worker="w"),
        ],
        TakeTurn(**AT_TURN | {"token": 2}, known=0, entries=(Entry(address="/1", kind="timer", name=""),), ahead=True),
    ),
    "continue as": ([FUNCTION], ContinueAs(**AT_TURN, known=0, workflow="f", input=b"", codec="json")),
    "cancel, a function": ([FUNCTION], CancelRun(run="r")),
    "send, waited for": (WAITING, SendEvent(run="r", event="e", name="go")),
    "send, queued": ([FUNCTION], SendEvent(run="r", event="e", name="go")),
    "send, nobody": ([], SendEvent(run="r", event="e", name="go")),
    "broadcast, waited for": (WAITING, BroadcastEvent(event="e", name="go")),
    "broadcast, to all": (WAITING, BroadcastEvent(event="e", name="go", to_all=True)),
    "broadcast, queued": ([], BroadcastEvent(event="e", name="go")),
    "turn, a refusal": (
        [*WAITING, SendEvent(run="r", event="e", name="go"), ClaimWork(**AT_TURN | {"token": 2}, worker="w")],
        TakeTurn(**AT_TURN | {"token": 2}, known=1, opens=(WAIT,), refuses=(Refusal(1, "another type"),)),
    ),
    "redeliver, queued": (DEAD_EVENT, RedeliverEvent(event=STORED, name="go", run="r")),
    "redeliver, waited for": (
        [*DEAD_EVENT, *(replace(operation, run="q") for operation in WAITING)],
        RedeliverEvent(event=STORED, name="go", run="r"),
    ),
    "drop an event": (DEAD_EVENT, DropEvent(event=STORED)),
    "execute, under a command id": ([execute("s1")], execute("s2", "c", effects=2, timers={"k": 5_000_000})),
    "execute, the first input": ([], execute("s1", "c", effects=1)),
    "enqueue": ([], enqueue("s1")),
    "enqueue, under a command id": ([enqueue("s1"), enqueue("s2")], enqueue("s3", "c")),
    "drain the inbox": (IN_INBOX, DrainInbox(**AT_INBOX)),
    "drain a part of the inbox": ([*IN_INBOX, enqueue("s3")], DrainInbox(**AT_INBOX, limit=1)),
    "refuse an input": (
        [enqueue("s1", raises=True), ClaimWork(**AT_INBOX, worker="w")],
        RefuseInput(**AT_INBOX, event=f"{INSTANCE}:input:s1", reason="it was told to"),
    ),
    "forget a snapshot": ([execute("s1", events=5)], ForgetSnapshot(run=INSTANCE)),
    "settle an effect": (
        [execute("s1", effects=2), ClaimWork(**AT_EFFECT, worker="w")],
        CompleteWork(**AT_EFFECT, result=b'{"effects": 1}'),
    ),
    "fire a timer that sets itself again": (
        [execute("s1", timers={"k": 0}), ClaimWork(**AT_TIMER, worker="w")],
        CompleteWork(**AT_TIMER, result=b'{"timers": {"k": 5000000}}'),
    ),
    "advance a projection": ([PROJECTION], AdvanceProjection(**AT_PROJECTION, after=0, position=7)),
    "fail a projection, with a retry": (
        [PROJECTION],
        FailProjection(**AT_PROJECTION, error=b"{}", place=PLACE, retryable=True, attempts=3),
    ),
    "fail a projection, for good": ([PROJECTION], FailProjection(**AT_PROJECTION, error=b"{}", place=PLACE)),
    "rebuild a projection": (
        [PROJECTION, AdvanceProjection(**AT_PROJECTION, after=0, position=7)],
        RebuildProjection(run="r"),
    ),
    "rebuild a projection that stopped": (STOPPED, RebuildProjection(run="r")),
    "skip an event": (STOPPED, SkipEvent(run="r", position=8)),
    "discard, of a projection": (STOPPED, DiscardDead(run="r", node="projection")),
    "retry, of a projection": (STOPPED, RetryRun(run="r")),
    "start a graph": ([], begin("r")),
    "close a step of a graph": ([begin("r")], done("r", "a@1", '{"n":1}')),
    "settle one of two items of a graph": ([begin("r"), done("r", "a@1")], done("r", "b@2", '{"all":[1]}')),
    "close a step with a join": (
        [begin("r"), done("r", "a@1"), done("r", "b@2", '{"all":[1]}')],
        done("r", "c@2", '{"all":[2]}'),
    ),
    "close a step whose merge fails": (
        [begin("r"), done("r", "a@1"), done("r", "b@2", '{"n":1}')],
        done("r", "c@2", '{"n":2}'),
    ),
    "ask a person": ([begin("r")], ASK),
    "answer a person": ([begin("r"), ASK], AnswerPerson(run="r", answer=b'"yes"', answer_hash="h")),
    "fork a graph": ([begin("s"), done("s", "a@1")], ForkGraph(run="r", source="s", step=1, update=b'{"n":7}')),
    "discard": (DEAD, DiscardDead(run="r", node="only")),
    "hold": ([], SetHold(scope="queue", name="q")),
    "release a hold": ([SetHold(scope="queue", name="q")], SetHold(scope="queue", name="q", on=False)),
}


def test_k8_every_kind_of_operation_is_repeated_here() -> None:
    """A new operation needs a case."""
    cases = CASES | ONLY_REPEATED_BY_THE_COORDINATOR
    assert {type(operation) for _, operation in cases.values()} == set(AnyOperation.__args__)


def _agrees(operation: Operation, first: Any, second: Any) -> bool:
    """The second answer tells the caller that what it asked for is so."""
    if isinstance(operation, ClaimWork):
        return True  # it only ever comes from a trace, and nobody reads the answer
    if isinstance(operation, CompleteWork) and operation.node == "timer/k":
        return bool(second.verdict in ("repeated", "stale"))  # its row was set anew: the worker drops either answer
    match first, second:
        case Started(), Started():
            return bool(first.run == second.run)
        case Settled(), Settled():
            return second.verdict in ("recorded", "repeated") and first.run_status == second.run_status
        case Stepped(), Stepped():
            return second.verdict in ("recorded", "repeated") and first.last == second.last
        case Delivered(), Delivered():
            return bool(first.run_id == second.run_id)
        case (Queued(), Queued()) | (TargetNotFound(), TargetNotFound()):
            return bool(first == second)
        case Changed(), Changed():
            return bool(first.status == second.status)
        case Executed(), Executed():
            return bool(first.run_status == second.run_status and first.sequence == second.sequence)
        case Executed(), Settled():  # an inbox that was drained before
            return second.verdict in ("repeated", "stale")
        case _:
            return False


@pytest.mark.parametrize("remembered", [True, False])
async def test_k8_an_operation_submitted_again_changes_nothing(site: Site, remembered: bool) -> None:
    """In the next batch, with the rows remembered or not."""
    async with opened_kernel(site) as (coordinator, store):
        for case, (before, operation) in CASES.items():
            await _say(coordinator, before)
            first = await coordinator.submit(operation)
            rows = await every_row(store)
            if not remembered:
                coordinator.cache.clear()
            second = await coordinator.submit(operation)
            assert await every_row(store) == rows, case
            assert _agrees(operation, first, second), (case, first, second)
            await _start_over(coordinator, store)


async def test_k8_an_operation_twice_in_one_batch_is_applied_once(site: Site) -> None:
    """Both callers are answered, the rows are those of one."""
    async with opened_kernel(site) as (coordinator, store):
        for case, (before, operation) in CASES.items():
            _, expected = await _undisturbed(case)
            await _say(coordinator, before)
            first, second = await coordinator.submit_batch([operation, operation])
            assert await every_row(store) == expected, case
            assert _agrees(operation, first, second), (case, first, second)
            await _start_over(coordinator, store)


async def test_k8_an_answer_that_was_lost_after_the_commit_is_found_out_by_asking_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks right after the commit: the caller gets an answer, and the rows are there once."""
    monkeypatch.setattr("holdfast.coordinator.RECONNECT_SECONDS", (0.0,))
    async with opened_kernel(site) as (coordinator, store):
        for case, (before, operation) in (CASES | ONLY_REPEATED_BY_THE_COORDINATOR).items():
            answer_to_expect, expected = await _undisturbed(case)
            await _say(coordinator, before)
            lost: list[str] = []

            def lose_one_answer(name: str, lost: list[str] = lost) -> None:
                if name == "flush.after_commit" and not lost:
                    lost.append(name)
                    raise StoreUnavailable("the connection broke after the commit")

            failpoints.arm(lose_one_answer)
            answer = await coordinator.submit(operation)
            failpoints.disarm()
            assert lost, case
            assert await every_row(store) == expected, case
            assert _agrees(operation, answer_to_expect, answer), (case, answer_to_expect, answer)
            await _start_over(coordinator, store)


async def _say(coordinator: Coordinator, operations: Sequence[Operation]) -> None:
    for operation in operations:
        await coordinator.submit(operation)


async def _undisturbed(case: str) -> tuple[Any, dict[str, list[Any]]]:
    """The answer and the rows when the operation is submitted once and nothing goes wrong."""
    before, operation = (CASES | ONLY_REPEATED_BY_THE_COORDINATOR)[case]
    async with opened_kernel(Site("memory")) as (coordinator, store):
        await _say(coordinator, before)
        return await coordinator.submit(operation), await every_row(store)


async def _start_over(coordinator: Coordinator, store: Store) -> None:
    coordinator.cache.clear()
    await empty(store)
