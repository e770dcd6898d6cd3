"""What the code of a workflow asks of its run, and what each call refuses."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.conditions import Wait
from holdfast.authoring.function_calls import (
    BroadcastCall,
    ChildCall,
    ChildResult,
    ContinueRequested,
    ExecuteCall,
    SendCall,
    SideEffect,
)
from holdfast.authoring.registry import Definition
from tests.authoring.recorded_run import START, RecordedRun, inside

registry = hf.Registry()


@dataclass
class Approval:
    by: str


@dataclass
class Create:
    order: int


approved = hf.event("approved", Approval, registry=registry)
poked = hf.event("poked", None, registry=registry)


@hf.action(registry=registry)
async def release(order: int) -> None: ...


@hf.workflow(registry=registry)
async def onboard(user: str, tries: int = 0) -> list[str]:
    return [user] * tries


class Pipeline(hf.Dag, registry=registry):
    size: int

    @hf.step
    async def load(self) -> None: ...


class Orders:
    """Stands for a decider, which a registry knows by its definition."""

    __holdfast__: Definition


Orders.__holdfast__ = Definition.of(Orders, "workflow", "orders", ())


async def asked(call: Callable[[], Coroutine[Any, Any, Any]], answer: Any = None) -> tuple[Any, Any]:
    """The one request that a call made in a run, and what came of it."""
    run = RecordedRun(registry, answer=lambda request: answer)
    with inside(run):
        value = await call()
    (request,) = run.requests
    return request, value


# --- time and chance


async def test_i56_time_and_chance_are_the_runs_own() -> None:
    with inside(RecordedRun(registry)):
        assert hf.now() == START
        assert hf.uuid4().int == 4
        assert hf.rng().random() == hf.rng().random()


async def test_outside_a_run_time_and_chance_are_real() -> None:
    before = datetime.now(UTC)
    assert before <= hf.now() <= datetime.now(UTC)
    assert hf.uuid4() != hf.uuid4()
    assert hf.rng().random() != hf.rng().random()


async def test_i49_sleeping_is_a_timer_of_the_loop_that_the_run_has(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    run = RecordedRun(registry)
    with inside(run):
        await hf.sleep(seconds=1)
        await hf.sleep(timedelta(minutes=2))
        await hf.sleep(0.25)
        await hf.sleep(days=1, hours=1)
        await hf.sleep(until=START + timedelta(seconds=90))
        await hf.sleep(until=START - timedelta(days=1))
    assert slept == [1.0, 120.0, 0.25, 90_000.0, 90.0, 0.0]
    assert run.requests == []


@pytest.mark.parametrize(
    ("sleep", "says"),
    [
        (lambda: hf.sleep(), "hf.sleep was given no time"),
        (lambda: hf.sleep(seconds=-1), "hf.sleep was given -1, which is negative"),
        (lambda: hf.sleep(days=1, hours=-1), "-1, which is negative"),
        (lambda: hf.sleep(timedelta(seconds=-1)), "negative"),
        (lambda: hf.sleep(float("nan")), "seconds=nan, a float"),
        (lambda: hf.sleep(float("inf")), "seconds=inf, a float"),
        (lambda: hf.sleep("1"), "seconds='1', a str"),  # type: ignore[arg-type]
        (lambda: hf.sleep(True), "seconds=True, a bool"),
        (lambda: hf.sleep(1e300), "over a century.*unit"),
        (lambda: hf.sleep(5, seconds=5), "given 5 and seconds as well"),
        (lambda: hf.sleep(5, until=START), "until= and a time as well"),
        (lambda: hf.sleep(until=datetime(2031, 5, 1)), "no time zone.*hf.now"),
        (lambda: hf.sleep(until=5), "given 5, a int.*aware datetime"),  # type: ignore[arg-type]
    ],
)
def test_a_sleep_that_cannot_be_meant_is_refused_at_the_call(sleep: Callable[[], object], says: str) -> None:
    with pytest.raises(hf.UsageError, match=says):
        sleep()


# --- waiting


async def test_i50_a_wait_names_events_runs_and_one_deadline() -> None:
    request, value = await asked(
        lambda: hf.wait_for(
            approved | "rejected" | hf.after(days=2) | hf.at(START + timedelta(days=3)) | hf.ended("run-2")
        ),
        answer="the winner",
    )
    assert isinstance(request, Wait)
    assert value == "the winner"
    assert (request.events, request.runs) == (("approved", "rejected"), ("run-2",))
    assert request.until_us == int((START + timedelta(days=2)).timestamp() * 1_000_000)


async def test_all_of_is_a_wait_for_each_member_and_a_list_in_their_order() -> None:
    run = RecordedRun(registry, answer=lambda request: request.events[0] if request.events else "time")
    with inside(run):
        assert await hf.wait_for(hf.all_of("b", "a", hf.after(1))) == ["b", "a", "time"]
        assert await hf.wait_for(hf.all_of(["a", hf.all_of("b", "c")])) == ["a", ["b", "c"]]
    assert [request.events for request in run.requests] == [("b",), ("a",), (), ("a",), ("b",), ("c",)]


async def test_any_of_with_all_of_inside_is_a_race_whose_losers_are_cancelled() -> None:
    cancelled: list[tuple[str, ...]] = []

    async def answer(request: Wait) -> str:
        if "late" in request.events:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(request.events)
                raise
        return request.events[0]

    run = RecordedRun(registry, answer=answer)
    with inside(run):
        assert await hf.wait_for(hf.all_of("a", "b") | hf.any_of("late", hf.after(5))) == ["a", "b"]
        assert await hf.wait_for(hf.any_of("c", hf.all_of("a", "late"))) == "c"
        assert await hf.wait_for(hf.any_of(hf.all_of("a", "late"), hf.all_of("b"))) == ["b"]
    assert cancelled == [("late",)] * 3


@pytest.mark.parametrize(
    ("wait", "says"),
    [
        (lambda: hf.wait_for(), "nothing to wait for"),  # type: ignore[call-overload]
        (lambda: hf.wait_for(None), "nothing to wait for"),  # type: ignore[call-overload]
        (lambda: hf.wait_for(approved, poked), "2 conditions.*hf.any_of"),  # type: ignore[call-overload]
        (lambda: hf.wait_for(5), "given 5, a int.*hf.after"),  # type: ignore[call-overload]
        (lambda: hf.wait_for(START), "hf.at"),  # type: ignore[call-overload]
        (lambda: hf.wait_for(release(1)), "which is no condition.*await it by itself"),  # type: ignore[call-overload]
        (lambda: hf.wait_for(onboard), "<workflow onboard .*no condition"),  # type: ignore[call-overload]
        (lambda: hf.wait_for(""), "is empty"),
        (lambda: hf.wait_for(hf.ended("run-1")), "run run-1 of onboard waits for its own end"),
        (lambda: hf.wait_for(approved or poked), "used as true or false.*with \\|"),
    ],
)
async def test_a_wait_for_nothing_that_can_happen_is_refused_at_the_call(wait: Callable[[], object], says: str) -> None:
    run = RecordedRun(registry)
    with inside(run), pytest.raises(hf.UsageError, match=says):
        wait()
    assert run.requests == []


# --- children


async def test_a_child_is_started_once_and_its_result_asked_for_later() -> None:
    answers = iter(["run-2", ["Ada"], "the end"])
    run = RecordedRun(registry, answer=lambda request: next(answers))
    with inside(run):
        child = await hf.start_child(onboard, "Ada", 1, key="k1", queue="slow", detached=True)
        assert (child.id, child.workflow) == ("run-2", "onboard")
        assert await child.result() == ["Ada"]
        await hf.wait_for(hf.ended(child))
    start, result, wait = run.requests
    assert isinstance(start, ChildCall)
    assert (start.name, start.key, start.queue, start.detached, start.awaits) == ("onboard", "k1", "slow", True, False)
    assert isinstance(result, ChildResult)
    assert (result.run_id, result.result_codec) == ("run-2", onboard.call)
    assert wait.run_ended("run-2", "completed", b'["Ada"]').result == ["Ada"]


async def test_whatever_can_be_started_can_be_a_child() -> None:
    for startable, args, name, codec in (
        (onboard.bind(user="Ada"), (), "onboard", onboard.call),
        ("onboard", ("Ada",), "onboard", onboard.call),
        (release, (1,), "release", release.call),
        (Pipeline(size=1), (), "Pipeline", None),
    ):
        request, child = await asked(lambda s=startable, a=args: hf.start_child(s, *a), answer="run-2")  # type: ignore[misc]
        assert (request.name, request.result_codec, child.id) == (name, codec, "run-2")


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (lambda: hf.start_child(onboard), "cannot be called like this"),  # type: ignore[call-arg,arg-type]
        (lambda: hf.start_child(print, 1), "plain function"),  # type: ignore[arg-type]
        (lambda: hf.start_child("onbord", "Ada"), "did you mean 'onboard'"),
        (lambda: hf.start_child(onboard, "Ada", 1, key=""), "the key in hf.start_child is empty"),
        (lambda: hf.start_child(onboard, "Ada", 1, queue=3), "the queue in hf.start_child"),  # type: ignore[call-overload,call-arg]
        (lambda: hf.start_child(onboard, "Ada", 1, detached="yes"), "detached='yes'"),  # type: ignore[call-overload,call-arg]
    ],
)
async def test_a_child_that_could_not_run_is_refused_at_the_call(start: Callable[[], object], says: str) -> None:
    run = RecordedRun(registry)
    with inside(run), pytest.raises(hf.UsageError, match=says):
        start()
    assert run.requests == []


# --- sending


async def test_a_send_has_the_event_the_payload_and_the_target() -> None:
    request, value = await asked(lambda: hf.send(approved, Approval("Ada"), to="run-2", id="m1"), hf.Queued("e1"))
    assert isinstance(request, SendCall)
    assert (request.name, request.to, request.id, request.payload) == ("send approved", "run-2", "m1", Approval("Ada"))
    assert value == hf.Queued("e1")
    child: hf.ChildHandle[None] = hf.ChildHandle("run-3", "onboard", None)
    request, _ = await asked(lambda: hf.send("approved", Approval("Ada"), to=child))
    assert (request.event, request.to, request.id) == (approved, "run-3", None)
    request, _ = await asked(lambda: hf.send("unheard-of", {"any": ["JSON"]}, to="run-2"))
    assert request.event.encode(request.payload).data == b'{"any":["JSON"]}'


async def test_a_broadcast_goes_to_one_or_to_all() -> None:
    request, _ = await asked(lambda: hf.broadcast(poked, to_all=True))
    assert isinstance(request, BroadcastCall)
    assert (request.name, request.to_all, request.payload) == ("broadcast poked", True, None)


async def test_an_input_for_a_decider_is_a_request_too() -> None:
    request, _ = await asked(lambda: hf.execute(Orders, Create(17), command_id="c1"))
    assert isinstance(request, ExecuteCall)
    assert (request.name, request.decider, request.input, request.command_id) == (
        "execute orders", "orders", Create(17), "c1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("send", "kind", "says"),
    [
        (
            lambda: hf.send(approved, {"by": "Ada"}, to="run-2"),  # type: ignore[misc]
            hf.PayloadRefused,
            "the payload of event approved",
        ),
        (lambda: hf.send("approved", "Ada", to="run-2"), hf.PayloadRefused, "the payload of event approved"),
        (lambda: hf.send(poked, 1, to="run-2"), hf.PayloadRefused, "the payload of event poked"),  # type: ignore[misc]
        (lambda: hf.send("other", {1, 2}, to="run-2"), hf.PayloadRefused, "the payload of event other"),
        (lambda: hf.send(Approval, Approval("A"), to="run-2"), hf.UsageError, "no event.*hf.event"),  # type: ignore[call-overload]
        (lambda: hf.send(hf.after(5), to="run-2"), hf.UsageError, "no event"),  # type: ignore[call-overload]
        (lambda: hf.send(poked, to=17), hf.UsageError, "given 17, a int, which is no run"),  # type: ignore[call-overload]
        (lambda: hf.send(poked, to=approved), hf.UsageError, "<event approved of Approval>.*no run"),  # type: ignore[call-overload]
        (lambda: hf.send(poked, to=""), hf.UsageError, "the run in hf.send is empty"),
        (lambda: hf.send(poked, to="run-2", id=""), hf.UsageError, "the id of an event is empty"),
        (lambda: hf.broadcast(poked, to_all=1), hf.UsageError, "to_all=1"),  # type: ignore[call-overload]
        (lambda: hf.broadcast(approved, "Ada"), hf.PayloadRefused, "the payload of event approved"),  # type: ignore[misc]
        (lambda: hf.execute(release, 1), hf.UsageError, "no decider.*simply awaited"),
        (lambda: hf.execute(Pipeline, 1), hf.UsageError, "no decider"),
        (lambda: hf.execute(Orders, object()), hf.PayloadRefused, "the input of orders"),
        (lambda: hf.execute("orders", 1, command_id="\n"), hf.UsageError, "the command_id in hf.execute"),
    ],
)
async def test_what_cannot_be_sent_is_refused_at_the_call(
    send: Callable[[], object], kind: type[hf.HoldfastError], says: str
) -> None:
    run = RecordedRun(registry)
    with inside(run), pytest.raises(kind, match=says):
        send()
    assert run.requests == []


# --- the run itself


async def test_i14_a_side_effect_is_recorded_as_its_function_declares() -> None:
    def today() -> datetime:
        return START

    request, value = await asked(lambda: hf.side_effect(today), answer=START)
    assert isinstance(request, SideEffect)
    assert (request.name, value) == ("today", START)
    recorded = request.encode(today())
    assert request.decode(recorded.data, recorded.codec) == START
    request, _ = await asked(lambda: hf.side_effect(lambda: 3, name="dice"))
    assert (request.name, request.fn()) == ("dice", 3)
    with pytest.raises(hf.PayloadRefused, match="the value of side effect dice"):
        request.encode(START)


async def test_rollbacks_values_and_patches_are_told_to_the_run() -> None:
    run = RecordedRun(registry)
    with inside(run):
        hf.on_rollback(release, 17)
        hf.on_rollback(release.bind(order=18))
        hf.expose("progress", lambda: 0.5)
        assert hf.patched("fraud-check") is False
    assert run.rollbacks == [(release, (17,), {}), (release, (), {"order": 18})]
    assert run.exposed["progress"]() == 0.5
    assert run.asked == ["fraud-check"]


async def test_continue_as_leaves_the_code_at_once() -> None:
    with inside(RecordedRun(registry)):
        with pytest.raises(ContinueRequested) as request:
            hf.continue_as(onboard, "Ada", 1)
        assert (request.value.workflow, request.value.call_args) == (onboard, ("Ada", 1))
        with pytest.raises(ContinueRequested) as request:
            hf.continue_as(onboard.bind(user="Ada"))
        assert dict(request.value.call_kwargs) == {"user": "Ada"}


@hf.workflow(registry=hf.Registry())
async def elsewhere() -> None: ...


async def asks() -> None: ...


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hf.continue_as(release, 1), "<action release .*no workflow.*hf.continue_as\\(onboard"),
        (lambda: hf.continue_as("onboard"), "no workflow"),  # type: ignore[arg-type]
        (lambda: hf.continue_as(onboard), "cannot be called like this"),  # type: ignore[arg-type]
        (lambda: hf.continue_as(onboard, 7, 1), "'user' of workflow onboard"),  # type: ignore[arg-type]
        (lambda: hf.continue_as(onboard.bind("Ada"), "Bob"), "bound to its arguments, and 1 more"),
        (lambda: hf.continue_as(elsewhere), "no workflow is registered as 'elsewhere'"),
        (lambda: hf.on_rollback(print, 1), "<built-in function print>, which is no action.*@hf.action"),  # type: ignore[arg-type]
        (lambda: hf.on_rollback(release(1)), "which is no action.*not the call"),  # type: ignore[arg-type]
        (lambda: hf.on_rollback(onboard, "Ada", 1), "no action"),
        (lambda: hf.on_rollback(release), "cannot be called like this"),  # type: ignore[arg-type]
        (lambda: hf.on_rollback(release, "17"), "'order' of action release"),  # type: ignore[arg-type]
        (lambda: hf.expose("", lambda: 1), "a value in hf.expose is empty"),
        (lambda: hf.expose("progress", 0.5), "cannot be asked at once"),  # type: ignore[arg-type]
        (lambda: hf.expose("progress", asks), "cannot be asked at once"),
        (lambda: hf.expose("progress", lambda x: x), "without arguments"),  # type: ignore[arg-type,misc]
        (lambda: hf.patched(""), "a patch in hf.patched is empty"),
        (lambda: hf.patched("a\nb"), "unprintable"),
        (lambda: hf.patched(3), "is a int"),  # type: ignore[arg-type]
        (lambda: hf.side_effect(asks), "to be awaited.*@hf.action"),
        (lambda: hf.side_effect(release), "to be awaited"),  # type: ignore[arg-type]
        (lambda: hf.side_effect(3), "hf.side_effect was given 3, a int"),  # type: ignore[arg-type]
        (lambda: hf.side_effect(lambda x: x), "without arguments"),  # type: ignore[arg-type,misc]
    ],
)
async def test_what_a_run_cannot_do_is_refused_at_the_call(call: Callable[[], object], says: str) -> None:
    run = RecordedRun(registry)
    with inside(run), pytest.raises(hf.UsageError, match=says):
        call()
    assert (run.requests, run.rollbacks, run.exposed, run.asked) == ([], [], {}, [])


# --- who is asking

EVERY_CALL: dict[str, Callable[[], object]] = {
    "hf.now": hf.now,
    "hf.uuid4": hf.uuid4,
    "hf.rng": hf.rng,
    "hf.sleep": lambda: hf.sleep(1),
    "hf.wait_for": lambda: hf.wait_for(approved),
    "hf.start_child": lambda: hf.start_child(onboard, "Ada", 1),
    "hf.send": lambda: hf.send(poked, to="run-2"),
    "hf.broadcast": lambda: hf.broadcast(poked),
    "hf.execute": lambda: hf.execute("orders", 1),
    "hf.side_effect": lambda: hf.side_effect(lambda: 1),
    "hf.continue_as": lambda: hf.continue_as(onboard, "Ada", 1),
    "hf.on_rollback": lambda: hf.on_rollback(release, 1),
    "hf.expose": lambda: hf.expose("progress", lambda: 1),
    "hf.patched": lambda: hf.patched("new"),
}
MEANT_FOR_RUNS_ONLY = EVERY_CALL.keys() - {"hf.now", "hf.uuid4", "hf.rng", "hf.sleep", "hf.side_effect", "hf.patched"}


@pytest.mark.parametrize("name", EVERY_CALL)
async def test_inside_an_action_every_call_of_a_workflow_is_refused(name: str) -> None:
    """Nothing in an action is recorded: a wait there would block a slot, a seeded number would repeat."""

    @hf.action(registry=hf.Registry())
    async def charges() -> None:
        EVERY_CALL[name]()

    run = RecordedRun(registry)
    with inside(run), pytest.raises(hf.UsageError) as refused:
        await charges.directly()
    assert refused.value.message.startswith(name)
    assert "inside charges" in refused.value.message
    assert run.requests == []


@pytest.mark.parametrize("name", EVERY_CALL)
async def test_in_a_thread_of_a_workflow_every_call_is_refused(name: str) -> None:
    """A thread comes in at a moment of its own, and the next replay would see another order."""
    errors: list[BaseException] = []

    def in_the_thread() -> None:
        try:
            EVERY_CALL[name]()
        except BaseException as error:
            errors.append(error)

    run = RecordedRun(registry)
    with inside(run):
        thread = threading.Thread(target=contextvars.copy_context().run, args=(in_the_thread,))
        thread.start()
        thread.join()
    assert isinstance(errors[0], hf.UsageError)
    assert name in errors[0].message
    assert "workflow onboard in a thread" in errors[0].message


@pytest.mark.parametrize("name", sorted(MEANT_FOR_RUNS_ONLY))
async def test_outside_of_workflows_what_only_a_run_can_do_is_refused(name: str) -> None:
    with pytest.raises(hf.UsageError, match=r"outside a run.*engine") as refused:
        EVERY_CALL[name]()
    assert refused.value.message.startswith(name)
