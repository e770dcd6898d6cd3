"""Children of every model, as the function that started them sees their results."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict

import pytest

import holdfast as hf
from holdfast.authoring.actions import Bound
from holdfast.core.codec import MSGPACK, Codec
from holdfast.core.queries import ChildrenOf
from tests.worker.support import assert_sound, engine_on


@dataclass
class Receipt:
    """None of its fields is one of JSON's own types."""

    price: Decimal
    day: datetime.date
    place: tuple[int, int]
    marks: set[str]


class Noted(TypedDict):
    day: datetime.date


RECEIPT = Receipt(Decimal("1.50"), datetime.date(2026, 11, 16), (1, 2), {"a", "b"})


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


def startables(registry: hf.Registry) -> list[tuple[Any, Any, Any]]:
    """One of each model that has results: what it is, what it is started with, and what it gives."""

    @hf.action(registry=registry)
    async def stamp(receipt: Receipt) -> Receipt:
        return receipt

    @hf.workflow(registry=registry)
    async def by_function(receipt: Receipt) -> Receipt:
        return await stamp(receipt)

    @hf.flow(registry=registry)
    async def by_flow(receipt: Receipt) -> Receipt:
        return await stamp(receipt)

    by_graph = hf.StateGraph(Receipt, name="by_graph", registry=registry)
    noted = hf.StateGraph(Noted, name="noted", registry=registry)
    for graph in (by_graph, noted):

        @graph.node
        async def keep(state: Any) -> None: ...

        graph.start_at("keep")
        graph.finish("keep")
    day = Noted(day=RECEIPT.day)
    return [*((each, RECEIPT, RECEIPT) for each in (stamp, by_function, by_flow, by_graph)), (noted, day, day)]


@pytest.mark.parametrize("codec", [None, MSGPACK])
async def test_i14_the_result_of_a_child_of_any_model_is_decoded(url: str, codec: Codec | None) -> None:
    """I14: by its handle, by its end, by its end under its plain id; now and after a restart."""
    registry, seen = hf.Registry(), list[Any]()
    children = startables(registry)

    @hf.workflow(registry=registry)
    async def parent() -> None:
        seen.clear()
        for startable, given, _ in children:
            child = await hf.start_child(startable, given)
            by_id = await hf.wait_for(hf.ended(child.id))
            by_handle = await hf.wait_for(hf.ended(child))
            seen.append((await child.result(), by_handle.result, by_id.result))
        await hf.wait_for("go on")

    settings: dict[str, Any] = {} if codec is None else {"codec": codec}
    async with hf.Engine(url, registry=registry, **settings) as engine:
        async with engine.worker():
            handle = await engine.start(parent)
            await engine.settle()
        live = list(seen)
        async with engine.worker():
            await engine.send("go on", to=handle)
            await handle.result(timeout=20)
        await assert_sound(engine)
    assert live == seen == [(wanted,) * 3 for _, _, wanted in children]


async def test_i14_what_nobody_here_has_code_for_comes_as_plain_json(url: str) -> None:
    """I14: as the handle of such a run gives it."""
    elsewhere, registry = hf.Registry(), hf.Registry()
    started = [child for child, _, _ in startables(elsewhere)]

    @hf.workflow(registry=registry)
    async def waits(runs: list[str]) -> list[Any]:
        return [(await hf.wait_for(hf.ended(run))).result for run in runs]

    async with engine_on(url, elsewhere) as other:
        async with other.worker():
            handles = [await other.start(child, RECEIPT) for child in started[:-1]]
            for handle in handles:
                await handle.result(timeout=20)
        async with hf.Engine(store=other.store, registry=registry) as engine, engine.worker():
            results = await engine.run(waits, [handle.id for handle in handles], timeout=20)
    assert results == [{"price": "1.50", "day": "2026-11-16", "place": [1, 2], "marks": ["a", "b"]}] * 4


