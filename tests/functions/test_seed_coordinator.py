"""Seed 004 as its reader would try it: its operations, its results, its recovery, through an engine, on every store.

What happens when two of them come at the same instant is in test_interleavings.py; that batches of them equal one by
one is in test_batches.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.coordinator import Commit
from holdfast.core.function_operations import TURN, Delivered, Queued, entry_of
from holdfast.core.queries import WaitsOf
from tests.functions.kernel_moves import broadcast, cancel, send, start, suspend
from tests.kernel.kernels import make_coordinator, opened_kernel
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, every_row, site_for
from tests.worker.support import assert_sound, counted, engine_on, statuses, until, work_of


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


class World:
    """Workflows that wait, in a registry of their own, and what their actions did."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.done: list[str] = []
        registry = self.registry

        @hf.action(registry=registry)
        async def do(what: str) -> str:
            self.done.append(what)
            return what

        @hf.action(queue="nobody serves this", registry=registry)
        async def elsewhere() -> None: ...

        @hf.workflow(registry=registry)
        async def waits(names: list[str]) -> list[Any]:
            """Take an event of any of these names, then say which it was and what it held."""
            received = await hf.wait_for(hf.any_of(*names))
            return [received.event, received.value]

        @hf.workflow(registry=registry)
        async def waits_until(seconds: float) -> list[str]:
            outcome = await hf.wait_for(hf.any_of("come", hf.after(timedelta(seconds=seconds))))
            first = await do(type(outcome).__name__)
            second = await hf.wait_for("come")
            return [first, second.value]

        @hf.workflow(registry=registry)
        async def counts(left: int) -> str:
            await do(f"count {left}")
            if left:
                hf.continue_as(counts, left - 1)
            await hf.wait_for("come")
            return "none left"

        @hf.workflow(registry=registry)
        async def undoes() -> None:
            hf.on_rollback(do, "undone")
            await asyncio.gather(hf.wait_for("come"), elsewhere(), hf.wait_for(hf.after(days=1)))

        self.waits, self.waits_until, self.counts, self.undoes = waits, waits_until, counts, undoes

    def engine(self, url: str, **settings: Any) -> hf.Engine:
        return engine_on(url, self.registry, **settings)


async def suspended(handle: hf.Handle[Any]) -> None:
    async def is_suspended() -> bool:
        return await handle.status() == "suspended"

    await until(is_suspended, "the run is suspended")


# --- sending and broadcasting ------------------------------------------------------------------------------------


async def test_i52_a_targeted_send_has_one_of_four_results(url: str) -> None:
    """I52: delivered to who waits, queued for who does not yet, refused for who has ended or never was."""
    world = World()
    async with world.engine(url) as engine:
        early = await engine.start(world.waits, ["come"])
        assert await engine.send("come", 1, to=early, id="first") == hf.Queued("first")
        async with engine.worker():
            assert await early.result(timeout=20) == ["come", 1]
            late = await engine.start(world.waits, ["come"])
            await suspended(late)
            assert await engine.send("come", 2, to=late) == hf.Delivered(late.id)
            assert await late.result(timeout=20) == ["come", 2]
        assert await engine.send("come", 3, to=late) == hf.TargetEnded("completed")
        assert await engine.send("come", 4, to="no-such-run") == hf.TargetNotFound()
        await assert_sound(engine)


async def test_i52_a_broadcast_reaches_who_has_waited_longest_or_all_or_is_kept(url: str) -> None:
    """I52, G5: one event, one taker; with to_all every waiter; with no waiter the next one."""
    world = World()
    async with world.engine(url) as engine, engine.worker():
        first, second, third = [await engine.start(world.waits, ["come"]) for _ in range(3)]
        longest = []
        for handle in (first, second, third):
            await suspended(handle)
            longest.append((min(wait.since for wait in await handle.waits()), handle.id))
        told = await engine.broadcast("come", "one")
        assert told == hf.Delivered(min(longest)[1], (min(longest)[1],))
        others = sorted({first.id, second.id, third.id} - {min(longest)[1]})
        told = await engine.broadcast("come", "both", to_all=True)
        assert isinstance(told, hf.Delivered)
        assert sorted(told.runs) == others
        assert sorted([(await handle.result(timeout=20))[1] for handle in (first, second, third)]) == [
            "both",
            "both",
            "one",
        ]
        assert await engine.broadcast("come", "kept", id="kept") == hf.Queued("kept")
        assert await engine.run(world.waits, ["come"], timeout=20) == ["come", "kept"]


