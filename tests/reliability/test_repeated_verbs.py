"""What a caller asks again because it never heard: the answer was lost, or its process died after the commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.operations import (
    BuryUnknown,
    Changed,
    FailWork,
    Operation,
    PauseRun,
    ResumeRun,
    RetryRun,
)
from holdfast.core.rows import Run
from holdfast.runtime.system import RealClock
from holdfast.runtime.watch import Watch
from holdfast.store.memory import MemoryStore
from tests.kernel.kernels import opened_kernel, start
from tests.support.stores import KINDS, Site, every_row, site_for

SECONDS = 20.0


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@dataclass
class State:
    n: int = 0


def app() -> tuple[hf.Registry, Any, Any]:
    """A DAG and a state graph that can be forked."""
    registry = hf.Registry()

    class Order(hf.Dag, registry=registry):
        @hf.step
        async def first(self) -> int:
            return 1

        @hf.step
        async def last(self) -> int:
            return 2

    graph = hf.StateGraph(State, name="counting", registry=registry)

    @graph.node
    async def one(state: State) -> dict[str, int]:
        return {"n": state.n + 1}

    @graph.node
    async def two(state: State) -> dict[str, int]:
        return {"n": state.n + 10}

    graph.start_at("one")
    graph.edge("one", "two")
    graph.finish("two")
    return registry, Order, graph


@asynccontextmanager
async def opened(site: Site, registry: hf.Registry) -> AsyncIterator[hf.Engine]:
    async with hf.Engine(store=site.store(), registry=registry) as engine, engine.worker():
        yield engine


async def test_k8_i12_a_fork_under_a_key_that_is_asked_for_again_is_the_run_that_was_made(site: Site) -> None:
    """As after a crash: another process, which remembers nothing, asks for the same."""
    registry, order, graph = app()
    async with opened(site, registry) as engine:
        dag, state = await engine.start(order()), await engine.start(graph, State())
        for source in (dag, state):
            await source.result(SECONDS)
        made = [await engine.fork(dag, from_node="last", key="again")]
        made += [await engine.fork(state, step=1, update={"n": 5}, key="again")]
        results = [await fork.result(SECONDS) for fork in made]
        assert results[1] == State(15)
        if site.kind == "memory":  # which ends with its process
            await _check_again(engine, made, dag, state)
    if site.kind != "memory":
        async with opened(site, registry) as engine:
            await _check_again(engine, made, dag, state)


async def _check_again(engine: hf.Engine, made: list[hf.Handle[Any]], dag: Any, state: Any) -> None:
    again = [await engine.fork(dag.id, from_node="last", key="again")]
    again += [await engine.fork(state.id, step=1, update={"n": 5}, key="again")]
    assert [fork.id for fork in again] == [fork.id for fork in made]
    assert len(list(await engine.find())) == 4
    await engine.drain("counting")  # takes no new runs, and this is none
    assert (await engine.fork(state.id, step=1, update={"n": 5}, key="again")).id == made[1].id


async def test_i12_a_key_of_another_fork_or_of_a_start_is_a_conflict(site: Site) -> None:
    registry, order, graph = app()
    async with opened(site, registry) as engine:
        dag, state = await engine.start(order(), key="started"), await engine.start(graph, State())
        for source in (dag, state):
            await source.result(SECONDS)
        await engine.fork(dag, from_node="last", key="taken")
        await engine.fork(state, step=1, update={"n": 5}, key="taken")
        other = await engine.start(order())
        await other.result(SECONDS)
        for fork in (
            lambda: engine.fork(dag, from_node="first", key="taken"),
            lambda: engine.fork(other, from_node="last", key="taken"),
            lambda: engine.fork(dag, from_node="last", key="started"),
            lambda: engine.fork(state, step=1, update={"n": 6}, key="taken"),
            lambda: engine.fork(state, step=0, update={"n": 5}, key="taken"),
        ):
            with pytest.raises(hf.KeyConflict, match="fork under another key"):
                await fork()


async def test_i12_a_fork_of_the_latest_step_is_the_same_fork_when_there_is_a_later_one(site: Site) -> None:
    """What was asked for is the latest, whichever that was when it was asked first."""
    registry = hf.Registry()
    graph = hf.StateGraph(State, name="asking", registry=registry)

    @graph.node
    async def ask(state: State, ctx: hf.NodeContext) -> dict[str, int]:
        return {"n": await ctx.interrupt("how many?")}

    @graph.node
    async def end(state: State) -> dict[str, int]:
        return {"n": state.n + 1}

    graph.start_at("ask")
    graph.edge("ask", "end")
    graph.finish("end")
    async with opened(site, registry) as engine:
        source = await engine.start(graph, State())
        await engine.settle()
        first = await engine.fork(source, key="latest")
        await source.resume_with(3)
        assert await source.result(SECONDS) == State(4)
        assert (await engine.fork(source, key="latest")).id == first.id


WISHES: dict[str, tuple[Sequence[Operation], Operation, Operation, str]] = {
    "pause": ([start("r")], PauseRun(run="r", wish="first"), ResumeRun(run="r", wish="other"), "pending"),
    "resume": ([start("r", paused=True)], ResumeRun(run="r", wish="first"), PauseRun(run="r", wish="other"), "paused"),
    "retry": (
        [start("r", lease=True), FailWork(run="r", node="only", attempt=1, token=1, error=b"{}")],
        RetryRun(run="r", wish="first"),
        BuryUnknown(run="r", node="only", attempt=2, error=b"{}"),
        "failed",
    ),
}
"""By verb: what comes before, the wish, what somebody else does until it is repeated, and what must be left of that."""


@pytest.mark.parametrize("verb", WISHES)
async def test_k8_a_wish_that_is_repeated_late_does_not_undo_what_others_asked_for_since(site: Site, verb: str) -> None:
    """Its answer was lost, and until the store could be asked again somebody else had changed the run."""
    before, wish, meanwhile, status = WISHES[verb]
    async with opened_kernel(site) as (coordinator, store):
        for operation in before:
            await coordinator.submit(operation)
        first: Changed = await coordinator.submit(wish)
        await coordinator.submit(meanwhile)
        rows = await every_row(store)
        coordinator.cache.clear()
        again: Changed = await coordinator.submit(wish)
        assert await every_row(store) == rows
        assert first.changed
        assert again.changed, "it was granted"
        assert [run.status for run in await store.runs(["r"])] == [status] == [again.status]


async def test_k8_what_an_operator_asks_for_has_a_name_and_the_same_words_later_are_another_wish(site: Site) -> None:
    registry, order, _ = app()
    async with hf.Engine(store=site.store(), registry=registry) as engine:
        run = await engine.start(order())
        assert [await run.pause(), await run.pause(), await run.resume(), await run.pause()] == [
            True,
            False,
            True,
            True,
        ]
        wishes = [entry.data["wish"] for entry in await run.history() if entry.kind in ("paused", "resumed")]
        assert len(set(wishes)) == 3


class AwayForAMoment(MemoryStore):
    """Shared with others, and not to be reached when it is asked for a run for the first time."""

    shared = True
    refused = 0

    async def runs(self, ids: Sequence[str], *, settled: bool = False) -> list[Run]:
        if not self.refused:
            self.refused = 1
            raise hf.StoreUnavailable("gone for a moment")
        return await super().runs(ids, settled=settled)


async def test_g9_whoever_waits_for_a_result_goes_on_waiting_when_the_store_is_away_at_first() -> None:
    """Found by immediate stops: the first look raised, though every later one would have been tried again."""
    store = AwayForAMoment(RealClock())
    await store.open()
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def act() -> int:
        return 7

    async with hf.Engine(store=store, registry=registry) as engine:
        run = await engine.start(act)
        watch = Watch(store, peek=lambda run: None)
        found = await watch.wait(run.id, lambda row: row.id == run.id, SECONDS)
        assert found.id == run.id
        assert store.refused
        with pytest.raises(hf.UnknownWorkflow):  # what is answered is an answer
            await watch.wait("nowhere", lambda row: True, SECONDS)
        await watch.close(hf.EngineClosed("the test is over"))
