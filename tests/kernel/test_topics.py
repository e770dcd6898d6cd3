"""Topics, with fake operations that suspend on them and send to them: nothing is lost, nothing is delivered twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from holdfast.core import failpoints
from holdfast.core.operations import CancelRun, Operation
from holdfast.runtime.system import RealClock
from tests.kernel.kernels import make_coordinator, opened_kernel, start
from tests.kernel.postgres_watch import deadlocks, until_someone_waits_for_a_lock
from tests.kernel.topics import TOPIC_DECISIONS, Broadcast, Suspend, delivered
from tests.support.stores import Site, every_row

NAMES = ("paid", "shipped", "returned", "lost")


async def test_g5_an_event_wakes_who_waits_and_waits_for_who_comes(site: Site) -> None:
    """Both orders, one by one and in one batch; the longest waiting comes first."""
    async with opened_kernel(site, extra=TOPIC_DECISIONS) as (coordinator, store):
        await coordinator.submit_batch([start(f"r{number}") for number in range(4)])
        assert await coordinator.submit(Suspend(run="r0", names=("paid",))) == "waiting"
        assert await coordinator.submit(Broadcast(event="e0", name="paid")) == "to r0"
        assert await coordinator.submit(Broadcast(event="e1", name="paid")) == "queued"
        assert await coordinator.submit(Suspend(run="r1", names=("paid",))) == "took e1"
        results = await coordinator.submit_batch(
            [
                Suspend(run="r3", names=("paid", "shipped")),
                Broadcast(event="e2", name="shipped"),
                Broadcast(event="e3", name="paid"),
                Suspend(run="r2", names=("returned",)),
                Suspend(run="r3", names=("shipped", "paid")),
                CancelRun(run="r2"),
                Broadcast(event="e4", name="returned"),
            ]
        )
        assert results[:5] == ["waiting", "to r3", "queued", "waiting", "took e3"]
        assert results[6] == "queued"
        rows = await every_row(store)
    assert delivered(rows) == ["e0", "e1", "e2", "e3"]
    assert [event.id for event in rows["events"]] == ["e4"]
    assert rows["waits"] == []


async def test_g5_a_run_that_is_woken_and_waits_again_in_one_batch_waits_for_the_new_topic(site: Site) -> None:
    """The same slot is deleted and inserted by one commit."""
    async with opened_kernel(site, extra=TOPIC_DECISIONS) as (coordinator, store):
        await coordinator.submit(start("r1"))
        await coordinator.submit(Suspend(run="r1", names=("paid",)))
        results = await coordinator.submit_batch(
            [Broadcast(event="e1", name="paid"), Suspend(run="r1", names=("shipped",))]
        )
        assert results == ["to r1", "waiting"]
        assert [wait.topic for wait in (await every_row(store))["waits"]] == ["shipped"]
        assert await coordinator.submit(Broadcast(event="e2", name="paid")) == "queued"
        assert await coordinator.submit(Broadcast(event="e3", name="shipped")) == "to r1"


def _pause_first(place: str) -> tuple[asyncio.Event, asyncio.Event, Callable[[str], asyncio.Future[bool] | None]]:
    """Stop whoever comes to the place first until told to go on."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    def hook(name: str) -> asyncio.Future[bool] | None:
        if name != place or arrived.is_set():
            return None
        arrived.set()
        return asyncio.ensure_future(go_on.wait())

    return arrived, go_on, hook


async def test_g5_a_send_waits_for_the_suspend_that_holds_the_topic(postgres_site: Site) -> None:
    """The suspend has found no event and is about to write its wait: the send must find that wait."""
    clock = RealClock()
    async with postgres_site.opened() as one, postgres_site.opened() as two:
        first, second = (make_coordinator(store, clock, extra=TOPIC_DECISIONS) for store in (one, two))
        await first.submit(start("r1"))
        for place in ("load.after_topics", "load.after_rows", "flush.before_commit"):
            arrived, go_on, hook = _pause_first(place)
            failpoints.arm(hook)  # type: ignore[arg-type]
            suspending = first.submit(Suspend(run="r1", names=("paid",)))
            await arrived.wait()
            sending = second.submit(Broadcast(event=f"after {place}", name="paid"))
            await until_someone_waits_for_a_lock(postgres_site.url)
            go_on.set()
            assert (await suspending, await sending) == ("waiting", "to r1")
            failpoints.disarm()
        await first.close()
        await second.close()


async def test_g5_a_waiter_that_was_cancelled_while_the_send_waited_for_it_gets_nothing(postgres_site: Site) -> None:
    """Found as a waiter, gone when its lock was granted: the event goes to the next one."""
    clock = RealClock()
    async with postgres_site.opened() as one, postgres_site.opened() as two:
        first, second = (make_coordinator(store, clock, extra=TOPIC_DECISIONS) for store in (one, two))
        await first.submit_batch([start("r1"), start("r2")])
        await first.submit(Suspend(run="r1", names=("paid",)))
        await first.submit(Suspend(run="r2", names=("paid",)))
        arrived, go_on, hook = _pause_first("flush.before_commit")
        failpoints.arm(hook)  # type: ignore[arg-type]
        cancelling = first.submit(CancelRun(run="r1"))
        await arrived.wait()
        sending = second.submit(Broadcast(event="e1", name="paid"))
        await until_someone_waits_for_a_lock(postgres_site.url)
        go_on.set()
        await cancelling
        assert await sending == "to r2"
        rows = await every_row(one)
        assert (delivered(rows), rows["events"], rows["waits"]) == (["e1"], [], [])
        await first.close()
        await second.close()


async def test_g5_two_coordinators_that_race_lose_no_event_and_deliver_none_twice(postgres_site: Site) -> None:
    """Suspends, sends and cancels on four topics from two processes' coordinators, overlapping as they come."""
    chance = random.Random(7)
    clock = RealClock()
    before = await deadlocks(postgres_site.url)
    async with postgres_site.opened() as one, postgres_site.opened() as two:
        coordinators = [make_coordinator(store, clock, extra=TOPIC_DECISIONS, batch_limit=8) for store in (one, two)]
        runs = [f"r{number:02d}" for number in range(40)]
        await coordinators[0].submit_batch([start(run) for run in runs])
        sent = [f"e{number:03d}" for number in range(120)]
        said: list[Operation] = [Broadcast(event=event, name=chance.choice(NAMES)) for event in sent]
        said += [
            Suspend(run=chance.choice(runs), names=tuple(chance.sample(NAMES, chance.choice([1, 1, 2]))))
            for _ in range(160)
        ]
        said += [CancelRun(run=run) for run in chance.sample(runs, 6)]
        chance.shuffle(said)
        answers = await asyncio.gather(*(chance.choice(coordinators).submit(operation) for operation in said))
        rows = await every_row(one)
        for coordinator in coordinators:
            await coordinator.close()
    assert len(answers) == len(said)
    assert sorted(delivered(rows) + [event.id for event in rows["events"]]) == sent
    waiting = {wait.topic for wait in rows["waits"]}
    assert not waiting & {event.name for event in rows["events"]}, "an event and a waiter for it sit side by side"
    assert len(delivered(rows)) > 30
    assert await deadlocks(postgres_site.url) == before
