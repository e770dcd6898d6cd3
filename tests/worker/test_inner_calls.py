"""Actions that are awaited inside other actions, steps, nodes and handlers: part of those, with keys of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

import pytest

import holdfast as hf
from holdfast.testing import action_context
from tests.worker.support import engine_on, until

AGAIN = hf.Retry(attempts=2, base=0.01)


class Till:
    """A registry with an action that tells which key it would have handed on, and code to call it from."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.keys: list[str] = []

        @hf.action(registry=self.registry)
        async def pay(cents: int) -> None:
            self.keys.append(hf.current().idempotency_key)

        self.pay = pay


def fail_at_first(attempt: int) -> None:
    if attempt == 1:
        raise ValueError("once more")


async def test_i13_every_call_inside_an_action_has_a_key_of_its_own_in_every_attempt(url: str) -> None:
    till = Till()

    @hf.action(registry=till.registry)
    def count() -> str:
        return hf.current().idempotency_key

    @hf.action(registry=till.registry, retry=AGAIN)
    async def outer() -> list[str]:
        await asyncio.gather(till.pay(1), till.pay(1))
        own = hf.current().idempotency_key
        fail_at_first(hf.current().attempt)
        return [own, await count()]

    engine = engine_on(url, till.registry)
    async with engine, engine.worker():
        handle = await engine.start(outer)
        own, counted = await handle.result(timeout=10)
    assert own == f"outer:{handle.id}:outer"
    assert counted == f"{own}/count#1"
    assert till.keys == [f"{own}/pay#1", f"{own}/pay#2"] * 2


async def test_i13_calls_inside_a_call_inside_a_step_of_a_workflow_and_of_a_dag(url: str) -> None:
    till = Till()

    @hf.action(registry=till.registry)
    async def pay_twice() -> None:
        await till.pay(1)
        await till.pay(2)

    class Order(hf.Dag, on_failure="fail", registry=till.registry):
        @hf.step
        async def settle(self) -> None:
            await pay_twice()
            await till.pay(3)

        @hf.step
        def blocking(self) -> None:
            asyncio.run(till.pay(4))

    @hf.workflow(registry=till.registry)
    async def buy() -> None:
        await pay_twice()
        await pay_twice()

    engine = engine_on(url, till.registry)
    async with engine, engine.worker():
        order = await engine.start(Order())
        await order.result(timeout=10)
        assert till.keys == [
            f"Order:{order.id}:{rest}"
            for rest in ("settle/pay_twice#1/pay#1", "settle/pay_twice#1/pay#2", "settle/pay#1", "blocking/pay#1")
        ]
        till.keys.clear()
        await engine.run(buy, timeout=10)
    assert len(set(till.keys)) == 4


class Spent(TypedDict, total=False):
    order: str
    paid: bool


@pytest.mark.parametrize("own", [False, True])
async def test_i13_i42_a_call_that_was_recorded_leaves_the_keys_of_the_others_as_they_were(url: str, own: bool) -> None:
    """What an answer ends and the next attempt reads from its records must not lend its key to another call."""
    till = Till()
    graph = hf.StateGraph(Spent, name="spending", registry=till.registry)

    @graph.node(idempotency_key=(lambda state: state["order"]) if own else None)
    async def spend(state: Spent, ctx: hf.NodeContext) -> dict[str, Any]:
        assert hf.current().idempotency_key == ctx.idempotency_key
        await ctx.record("first", {}, lambda: till.pay(1))
        await ctx.interrupt("go on?")
        await ctx.record("second", {}, lambda: till.pay(2))
        await till.pay(3)
        return {"paid": True, "order": ctx.idempotency_key}

    graph.start_at("spend")
    graph.finish("spend")
    engine = engine_on(url, till.registry)
    async with engine, engine.worker():
        handle = await engine.start(graph, {"order": "order 7"})
        await until(handle.interrupts, "the node asks")
        await handle.resume_with("yes")
        key = (await handle.result(timeout=10))["order"]
    assert (key == "order 7") is own
    assert till.keys == [f"{key}/first#1/pay#1", f"{key}/second#3/pay#1", f"{key}/pay#1"]


@dataclass(frozen=True)
class Sold:
    article: str


class Shop(hf.Decider[int, Sold, Sold, Sold], name="shop of tills", registry=hf.Registry()):
    till: Till

    def workflow_id(self, input: Sold) -> str:
        return input.article

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Sold) -> int:
        return state + 1

    def decide(self, now: datetime, state: int, input: Sold) -> Any:
        return hf.Decision.event(input).with_effect(input)

    async def handle(self, effect: Sold, ctx: hf.EffectContext) -> None:
        await self.till.pay(1)
        await self.till.pay(2)
        self.till.keys.append(ctx.idempotency_key)


async def test_i13_calls_inside_the_handler_of_an_effect() -> None:
    till = Shop.till = Till()
    till.registry.add(Shop)
    engine = engine_on("memory://", till.registry)
    async with engine, engine.worker():
        await engine.execute(Shop, Sold("tea"))
        await engine.settle()
    first, second, own = till.keys
    assert (first, second) == (f"{own}/pay#1", f"{own}/pay#2")


async def test_i13_outside_a_run_too_a_call_inside_another_has_a_key_of_its_own() -> None:
    till = Till()

    @hf.action(registry=till.registry)
    async def outer() -> str:
        await till.pay(1)
        return hf.current().idempotency_key

    own = await outer()
    assert till.keys == [f"{own}/pay#1"]
    till.keys.clear()
    with action_context("outer", run_id="r"):  # which is the context of what is called in it
        assert await outer() == "outer:r:outer"
    assert till.keys == ["outer:r:outer/pay#1"]


async def test_what_is_called_inside_an_action_heartbeats_notes_and_steers_for_it() -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def told(number: int) -> str:
        hf.current().note(f"told {number}")
        await hf.current().heartbeat()
        return f"{hf.current().node} {hf.current().attempt} {hf.current().cancelled}"

    @hf.action(registry=registry)
    async def outer() -> str:
        return await told(1)

    engine = engine_on("memory://", registry)
    async with engine, engine.worker():
        handle = await engine.start(outer)
        assert await handle.result(timeout=10) == "outer 1 False"
        (execution,) = await handle.step_executions("outer")
    assert execution.outcome is not None
    assert execution.outcome["notes"] == ["told 1"]
