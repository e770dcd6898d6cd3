"""Durable functions under the type checker: what must pass, and lines that must fail.

Never run, only checked. A line that must fail has an ignore with its code; unused ignores are errors, so a line that
stops failing is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, assert_type
from uuid import UUID

import holdfast as hf


@dataclass
class Approval:
    by: str


@dataclass
class Rejection:
    why: str


approved = hf.event("approved", Approval, expires=timedelta(days=7), on_target_end="discard")
rejected = hf.event("rejected", Rejection)
poked = hf.event("poked", None)
anything = hf.event("anything")
either = hf.event("either", Approval | Rejection)


@hf.action
async def charge(order: int, cents: int) -> str:
    return f"{order} {cents}"


@hf.action
def release(order: int) -> None: ...


@hf.workflow
async def checkout(order: int) -> float:
    return float(order)


@hf.workflow(name="on-board", aliases=["onboarding"], queue="people")
async def onboard(user: str, retries: int = 0) -> str:
    return user * retries


@hf.workflow  # type: ignore[arg-type]
def plain(user: str) -> str:
    return user


async def starting_keeps_the_type(engine: hf.Engine) -> None:
    assert_type(await engine.start(onboard, "Ada", 1), hf.Handle[str])
    assert_type(await engine.run(checkout, 17), float)
    assert_type(await engine.start(onboard.bind(user="Ada")), hf.Handle[str])
    assert_type(await engine.start(onboard.options(queue="slow"), "Ada", 1), hf.Handle[str])
    await engine.start(checkout, "17")  # type: ignore[arg-type]
    onboard.bind(usr="Ada")  # type: ignore[call-arg]
    onboard.options(timeout=3)  # type: ignore[arg-type]


def defining_an_event_keeps_its_type() -> None:
    assert_type(approved, hf.Event[Approval])
    assert_type(poked, hf.Event[None])
    assert_type(anything, hf.Event[Any])
    assert_type(either, hf.Event[Any])
    hf.event("late", Approval, on_target_end="forget")  # type: ignore[call-overload]


async def calls_keep_their_types(order: int) -> None:
    assert_type(await charge(order, 5), str)
    assert_type(await checkout(order), float)
    call: Coroutine[Any, Any, float] = checkout(order)
    asyncio.create_task(call).cancel()
    assert_type(await asyncio.gather(charge(1, 2), checkout(3)), tuple[str, float])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(checkout(3)), asyncio.Task[float])
    await checkout("17")  # type: ignore[arg-type]


async def waits_say_what_they_give() -> None:
    assert_type(await hf.wait_for(approved), hf.Received[Approval])
    assert_type(await hf.wait_for("approved"), hf.Received[Any])
    assert_type(await hf.wait_for(hf.after(days=2)), hf.TimeReached)
    assert_type(await hf.wait_for(hf.at(datetime.now(UTC))), hf.TimeReached)
    assert_type(await hf.wait_for(hf.ended("run")), hf.RunEnded[Any])
    assert_type(await hf.wait_for(approved | hf.after(5)), hf.Received[Approval] | hf.TimeReached)
    assert_type(await hf.wait_for("a" | approved), hf.Received[Any] | hf.Received[Approval])
    assert_type(await hf.wait_for(hf.any_of([approved, approved])), hf.Received[Approval])
    assert_type(
        await hf.wait_for(hf.any_of(approved, rejected, hf.after(1))),
        hf.Received[Approval] | hf.Received[Rejection] | hf.TimeReached,
    )
    assert_type(await hf.wait_for(hf.all_of([approved, approved])), list[hf.Received[Approval]])
    assert_type(await hf.wait_for(hf.all_of(approved, rejected)), list[hf.Received[Approval] | hf.Received[Rejection]])
    await hf.wait_for(5)  # type: ignore[call-overload]
    await hf.wait_for(charge(1, 2))  # type: ignore[call-overload]
    approved | 5  # type: ignore[operator]
    hf.after("two days")  # type: ignore[arg-type]
    hf.at(5)  # type: ignore[arg-type]


async def outcomes_are_matched() -> str:
    match await hf.wait_for(approved | rejected | hf.after(days=2)):
        case hf.Received(value=Approval() as approval):
            assert_type(approval, Approval)
            return approval.by
        case hf.Received(value=Rejection() as rejection):
            return rejection.why
        case hf.TimeReached(at=when) as reached:
            assert_type(when, datetime)
            assert_type(reached, hf.TimeReached)
    return "late"


async def children_keep_their_type() -> None:
    child = await hf.start_child(checkout, 17, key="order-17", detached=True)
    assert_type(child, hf.ChildHandle[float])
    assert_type(child.id, str)
    assert_type(await child.result(), float)
    ended = await hf.wait_for(hf.ended(child))
    assert_type(ended, hf.RunEnded[float])
    assert_type(ended.result, float | None)
    assert_type(await hf.start_child(onboard.bind(user="Ada")), hf.ChildHandle[str])
    assert_type(await hf.start_child("checkout", 17), hf.ChildHandle[Any])
    await hf.start_child(checkout, "17")  # type: ignore[arg-type]


async def sending_is_checked(run: str) -> None:
    sent = await hf.send(approved, Approval(by="me"), to=run, id="m1")
    assert_type(sent, hf.Delivered | hf.Queued | hf.TargetEnded | hf.TargetNotFound)
    await hf.send("approved", {"by": "me"}, to=run)
    await hf.send(poked, to=run)
    assert_type(await hf.broadcast(rejected, Rejection(why="no"), to_all=True), hf.Delivered | hf.Queued)
    await hf.send(approved, Rejection(why="no"), to=run)  # type: ignore[misc]
    await hf.send(approved, Approval(by="me"))  # type: ignore[call-overload]
    await hf.execute("order", {"type": "Create"}, command_id="c1")


async def sending_from_outside_is_checked(engine: hf.Engine, blocking: hf.BlockingEngine, run: str) -> None:
    sent = await engine.send(approved, Approval(by="me"), to=run, id="m1")
    assert_type(sent, hf.Delivered | hf.Queued | hf.TargetEnded | hf.TargetNotFound)
    await engine.send("approved", {"by": "me"}, to=run)
    await engine.send(poked, to=run)
    await engine.broadcast(rejected, Rejection(why="no"), to_all=True)
    await engine.broadcast("rejected", {"why": "no"})
    await engine.send(approved, Rejection(why="no"), to=run)  # type: ignore[misc]
    await engine.broadcast(approved, "no")  # type: ignore[misc]
    blocking.send(approved, Approval(by="me"), to=run)
    blocking.send(approved, "no", to=run)  # type: ignore[misc]
    blocking.broadcast(approved, "no")  # type: ignore[misc]


async def the_rest_is_typed(user: str) -> None:
    assert_type(hf.now(), datetime)
    assert_type(hf.uuid4(), UUID)
    assert_type(hf.rng(), Random)
    assert_type(await hf.side_effect(lambda: 3), int)
    assert_type(hf.patched("fraud-check"), bool)
    await hf.sleep(seconds=1)
    await hf.sleep(timedelta(days=1))
    await hf.sleep(until=hf.now())
    hf.expose("progress", lambda: 3)
    hf.on_rollback(release, 17)
    hf.on_rollback(charge.bind(order=17, cents=5))
    hf.on_rollback(release, "17")  # type: ignore[arg-type]
    hf.on_rollback(print, 17)  # type: ignore[arg-type]
    await hf.sleep(secnds=1)  # type: ignore[call-arg]
    hf.continue_as(onboard, user, 1)


async def lists_may_mix_names_and_conditions() -> None:
    assert_type(await hf.wait_for(hf.any_of(["by-name", approved, hf.after(5)])), Any)
    assert_type(await hf.wait_for(hf.any_of(["one", "two"])), hf.Received[Any])
