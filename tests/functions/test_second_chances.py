"""What an operator's retry means for a function, and what is said of one whose history grows long."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import holdfast as hf
from holdfast.runtime import function_run
from tests.worker.support import assert_sound, engine_on, work_of


async def test_i11_a_retry_tries_the_call_again_whose_failure_ended_the_function(shared_url: str) -> None:
    """I11: what was recorded before stays; the failed call is made anew, and the function goes on after it."""
    registry, calls = hf.Registry(), list[str]()
    broken = True

    @hf.action(registry=registry)
    async def first() -> str:
        calls.append("first")
        return "one"

    @hf.action(registry=registry)
    async def second() -> str:
        calls.append("second")
        if broken:
            raise ConnectionError("the line is down")
        return "two"

    @hf.workflow(registry=registry)
    async def both() -> str:
        return f"{await first()} {await second()}"

    async with engine_on(shared_url, registry) as engine, engine.worker():
        handle = await engine.start(both)
        with pytest.raises(hf.RunFailed, match="the line is down"):
            await handle.result(timeout=10)
        broken = False
        assert await handle.retry() == ["both"]
        assert await handle.result(timeout=10) == "one two"
        assert calls == ["first", "second", "second"]
        assert [entry.kind for entry in await handle.history()] == ["result", "forgotten", "retried", "result"]
        await assert_sound(engine)


@pytest.mark.parametrize("fails", [False, True])
async def test_i11_a_failure_that_the_function_acted_upon_stays_in_its_history(shared_url: str, fails: bool) -> None:
    """It has rolled back: what it did then, or failed to do, is recorded too, and a retry fails as it did, with nothing
    done twice."""
    registry, calls = hf.Registry(), list[str]()

    @hf.action(registry=registry)
    async def charge() -> None:
        calls.append("charge")
        raise ConnectionError("the line is down")

    @hf.action(registry=registry)
    async def release() -> None:
        calls.append("release")
        if fails:
            raise LookupError("nothing is reserved")

    @hf.workflow(registry=registry)
    async def order() -> None:
        hf.on_rollback(release)
        await charge()

    async with engine_on(shared_url, registry) as engine, engine.worker():
        handle = await engine.start(order)
        for _ in range(2):
            with pytest.raises(hf.RunFailed, match="the line is down"):
                await handle.result(timeout=10)
            assert calls == ["charge", "release"]
            await handle.retry()
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=10)
        await assert_sound(engine)


class Shop:
    """Actions that fail while the line is down, and what was called."""

    def __init__(self) -> None:
        self.registry, self.calls, self.is_down = hf.Registry(), list[str](), True

        @hf.action(registry=self.registry)
        async def charge(card: str) -> str:
            self.calls.append(f"charge {card}")
            if self.is_down:
                raise ConnectionError(f"the line is down for {card}")
            return card

        @hf.action(registry=self.registry, queue="elsewhere", retry=hf.Retry(attempts=2, base=0.01))
        async def charge_elsewhere(card: str) -> str:
            return await charge.fn(card)

        @hf.action(registry=self.registry)
        async def note(word: str) -> str:
            self.calls.append(f"note {word}")
            return word

        self.charge, self.charge_elsewhere, self.note = charge, charge_elsewhere, note

    async def try_twice(self, url: str, workflow: Any) -> tuple[Any, list[str]]:
        """What a run gives that failed while the line was down, and what was called after it was tried again."""
        async with engine_on(url, self.registry) as engine, engine.worker(queues=["default", "elsewhere"]):
            handle = await engine.start(workflow)
            for time in range(2):  # the second failure is as good as the first
                with pytest.raises(hf.RunFailed, match="the line is down"):
                    await handle.result(timeout=10)
                self.calls.clear()
                self.is_down = time == 0
                assert await handle.retry() == [workflow.name]
            result = await handle.result(timeout=10)
            await assert_sound(engine)
            return result, sorted(self.calls)


async def test_i11_of_calls_that_failed_beside_each_other_all_are_made_again(shared_url: str) -> None:
    """The function ended with the first of them, and the others came in behind it."""
    shop = Shop()

    @hf.workflow(registry=shop.registry)
    async def both() -> list[str]:
        return await asyncio.gather(shop.charge("one"), shop.charge("two"), shop.charge_elsewhere("three"))

    assert await shop.try_twice(shared_url, both) == (
        ["one", "two", "three"],
        ["charge one", "charge three", "charge two"],
    )


async def test_i11_calls_that_failed_at_once_are_all_made_again(shared_url: str) -> None:
    """Both failures are recorded in one commit, and the function ended with the first."""
    registry, calls = hf.Registry(), list[str]()
    everybody, is_down = asyncio.Barrier(2), True

    @hf.action(registry=registry)
    async def charge(card: str) -> str:
        calls.append(card)
        if is_down:
            await everybody.wait()
            raise ConnectionError("the line is down")
        return card

    @hf.workflow(registry=registry)
    async def both() -> list[str]:
        return await asyncio.gather(charge("one"), charge("two"))

    async with engine_on(shared_url, registry) as engine, engine.worker():
        handle = await engine.start(both)
        with pytest.raises(hf.RunFailed, match="the line is down"):
            await handle.result(timeout=10)
        assert [entry.kind for entry in await handle.history()] == ["failure", "failure"]
        is_down = False
        calls.clear()
        assert await handle.retry() == ["both"]
        assert await handle.result(timeout=10) == ["one", "two"]
        assert sorted(calls) == ["one", "two"]
        await assert_sound(engine)


@pytest.mark.parametrize("first", ["result", "failure"])
async def test_i11_a_result_that_was_recorded_beside_a_failure_is_kept(shared_url: str, first: str) -> None:
    """It is not called again, whether it came in before the failure that ended the function or behind it."""
    registry, calls = hf.Registry(), list[str]()
    everybody, is_down = asyncio.Barrier(2), True

    @hf.action(registry=registry)
    async def result() -> str:
        calls.append("result")
        await everybody.wait()
        return "one"

    @hf.action(registry=registry)
    async def failure() -> str:
        calls.append("failure")
        if is_down:
            await everybody.wait()
            raise ConnectionError("the line is down")
        return "two"

    @hf.workflow(registry=registry)
    async def both() -> list[str]:
        # Who comes last to the barrier passes it first.
        called = [failure(), result()] if first == "result" else [result(), failure()]
        return sorted(await asyncio.gather(*called))

    async with engine_on(shared_url, registry) as engine, engine.worker():
        handle = await engine.start(both)
        with pytest.raises(hf.RunFailed, match="the line is down"):
            await handle.result(timeout=10)
        kinds = ["result", "failure"] if first == "result" else ["failure", "result"]
        assert [entry.kind for entry in await handle.history()] == kinds
        is_down = False
        calls.clear()
        assert await handle.retry() == ["both"]
        assert await handle.result(timeout=10) == ["one", "two"]
        assert calls == ["failure"]
        await assert_sound(engine)


async def test_i11_a_task_group_goes_on_whole(shared_url: str) -> None:
    """What the failure had cancelled in it goes on to its end."""
    shop = Shop()

    @hf.workflow(registry=shop.registry)
    async def group() -> list[str]:
        async def slowly() -> str:
            await hf.sleep(seconds=0.05)
            return await shop.note("slowly")

        try:
            async with asyncio.TaskGroup() as tasks:
                made = [tasks.create_task(shop.charge("one")), tasks.create_task(slowly())]
        except* ConnectionError as failures:
            raise failures.exceptions[0]  # noqa: B904
        return [task.result() for task in made]

    result, calls = await shop.try_twice(shared_url, group)
    assert result == ["one", "slowly"]
    assert calls[0] == "charge one"  # the time may have come before, while the line was still down


async def test_i11_a_parent_that_is_tried_again_looks_at_its_child_again(shared_url: str) -> None:
    """I1: what it was told of a failure stays told until an operator has the parent itself tried again."""
    shop = Shop()

    @hf.workflow(registry=shop.registry)
    async def child() -> str:
        return await shop.charge("one")

    @hf.workflow(registry=shop.registry)
    async def parent() -> str:
        return await child()

    async with engine_on(shared_url, shop.registry) as engine, engine.worker():
        handle = await engine.start(parent)
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=10)
        await handle.retry()
        with pytest.raises(hf.RunFailed, match="the line is down"):  # the child has failed, as before
            await handle.result(timeout=10)
        shop.is_down = False
        (failed,) = await engine.find(workflow="child")
        await engine.get(failed.id).retry()
        assert await engine.get(failed.id).result(timeout=10) == "one"
        assert await handle.status() == "failed"
        await handle.retry()
        assert await handle.result(timeout=10) == "one"
        assert shop.calls == ["charge one", "charge one"]
        await assert_sound(engine)


async def test_i11_a_retry_that_calls_nothing_again_says_so(shared_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """What the function did after the failure may have undone what it did before: it is not taken up in between."""
    shop = Shop()

    @hf.workflow(registry=shop.registry)
    async def tidy() -> str:
        try:
            return await shop.charge("one")
        finally:
            await shop.note("unlocked")

    async with engine_on(shared_url, shop.registry) as engine, engine.worker():
        handle = await engine.start(tidy)
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=10)
        assert "tried again" not in caplog.text
        shop.is_down = False
        await handle.retry()
        with pytest.raises(hf.RunFailed, match="the line is down"):
            await handle.result(timeout=10)
        assert shop.calls == ["charge one", "note unlocked"]
        assert "of tidy was tried again: it failed as before, and nothing was called again" in caplog.text
        (row,) = await engine.store.runs([handle.id])
        assert b"nothing was called again" in (row.error or b"")
        await assert_sound(engine)


async def test_a_long_history_is_warned_of_with_the_way_out(
    sqlite_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it hurts, and not at every step: once at the limit, again when it has doubled."""
    monkeypatch.setattr(function_run, "LONG_HISTORY", 5)
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def step() -> None: ...

    @hf.workflow(registry=registry)
    async def long() -> None:
        for _ in range(12):
            await step()

    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        async with engine_on(sqlite_url, registry) as engine, engine.worker():
            await engine.run(long, timeout=10)
    told = [record.getMessage() for record in caplog.records if "entries" in record.getMessage()]
    assert [message.split(" has recorded ")[1].split()[0] for message in told] == ["5", "10"]
    assert all("hf.continue_as" in message for message in told)


