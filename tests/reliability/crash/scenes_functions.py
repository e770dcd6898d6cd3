"""Durable functions: actions, timers, events, children, rollbacks, new lives, and a cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast as hf
from tests.reliability.crash.ledger import Doing, Line, current, tell
from tests.reliability.crash.oracle import Rows, must
from tests.reliability.crash.scenario import Scenario, Scene, ended

functions = hf.Registry()
word = hf.event("word", int, registry=functions)
shout = hf.event("shout", int, registry=functions)
PAUSE_SECONDS = 0.02


@hf.action(registry=functions)
async def act(label: str) -> str:
    with Doing(label):
        return label.upper()


@hf.action(registry=functions, retry=hf.Retry(attempts=4, base=0.01, cap=0.02))
async def stumble(label: str) -> str:
    with Doing(label):
        if current().count("raised", label) < 1:
            raise RuntimeError("once")
        return label.upper()


@hf.action(registry=functions)
async def refuse() -> None:
    with Doing("refuse"):
        raise ValueError("no")


@hf.workflow(registry=functions)
async def steps() -> list[str]:
    return [await act("a"), await stumble("b"), await act("c")]


@hf.workflow(registry=functions)
async def asleep() -> bool:
    await act("before")
    began = hf.now()
    await hf.sleep(PAUSE_SECONDS)
    slept = (hf.now() - began).total_seconds()
    await act("after")
    tell("slept", slept)
    return slept >= PAUSE_SECONDS


@hf.workflow(registry=functions)
async def branches() -> list[Any]:
    async def pair(label: str) -> str:
        return await act(f"{label}1") + await act(f"{label}2")

    ticket = str(hf.uuid4())
    tell("ticket", ticket)
    return [*await asyncio.gather(pair("x"), pair("y"), pair("z")), len(ticket)]


@hf.workflow(registry=functions)
async def listens(count: int) -> list[int]:
    heard = []
    for _ in range(count):
        came = await hf.wait_for(word)
        heard.append(came.value)
        await act(f"heard {came.value}")
    return heard


@hf.workflow(registry=functions)
async def races(count: int) -> list[Any]:
    seen: list[Any] = []
    for _ in range(count):
        came = await hf.wait_for(word | hf.after(PAUSE_SECONDS))
        seen.append(came.value if isinstance(came, hf.Received) else None)
    return seen


@hf.workflow(registry=functions)
async def hears_a_shout(name: str) -> int:
    return int((await hf.wait_for(shout)).value)


@hf.workflow(registry=functions)
async def child(label: str) -> str:
    await hf.sleep(0.005)
    return await act(label)


@hf.workflow(registry=functions)
async def parent() -> list[str]:
    both = await asyncio.gather(child("first"), child("second"))
    third = await hf.start_child(child, "third", key="third")
    await hf.wait_for(hf.ended(third.id))
    return [*both, await third.result()]


@hf.workflow(registry=functions)
async def undone() -> None:
    hf.on_rollback(act, "undo 1")
    await act("do 1")
    hf.on_rollback(act, "undo 2")
    await act("do 2")
    await refuse()


@hf.workflow(registry=functions)
async def counts(left: int, seen: list[int]) -> list[int]:
    await act(f"count {left}")
    if left > 1:
        hf.continue_as(counts, left - 1, [*seen, left])
    return [*seen, left]


@hf.workflow(registry=functions)
async def alarms() -> list[int]:
    rung: list[int] = []

    async def alarm(number: int) -> None:
        await hf.sleep(0.01 * (3 - number))
        await act(f"alarm {number}")
        rung.append(number)

    await asyncio.gather(*[alarm(number) for number in range(3)])
    return sorted(rung)


@hf.workflow(registry=functions)
async def patient() -> None:
    hf.on_rollback(act, "undo")
    try:
        await act("begun")
        await hf.wait_for(word)
        await act("never")
    finally:
        await act("cleaned")


async def _result(scene: Scene, workflow: Any, *args: Any) -> None:
    await (await scene.start(workflow, *args, key=workflow.name)).result()


def _plays(workflow: Any, *args: Any) -> Any:
    async def play(scene: Scene) -> None:
        await _result(scene, workflow, *args)

    return play


async def _listens(scene: Scene) -> None:
    handle = await scene.start(listens, 3, key="listens")
    for number in range(3):
        await scene.engine.send(word, number, to=handle, id=f"word {number}")
        scene.ack("send", number)
    await handle.result()


async def _races(scene: Scene) -> None:
    handle = await scene.start(races, 3, key="races")
    for number in range(3):
        answer = await scene.engine.send(word, number, to=handle, id=f"word {number}")
        scene.ack("sent", number, type(answer).__name__)
        await asyncio.sleep(PAUSE_SECONDS)
    await handle.result()


def _raced_fairly(rows: Rows, lines: list[Line]) -> None:
    """G5: what was heard was heard once, in the order of its sender; what was not is still there, or came too late."""
    (run,) = [row for row in rows["runs"] if row["key"] == "races"]
    heard = [value for value in rows.result(run) if value is not None]
    must(heard == sorted(set(heard)), "G5", f"the words 0, 1 and 2 were heard as {heard}")
    queued = [row for row in rows["events"] if row["target"] == run["id"]]
    too_late = {
        line.facts[1]
        for line in lines
        if line.kind == "ack" and line.facts[0] == "sent" and line.facts[2] == "TargetEnded"
    }
    must(
        len(heard) + len(queued) + len(too_late - set(heard)) <= 3,
        "G5",
        f"heard {heard}, {queued} still there, late {too_late}",
    )
    delivered = {
        line.facts[1]
        for line in lines
        if line.kind == "ack" and line.facts[0] == "sent" and line.facts[2] == "Delivered"
    }
    must(delivered <= set(heard), "G5", f"{delivered} were delivered, and {heard} were heard")


async def _shouts(scene: Scene) -> None:
    handles = [await scene.start(hears_a_shout, name, key=name) for name in ("ann", "bob")]
    for number in range(2):
        await scene.engine.broadcast(shout, number, id=f"shout {number}")
        scene.ack("broadcast", number)
    for handle in handles:
        await handle.result()


def _each_heard_one(rows: Rows, lines: list[Line]) -> None:
    heard = sorted(rows.result(run) for run in rows["runs"])
    must(heard == [0, 1], "G5", f"two shouts for two listeners, and they heard {heard}")
    must(not rows["events"], "G5", f"shouts that were heard are still there: {rows['events']}")


async def _undone(scene: Scene) -> None:
    await scene.ends(await scene.start(undone, key="undone"))


async def _cancelled(scene: Scene) -> None:
    handle = await scene.start(patient, key="patient")
    await scene.until(lambda: scene.ledger.has("done", "begun"))
    await handle.cancel()
    scene.ack("cancel", "patient", handle.id)
    await scene.ends(handle)


def _same_ticket(rows: Rows, lines: list[Line]) -> None:
    """G8: what was drawn is drawn again alike, however often the function is replayed."""
    tickets = {line.facts[0] for line in lines if line.kind == "ticket"}
    must(len(tickets) == 1, "G8", f"one uuid4() of one run gave {tickets}")


def _slept_enough(rows: Rows, lines: list[Line]) -> None:
    short = [line.facts[0] for line in lines if line.kind == "slept" and line.facts[0] < PAUSE_SECONDS]
    must(not short, "G6", f"asleep for {short} s instead of {PAUSE_SECONDS} s")


def scenarios() -> list[Scenario]:
    def made(name: str, play: Any, **fields: Any) -> Scenario:
        return Scenario(name=name, registry=functions, play=play, **fields)

    return [
        made(
            "function",
            _plays(steps),
            results={"steps": ["A", "B", "C"]},
            does={"a": 1, "b": 2, "c": 1},
            order=(("a", "b"), ("b", "c")),
        ),
        made(
            "timer",
            _plays(asleep),
            results={"asleep": True},
            does={"before": 1, "after": 1},
            check=_slept_enough,
            order=(("before", "after"),),
        ),
        made(
            "branches",
            _plays(branches),
            results={"branches": ["X1X2", "Y1Y2", "Z1Z2", 36]},
            does={f"{branch}{number}": 1 for branch in "xyz" for number in (1, 2)},
            order=(("x1", "x2"), ("y1", "y2"), ("z1", "z2")),
            check=_same_ticket,
        ),
        made("events", _listens, results={"listens": [0, 1, 2]}, does={f"heard {number}": 1 for number in range(3)}),
        made("signal race", _races, check=_raced_fairly),
        made("broadcast", _shouts, check=_each_heard_one),
        made(
            "child",
            _plays(parent),
            results={"parent": ["FIRST", "SECOND", "THIRD"]},
            does={"first": 1, "second": 1, "third": 1},
        ),
        made(
            "rollback",
            _undone,
            results={"undone": ended("failed")},
            does={"do 1": 1, "do 2": 1, "refuse": 1, "undo 1": 1, "undo 2": 1},
            order=(("do 1", "do 2"), ("undo 2", "undo 1")),
        ),
        made(
            "continue-as",
            _plays(counts, 3, []),
            results={"counts": [3, 2, 1]},
            does={f"count {number}": 1 for number in (1, 2, 3)},
        ),
        made(
            "schedule of timers",
            _plays(alarms),
            results={"alarms": [0, 1, 2]},
            does={f"alarm {number}": 1 for number in range(3)},
        ),
        made(
            "cancel",
            _cancelled,
            results={"patient": ended("cancelled")},
            does={"begun": 1, "never": 0, "cleaned": 1, "undo": 1},
            order=(("begun", "cleaned"), ("cleaned", "undo")),
        ),
    ]
