"""`engine.settle` and `parity`: on every store, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import parity

DEADLINE_SECONDS = 20.0


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory://"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


class World:
    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.done: list[str] = []
        self.may_end = asyncio.Event()

        @hf.action(registry=self.registry)
        async def write(word: str) -> str:
            self.done.append(word)
            return word.upper()

        @hf.action(registry=self.registry)
        async def hold() -> None:
            await self.may_end.wait()

        @hf.workflow(registry=self.registry)
        async def child(word: str) -> str:
            return await write(word)

        @hf.workflow(registry=self.registry)
        async def family(words: list[str]) -> str:
            said = await asyncio.gather(*(child(word) for word in words))
            await hf.wait_for("more")
            return "".join(said)

        @hf.workflow(registry=self.registry)
        async def sums(numbers: list[int]) -> int:
            total = 0
            for number in numbers:
                total += len(await write("x" * number))
            if not numbers:
                raise ValueError("nothing to add")
            return total

        self.write, self.hold, self.family, self.sums = write, hold, family, sums

    def engine(self, url: str) -> hf.Engine:
        return hf.Engine(url, registry=self.registry, poll_seconds=0.05)


@pytest.fixture
def world() -> World:
    return World()


async def test_settle_returns_when_all_that_can_happen_has_happened(url: str, world: World) -> None:
    """Children and their actions are done, and the run that waits for an event is left waiting."""
    async with world.engine(url) as engine, engine.worker():
        run = await engine.start(world.family, ["a", "b", "c"])
        later = await engine.start(world.write, "later", paused=True)
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert sorted(world.done) == ["a", "b", "c"]
        assert (await run.status(), await later.status()) == ("suspended", "paused")
        await engine.send("more", to=run)
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await run.status() == "completed"


async def test_settle_says_what_still_runs_when_its_time_is_up(url: str, world: World) -> None:
    async with world.engine(url) as engine, engine.worker():
        run = await engine.start(world.hold)
        with pytest.raises(TimeoutError, match=f"not settled after 0.05 s: hold of run {run.id} is running"):
            await engine.settle(timeout=0.05)
        world.may_end.set()
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert await run.status() == "completed"


async def test_settle_does_not_wait_for_what_nobody_will_ever_do(url: str, world: World) -> None:
    """Work without a worker is told, with the line to write; work that a person holds back is left alone."""
    async with world.engine(url) as engine:
        run = await engine.start(world.write, "x", queue="nightly")
        with pytest.raises(hf.UsageError, match=f"write of run {run.id} on queue nightly") as refused:
            await engine.settle(timeout=DEADLINE_SECONDS)
        assert "engine.worker(queues=['nightly'])" in refused.value.hint
        await engine.maintenance(True, queue="nightly")
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert world.done == []


async def test_who_runs_cannot_wait_for_the_end_of_what_runs(world: World) -> None:
    """An action that settles would wait for itself."""
    engines: list[hf.Engine] = []

    @hf.action(registry=world.registry)
    async def settles() -> None:
        await engines[0].settle()

    async with world.engine("memory://") as engine, engine.worker():
        engines.append(engine)
        with pytest.raises(hf.RunFailed, match="settles, which would wait for itself"):
            await engine.run(settles, timeout=DEADLINE_SECONDS)


async def test_plain_asyncio_and_every_store_come_to_the_same_end(world: World, postgres_url: str) -> None:
    """A workflow is an ordinary function: with the same result, or the same error."""
    stores = ["memory://", "sqlite://", postgres_url]
    assert await parity(world.sums, [3, 4], stores=stores, registry=world.registry) == 7
    with pytest.raises(ValueError, match="nothing to add"):
        await parity(world.sums, [], stores=stores, registry=world.registry)
    assert await parity(world.write, "word", registry=world.registry) == "WORD"


async def test_parity_shows_who_differs(world: World) -> None:
    """A function that looks at something of its process ends otherwise elsewhere."""
    seen: list[int] = []

    @hf.workflow(registry=world.registry)
    async def counts_itself() -> int:
        seen.append(1)
        return len(seen)

    with pytest.raises(AssertionError) as differs:
        await parity(counts_itself, registry=world.registry)
    for line in ("counts_itself()", "plain asyncio: returned 1", "memory://: returned 2", "sqlite://: returned 3"):
        assert line in str(differs.value)


async def test_parity_tells_a_value_from_what_only_looks_equal(world: World) -> None:
    """1.0 and 1 are equal to Python, and not to whoever reads the result."""

    @hf.workflow(registry=world.registry)
    async def rounds() -> float:
        return 1

    with pytest.raises(AssertionError, match=r"plain asyncio: returned 1\n.*memory://: returned 1\.0\n"):
        await parity(rounds, registry=world.registry)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: parity(print), "builtin_function_or_method"),
        (lambda: parity(World().write, "x", stores="memory://"), "memory://"),
        (lambda: parity(World().write, "x", stores=[]), r"\[\]"),
    ],
)
async def test_parity_of_what_cannot_be_compared_is_refused(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(hf.UsageError, match=named):
        await call()
