"""Seed 003's policies of nodes, with its defaults, rules, formula and examples, in our syntax."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.authoring.state_nodes import NodePolicy, SideEffectPolicy
from holdfast.emitters import BufferedEmitter
from holdfast.testing import engine_in_memory


class Notes(TypedDict, total=False):
    n: int
    log: Annotated[list[str], operator.add]


def test_policies_have_the_defaults_of_the_seed() -> None:
    """30 s for a node, no retries, the engine's own key; declared per node, or for all of a graph's."""
    graph = hf.StateGraph(Notes, name="policies", registry=hf.Registry())

    @graph.node
    async def plain(state: Notes) -> None:
        return None

    @graph.node(timeout=None)
    async def patient(state: Notes) -> None:
        return None

    assert graph.nodes["plain"].policy == NodePolicy(timeout=30.0, retry=hf.Retry(attempts=1), idempotency_key=None)
    assert graph.nodes["plain"].effects == SideEffectPolicy(recordable=False, requires_idempotency=False)
    assert graph.nodes["patient"].policy.timeout is None
    assert (graph.options.max_concurrent, graph.options.queue_depth, graph.options.default_timeout) == (8, 1024, 30.0)
    quick = hf.StateGraph(Notes, name="quick", registry=hf.Registry(), default_timeout=2.0)

    @quick.node
    async def swift(state: Notes) -> None:
        return None

    assert quick.nodes["swift"].policy.timeout == 2.0


async def test_i45_the_three_examples_of_side_effect_policies_are_replayed_each_in_its_way() -> None:
    """A model's call is answered from the record, a pure function runs again, a database write does not."""
    registry, world = hf.Registry(), []
    graph = hf.StateGraph(Notes, name="effects", registry=registry)

    @graph.node(recordable=True, requires_idempotency=True, idempotency_key=lambda state: f"ask-{state['n']}")
    async def model_call(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        said = await ctx.record("llm", {"key": ctx.idempotency_key}, lambda: world.append("model") or "said")
        return {"log": [said, ctx.idempotency_key]}

    @graph.node
    async def pure_function(state: Notes) -> dict[str, Any]:
        world.append("pure")
        return {"log": [f"{len(state['log'])} so far"]}

    @graph.node(requires_idempotency=True, idempotency_key=lambda state: f"row-{state['n']}")
    async def database_write(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        world.append(f"write {ctx.idempotency_key}")
        return {"log": ["written"]}

    graph.start_at("model_call")
    graph.edge("model_call", "pure_function")
    graph.edge("pure_function", "database_write")
    graph.finish("database_write")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"n": 7, "log": []})
        final = await handle.result()
        assert world == ["model", "pure", "write row-7"]
        world.clear()
        report = await engine.replay(handle.id)
    assert world == ["pure"]
    assert report.ok
    assert report.state == final == {"n": 7, "log": ["said", "ask-7", "2 so far", "written"]}
    assert report.reused == ("database_write@3",)


