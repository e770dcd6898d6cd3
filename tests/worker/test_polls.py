"""What polls for results ask for: all that is waited for if others may have written, and else nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.errors import StoreUnavailable
from holdfast.core.rows import Run
from holdfast.runtime import watch
from tests.worker.support import engine_on, until

SOON_SECONDS = 3.0


def make_registry() -> tuple[hf.Registry, Any]:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick(number: int) -> int:
        return number

    return registry, quick


class Polls:
    """Counts the polls of an engine, and what they ask for."""

    def __init__(self, engine: hf.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch, "FIRST_POLL_SECONDS", 0.005)
        monkeypatch.setattr(watch, "LAST_POLL_SECONDS", 0.005)
        monkeypatch.setattr(watch, "POLLS_FOR_EXISTENCE", 10**9)
        self.looks = 0
        self.asked: list[list[str]] = []
        self.away = False
        runs, foreign_writes = engine.store.runs, engine.store.foreign_writes

        async def counted_runs(ids: Sequence[str], *, settled: bool = False) -> list[Run]:
            self.asked.append(list(ids))
            if self.away:
                raise StoreUnavailable("away for a moment", hint="wait")
            return await runs(ids, settled=settled)

        async def counted_looks() -> int | None:
            self.looks += 1
            return await foreign_writes()

        monkeypatch.setattr(engine.store, "runs", counted_runs)
        monkeypatch.setattr(engine.store, "foreign_writes", counted_looks)

    async def go_by(self, number: int) -> None:
        enough = self.looks + number
        await until(lambda: self.looks >= enough, "polls go by")


async def test_k11_while_nobody_else_writes_to_a_file_nothing_is_asked_for_twice(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, quick = make_registry()
    starter, server = (engine_on(sqlite_url, registry, notify=False, hand_over=False) for _ in range(2))
    async with starter, server:
        polls = Polls(starter, monkeypatch)
        first, second = await starter.start(quick, 1), await starter.start(quick, 2)
        results = [asyncio.ensure_future(first.result())]
        await polls.go_by(3)
        assert polls.asked == [[first.id]]
        results.append(asyncio.ensure_future(second.result()))
        await polls.go_by(3)
        assert polls.asked == [[first.id], [second.id]]
        async with server.worker():
            assert await asyncio.wait_for(asyncio.gather(*results), SOON_SECONDS) == [1, 2]


async def test_k11_who_comes_with_a_row_that_is_out_of_date_is_asked_for(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K11: what another process wrote was seen by a poll before this one came, and was not for it then."""
    registry, quick = make_registry()
    starter, server = (engine_on(sqlite_url, registry, notify=False, hand_over=False) for _ in range(2))
    async with starter, server:
        polls = Polls(starter, monkeypatch)
        late = await starter.start(quick, 1, queue="nobody's")
        done = await starter.start(quick, 2)
        waiting = asyncio.ensure_future(late.result())
        await polls.go_by(2)
        async with server.worker():
            assert await server.get(done.id).result(timeout=SOON_SECONDS) == 2
        await polls.go_by(3)
        known = starter.coordinator.get_active(done.id)
        assert known is not None
        assert not known.ended
        assert await done.result(timeout=SOON_SECONDS) == 2
        waiting.cancel()


async def test_k11_what_a_poll_was_not_answered_is_asked_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, quick = make_registry()
    starter, server = (engine_on(sqlite_url, registry, notify=False, hand_over=False) for _ in range(2))
    async with starter, server:
        polls = Polls(starter, monkeypatch)
        run = await starter.start(quick, 1)
        polls.away = True
        result = asyncio.ensure_future(run.result())
        await polls.go_by(2)
        async with server.worker():
            assert await server.get(run.id).result(timeout=SOON_SECONDS) == 1
        await polls.go_by(2)
        polls.away = False
        assert await asyncio.wait_for(result, SOON_SECONDS) == 1


async def _ends(engine: hf.Engine, registry: hf.Registry, how: str) -> hf.Handle[Any]:
    @hf.workflow(name="goes on", registry=registry)
    async def goes_on(number: int) -> int:
        return number if number else hf.continue_as(goes_on, 1)

    @hf.workflow(name="fails", registry=registry)
    async def fails() -> None:
        raise ValueError(how)

    async with engine.worker():
        handle: hf.Handle[Any] = await (engine.start(goes_on, 0) if how == "goes on" else engine.start(fails))
        await until(lambda: engine.get_active(handle.id) is None, "it has ended")
    return handle


@pytest.mark.parametrize("how", ["goes on", "fails"])
async def test_k11_what_is_left_to_read_when_a_run_has_ended_is_read_when_the_store_is_back(
    url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by an immediate stop: a lost connection ended what had waited through all others."""
    registry = hf.Registry()
    async with engine_on(url, registry) as engine:
        handle = await _ends(engine, registry, how)
        rows, tries = engine.store.rows, 0

        async def away_at_first(need: Any) -> list[Any]:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise StoreUnavailable("away for a moment", hint="wait")
            return await rows(need)

        monkeypatch.setattr(engine.store, "rows", away_at_first)
        if how == "goes on":
            assert await handle.result(timeout=SOON_SECONDS) == 1
        else:
            with pytest.raises(hf.RunFailed, match="fails"):
                await handle.result(timeout=SOON_SECONDS)
        assert tries >= 3
        tries = -1000
        with pytest.raises(TimeoutError, match="has ended, but the store did not tell"):
            await handle.result(timeout=0.3)


async def test_k11_an_engine_that_is_closed_does_not_wait_for_its_store_any_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = hf.Registry()
    async with engine_on(url, registry) as engine:
        handle = await _ends(engine, registry, "goes on")
        asked = asyncio.Event()

        async def away(need: Any) -> list[Any]:
            asked.set()
            raise StoreUnavailable("away for good", hint="wait")

        monkeypatch.setattr(engine.store, "rows", away)
        result = asyncio.ensure_future(handle.result())
        await asked.wait()
    with pytest.raises(hf.EngineClosed):
        await asyncio.wait_for(result, SOON_SECONDS)
