"""Corners that the seed's scenarios left open: what waits anew, what is told, what is searched for."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

import holdfast as hf
from holdfast.core.codec import encode_error
from holdfast.core.rows import Work
from holdfast.documents.nodes import nodes_and_graph
from holdfast.models.machine import why
from tests.worker.support import assert_sound, engine_on, until, work_of


async def test_i31_a_retry_waits_for_a_step_that_a_deploy_put_before_it(shared_url: str) -> None:
    """b failed; the deploy puts audit between a and b; resumed, audit runs first and b then."""
    did: list[str] = []
    before, after = hf.Registry(), hf.Registry()

    class Yesterday(hf.Dag, registry=before, name="Order"):
        @hf.step
        async def a(self) -> None:
            did.append("a")

        @hf.step
        async def b(self) -> None:
            did.append("b failed")
            raise ValueError("not audited")

    class Today(hf.Dag, registry=after, name="Order"):
        @hf.step
        async def a(self) -> None:
            did.append("a again")

        @hf.step
        async def audit(self) -> None:
            await asyncio.sleep(0)
            did.append("audit")

        @hf.step
        async def b(self) -> None:
            did.append("b")

    async with engine_on(shared_url, before) as engine, engine.worker():
        handle = await engine.start(Yesterday())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=10)
    async with engine_on(shared_url, after) as engine, engine.worker():
        again = engine.get(handle.id)
        await again.resume()
        await again.result(timeout=10)
        assert did == ["a", "b failed", "audit", "b"]
        assert await again.verify_ancestry()
        await assert_sound(engine)


async def test_i2_a_retried_node_shows_how_many_of_the_parents_it_has_now_are_in(shared_url: str) -> None:
    """One of two is in: what a deploy put before the node is counted in the row of its first attempt."""
    before, after = hf.Registry(), hf.Registry()

    class Yesterday(hf.Dag, registry=before, name="Order"):
        @hf.step
        async def a(self) -> None: ...

        @hf.step
        async def b(self) -> None:
            raise ValueError("not audited")

    class Today(hf.Dag, registry=after, name="Order"):
        @hf.step
        async def a(self) -> None: ...

        @hf.task(depends_on="a")
        async def audit(self) -> None: ...

        @hf.step(also_depends_on="audit")
        async def b(self) -> None: ...

    async with engine_on(shared_url, before) as engine, engine.worker():
        handle = await engine.start(Yesterday())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=10)
    async with engine_on(shared_url, after) as engine:
        again = engine.get(handle.id)
        await again.resume()
        (b,) = [node for node in await again.nodes_with_state() if node.name == "b"]
        assert (b.state, b.attempt, b.detail) == ("blocked", 2, "1 of 2")
        assert "node b is blocked (1 of 2) since " in str(await again.explain())
        (row,) = await engine.store.runs([handle.id])
        shown, _ = await nodes_and_graph(engine, row, await work_of(engine, handle.id))
        assert [node.detail[:12] for node in shown if node.name == "b"] == ["1 of 2 since"]


async def test_i9_dead_letters_of_a_cancelled_run_wait_for_nobody(url: str) -> None:
    registry = hf.Registry()

    class Doomed(hf.Dag, registry=registry):
        @hf.step
        async def only(self) -> None:
            raise AssertionError("never run")

    async with engine_on(url, registry) as engine:
        handle = await engine.start(Doomed())
        await engine.maintenance(True)
    other = engine_on(url, hf.Registry(), unknown_after_seconds=0.05, sweep_seconds=0.02)
    if url.startswith("memory"):
        return  # another registry sees nothing of it
    async with other, other.worker():
        await other.maintenance(False)
        await until(lambda: _has_letters(other), "the work is buried")
        assert [letter.node for letter in await other.dead()] == ["only"]
        assert await other.get(handle.id).cancel()
        assert await other.dead() == []
        await assert_sound(other)


async def test_i28_an_attempt_is_found_by_its_ancestry_hash_also_in_a_fork(url: str) -> None:
    """The hash names one place in one history: what a fork shares has the same hash in both runs."""
    registry = hf.Registry()

    class Pair(hf.Dag, registry=registry):
        @hf.step
        async def first(self) -> None: ...

        @hf.step
        async def second(self) -> None: ...

    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(Pair())
        await handle.result(timeout=10)
        forked = await engine.fork(handle, from_node="second")
        await forked.result(timeout=10)
        (execution,) = await handle.step_executions("first")
        assert execution.ancestry_hash is not None
        found = await engine.find_executions(execution.ancestry_hash)
        assert [(run, each.name, each.attempt) for run, each in found] == [
            (run, "first", 1) for run in sorted([handle.id, forked.id])
        ]
        assert await engine.find_executions("0" * 64) == []


async def test_i30_a_failed_run_names_the_node_that_it_failed_for(url: str) -> None:
    """By the name that people know, of a class and of a built DAG; a function has no nodes."""
    registry = hf.Registry()

    class Order(hf.Dag, registry=registry, on_failure="fail"):
        @hf.step
        async def validate(self) -> None: ...

        @hf.step(name="charge the card")
        async def charge(self) -> None:
            raise ValueError("declined")

    @hf.action(registry=registry)
    async def decline() -> None:
        raise ValueError("declined")

    @hf.workflow(registry=registry)
    async def shop() -> None:
        raise ValueError("closed")

    built = hf.DagBuilder("built", registry=registry, on_failure="fail")
    built.node("charge", job=decline)
    wanted = [(Order(), "charge the card"), (built.build(), "charge"), (shop, None)]
    async with engine_on(url, registry) as engine, engine.worker():
        for workflow, node in wanted:
            handle = await engine.start(workflow)
            with pytest.raises(hf.RunFailed) as failed:
                await handle.result(timeout=10)
            assert failed.value.node == node


async def test_a_failure_that_has_a_fix_is_told_with_one_fix(url: str) -> None:
    """What the error says to do, and what to do about the run: in one sentence, and neither is lost."""
    registry = hf.Registry()

    class Order(hf.Dag, registry=registry):
        @hf.step
        async def charge(self) -> None:
            raise hf.UsageError("the amount is odd", hint="make it even")

    class Strict(Order, on_failure="fail"): ...

    @hf.workflow(registry=registry)
    async def shop() -> None:
        raise hf.UsageError("the amount is odd", hint="make it even")

    async with engine_on(url, registry) as engine, engine.worker():
        for workflow in (Order(), Strict(), shop):
            handle = await engine.start(workflow)
            with pytest.raises((hf.RunFailed, hf.RunPaused)) as told:
                await handle.result(timeout=10)
            assert str(told.value).count("Fix: ") == 1
            assert "the amount is odd" in told.value.message
            assert told.value.hint.startswith("make it even; ")


def test_i8_a_reason_is_not_cut_in_the_middle_of_the_ways_out() -> None:
    """Where they have no room the reason is the fact alone, and the error itself has them."""
    ways = "; ".join(f"({number}) do this or that" for number in range(100))
    letter = Work(run="r", node="a", attempt=1, workflow="Order", error=encode_error(hf.MissingJob("gone", hint=ways)))
    assert why(letter, "a") == "node a gave up after 1 attempt: MissingJob: gone"
    short = replace(letter, error=encode_error(hf.MissingJob("gone", hint="bring it back")))
    assert why(short, "a").endswith("MissingJob: gone. Fix: bring it back")
    theirs = replace(letter, error=encode_error(ValueError(f"odd. Fix: {ways}")))
    assert why(theirs, "a").startswith("node a gave up after 1 attempt: ValueError: odd. Fix: (0)")


async def _has_letters(engine: hf.Engine) -> bool:
    return bool(await engine.dead())
