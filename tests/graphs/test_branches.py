"""I42, I45: what a node asks in branches that run side by side, or asks otherwise when it runs again."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.core.queries import RecordedOf
from tests.worker.support import engine_on, until

SECONDS = 30.0


class Log(TypedDict, total=False):
    log: Annotated[list[str], hf.reducers.append]


class Node:
    """A graph of one node, whose calls are counted and whose code a test may change while it waits for a person."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.registry = hf.Registry()
        self.graph: hf.StateGraph[Log] = hf.StateGraph(Log, name="branches", registry=self.registry)

    def __call__(self, fn: Any) -> Any:
        self.graph.node(name="ask", recordable=True)(fn)
        self.graph.start_at("ask")
        self.graph.finish("ask")
        return fn

    async def ask(self, ctx: hf.NodeContext, name: str, turns: int = 0, request: Any = None) -> str:
        async def call() -> str:
            self.made[name] += 1
            for _ in range(turns):
                await asyncio.sleep(0)
            return name.lower()

        return await ctx.record(name, request, call)

    def ask_blocking(self, ctx: hf.NodeContext, name: str, request: Any = None) -> str:
        def call() -> str:
            self.made[name] += 1
            return name.lower()

        return ctx.record_blocking(name, request, call)


async def asking(engine: hf.Engine, node: Node) -> hf.Handle[Log]:
    """A run whose node waits for a person: with the answer it runs again from its beginning."""
    handle = await engine.start(node.graph, {})
    await until(handle.interrupts, "it asks")
    return handle


@pytest.mark.parametrize("turns", [(0, 0), (0, 50), (50, 0), (3, 3)])
async def test_i45_i42_branches_find_their_own_records_whichever_asks_first(turns: tuple[int, int]) -> None:
    """I45, I42: answers that were recorded come at once, so that calls come in another order than they were made in."""
    node = Node()

    @node
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        async def two(branch: str, turns: int) -> str:
            return await node.ask(ctx, f"{branch}1", turns) + await node.ask(ctx, f"{branch}2", turns)

        found = await asyncio.gather(two("A", turns[0]), two("B", turns[1]))
        return {"log": [*found, await ctx.interrupt("good?")]}

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        handle = await asking(engine, node)
        await handle.resume_with("yes")
        assert (await handle.result(timeout=SECONDS))["log"] == ["a1a2", "b1b2", "yes"]
        assert node.made == {"A1": 1, "A2": 1, "B1": 1, "B2": 1}
        report = await engine.replay(handle.id)
        assert (report.ok, report.calls) == (True, 5)


async def test_i45_i42_threads_of_a_plain_node_find_their_own_records() -> None:
    """I45, I42: also when, with answers at once, one thread is enough for all of them."""
    node = Node()
    times: list[int] = []

    @node
    def ask(state: Log, ctx: hf.NodeContext) -> Any:
        def two(branch: str) -> str:
            return node.ask_blocking(ctx, f"{branch}1") + node.ask_blocking(ctx, f"{branch}2")

        times.append(1)
        if len(times) == 1:  # the calls of the first time: in turns, whatever the threads do
            with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
                for name in ("A1", "B1", "A2", "B2"):
                    (one if name[0] == "A" else other).submit(node.ask_blocking, ctx, name).result()
        else:
            with ThreadPoolExecutor(1) as pool:
                assert list(pool.map(two, "AB")) == ["a1a2", "b1b2"]
        return {"log": [ctx.interrupt_blocking("good?")]}

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        handle = await asking(engine, node)
        await handle.resume_with("yes")
        assert (await handle.result(timeout=SECONDS))["log"] == ["yes"]
        assert set(node.made.values()) == {1}
        assert (await engine.replay(handle.id)).ok


async def test_i42_a_branch_that_gets_ahead_makes_new_calls_beside_the_records_of_a_slower_one() -> None:
    """I42: it waits for nobody, its record has a number of its own, and the slower one finds its records later."""
    node = Node()
    recorded = asyncio.Event()  # by the slower one, before anybody is asked

    @node
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        async def ahead() -> str:
            first = await node.ask(ctx, "A1")
            await recorded.wait()
            await ctx.interrupt("good?")
            await node.ask(ctx, "A2")
            slow.set()
            return first

        async def behind() -> str:
            if recorded.is_set():
                await slow.wait()
            found = await node.ask(ctx, "B1") + await node.ask(ctx, "B2")
            recorded.set()
            return found

        slow = asyncio.Event()
        return {"log": await asyncio.gather(ahead(), behind())}

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        handle = await asking(engine, node)
        await handle.resume_with("yes")
        assert (await handle.result(timeout=SECONDS))["log"] == ["a1", "b1b2"]
        assert node.made == {"A1": 1, "A2": 1, "B1": 1, "B2": 1}
        numbers = [row.call for row in await engine.store.rows(RecordedOf(handle.id))]
        assert len(numbers) == len(set(numbers)) == 5


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("in_branches", [False, True])
async def test_i45_i42_a_node_that_asks_otherwise_is_a_mismatch_also_if_it_swallows_it(
    swallow: bool, in_branches: bool
) -> None:
    """I45, I42: in a run that goes on as in a replay, with both sides; and one task makes no call a second time."""
    node, asks = Node(), {"request": "old"}

    @node
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        async def two(branch: str) -> None:
            try:
                await node.ask(ctx, f"{branch}1", request=asks["request"])
            except Exception:
                if not swallow:
                    raise
            await node.ask(ctx, f"{branch}2")

        if in_branches:
            await asyncio.gather(two("A"), two("B"))
        else:
            await two("A")
        return {"log": [await ctx.interrupt("good?")]}

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        good = await asking(engine, node)
        await good.resume_with("yes")
        await good.result(timeout=SECONDS)
        handle = await asking(engine, node)
        node.made.clear()
        asks["request"] = "new"
        await handle.resume_with("yes")
        with pytest.raises(hf.RunFailed, match=r"(?s)ReplayMismatch: call . \(.1\).*recorded .1 with .*asks now for"):
            await handle.result(timeout=SECONDS)
        assert in_branches or not node.made
        with pytest.raises(hf.ReplayMismatch, match=r"(?s)call . \(.1\) asks for something else.*'old'.*'new'"):
            await engine.replay(good.id)
        assert not (await engine.replay(good.id, mode="lenient")).ok


