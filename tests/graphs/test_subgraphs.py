"""I10, I42, I45: a graph as a node of another one is a run of its own, with checkpoints, questions and failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.core.rows import BLOCKED
from holdfast.store.contract import FindRuns
from tests.worker.support import assert_sound, engine_on, until, work_of

SECONDS = 30.0


class Log(TypedDict, total=False):
    n: int
    log: Annotated[list[str], hf.reducers.append]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


def nested(ran: Counter[str], broken: set[str], asks: bool = False) -> tuple[hf.Registry, hf.StateGraph[Log]]:
    registry = hf.Registry()
    inner = hf.StateGraph(Log, name="inner", registry=registry)
    outer = hf.StateGraph(Log, name="outer", registry=registry, max_concurrent=1)

    async def work(state: Log, ctx: hf.NodeContext) -> Any:
        ran[ctx.node] += 1
        if ctx.node in broken:
            raise ValueError(f"{ctx.node} is broken")
        said = f" {await ctx.interrupt('go?')}" if asks and ctx.node == "deep" else ""
        return {"log": [f"{ctx.node}{said}"]}

    for name in ("deep", "deeper"):
        inner.node(name=name)(work)
    inner.start_at("deep")
    inner.edge("deep", "deeper")
    inner.finish("deeper")
    for name in ("beside", "after"):
        outer.node(name=name)(work)
    outer.subgraph("part", inner)
    outer.start_at("part", "beside")
    outer.edge("part", "after")
    outer.edge("beside", "after")
    outer.finish("after")
    return registry, outer


async def child_of(engine: hf.Engine, handle: hf.Handle[Any]) -> hf.Handle[Any]:
    async def found() -> Any:
        return [run for run in await engine.store.find(FindRuns(limit=50)) if run.parent == handle.id]

    (run,) = await until(found, "the subgraph has a run")
    return engine.get(run.id)


async def test_i45_a_subgraph_merges_its_changes_and_both_runs_are_replayed(url: str) -> None:
    """I45: the outer replay takes the inner run's result, and says so; also with room for one node at a time."""
    ran: Counter[str] = Counter()
    registry, graph = nested(ran, set())
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 1, "log": ["began"]})
        result = await handle.result(timeout=SECONDS)
        assert sorted(result["log"][1:-1]) == ["beside", "deep", "deeper"]
        assert (result["log"][0], result["log"][-1]) == ("began", "after")
        child = await child_of(engine, handle)
        assert [each.state["log"] for each in await child.checkpoints()] == [
            ["began"],
            ["began", "deep"],
            ["began", "deep", "deeper"],
        ]
        report = await engine.replay(handle.id)
        assert report.ok
        assert report.state == result
        assert report.reused == ("part@1",)
        assert (await engine.replay(child.id)).ok
        await assert_sound(engine)


async def test_i42_a_failed_subgraph_is_named_and_goes_on_when_it_is_mended(url: str) -> None:
    """I42: the inner run is retried, then the outer one; what had been done in either is not done again."""
    ran, broken = Counter[str](), {"deeper"}
    registry, graph = nested(ran, broken)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 1, "log": []})
        with pytest.raises(hf.RunFailed, match="deeper is broken") as raised:
            await handle.result(timeout=SECONDS)
        child = await child_of(engine, handle)
        assert child.id in str(raised.value)
        broken.clear()
        await child.retry()
        await child.result(timeout=SECONDS)
        await handle.retry()
        result = await handle.result(timeout=SECONDS)
        assert result["log"][-1] == "after"
        assert ran == {"deep": 1, "deeper": 2, "beside": 1, "after": 1}
        await assert_sound(engine)


async def test_i42_a_retry_of_the_outer_run_retries_the_subgraph_that_failed(url: str) -> None:
    """I42: with one command, as the error says, and as often as it takes; what had been done is not done again."""
    ran, broken = Counter[str](), {"deeper"}
    registry, graph = nested(ran, broken)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 1, "log": []})
        for mended in (False, True):
            with pytest.raises(
                hf.RunFailed, match=r"node part@1 gave up after 1 attempt: .*deeper is broken"
            ) as raised:
                await handle.result(timeout=SECONDS)
            assert f"holdfast retry {handle.id}" in raised.value.hint
            if mended:
                broken.clear()
            await handle.retry()
        assert (await handle.result(timeout=SECONDS))["log"][-1] == "after"
        assert ran == {"deep": 1, "deeper": 3, "beside": 1, "after": 1}
        assert (await engine.replay(handle.id)).ok
        await assert_sound(engine)


