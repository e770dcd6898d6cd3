"""I6, I42, G2, K3: two processes that both believe an item is theirs. The store knows whose it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.core.operations import Handed, Settled
from holdfast.core.queries import RecordedOf
from holdfast.testing.engines import SeededRandomness
from tests.flows.by_hand import LEASE_SECONDS, WorkerByHand, cuts_power, worker_by_hand
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, site_for
from tests.worker.support import assert_sound, work_of

SECONDS = 20.0


class Log(TypedDict, total=False):
    n: int
    log: Annotated[list[str], hf.reducers.append]


@pytest.fixture(params=SHARED_KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@asynccontextmanager
async def two_owners(
    site: Site, registry: hf.Registry
) -> AsyncIterator[tuple[WorkerByHand, WorkerByHand, VirtualClock]]:
    clock, randomness = VirtualClock(), SeededRandomness("owners", site.kind)
    first = await worker_by_hand(site, registry, clock, randomness)
    second = await worker_by_hand(site, registry, clock, randomness)
    try:
        yield first, second, clock
    finally:
        await first.engine.store.close()
        await second.engine.store.close()


async def taken_away(heir: WorkerByHand, clock: VirtualClock) -> Handed:
    """The other one's lease lapses without its knowing; its item is the heir's now."""
    clock.advance(LEASE_SECONDS + 1)
    await heir.prove_life()
    await heir.take_over()
    (handed,) = await heir.claim(limit=1)
    return handed


def running(hands: WorkerByHand, handed: Handed) -> asyncio.Task[Settled]:
    return asyncio.ensure_future(hands.run(handed, lambda: None))


async def test_i42_g2_k3_the_new_owner_goes_on_with_the_records_and_the_old_one_is_refused(site: Site) -> None:
    """I42, G2, K3: what the old owner had recorded is not asked again; what it still records or returns counts for
    nothing, whoever comes first."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="owned", registry=registry, default_timeout=None)
    gates = {attempt: asyncio.Event() for attempt in (1, 2)}
    recorded_once = asyncio.Event()
    asked: Counter[str] = Counter()
    raised: list[BaseException] = []

    @graph.node(recordable=True)
    async def work(state: Log, ctx: hf.NodeContext) -> Any:
        async def ask(name: str) -> Any:
            def call() -> str:
                asked[f"{name} by {ctx.attempt}"] += 1
                return f"{name} of {ctx.attempt}"

            return await ctx.record(name, {}, call)

        try:
            first = await ask("first")
            recorded_once.set()
            await gates[ctx.attempt].wait()
            return {"log": [first, await ask("second")]}
        except BaseException as error:
            raised.append(error)
            raise

    graph.start_at("work")
    graph.finish("work")
    async with two_owners(site, registry) as (old, new, clock):
        handle = await old.engine.start(graph, {"n": 0, "log": []})
        (handed,) = await old.claim(limit=1)
        old_attempt = running(old, handed)
        await asyncio.wait_for(recorded_once.wait(), SECONDS)
        handed = await taken_away(new, clock)
        assert (handed.work.attempt, handed.run.status) == (2, "running")
        new_attempt = running(new, handed)
        gates[1].set()  # the old one is quicker
        (answer,) = await asyncio.gather(old_attempt, return_exceptions=True)
        assert isinstance(answer, BaseException) or answer.verdict == "stale"
        assert len(raised) == 1
        assert "lost its lease" in str(raised[0])
        gates[2].set()
        assert (await new_attempt).run_status == "completed"
        assert asked == {"first by 1": 1, "second by 1": 1, "second by 2": 1}
        result = await new.engine.get(handle.id).result(timeout=SECONDS)
        assert result["log"] == ["first of 1", "second of 2"]
        records = await new.engine.store.rows(RecordedOf(handle.id))
        assert sorted((row.call, row.attempt) for row in records) == [(1, 1), (2, 1)]
        assert [row.status for row in await work_of(new.engine, handle.id)] == ["lost", "completed"]
        report = await new.engine.replay(handle.id)
        assert report.ok, report.differences
        assert report.state == result


@pytest.mark.parametrize("first_to_report", ["old", "new"])
async def test_g2_k3_two_owners_of_an_item_that_closes_a_step_make_one_checkpoint(
    site: Site, first_to_report: str
) -> None:
    """G2, I44: the old owner's report comes before and after the new one's, with another delta; one of them counts."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="closed", registry=registry, default_timeout=None)
    gates = {attempt: asyncio.Event() for attempt in (1, 2)}

    @graph.node
    async def work(state: Log, ctx: hf.NodeContext) -> Any:
        await gates[ctx.attempt].wait()
        return {"log": [f"by {ctx.attempt}"]}

    graph.node(name="end")(lambda state: None)
    graph.start_at("work")
    graph.edge("work", "end")
    graph.finish("end")
    async with two_owners(site, registry) as (old, new, clock):
        handle = await old.engine.start(graph, {"n": 0, "log": []})
        (handed,) = await old.claim(limit=1)
        attempts = {1: running(old, handed)}
        attempts[2] = running(new, await taken_away(new, clock))
        for attempt in (1, 2) if first_to_report == "old" else (2, 1):
            gates[attempt].set()
            verdict = (await attempts[attempt]).verdict
            assert verdict == ("stale" if attempt == 1 else "recorded")
        latest = await new.engine.get(handle.id).checkpoint()
        assert (latest.step_id, latest.state["log"]) == (1, ["by 2"])
        (last,) = await old.claim(limit=1)
        await old.run(last, lambda: None)
        assert (await old.engine.get(handle.id).result(timeout=SECONDS))["log"] == ["by 2"]
        cuts_power(new.engine, never=False)
        await assert_sound(new.engine)


async def test_i43_i45_the_time_of_a_step_is_the_committed_ones_also_for_who_failed_to_commit_it(site: Site) -> None:
    """I45: an owner whose commit came to nothing decided the same step at another time; `ctx.now` is the stored one."""
    registry = hf.Registry()
    graph = hf.StateGraph(Log, name="timed", registry=registry, default_timeout=None)
    gates = {attempt: asyncio.Event() for attempt in (1, 2)}
    seen: list[str] = []

    @graph.node
    async def work(state: Log, ctx: hf.NodeContext) -> Any:
        await gates[ctx.attempt].wait()
        return {"n": 1}

    @graph.node
    async def tell(state: Log, ctx: hf.NodeContext) -> Any:
        seen.append(ctx.now.isoformat())
        return {"log": [ctx.now.isoformat()]}

    graph.start_at("work")
    graph.edge("work", "tell")
    graph.finish("tell")
    async with two_owners(site, registry) as (old, new, clock):
        handle = await old.engine.start(graph, {"n": 0, "log": []})
        (handed,) = await old.claim(limit=1)
        attempts = {1: running(old, handed)}
        attempts[2] = running(new, await taken_away(new, clock))
        gates[1].set()
        assert (await attempts[1]).verdict == "stale"
        clock.advance(7)
        gates[2].set()
        assert (await attempts[2]).verdict == "recorded"
        stored = (await old.engine.get(handle.id).checkpoint()).timestamp.isoformat()
        (last,) = await old.claim(limit=1)
        await old.run(last, lambda: None)
        assert seen == [stored]
        assert (await new.engine.replay(handle.id)).ok