async def test_i48_calls_that_a_failing_run_had_queued_are_queued_again_when_it_is_retried(shared_url: str) -> None:
    """I48, I11: a call in the work table ends with its run, and a retried run asks for it once more."""
    registry, broken, done = hf.Registry(), [True], list[str]()

    @hf.action(queue="elsewhere", registry=registry)
    async def far_away() -> str:
        done.append("far away")
        return "far away"

    @hf.action(registry=registry)
    async def nearby() -> str:
        if broken:
            raise ValueError("broken")
        return "nearby"

    @hf.workflow(registry=registry)
    async def both() -> list[str]:
        return list(await asyncio.gather(far_away(), nearby()))

    async with engine_on(shared_url, registry) as engine:
        async with engine.worker():
            handle = await engine.start(both)
            with pytest.raises(hf.RunFailed, match="broken"):
                await handle.result(timeout=20)
            assert [(work.node, work.status) for work in await work_of(engine, handle.id, "1#1")] == [
                ("1#1", "cancelled")
            ]
            broken.clear()
            await handle.retry()
        async with engine.worker(queues=["elsewhere", "default"]):
            assert await handle.result(timeout=20) == ["far away", "nearby"]
        assert done == ["far away"]
        await assert_sound(engine)


async def test_i48_a_call_on_another_queue_that_failed_the_run_is_tried_again_by_a_retry(sqlite_url: str) -> None:
    """I11: its failure is forgotten, as for a call in the function's own process."""
    registry, broken = hf.Registry(), [True]

    @hf.action(queue="elsewhere", registry=registry)
    async def far_away() -> str:
        if broken:
            raise ValueError("broken")
        return "far away"

    @hf.workflow(registry=registry)
    async def alone() -> str:
        return await far_away()

    async with engine_on(sqlite_url, registry) as engine, engine.worker(queues=["elsewhere", "default"]):
        handle = await engine.start(alone)
        with pytest.raises(hf.RunFailed, match="broken"):
            await handle.result(timeout=20)
        broken.clear()
        await handle.retry()
        assert await handle.result(timeout=20) == "far away"
        await assert_sound(engine)
