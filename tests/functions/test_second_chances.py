"""What an operator's retry means for a function, and what is said of one whose history grows long."""

from __future__ import annotations

import logging

import pytest

import holdfast as hf
from holdfast.runtime import function_run
from tests.worker.support import assert_sound, engine_on


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


async def test_i11_a_failure_that_the_function_acted_upon_stays_in_its_history(shared_url: str) -> None:
    """It has rolled back: what it did then is recorded too, and a retry fails as it did, with nothing done twice."""
    registry, calls = hf.Registry(), list[str]()

    @hf.action(registry=registry)
    async def charge() -> None:
        calls.append("charge")
        raise ConnectionError("the line is down")

    @hf.action(registry=registry)
    async def release() -> None:
        calls.append("release")

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
