"""Who is told of commits, and when: nobody waits for what only counts, and that is not kept waiting for long."""

from __future__ import annotations

import asyncio
import logging

import pytest

import holdfast as hf
from holdfast.audience import Audience
from holdfast.authoring.registry import Registry
from holdfast.batches import Commit, Spent
from holdfast.core.operations import CompleteWork
from holdfast.core.view import Changes


def commit(now: int) -> Commit:
    return Commit(now, Changes(), [], Spent(), locked=False)


def test_spectators_hear_of_every_commit_once_and_in_order() -> None:
    """With another one following at once they hear of it later, and before that one."""
    audience = Audience()
    observed: list[int] = []
    watched: list[int] = []
    audience.observers.append(lambda commit: observed.append(commit.now))
    audience.spectators.append(lambda commit: watched.append(commit.now))
    audience.owe([], commit(1))
    audience.tell(another_follows=True)
    assert (observed, watched) == ([1], [])
    audience.owe([], commit(2))
    audience.tell()
    assert (observed, watched) == ([1, 2], [1, 2])
    audience.owe([], commit(3))
    audience.tell(another_follows=True)
    audience.catch_up()
    audience.catch_up()
    assert watched == [1, 2, 3]


def test_whoever_tells_of_a_later_commit_tells_of_those_before_it_first() -> None:
    """A hint may be on its way while nobody here has heard of its commit, and a claim or another commit come then."""
    audience = Audience()
    observed: list[int] = []
    audience.observers.append(lambda commit: observed.append(commit.now))
    audience.owe([], commit(1))
    audience.owe([], commit(2))
    audience.tell()
    audience.tell()
    assert observed == [1, 2]


def test_a_spectator_that_raises_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    audience = Audience()
    watched: list[int] = []
    audience.spectators += [lambda commit: 1 // 0, lambda commit: watched.append(commit.now)]  # type: ignore[func-returns-value, list-item]
    with caplog.at_level(logging.ERROR):
        audience.owe([], commit(1))
        audience.tell()
    assert watched == [1]
    assert "an observer of commits raised" in caplog.text


def chain(registry: Registry, last: asyncio.Event | None = None) -> type[hf.Dag]:
    """Four steps, of which the last waits until somebody lets it end."""

    class Chain(hf.Dag, registry=registry):
        @hf.step
        async def a(self) -> None: ...

        @hf.step
        async def b(self) -> None: ...

        @hf.step
        async def c(self) -> None: ...

        @hf.step
        async def d(self) -> None:
            if last is not None:
                await last.wait()

    return Chain


async def test_what_counts_has_counted_everything_when_the_result_is_there(url: str) -> None:
    """The last commit hands nothing over, so that nobody waits for another one to be told of it."""
    registry = Registry()
    dag = chain(registry)
    settled: list[str] = []
    async with hf.Engine(url, registry=registry) as engine, engine.worker():

        def note(commit: Commit) -> None:
            settled.extend(operation.node for operation, _ in commit.pairs if isinstance(operation, CompleteWork))

        engine.coordinator.audience.spectators.append(note)
        for number in range(1, 4):
            await engine.run(dag(), timeout=30)
            assert settled == ["a", "b", "c", "d"] * number


async def test_a_long_step_does_not_keep_spectators_waiting(url: str) -> None:
    """They hear that it began while it runs, although nothing else is committed meanwhile."""
    registry = Registry()
    heard = asyncio.Event()
    dag = chain(registry, last=heard)
    async with hf.Engine(url, registry=registry) as engine, engine.worker():

        def note(commit: Commit) -> None:
            if any(isinstance(operation, CompleteWork) and operation.node == "c" for operation, _ in commit.pairs):
                heard.set()

        engine.coordinator.audience.spectators.append(note)
        await engine.run(dag(), timeout=30)


async def test_k9_who_is_cancelled_while_a_hint_leaves_has_told_of_what_is_committed(url: str) -> None:
    """The commit is made: its caller must not hear that the engine was closed before that."""
    registry = Registry()
    dag = chain(registry)
    async with hf.Engine(url, registry=registry) as engine:

        def cancel_the_coordinator(commit: Commit) -> bool:
            engine.coordinator.audience.heralds.remove(cancel_the_coordinator)
            for task in asyncio.all_tasks():
                if task.get_name() == "holdfast-coordinator":
                    task.cancel()
            return True

        engine.coordinator.audience.heralds.append(cancel_the_coordinator)
        handle = await engine.start(dag())
        assert await handle.status() == "pending"
        async with engine.worker():
            await handle.result(timeout=30)
