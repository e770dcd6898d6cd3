"""Changes as they happen: told within a second, told again after a lost connection, and not looked for in vain."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import holdfast as hf
from holdfast.web import create_app, live
from holdfast.web.refusals import Refused
from tests.support.pace import longer
from tests.web.client import API, Client, Event
from tests.web.world import populated, registry, world


async def _until(ear: Any, run: str, status: str) -> Event:
    while True:
        event: Event = await ear.next()
        if any(change["id"] == run and change["status"] == status for change in event.data["changed"]):
            return event


async def test_every_client_hears_of_a_change_within_a_second(store_url: str) -> None:
    """Twenty clients, one poller."""
    async with world(store_url) as here:
        ears: list[Any] = []

        async def listen(number: int) -> float:
            async with here.client.listening(f"{API}/live") as ear:
                ears.append(ear)
                if len(ears) == 20:
                    all_there.set()
                await started.wait()
                await _until(ear, runs[0], "completed")
                return time.monotonic()

        all_there, started = asyncio.Event(), asyncio.Event()
        runs: list[str] = []
        tasks = [asyncio.create_task(listen(number)) for number in range(20)]
        await asyncio.wait_for(all_there.wait(), 10)
        runs.append((await here.engine.start("add", 1)).id)
        started.set()
        await here.engine.get(runs[0]).result(timeout=10)
        ended = time.monotonic()
        heard = await asyncio.gather(*tasks)
        assert max(heard) - ended < 1.0
        assert ears[0].headers["content-type"].startswith("text/event-stream")
        assert ears[0].headers["x-accel-buffering"] == "no"
        assert here.app.state.holdfast.live.clients == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_changes_of_another_process_are_heard_too(kind: str, request: pytest.FixtureRequest) -> None:
    """The page runs beside workers, not in them."""
    url = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url")
    async with world(url) as here, hf.Engine(url, registry=hf.Registry()) as other:
        app = create_app(other)
        async with Client(app).listening(f"{API}/live") as ear:
            await ear.next()
            run = (await here.engine.start("add", 1)).id
            began = time.monotonic()
            await _until(ear, run, "completed")
            assert time.monotonic() - began < longer(2.0)
            paused = (await here.engine.start("approval", 1)).id
            await here.engine.settle(timeout=10)
            await here.engine.get(paused).pause()
            await _until(ear, paused, "paused")
        await app.state.holdfast.close()


async def test_who_follows_one_run_hears_of_that_run_alone(store_url: str) -> None:
    """Also of attempts that begin, which change no row of the run."""
    async with populated(store_url) as here:
        run = here.runs["approval"]
        listening = here.client.listening
        async with listening(f"{API}/live", run=run) as ear, listening(f"{API}/live") as other:
            first = await ear.next()
            assert (first.name, first.data["id"]) == ("run", run)
            await _until(other, (await here.engine.start("add", 1)).id, "completed")
            await here.engine.send("approved", 3, to=run)
            second = await ear.next()
            assert (second.name, second.data["id"]) == ("run", run)
            assert second.data["version"] > first.data["version"]


async def test_a_client_that_lost_its_connection_gets_what_it_missed() -> None:
    """Last-Event-ID leads to the next event; without a gap nothing is lost, and beyond the ring everything is."""
    async with world("memory://") as here:
        async with here.client.listening(f"{API}/live") as keeping:  # somebody else listens all the time
            await keeping.next()
            async with here.client.listening(f"{API}/live") as ear:
                await ear.next()
                first = await here.engine.start("add", 1)
                last = await _until(ear, first.id, "completed")
            missed = (await here.engine.start("add", 2)).id
            await _until(keeping, missed, "completed")
            async with here.client.listening(f"{API}/live", headers={"last-event-id": last.id}) as again:
                await _until(again, missed, "completed")
            for unknown in ("other-1", "", "x", f"{last.id}99999"):
                async with here.client.listening(f"{API}/live", headers={"last-event-id": unknown}) as lost:
                    assert (await lost.next()).name == "reset"
        async with here.client.listening(f"{API}/live", headers={"last-event-id": last.id}) as alone:
            assert (await alone.next()).name == "reset"  # nobody listened in between, so nobody looked


async def test_nobody_looks_while_nobody_listens() -> None:
    """A page that is closed costs the store nothing."""
    async with world("memory://") as here:
        hub = here.app.state.holdfast.live
        await here.client.get(f"{API}/me")
        await here.engine.run("add", 1)
        assert hub.looks == 0
        async with here.client.listening(f"{API}/live") as ear:
            await ear.next()
            assert hub.looks >= 1
        assert hub._poller is None


async def test_a_client_that_does_not_read_is_dropped_and_may_come_back() -> None:
    """A slow client holds nobody up and takes no memory."""
    listener = live.Listener(None)
    for number in range(live.UNREAD + 5):
        listener.tell(live.Told(number, "runs", b"{}", None))
    assert listener.dropped
    assert listener.unread.qsize() == 1
    assert listener.unread.get_nowait() is None


async def test_there_are_so_many_streams_and_no_more() -> None:
    """Streams are not free, and a program may forget to close them."""
    async with hf.Engine("memory://", registry=registry) as engine:
        app = create_app(engine, most_clients=2)
        client = Client(app)
        async with client.listening(f"{API}/live") as one, client.listening(f"{API}/live") as two:
            assert (one.status, two.status) == (200, 200)
            refused = await client.get(f"{API}/live")
            assert (refused.status, refused.error["type"]) == (429, "TooManyStreams")
        async with client.listening(f"{API}/live") as again:
            assert again.status == 200
        assert (await client.request("HEAD", f"{API}/live")).status == 200


async def test_streams_end_at_once_when_the_server_stops() -> None:
    """Otherwise a stop would wait for whoever has the page open."""
    async with hf.Engine("memory://", registry=registry) as engine:
        app = create_app(engine)
        async with Client(app).listening(f"{API}/live") as ear:
            await ear.next()
            await app.state.holdfast.live.close()
            await asyncio.wait_for(ear.ended.wait(), 2)
        with pytest.raises(Refused):
            await anext(app.state.holdfast.live.stream(None, None))


async def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies close what says nothing."""
    monkeypatch.setattr(live, "TICK_SECONDS", 0.01)
    async with hf.Engine("memory://", registry=registry) as engine:
        app = create_app(engine)
        async with Client(app).listening(f"{API}/live") as ear:
            await ear.next()
            said = [await asyncio.wait_for(ear.comments.get(), 10) for _ in range(2)]
            assert said[0] == "holdfast"
            assert said[1].startswith("tick")
        await app.state.holdfast.close()


async def test_more_open_runs_than_are_compared_are_told_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever shows a list looks again, whatever it was that changed."""
    monkeypatch.setattr(live, "COMPARED", 3)
    monkeypatch.setattr(live, "TOLD_AGAIN_SECONDS", 0.0)
    async with hf.Engine("memory://", registry=registry) as engine:
        for _ in range(5):
            await engine.start("add", 1, paused=True)
        app = create_app(engine)
        async with Client(app).listening(f"{API}/live") as ear:
            await ear.next()
            event = await ear.next()
            assert event.data == {"changed": [], "counts": True}
        await app.state.holdfast.close()