async def test_i51_a_new_wait_takes_targeted_before_broadcast_and_of_each_the_oldest_of_all_names(url: str) -> None:
    """I51: looked up and taken in the operation that suspends, so that nothing can come in between."""
    world = World()
    names = ["amber", "blue"]
    async with world.engine(url) as engine:
        runs = [await engine.start(world.waits, names) for _ in range(2)]
        await engine.broadcast("amber", "broadcast first")
        await engine.broadcast("blue", "broadcast second")
        await engine.send("blue", "sent first", to=runs[0])
        await engine.send("amber", "sent second", to=runs[0])
        async with engine.worker():
            assert await runs[0].result(timeout=20) == ["blue", "sent first"]
            assert await runs[1].result(timeout=20) == ["amber", "broadcast first"]
            assert await engine.run(world.waits, names, timeout=20) == ["blue", "broadcast second"]


async def test_i12_the_senders_id_applies_an_event_once(url: str) -> None:
    """I12: the second send of an id has the first one's answer and no effect, for a run and for a broadcast."""
    world = World()
    async with world.engine(url) as engine, engine.worker():
        handle = await engine.start(world.waits_until, 86_400.0)
        await suspended(handle)
        assert await engine.send("come", "a", to=handle, id="x") == hf.Delivered(handle.id)
        assert await engine.send("come", "a", to=handle, id="x") == hf.Delivered(handle.id)
        await suspended(handle)  # at its second wait: nothing of the first is left for it
        assert isinstance(await engine.broadcast("come", "b", id="x"), hf.Delivered)
        assert await handle.result(timeout=20) == ["Received", "b"]
        other = await engine.start(world.waits, ["come"])
        await suspended(other)
        assert await engine.broadcast("come", "b", id="x") == hf.Delivered(handle.id, (handle.id,))
        assert await other.status() == "suspended"


# --- suspending, timers ------------------------------------------------------------------------------------------


async def test_i50_the_winner_is_stored_with_its_value_and_the_event_and_all_waits_are_gone(url: str) -> None:
    """I50: destination before source, and in one commit: nowhere is the event twice, or in no place."""
    world = World()
    async with world.engine(url) as engine:
        async with engine.worker():
            handle = await engine.start(world.waits, ["amber", "blue"])
            await suspended(handle)
            assert sorted(wait.topic for wait in await handle.waits()) == ["event:amber", "event:blue"]
        assert await engine.send("blue", {"deep": 1}, to=handle) == hf.Delivered(handle.id)  # nobody works now
        (winner,) = await handle.history()
        assert (winner.kind, winner.data["value"]) == ("event", {"deep": 1})
        assert await engine.store.rows(WaitsOf(handle.id)) == []
        assert await statuses(engine, handle.id, TURN) == ["ready"]
        await assert_sound(engine)


async def test_i50_a_deadline_wins_once_and_what_comes_later_is_for_the_next_wait(url: str) -> None:
    """I50, G6: the time is recorded as the winner, the event that lost the race is not lost."""
    world = World()
    async with world.engine(url) as engine, engine.worker():
        handle = await engine.start(world.waits_until, 0.05)
        await until(lambda: world.done == ["TimeReached"], "the deadline has won")
        await engine.send("come", "afterwards", to=handle)
        assert await handle.result(timeout=20) == ["TimeReached", "afterwards"]
        assert [entry.kind for entry in await handle.history()] == ["timer", "result", "event"]
        timer = (await handle.history())[0]
        assert timer.at.timestamp() >= (await engine.store.runs([handle.id]))[0].created / 1e6 + 0.05