async def test_i14_a_flow_that_a_function_calls_is_a_child_run(url: str) -> None:
    """I14: with a row of its own and its result decoded; in an action, and outside of a run, it is plain asyncio."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def stamp(receipt: Receipt) -> Receipt:
        return receipt

    @hf.flow(registry=registry)
    async def by_flow(receipt: Receipt, copies: int = 1) -> list[Receipt]:
        return [await stamp(receipt) for _ in range(copies)]

    @hf.action(registry=registry)
    async def in_an_action(receipt: Receipt) -> int:
        return len(await by_flow(receipt))

    @hf.workflow(registry=registry)
    async def parent(receipt: Receipt) -> list[Receipt]:
        one, two = await asyncio.gather(by_flow(receipt), by_flow(receipt=receipt, copies=2))
        assert await in_an_action(receipt) == 1
        await hf.wait_for("go on")
        return one + two

    assert await by_flow(RECEIPT) == [RECEIPT]
    async with engine_on(url, registry) as engine:
        async with engine.worker():
            handle = await engine.start(parent, RECEIPT)
            await engine.settle()
        children = await engine.find(workflow=by_flow)
        async with engine.worker():
            await engine.send("go on", to=handle)
            assert await handle.result(timeout=20) == [RECEIPT] * 3
        assert {child.status for child in children} == {"completed"}
        assert len(children) == len(await engine.find(workflow=by_flow)) == 2
        await assert_sound(engine)


async def test_i24_a_flow_that_a_function_calls_raises_what_it_does_in_a_flow(url: str) -> None:
    """I24: so that the same code means the same as a function and as a flow. `start_child` says RunFailed as ever."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def refuse(article: str) -> None:
        raise LookupError(article)

    @hf.flow(registry=registry)
    async def order(article: str) -> None:
        if article == "none":
            await hf.sleep(hours=1)
        await refuse(article)

    @hf.workflow(registry=registry)
    async def tells(article: str) -> list[str]:
        child = await hf.start_child(order, article)
        told = []
        for call in (order(article), child.result()):
            try:
                await call
            except (LookupError, hf.RunFailed, hf.RunCancelled) as error:
                told.append(type(error).__name__)
        return told

    @hf.workflow(registry=registry)
    async def fails(article: str) -> None:
        await order(article)

    async with engine_on(url, registry) as engine, engine.worker():
        assert await engine.run(tells, "lamp", timeout=20) == ["LookupError", "RunFailed"]
        handle = await engine.start(tells, "none")
        await engine.settle()
        for child in await engine.find(workflow=order, status=["running", "suspended"]):
            await engine.get(child.id).cancel()
        assert await handle.result(timeout=20) == ["RunCancelled", "RunCancelled"]
        with pytest.raises(hf.RunFailed) as failed:
            await engine.run(fails, "chair", timeout=20)
        (last, *_) = await engine.find(workflow=order, limit=1)
        assert isinstance(failed.value.cause, LookupError)
        assert failed.value.cause.__notes__[0] == f"raised in child run {last.id} of order"
        await assert_sound(engine)


class Count(TypedDict):
    n: int


def families(registry: hf.Registry, own: str) -> dict[str, tuple[Any, Any]]:
    """Parents of each model that has children, whose definitions name `own` as their queue, and what starts them."""

    @hf.workflow(name="child function", queue=own, registry=registry)
    async def function(n: int) -> int:
        return n

    @hf.flow(name="child flow", queue=own, registry=registry)
    async def flow(n: int) -> int:
        return n

    inner = hf.StateGraph(Count, name="child graph", queue=own, registry=registry)

    @inner.node
    async def keep(state: Count) -> None: ...

    inner.start_at("keep")
    inner.finish("keep")

    @hf.workflow(registry=registry)
    async def of_functions(n: int) -> None:
        await function(n)
        await flow(n)
        for child in (function, flow, "child function", function.bind(n)):
            await (await hf.start_child(child, *() if isinstance(child, Bound) else (n,))).result()
        await (await hf.start_child(inner, Count(n=n))).result()

    @hf.flow(registry=registry)
    async def of_flows(n: int) -> list[int]:
        return [await function(n), *await asyncio.gather(flow(n), function(n))]

    outer = hf.StateGraph(Count, name="of_graphs", registry=registry)
    outer.subgraph("inner", inner)
    outer.start_at("inner")
    outer.finish("inner")
    return {"function": (of_functions, 1), "flow": (of_flows, 1), "graph": (outer, Count(n=1))}


@pytest.mark.parametrize("own", ["default", "own"])
@pytest.mark.parametrize("model", ["function", "flow", "graph"])
async def test_i8_a_child_goes_to_its_own_queue_or_stays_on_its_parents(url: str, model: str, own: str) -> None:
    """I8: one rule for all models. Only the queues that the rule names are served, so nothing may go elsewhere."""
    registry = hf.Registry()
    parent, given = families(registry, own)[model]
    wanted = {"default": "parents", "own": "own"}[own]
    async with engine_on(url, registry) as engine, engine.worker(queues=sorted({"parents", wanted})):
        handle = await engine.start(parent, given, queue="parents")
        await handle.result(timeout=20)
        children = [run for run in await engine.find() if run.id != handle.id]
        assert {run.queue for run in children} == {wanted}
        await assert_sound(engine)


async def test_i8_a_queue_that_is_given_with_the_call_of_a_child_wins(url: str) -> None:
    """I8: by options or by name, the default one too."""
    registry = hf.Registry()

    @hf.workflow(queue="own", registry=registry)
    async def named(n: int) -> int:
        return n

    @hf.workflow(queue="default", registry=registry)
    async def unnamed(n: int) -> int:
        return n

    @hf.workflow(registry=registry)
    async def parent() -> None:
        await named.options(queue="default")(1)
        await unnamed.options(queue="default")(2)
        await (await hf.start_child(named.options(queue="default"), 3)).result()
        await (await hf.start_child(named, 4, queue="side")).result()
        await (await hf.start_child(unnamed, 5, queue="default")).result()
        await named.options(queue=None)(6)

    @hf.flow(registry=registry)
    async def flow() -> None:
        await named.options(queue="default")(1)
        await unnamed.options(queue="default")(2)
        await named.options(queue=None)(6)

    async with engine_on(url, registry) as engine, engine.worker(queues=("parents", "default", "side")):
        for each, wanted in (
            (parent, ["default", "default", "default", "side", "default", "parents"]),
            (flow, ["default", "default", "parents"]),
        ):
            handle = await engine.start(each, queue="parents")
            await handle.result(timeout=20)
            children = await engine.store.rows(ChildrenOf(handle.id))
            assert [run.queue for run in sorted(children, key=lambda run: run.input)] == wanted
        await assert_sound(engine)