async def test_i3_the_delay_before_a_retry_follows_the_seeds_formula() -> None:
    """I3: base times two to the number of failures before, plus less than one base, and never more than the cap."""
    registry, kept = hf.Registry(), BufferedEmitter()
    graph = hf.StateGraph(Notes, name="retries", registry=registry, emitter=kept)

    @graph.node(retry=hf.Retry(attempts=6, base=2.0, cap=20.0), timeout=None)
    async def flaky(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        if ctx.attempt < 6:
            raise ConnectionError("not yet")
        return {"n": ctx.attempt}

    graph.start_at("flaky")
    graph.finish("flaky")
    async with engine_in_memory(registry=registry) as (engine, clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        await clock.advance(seconds=100)
        assert (await handle.result())["n"] == 6
    delays = [event.data["delay_ms"] / 1000 for event in kept.history(kind="node_retried")]
    for failures, delay in enumerate(delays):
        assert min(2.0 * 2**failures, 20.0) <= delay <= min(2.0 * 2**failures + 2.0, 20.0)
    assert len(delays) == 5
    assert delays[-1] == 20.0


async def test_i3_an_error_that_is_not_retryable_is_not_retried() -> None:
    """`retry_on` is the seed's Retryable: a predicate, or types of errors."""
    registry, attempts = hf.Registry(), []
    graph = hf.StateGraph(Notes, name="picky", registry=registry)

    @graph.node(retry=hf.Retry(attempts=5, base=0.0, retry_on=lambda error: "again" in str(error)))
    async def picky(state: Notes, ctx: hf.NodeContext) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("again" if ctx.attempt < 3 else "enough")

    graph.start_at("picky")
    graph.finish("picky")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        with pytest.raises(hf.RunFailed, match="enough"):
            await engine.run(graph, {"n": 0, "log": []})
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda graph: graph.node(retry=hf.Retry(attempts=0))(_nothing), "attempts must be a whole number"),
        (lambda graph: graph.node(retry=hf.Retry(base=-1.0))(_nothing), "base must be a finite number"),
        (lambda graph: graph.node(retry=hf.Retry(base=5.0, cap=1.0))(_nothing), "cap is less than base"),
        (lambda graph: graph.node(retry=hf.Retry(retry_on=None))(_nothing), "retry_on=None"),
        (lambda graph: graph.node(timeout=0)(_nothing), "timeout"),
        (lambda graph: graph.node(requires_idempotency=True)(_nothing), "no idempotency_key"),
    ],
    ids=["MaxAttempts", "BaseDelay", "MaxDelay", "Retryable", "Timeout", "RequiresIdempotency"],
)
def test_a_policy_that_breaks_a_rule_of_the_seed_is_refused_where_it_is_written(make: Any, told: str) -> None:
    """The summary of the validation rules of policies."""
    with pytest.raises(hf.UsageError, match=told):
        make(hf.StateGraph(Notes, name="rules", registry=hf.Registry()))


async def _nothing(state: Notes) -> None:
    return None


async def test_i13_without_a_function_the_key_is_the_items_own_in_every_attempt() -> None:
    """I13: the default key names workflow, run and item: the same in a retry, another in the next pass."""
    registry, keys = hf.Registry(), []
    graph = hf.StateGraph(Notes, name="keys", registry=registry)

    @graph.node(retry=hf.Retry(attempts=2, base=0.0))
    async def loop(state: Notes, ctx: hf.NodeContext) -> dict[str, Any]:
        keys.append((ctx.step, ctx.idempotency_key))
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return {"n": state["n"] + 1}

    graph.start_at("loop")
    graph.edge("loop", "loop", when=lambda state: state["n"] < 2)
    graph.finish("loop")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        for _ in range(2):
            await engine.run(graph, {"n": 0, "log": []})
    assert [step for step, _ in keys] == [1, 1, 2, 2, 1, 1, 2, 2]
    assert [key for _, key in keys[::2]] == [key for _, key in keys[1::2]]
    assert len(set(keys)) == 4


@pytest.mark.parametrize(("request_", "response"), [(object(), 1), (1, object())], ids=["request", "response"])
async def test_i14_a_call_that_cannot_be_stored_is_refused_with_its_name(request_: Any, response: Any) -> None:
    """Request and Response must be JSON: nothing of the call is stored otherwise, and the node has failed."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="odd", registry=registry)

    @graph.node(recordable=True)
    async def call(state: Notes, ctx: hf.NodeContext) -> None:
        await ctx.record("weather", request_, lambda: response)

    graph.start_at("call")
    graph.finish("call")
    async with engine_in_memory(registry=registry) as (engine, _clock):
        handle = await engine.start(graph, {"n": 0, "log": []})
        with pytest.raises(hf.RunFailed, match="weather"):
            await handle.result()
        assert not await handle.recorded()