async def test_g6_times_come_once_in_order_and_never_early(url: str) -> None:
    """G6: by the database's clock, for sleeps, deadlines and timeouts alike, parked or driven."""
    world = World()
    microseconds = (70_000, 20_000, 45_000)

    @hf.workflow(registry=world.registry)
    async def sleeps() -> list[int]:
        woken: list[int] = []

        async def one(span: int) -> None:
            await hf.sleep(timedelta(microseconds=span))
            woken.append(span)

        await asyncio.gather(*map(one, microseconds))
        return woken

    async with world.engine(url) as engine, engine.worker():
        handles = [await engine.start(sleeps) for _ in range(5)]
        for handle in handles:
            assert await handle.result(timeout=20) == sorted(microseconds)
            (run,) = await engine.store.runs([handle.id])
            fired = [row.at - run.created for row in await engine.store.history(handle.id) if row.kind == "timer"]
            assert len(fired) == 3
            assert all(at >= span for at, span in zip(fired, sorted(microseconds), strict=True)), fired


# --- ends --------------------------------------------------------------------------------------------------------


async def test_i54_continue_as_keeps_the_run_and_starts_a_fresh_history(url: str) -> None:
    """I54: one transaction, the same id and turn; a replay begins at the last continuation."""
    world = World()
    async with world.engine(url) as engine, engine.worker():
        handle = await engine.start(world.counts, 3)
        await suspended(handle)
        (run,) = await engine.store.runs([handle.id])
        kinds = [row.kind for row in await engine.store.history(handle.id)]
        assert kinds == ["result", "continued"] * 3 + ["result"]
        assert run.base == 6
        assert await statuses(engine, handle.id) == ["blocked"]
        await engine.send("come", to=handle)
        assert await handle.result(timeout=20) == "none left"
    assert world.done == ["count 3", "count 2", "count 1", "count 0"]


async def test_i10_a_cancel_takes_waits_timers_and_queued_calls_and_leaves_one_turn_for_undoing(url: str) -> None:
    """I10, I54: all of it in the transaction of the cancel; the run starts no forward work and ends as cancelled."""
    world = World()
    async with world.engine(url) as engine:
        async with engine.worker():
            handle = await engine.start(world.undoes)
            await suspended(handle)
        assert await handle.cancel()
        (run,) = await engine.store.runs([handle.id])
        assert run.status == "cancelling"
        assert await engine.store.rows(WaitsOf(handle.id)) == []
        assert {work.kind: work.status for work in await work_of(engine, handle.id)} == {
            "turn": "ready",
            "call": "cancelled",
        }
        assert await engine.send("come", to=handle) == hf.TargetEnded("cancelling")
        async with engine.worker():
            with pytest.raises(hf.RunCancelled):
                await handle.result(timeout=20)
        assert world.done == ["undone"]
        await assert_sound(engine)


async def test_i54_a_run_that_completes_leaves_nothing_to_claim_or_to_wake(url: str) -> None:
    """I54, G7: result, status and the end of its turn are one commit; whoever waits for it is told in the same."""
    world = World()

    @hf.workflow(registry=world.registry)
    async def follows(run: str) -> list[Any]:
        ended = await hf.wait_for(hf.ended(run))
        return [ended.status, ended.result]

    async with world.engine(url) as engine:
        async with engine.worker():
            handle = await engine.start(world.waits, ["come"])
            follower = await engine.start(follows, handle.id)
            await suspended(handle)
            await suspended(follower)
            await engine.send("come", "it", to=handle)
            assert await handle.result(timeout=20) == ["come", "it"]
            assert await follower.result(timeout=20) == ["completed", ["come", "it"]]
        for run in (handle.id, follower.id):
            assert await statuses(engine, run) == ["completed"]
            assert await engine.store.rows(WaitsOf(run)) == []
        await assert_sound(engine)


# --- recovery ----------------------------------------------------------------------------------------------------


