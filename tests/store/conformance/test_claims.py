"""`claim`, `promote` and `leased_to`: each ready item to one worker, the right one, in the right order."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.core.ahead import MOST_AHEAD_US
from holdfast.core.rows import GATE_DUE, GATE_OPEN, GATE_PAUSED, WORK_STATUSES
from tests.store.conformance.rows import a_hold, a_run, a_work, asked, put
from tests.support.stores import EPOCH_US, SECOND, Site, VirtualClock, change, every_row


async def test_k3_a_claim_leases_the_item_raises_its_token_and_brings_its_run(site: Site) -> None:
    """The run's row comes along, so that completing needs no read; its version stays as it was (K4)."""
    clock = VirtualClock()
    run, work = a_run(active=1, version=4), a_work(token=6)
    async with site.opened(clock) as store:
        await put(store, run, work)
        clock.advance(2)
        (handed,) = await store.claim(asked("w7"))
        leased = replace(work, status="leased", token=7, worker="w7", started=EPOCH_US + 2 * SECOND)
        assert handed.work == leased
        assert handed.run == run
        stored = await every_row(store)
        assert (stored["work"], stored["runs"]) == ([leased], [run])
        assert await store.leased_to("w7") == [leased]
        assert await store.leased_to("w8") == []
        assert await store.claim(asked("w8")) == []


async def test_g3_items_go_by_priority_and_then_by_due_time(site: Site) -> None:
    """Higher first, then the one that has waited longest, whatever order they were written in."""
    items = [
        a_work(node="late", due=EPOCH_US - 1),
        a_work(node="low", priority=-1, due=EPOCH_US - 9),
        a_work(node="early", due=EPOCH_US - 5),
        a_work(node="urgent", priority=5, due=EPOCH_US),
    ]
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run(active=4), *items)
        first = await store.claim(asked(limit=1))
        rest = await store.claim(asked(limit=2))
        last = await store.claim(asked())
    assert [item.work.node for item in (*first, *rest, *last)] == ["urgent", "early", "late", "low"]


async def test_i8_a_worker_gets_only_its_queue_and_the_names_it_knows(site: Site) -> None:
    """An item of another queue, workflow or action waits for a worker that knows it."""
    rows = (
        a_run("r1"),
        a_run("r2", workflow="other"),
        a_work("r1", "mine"),
        a_work("r1", "queue", queue="slow"),
        a_work("r1", "action", name="unheard-of"),
        a_work("r2", "workflow", workflow="other"),
    )
    async with site.opened(VirtualClock()) as store:
        await put(store, *rows)
        assert [item.work.node for item in await store.claim(asked())] == ["mine"]
        assert [item.work.node for item in await store.claim(asked(queue="slow"))] == ["queue"]
        assert await store.claim(asked(workflows=(), actions=())) == []
        both = asked(workflows=("other", "flow"), actions=("job", "unheard-of"))
        assert {item.work.node for item in await store.claim(both)} == {"action", "workflow"}