async def test_i42_a_subgraph_two_levels_down_is_retried_too(url: str) -> None:
    ran, broken = Counter[str](), {"deep"}
    registry, graph = nested(ran, broken)
    outermost = hf.StateGraph(Log, name="outermost", registry=registry)
    outermost.subgraph("whole", graph)
    outermost.start_at("whole")
    outermost.finish("whole")
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(outermost, {"n": 1, "log": []})
        with pytest.raises(hf.RunFailed, match="deep is broken") as raised:
            await handle.result(timeout=SECONDS)
        told, causes = str(raised.value), [raised.value.cause]
        while isinstance(causes[-1], hf.RunFailed):  # I54: what a function that awaits them would see
            assert causes[-1].cause is causes[-1].__cause__ is causes[-1].attempts[-1]
            causes.append(causes[-1].cause)
        assert [type(each) for each in causes] == [hf.RunFailed, hf.RunFailed, ValueError]
        assert [getattr(each, "workflow", "") for each in causes] == ["outer", "inner", ""]
        assert f"{causes[0].message}. Fix: see `holdfast show {causes[0].run_id} --traceback`" in told
        assert (told.count("Fix: "), told.count("deep is broken"), " RUN" in told) == (1, 1, False)
        broken.clear()
        await handle.retry()
        assert (await handle.result(timeout=SECONDS))["log"][-1] == "after"
        assert ran == {"deep": 2, "deeper": 1, "beside": 1, "after": 1}
        await assert_sound(engine)


async def test_i42_a_subgraph_that_was_cancelled_is_begun_anew_by_a_retry_of_the_outer_run(url: str) -> None:
    """I42: what was cancelled stays so; another run takes its place, and waits for its own answer."""
    ran: Counter[str] = Counter()
    registry, graph = nested(ran, set(), asks=True)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 1, "log": []})
        first = await child_of(engine, handle)
        await until(first.interrupts, "the subgraph asks")
        await first.cancel()
        with pytest.raises(hf.RunFailed, match=f"child run {first.id} of inner was cancelled") as raised:
            await handle.result(timeout=SECONDS)
        assert isinstance(raised.value.cause, hf.RunCancelled)
        assert raised.value.cause.run_id == first.id
        await handle.retry()

        async def another() -> Any:
            runs = [run for run in await engine.store.find(FindRuns(limit=50)) if run.parent == handle.id]
            return [engine.get(run.id) for run in runs if run.id != first.id]

        (second,) = await until(another, "another run is begun")
        await until(second.interrupts, "it asks as well")
        await second.resume_with("yes")
        assert "deep yes" in (await handle.result(timeout=SECONDS))["log"]
        assert await first.status() == "cancelled"
        await assert_sound(engine)


async def test_i10_a_cancel_reaches_the_subgraph(url: str) -> None:
    """I10: its run is cancelled in the same transaction; nothing of either is left open."""
    ran: Counter[str] = Counter()
    registry, graph = nested(ran, set(), asks=True)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 1, "log": []})
        child = await child_of(engine, handle)
        await until(child.interrupts, "the subgraph asks")
        await handle.cancel()
        assert await child.status() == "cancelled"
        for each in (handle, child):
            assert not [row for row in await work_of(engine, each.id) if row.status in ("ready", "leased", "blocked")]
        await assert_sound(engine)


async def test_i42_a_question_in_a_subgraph_is_its_own_runs_question(url: str) -> None:
    """I42: the outer run waits without a slot, and goes on with the answer."""
    ran: Counter[str] = Counter()
    registry, graph = nested(ran, set(), asks=True)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 1, "log": []})
        child = await child_of(engine, handle)
        await until(child.interrupts, "the subgraph asks")
        await until(lambda: ran["beside"], "its neighbour runs meanwhile")
        await child.resume_with("yes")
        assert "deep yes" in (await handle.result(timeout=SECONDS))["log"]
        await assert_sound(engine)


# -- other corners of states and calls


@dataclass
class Page:
    zeta: str
    alpha: dict[int, str] = field(default_factory=dict)


@dataclass
class Book:
    turn: int = 0
    pages: Annotated[dict[int, str], hf.reducers.merge_dicts] = field(default_factory=dict)
    page: Page = field(default_factory=lambda: Page("z" * 600))
    seen: Annotated[set[int], hf.reducers.union] = field(default_factory=set)