async def test_i42_after_a_mismatch_that_was_swallowed_nothing_goes_out_and_nobody_is_asked() -> None:
    """I42: what would be called or asked now rests on an answer that the node did not get."""
    node, asks = Node(), {"request": "old"}

    @node
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        with contextlib.suppress(hf.ReplayMismatch):
            await node.ask(ctx, "first", request=asks["request"])
        await ctx.interrupt("good?")
        with contextlib.suppress(hf.ReplayMismatch):
            await node.ask(ctx, "second")
        return {"log": [await ctx.interrupt("really?")]}

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        handle = await asking(engine, node)
        asks["request"] = "new"
        await handle.resume_with("yes")
        with pytest.raises(hf.RunFailed, match=r"ReplayMismatch: call 1 \(first\)"):
            await handle.result(timeout=SECONDS)
        assert node.made == {"first": 1}


async def test_i42_one_task_that_asks_in_another_order_is_a_mismatch_before_it_makes_a_new_call() -> None:
    """I42: nothing but the code can be the reason, so that nothing goes out that depends on it."""
    node, order = Node(), ["first", "second"]

    @node
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        for name in order:
            await node.ask(ctx, name)
        await ctx.interrupt("good?")
        return {"log": [await node.ask(ctx, "third")]}

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        handle = await asking(engine, node)
        order.reverse()
        await handle.resume_with("yes")
        with pytest.raises(hf.RunFailed, match=r"ReplayMismatch: call . \(.*recorded first with"):
            await handle.result(timeout=SECONDS)
        assert node.made == {"first": 1, "second": 1}


async def test_i45_what_branches_no_longer_ask_for_is_a_mismatch() -> None:
    """I45: each call that is left is named."""
    node, branches = Node(), ["A", "B"]

    @node
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        await asyncio.gather(*[node.ask(ctx, name) for name in branches])

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        handle = await engine.start(node.graph, {})
        await handle.result(timeout=SECONDS)
        branches.remove("A")
        with pytest.raises(hf.ReplayMismatch, match=r"(?s)it made fewer calls: not 1 \(A\).*recorded: 2.*now:      1"):
            await engine.replay(handle.id)


async def grouped(*branches: Any) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch) for branch in branches]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("side_by_side", [asyncio.gather, grouped])
@pytest.mark.parametrize("asks_first", [True, False])
async def test_i42_a_question_waits_for_the_calls_of_other_branches_to_be_recorded(
    side_by_side: Any, asks_first: bool
) -> None:
    """I42: a call that was under way when a person was asked used to be made again after the answer."""
    node = Node()

    @node
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        async def pay() -> str:
            return "+".join([await node.ask(ctx, name, turns=20) for name in ("PAY", "MAIL", "FILE")])

        branches = [ctx.interrupt("ok?"), pay(), node.ask(ctx, "LOOK", turns=50)]
        said = await side_by_side(*(branches if asks_first else reversed(branches)))
        return {"log": sorted(said)}

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        handle = await asking(engine, node)
        before = Counter(row.name for row in await handle.recorded() if row.kind == "call")
        assert node.made == before, "what was called is recorded, and nothing is called while it waits"
        assert {"PAY", "LOOK"} <= set(before)
        await handle.resume_with("yes")
        assert await handle.result(timeout=SECONDS) == {"log": ["look", "pay+mail+file", "yes"]}
        assert node.made == {"PAY": 1, "MAIL": 1, "FILE": 1, "LOOK": 1}
        assert (await engine.replay(handle.id)).ok


async def test_i42_a_call_that_asks_a_person_itself_does_not_wait_for_itself() -> None:
    node = Node()

    @node
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        return {"log": [await ctx.record("ASK", None, lambda: ctx.interrupt("ok?"))]}

    async with engine_on("memory://", node.registry) as engine, engine.worker():
        await asking(engine, node)