@pytest.mark.parametrize(
    "work",
    [
        a_work(gate=GATE_DUE, due=EPOCH_US + 1),
        a_work(gate=GATE_PAUSED),
        *(a_work(status=status) for status in WORK_STATUSES if status != "ready"),
    ],
    ids=lambda work: f"{work.status}-{work.gate}",
)
async def test_i11_what_is_not_ready_is_not_claimed(site: Site, work: object) -> None:
    """Delayed, paused and settled items stay where they are."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run(), work)
        assert await store.claim(asked()) == []


@pytest.mark.parametrize("from_memory", [False, True])
@pytest.mark.parametrize(
    ("hold", "held"),
    [
        (a_hold("all"), {"a", "b", "c"}),
        (a_hold("workflow", "flow"), {"a", "b"}),
        (a_hold("queue", "slow"), {"b"}),
        (a_hold("drain", "flow"), set()),
        (a_hold("queue", "flow"), set()),
    ],
    ids=lambda value: f"{value.scope}-{value.name}" if hasattr(value, "scope") else "",
)
async def test_i11_maintenance_stops_claims_until_it_is_over(
    site: Site, hold: object, held: set[str], from_memory: bool
) -> None:
    """Everything, a workflow or a queue; a drain stops starts and no claim. Memory lets nobody in."""
    rows = (
        a_run("r1"),
        a_run("r2", workflow="other"),
        a_work("r1", "a"),
        a_work("r1", "b", queue="slow"),
        a_work("r2", "c", workflow="other"),
    )
    known = {"recall": lambda item: None} if from_memory else {}
    requests = [asked(queue=queue, workflows=("flow", "other"), **known) for queue in ("default", "slow")]
    async with site.opened(VirtualClock()) as store:
        await put(store, *rows, hold)
        taken = {item.work.node for request in requests for item in await store.claim(request)}
        assert taken == {"a", "b", "c"} - held
        async with store.transaction() as tx:
            await tx.write(change(delete=(hold,)))  # type: ignore[arg-type]
        assert {item.work.node for request in requests for item in await store.claim(request)} == held


async def test_g3_no_item_is_claimed_twice_by_claims_at_the_same_time(site: Site) -> None:
    """Eight workers, two stores where that is possible, 60 items: each exactly once."""
    clock = VirtualClock()
    items = [a_work(node=f"n{number:02d}") for number in range(60)]
    async with site.opened(clock) as store, site.opened(clock) as other:
        await put(store, a_run(active=60), *items)

        async def drain(number: int) -> list[tuple[str, int]]:
            mine: list[tuple[str, int]] = []
            source = (store, other)[number % 2]
            while handed := await source.claim(asked(f"w{number}", limit=3)):
                mine += [(item.work.node, item.work.token) for item in handed]
            return mine

        claimed = [item for part in await asyncio.gather(*map(drain, range(8))) for item in part]
        # A skipped row that was only looked at by another claim is found by the next one.
        claimed += [(item.work.node, item.work.token) for item in await store.claim(asked("last", limit=60))]
    assert sorted(claimed) == [(item.node, 1) for item in items]


async def test_i3_delayed_items_become_claimable_when_their_time_has_come(site: Site) -> None:
    """`promote` opens the gate of what is due, says when the next one is, and leaves paused items alone."""
    clock = VirtualClock()
    rows = (
        a_work(node="soon", gate=GATE_DUE, due=EPOCH_US + 1 * SECOND),
        a_work(node="later", gate=GATE_DUE, due=EPOCH_US + 5 * SECOND),
        a_work(node="slow", gate=GATE_DUE, due=EPOCH_US + 1 * SECOND, queue="slow"),
        a_work(node="paused", gate=GATE_PAUSED, due=EPOCH_US),
    )
    async with site.opened(clock) as store:
        await put(store, a_run(active=4), *rows)
        assert await store.promote(["default"]) == EPOCH_US + 1 * SECOND
        assert await store.claim(asked()) == []
        clock.advance(1)
        assert await store.promote(["default"]) == EPOCH_US + 5 * SECOND
        assert [item.work.node for item in await store.claim(asked())] == ["soon"]
        gates = {work.node: work.gate for work in (await every_row(store))["work"]}
        assert gates == {"soon": GATE_OPEN, "later": GATE_DUE, "slow": GATE_DUE, "paused": GATE_PAUSED}
        clock.advance(10)
        assert await store.promote(["default", "slow"]) is None
        assert await store.promote(["empty"]) is None
        assert [item.work.node for item in await store.claim(asked(queue="slow"))] == ["slow"]


async def test_g6_nothing_is_promoted_a_microsecond_early(site: Site) -> None:
    """By the store's clock: at the due time, not before."""
    clock = VirtualClock()
    async with site.opened(clock) as store:
        await put(store, a_run(), a_work(gate=GATE_DUE, due=EPOCH_US + 1))
        assert await store.promote(["default"]) == EPOCH_US + 1
        assert await store.claim(asked()) == []
        clock.advance(0.000001)
        await store.promote(["default"])
        assert len(await store.claim(asked())) == 1


async def test_g6_what_is_claimed_ahead_of_its_time_starts_when_that_has_come(site: Site) -> None:
    """It is let in no further ahead than was asked for; that it is not begun before is up to who claims it."""
    clock = VirtualClock()
    due = EPOCH_US + MOST_AHEAD_US
    rows = (a_work(node="soon", gate=GATE_DUE, due=due), a_work(node="later", gate=GATE_DUE, due=due + 1))
    async with site.opened(clock) as store:
        await put(store, a_run(active=2, status="pending"), *rows)
        assert await store.promote(["default"], MOST_AHEAD_US - 1) == due
        assert await store.promote(["default"], MOST_AHEAD_US) == due + 1
        assert MOST_AHEAD_US <= store.time_left(due) <= MOST_AHEAD_US + 1
        (handed,) = await store.claim(asked())
        assert (handed.work.node, handed.work.started, handed.run.started) == ("soon", due, due)
        stored = await every_row(store)
        assert handed.work in stored["work"]
        assert [run.started for run in stored["runs"]] == [due]
        clock.advance(1.5)
        await store.promote(["default"])
        assert store.time_left(due) < 0
        (late,) = await store.claim(asked())
        assert late.work.started == EPOCH_US + 3 * SECOND // 2


@pytest.mark.parametrize("recalled", [True, False])
async def test_k12_what_another_clock_made_ready_for_later_starts_when_it_is_claimed(
    site: Site, recalled: bool
) -> None:
    """One that is ahead by more than work is ever let in: whoever claims it does not wait for that clock."""
    run, work = a_run(active=1), a_work(due=EPOCH_US + MOST_AHEAD_US + 1)
    async with site.opened(VirtualClock()) as store:
        await put(store, run, work)
        recall = (lambda item: (work, run)) if recalled else None
        (handed,) = await store.claim(replace(asked(), recall=recall))
        assert handed.work.started == EPOCH_US
        assert (await every_row(store))["work"] == [handed.work]


@pytest.mark.parametrize("recalled", [True, False])
async def test_k3_a_timely_lease_that_is_claimed_ahead_has_the_time_of_the_claim_as_its_token(
    site: Site, recalled: bool
) -> None:
    """Whether its rows are read or remembered: all say the same of it."""
    clock = VirtualClock()
    due = EPOCH_US + MOST_AHEAD_US
    run, work = a_run(active=1), a_work(kind="sleep", gate=GATE_DUE, due=due, token=3)
    async with site.opened(clock) as store:
        await put(store, run, work)
        await store.promote(["default"], MOST_AHEAD_US)
        recall = (lambda item: (replace(work, gate=GATE_OPEN), run)) if recalled else None
        (handed,) = await store.claim(replace(asked(), recall=recall))
        assert (handed.work.token, handed.work.started) == (EPOCH_US, due)
        assert (await every_row(store))["work"] == [handed.work]
