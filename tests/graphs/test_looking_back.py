"""What is known of a state graph's run afterwards: two runs compared, the way it took, reading without its code."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.graph_diff import MISSING

SECONDS = 30.0


class State(TypedDict, total=False):
    topic: str
    notes: Annotated[list[str], operator.add]
    rounds: Annotated[int, hf.reducers.counter]
    verdict: str


def made(registry: hf.Registry, **options: Any) -> hf.StateGraph[State]:
    """It goes round until the topic is short, and one branch ends before the other."""
    graph = hf.StateGraph(State, name="talk", registry=registry, **options)

    @graph.node
    async def think(state: State) -> dict[str, Any]:
        return {"rounds": 1, "topic": state["topic"][:-1], "notes": [state["topic"]]}

    @graph.node
    async def doubt(state: State) -> dict[str, Any]:
        return {"notes": ["hm"]}

    @graph.node(label="judged")
    async def judge(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
        return {"verdict": await ctx.interrupt({"topic": state["topic"]})}

    graph.start_at("think")
    graph.edge("think", "think", when=lambda state: len(state["topic"]) > 1)
    graph.edge("think", "doubt", when=lambda state: state["rounds"] == 1)
    graph.edge("think", "judge", when=lambda state: len(state["topic"]) == 1)
    graph.finish("doubt", "judge")
    return graph


@asynccontextmanager
async def working(url: str = "memory://", **options: Any) -> AsyncIterator[hf.Engine]:
    """An engine that has the graph, with a worker."""
    registry = hf.Registry()
    made(registry, **options)
    async with hf.Engine(url, registry=registry, poll_seconds=0.02) as opened, opened.worker():
        yield opened


async def begun(engine: hf.Engine, topic: str = "bees", **options: Any) -> hf.Handle[Any]:
    handle = await engine.start("talk", {"topic": topic}, **options)
    await engine.settle(timeout=SECONDS)
    return handle


async def test_two_runs_of_one_input_are_the_same_step_by_step() -> None:
    async with working() as engine:
        one, other = await begun(engine), await begun(engine)
        found = await engine.diff(one, other.id)
        assert (found.same, found.compared, found.first_step) == (True, 4, None)
        assert found.document()["differences"] == []


async def test_a_diff_names_the_first_step_that_differs_and_every_field_with_both_sides() -> None:
    """A field that one of them never wrote has no value there, which is not null."""
    async with working() as engine:
        one, other = await begun(engine, "bees"), await begun(engine, "beer")
        await one.resume_with("fine")
        await one.result(SECONDS)
        found = await engine.diff(one, other)
        first = found.differences[0]
        assert (found.first_step, first.fields) == (0, {"topic": ("bees", "beer")})
        assert dict(found.differences[1].fields) == {"notes": (["bees"], ["beer"])}, "bee and bee again"
        assert [each.step for each in found.differences] == [0, 1, 2, 3, 4]
        assert (found.differences[4].only, found.differences[4].fields) == ("first", {})
        await other.resume_with("stale")
        await other.result(SECONDS)
        last = (await engine.diff(one, other)).differences[-1]
        assert last.fields["verdict"] == ("fine", "stale")


async def test_a_diff_of_other_routes_shows_which_nodes_follow() -> None:
    async with working() as engine:
        one, other = await begun(engine, "be"), await begun(engine, "bee")
        first = (await engine.diff(one, other)).differences[1]
        assert first.step == 1
        assert first.frontier == (("doubt", "judge"), ("doubt", "think"))
        assert first.document()["frontier"] == {"first": ["doubt", "judge"], "second": ["doubt", "think"]}


async def test_equal_states_that_lead_to_other_nodes_are_a_difference() -> None:
    """Two versions of a graph may agree on every state and part all the same."""
    registry = hf.Registry()
    for name, target in (("one", "left"), ("other", "right")):
        graph = hf.StateGraph(State, name=name, registry=registry)
        for node in ("begin", target):
            graph.node(_nothing, name=node)
        graph.start_at("begin")
        graph.edge("begin", target)
        graph.finish(target)
    async with hf.Engine("memory://", registry=registry, poll_seconds=0.02) as engine, engine.worker():
        handles = [await engine.start(name, {"topic": "x"}) for name in ("one", "other")]
        await engine.settle(timeout=SECONDS)
        found = await engine.diff(*handles)
    assert (found.compared, found.differing, found.first_step) == (3, 1, 1)
    assert (found.differences[0].fields, found.differences[0].frontier) == ({}, (("left",), ("right",)))


async def _nothing(state: State) -> None: ...


async def test_a_fork_is_compared_from_where_it_was_taken() -> None:
    """What it did not inherit is no difference, and what only the longer one has is told as such."""
    async with working() as engine:
        source = await begun(engine)
        fork = await engine.fork(source, step=2, update={"verdict": "early"})
        await engine.settle(timeout=SECONDS)
        found = await engine.diff(source, fork)
        assert (found.compared, found.first_step) == (2, 2)
        assert found.differences[0].fields == {"verdict": (MISSING, "early")}
        assert found.document()["differences"][0]["fields"] == {"verdict": {"second": "early"}}
        with pytest.raises(hf.UsageError, match="with itself"):
            await engine.diff(source, source)
        with pytest.raises(hf.UnknownWorkflow, match="there is no run"):
            await engine.diff(source, "nobody")


async def test_what_was_pruned_in_one_run_is_no_difference() -> None:
    """A graph that keeps its latest checkpoints only is compared where both have them."""
    async with working(keep_checkpoints=2) as engine:
        long, other = await begun(engine, "x" * 40), await begun(engine, "x" * 40)
        kept = [checkpoint.step_id for checkpoint in await long.checkpoints()]
        assert len(kept) < 39
        found = await engine.diff(long, other)
        assert (found.same, found.compared) == (True, len(kept))


async def test_i40_the_drawing_of_a_run_marks_the_way_that_it_took() -> None:
    """Thick arrows for what was taken, also to where a branch ended; a node that was not reached has no state."""
    async with working() as engine:
        handle = await begun(engine, "be")
        drawn = await handle.mermaid()
        assert '    n0["think<br/>completed"]:::completed\n' in drawn
        assert '    n2["judge<br/>blocked"]:::blocked\n' in drawn
        lines = [line.strip() for line in drawn.splitlines()]
        arrows = [line for line in lines if "->" in line]
        (style,) = [line for line in lines if line.startswith("linkStyle ")]
        thick = {arrows[int(number)] for number in style.split()[1].split(",")}
        assert thick == {"start --> n0", 'n0 -.->|"when"| n1', 'n0 -.->|"when"| n2'}, "the step is not over"
        await handle.resume_with("fine")
        await handle.result(SECONDS)
        (after,) = [line for line in (await handle.mermaid()).splitlines() if "linkStyle" in line]
        assert len(after.split()[1].split(",")) == 5, "and both branches have ended"


async def test_a_node_of_several_steps_says_how_often_it_ran() -> None:
    async with working() as engine:
        assert "think<br/>completed 3 times" in await (await begun(engine)).mermaid()


async def test_i47_looking_needs_no_code(tmp_path: Path) -> None:
    """Another process without the graph reads the same documents; what only the code knows is refused with the fix."""
    url = f"sqlite:///{tmp_path / 'app.db'}"
    async with working(url) as engine:
        handle = await begun(engine)
        known = [checkpoint.document() for checkpoint in await handle.checkpoints()]
        asked = await handle.interrupts()
    async with hf.Engine(url, registry=hf.Registry()) as stranger:
        other = stranger.get(handle.id)
        assert [checkpoint.document() for checkpoint in await other.checkpoints()] == known
        assert (await other.checkpoint(step=2)).state["topic"] == "be"
        assert await other.interrupts() == asked
        assert (await other.scheduler()).completed_steps == 3
        assert [call.kind for call in await other.recorded()] == ["interrupt"]
        assert "asks a person" in str(await other.explain())
        for refused in (other.mermaid(), stranger.replay(other), stranger.fork(other, step=1)):
            with pytest.raises(hf.MissingJob, match="talk is not registered here"):
                await refused


async def test_i11_an_operator_without_the_code_retries_what_failed(tmp_path: Path) -> None:
    """Whoever runs the node lets the rest in; a merge needs the code, and says so."""
    registry = hf.Registry()
    graph = hf.StateGraph(State, name="fragile", registry=registry)
    failing = [True]

    @graph.node
    async def only(state: State) -> dict[str, Any]:
        if failing[0]:
            raise ValueError("not yet")
        return {"verdict": "fine"}

    graph.start_at("only")
    graph.finish("only")
    url = f"sqlite:///{tmp_path / 'app.db'}"
    async with hf.Engine(url, registry=registry, poll_seconds=0.02) as engine, engine.worker():
        handle = await engine.start(graph, {"topic": "x"})
        with pytest.raises(hf.RunFailed, match="not yet"):
            await handle.result(SECONDS)
        failing[0] = False
        async with hf.Engine(url, registry=hf.Registry()) as stranger:
            assert await stranger.get(handle.id).retry() == ["only@1"]
        assert (await handle.result(SECONDS))["verdict"] == "fine"


def test_the_blocking_front_has_all_of_it(tmp_path: Path) -> None:
    """The same calls for a program without an event loop."""
    registry = hf.Registry()
    graph = made(registry)
    with hf.Engine(f"sqlite:///{tmp_path / 'app.db'}", registry=registry, poll_seconds=0.02).blocking() as engine:
        with engine.worker():
            handle = engine.start(graph, {"topic": "bees"})
            engine.settle(timeout=SECONDS)
            (question,) = handle.interrupts()
            assert question.payload == {"topic": "b"}
            fork = engine.fork(handle, step=1)
            assert handle.resume_with("fine") is True
            assert handle.resume_with("fine") is False, "K8: said twice, heard once"
            assert handle.result(timeout=SECONDS)["verdict"] == "fine"
            engine.settle(timeout=SECONDS)
        assert [checkpoint.step_id for checkpoint in handle.checkpoints()] == [0, 1, 2, 3, 4]
        assert handle.checkpoint(label="judged").step_id == 4
        assert handle.scheduler().completed_steps == 4
        assert [call.response for call in handle.recorded()] == ["fine"]
        assert engine.replay(handle, mode="strict").ok
        assert engine.diff(handle, fork.id).first_step == 4
        assert handle.mermaid().startswith("graph TD\n")


async def test_what_is_no_run_no_step_and_no_label_is_refused_with_the_fix() -> None:
    """The first mistakes of a caller: a step as text, a run that was not found, an index of a list."""
    graph = hf.StateGraph(State, name="mistakes", registry=hf.Registry())
    graph.node(name="only")(lambda state: None)
    graph.start_at("only")
    graph.finish("only")
    async with hf.Engine("memory://", registry=graph.registry) as engine, engine.worker():
        handle = await engine.start(graph, {})
        await handle.result(timeout=SECONDS)
        wrong: Any
        for wrong in ("1", "0", 1.0, True, -1, 2**70, [0]):
            for asked in (engine.fork(handle, step=wrong), handle.checkpoint(step=wrong)):
                with pytest.raises(hf.UsageError, match="step is") as refused:
                    await asked
                assert refused.value.hint == f"give a whole number from 0 to 1, the latest of run {handle.id}"
        for wrong in (5, None, {"id": handle.id}, [handle]):
            for asked in (engine.fork(wrong, step=0), engine.replay(wrong), engine.diff(handle, wrong)):
                with pytest.raises(hf.UsageError, match="the run is") as refused:
                    await asked
                assert refused.value.hint == "give its id, or its handle"
        wrong = 7
        for asked in (engine.fork(handle, label=wrong), handle.checkpoint(label=wrong)):
            with pytest.raises(hf.UsageError, match="label is 7, a int"):
                await asked