async def test_i44_keys_that_are_no_texts_and_classes_in_the_state_are_patched_to_the_byte(sqlite_url: str) -> None:
    """I44, G8: large objects whose keys are numbers, dataclasses inside of states, sets."""
    registry = hf.Registry()
    graph = hf.StateGraph(Book, name="book", registry=registry)

    @graph.node
    async def turn(state: Book) -> Any:
        number = state.turn + 1
        alpha = {**state.page.alpha, number * 7 % 40: "a" * 30}
        return {
            "turn": number,
            "pages": {number: "p" * 60, -number: "m" * 60, number % 5: "w"},
            "page": Page("z" * 600, alpha),
            "seen": {number % 13, 100 - number},
        }

    graph.start_at("turn")
    graph.edge("turn", "turn", when=lambda state: state.turn < 40)
    graph.finish("turn")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, Book())
        result = await handle.result(timeout=SECONDS)
        report = await engine.replay(handle.id)
        assert report.ok, report.differences
        assert report.state == result
        for step in range(41):
            found = (await handle.checkpoint(step=step)).state
            assert found.turn == step
            assert set(found.pages) == {
                *range(1, step + 1),
                *range(-step, 0),
                *(number % 5 for number in range(1, step + 1)),
            }


async def test_i45_calls_made_at_once_are_numbered_as_they_were_begun(sqlite_url: str) -> None:
    """I45: whichever answer comes first; each answer goes to its own call in a replay."""
    import asyncio

    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="at once", registry=registry)

    @graph.node(recordable=True)
    async def ask(state: Log, ctx: hf.NodeContext) -> Any:
        async def call(number: int) -> str:
            for _ in range(10 * (3 - number)):
                await asyncio.sleep(0)
            return f"answer {number}"

        answers = await asyncio.gather(
            *[ctx.record("ask", {"n": number}, lambda number=number: call(number)) for number in range(3)]
        )
        return {"log": list(answers)}

    graph.start_at("ask")
    graph.finish("ask")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        assert (await handle.result(timeout=SECONDS))["log"] == ["answer 0", "answer 1", "answer 2"]
        assert [(each.call, each.response) for each in sorted(await handle.recorded(), key=lambda each: each.call)] == [
            (1, "answer 0"),
            (2, "answer 1"),
            (3, "answer 2"),
        ]
        assert (await engine.replay(handle.id)).ok


async def test_i11_a_subgraph_that_runs_is_not_skipped_before_its_run_has_ended(url: str) -> None:
    """Its run would go on with nobody to tell: it is cancelled first, and then the node gave up."""
    ran = Counter[str]()
    registry, graph = nested(ran, set(), asks=True)
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 1, "log": []})
        child = await child_of(engine, handle)

        async def asks() -> bool:
            return bool(await child.interrupts()) and (await work_of(engine, handle.id, "part@1"))[-1].status == BLOCKED

        await until(asks, "the subgraph asks, and the graph waits for it")
        with pytest.raises(hf.UsageError, match=f"it is running, as run {child.id}.*holdfast cancel {child.id}"):
            await handle.skip("part")
        with pytest.raises(hf.ReattemptRefused, match=f"it is running, as run {child.id}"):
            await handle.reattempt("part")
        with pytest.raises(hf.ReattemptRefused, match="it waits for a person's answer"):
            await child.reattempt("deep")
        assert await child.status() == "suspended"
        await child.cancel()
        with pytest.raises(hf.RunFailed, match="was cancelled"):
            await handle.result(timeout=SECONDS)
        await handle.skip("part")
        assert (await handle.result(timeout=SECONDS))["log"] == ["beside", "after"]
        await assert_sound(engine)


async def test_i11_sent_items_are_steered_by_their_address(url: str) -> None:
    """I11: one of many of the same node is skipped, another is tried again."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="sent", registry=registry)
    broken = {1, 2}

    @graph.node(goes_to=("leaf",))
    async def fan(state: Log) -> Any:
        return [hf.Send("leaf", {"n": number}) for number in range(4)]

    @graph.node
    async def leaf(state: Log) -> Any:
        if state["n"] in broken:
            raise ValueError(f"leaf {state['n']}")
        return {"log": [str(state["n"])]}

    graph.start_at("fan")
    graph.finish("leaf")
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"n": 0, "log": []})
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=SECONDS)
        items = {item.state["n"]: f"leaf@2.{item.order_key}" for item in (await handle.checkpoint()).frontier}
        broken.discard(1)
        await handle.skip(items[2])
        await handle.reattempt(items[1])
        assert sorted((await handle.result(timeout=SECONDS))["log"]) == ["0", "1", "3"]
        await assert_sound(engine)