async def test_i55_a_new_worker_takes_up_what_is_due_and_loads_nothing_else(shared_url: str) -> None:
    """I55: of many suspended runs the one whose time has come, and the one whose event came, are found; no other."""
    world = World()
    async with world.engine(shared_url) as engine, engine.worker():
        waiting = [await engine.start(world.waits, [f"event {number}"]) for number in range(30)]
        timed = await engine.start(world.waits_until, 0.3)
        for handle in (*waiting, timed):
            await suspended(handle)
    async with world.engine(shared_url) as engine:  # another process, as far as the database can tell
        assert await engine.send("event 7", "yes", to=waiting[7].id) == hf.Delivered(waiting[7].id)
        async with engine.worker():
            assert await engine.get(waiting[7].id).result(timeout=20) == ["event 7", "yes"]
            await until(lambda: world.done == ["TimeReached"], "the timer has fired")
            claimed = counted(engine, "claimed_items") + counted(engine, "handed_over")
            assert claimed <= 3
        assert await engine.get(waiting[8].id).status() == "suspended"


async def test_i55_a_run_whose_winner_was_stored_before_its_process_died_goes_on(shared_url: str) -> None:
    """I55: nothing has to be repaired at the start: the commit that stored the winner made the turn ready."""
    world = World()
    async with world.engine(shared_url) as engine, engine.worker():
        handle = await engine.start(world.waits, ["come"])
        await suspended(handle)
    async with world.engine(shared_url) as sender:
        assert await sender.send("come", "while nobody was there", to=handle.id) == hf.Delivered(handle.id)
        assert await sender.get(handle.id).status() == "running"
    async with world.engine(shared_url) as engine, engine.worker():
        assert await engine.get(handle.id).result(timeout=20) == ["come", "while nobody was there"]


# --- the two fusions ---------------------------------------------------------------------------------------------


async def test_i53_several_targeted_events_for_one_run_in_a_batch_the_first_wins_the_rest_are_queued(
    site: Site,
) -> None:
    """I53, G5: as one by one; and one commit serves all of them."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        assert (await coordinator.submit(suspend("r", "come"))).parked
        commits: list[Commit] = []
        coordinator.observers.append(commits.append)
        answers = await coordinator.submit_batch([send("r", name, "come") for name in ("first", "second", "third")])
        assert answers == [Delivered("r"), Queued("second"), Queued("third")]
        assert len(commits) == 1
        rows = await every_row(store)
        assert [entry_of(row.data).value for row in rows["history"]] == [b'"first"']
        assert sorted(event.payload for event in rows["events"]) == [b'"second"', b'"third"']


async def test_i53_a_suspend_and_an_immediate_broadcast_in_a_batch_deliver_directly(site: Site) -> None:
    """I53, G5: no reader of the store ever sees the run suspended; the event is never queued."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        commits: list[Commit] = []
        coordinator.observers.append(commits.append)
        suspending, told = await coordinator.submit_batch([suspend("r", "come"), broadcast("it", "come")])
        assert suspending.parked
        assert told == Delivered("r", ("r",))
        assert len(commits) == 1
        rows = await every_row(store)
        assert rows["events"] == []
        assert rows["waits"] == []
        assert [(run.status, run.remaining) for run in rows["runs"]] == [("running", 0)]
        assert [(work.node, work.status) for work in rows["work"]] == [(TURN, "ready")]


# --- reading without the queue -----------------------------------------------------------------------------------


async def test_k5_get_active_tells_what_this_process_remembers_and_decides_nothing(shared_site: Site) -> None:
    """K5: it may be behind what another process wrote; the next operation is decided on what is stored."""
    clock = VirtualClock()
    async with shared_site.opened(clock) as store, shared_site.opened(clock) as other_store:
        here, elsewhere = make_coordinator(store, clock), make_coordinator(other_store, clock)
        assert here.get_active("r") is None
        await here.submit(start("r"))
        await here.submit(suspend("r", "come"))
        remembered = here.get_active("r")
        assert remembered is not None
        assert remembered.status == "suspended"
        assert await elsewhere.submit(send("r", "it", "come")) == Delivered("r")
        assert here.get_active("r") == remembered  # and that is stale now
        assert await here.submit(send("r", "next", "come")) == Queued("next")
        await here.submit(cancel("r", force=True))
        assert here.get_active("r") is None
        await here.close()
        await elsewhere.close()


@pytest.fixture(params=SHARED_KINDS)
def shared_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The stores that two processes can share, in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made
