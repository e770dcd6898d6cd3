"""Rows of deciders: an input is one flush on every store, whatever it writes, and nothing of it is half there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.queries import FactsCausedBy, QueuedEvents, StreamAfter
from holdfast.core.rows import OBSERVATIONS, SNAPSHOTS, STREAM, Fact
from holdfast.store.contract import Conflict, FindRuns, Store
from tests.store.conformance.rows import (
    a_fact,
    a_run,
    a_snapshot,
    a_wait,
    a_work,
    a_worker,
    an_event,
    an_input,
    an_instance,
    an_observation,
    asked,
    put,
)
from tests.store.conformance.test_flush import refusal, settle
from tests.store.conformance.test_upkeep import _objections as objections
from tests.support.stores import EPOCH_US, Site, VirtualClock, change, every_row, execute


def in_full(fact: Fact, **fields: Any) -> Fact:
    return replace(fact, version=3, data=b"\x00\xff", codec="pickle", cause="effect/1.0", **fields)


async def test_k1_a_flush_writes_events_snapshots_and_observations_as_they_are(site: Site) -> None:
    """Every column comes back equal, but for the position, which the store gives."""
    rows = (
        an_instance(base=2),
        an_input(answer="digest", at=5),
        in_full(a_fact()),
        in_full(a_fact(sequence=2), system=True),
        a_snapshot(state=b"\x00\xff", codec="pickle", sequence=2, at=7),
        an_observation(
            payload=b"\x00", codec="x", source="timer", command="c", outcome="ignored", before="new", after="paid"
        ),
        an_observation(number=2),
    )
    async with site.opened(VirtualClock()) as store:
        await settle(store)
        assert await store.flush(change(insert=rows)) == frozenset()
        stored = await every_row(store)
    assert tuple(row for table in stored.values() for row in table) == rows


@pytest.mark.parametrize("events", [1, 2, 3])
@pytest.mark.parametrize("first", [True, False])
async def test_i36_an_input_alone_writes_its_events_in_order(site: Site, events: int, first: bool) -> None:
    """The most frequent flush of a decider: its run, made or moved on, and its events at rising positions."""
    old = an_instance(base=0, version=4)
    new = replace(old, version=5, token=1, base=events, mailbox=2, due=9, entries=3, updated=8)
    facts = tuple(in_full(a_fact(sequence=number)) for number in range(1, events + 1))
    async with site.opened(VirtualClock()) as store:
        await settle(store)
        if not first:
            await put(store, old)
        written = change(insert=(new, *facts)) if first else change(insert=facts, update=((old, new),))
        assert await store.flush(written) == frozenset()
        stored = await every_row(store)
        after = await store.rows(StreamAfter("r1", 0, 10))
    assert stored["runs"] == [new]
    assert stored["stream"] == list(facts)
    positions = [fact.position for fact in after]
    assert positions == sorted(set(positions))
    assert all(positions)


@pytest.mark.parametrize("first", [True, False])
async def test_k1_an_input_alone_that_lost_the_race_writes_nothing(site: Site, first: bool) -> None:
    """Another version than decided on, or an instance that somebody else has begun."""
    stored_run = an_instance(base=1, version=5)
    seen = replace(stored_run, version=4)
    late = a_fact(sequence=2)
    written = (
        change(insert=(replace(stored_run, id="r2"), replace(late, run="r2")))
        if first
        else change(insert=(late,), update=((seen, replace(seen, version=6, base=2)),))
    )
    async with site.opened(VirtualClock()) as store:
        await put(store, stored_run, a_fact())
        assert await refusal(store, written) in (frozenset({"r1"}), None)
        assert (await every_row(store))["stream"] == [a_fact()]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("count", [1, 3])
async def test_k1_a_flush_updates_what_a_decider_counts(site: Site, count: int, ends: bool) -> None:
    """Token, length, mailbox and due time of one run or many, also where one ends."""
    before = [an_instance(f"r{number}") for number in range(count)]
    after = [replace(run, version=2, token=5, base=6, mailbox=7, due=8) for run in before]
    if ends:
        after[0] = replace(after[0], status="completed", finished=9, reason="done")
    async with site.opened(VirtualClock()) as store:
        await put(store, *before)
        assert await store.flush(change(update=tuple(zip(before, after, strict=True)))) == frozenset()
        assert (await every_row(store))["runs"] == after


async def test_i38_a_snapshot_takes_the_place_of_the_one_before(site: Site) -> None:
    """Whoever writes one need not know whether there is one, in a crowd or alone."""
    runs = tuple(an_instance(f"r{number}", base=9) for number in range(3))
    newer = tuple(a_snapshot(run.id, 9, state=b"new", code="c2", codec="x", at=4) for run in runs)
    async with site.opened(VirtualClock()) as store:
        await put(store, *runs, a_snapshot("r0"), a_snapshot("r1"))
        moved = tuple((run, replace(run, version=2)) for run in runs)
        assert await store.flush(change(insert=newer[:1], update=moved[:1])) == frozenset()
        assert await store.flush(change(insert=newer[1:], update=moved[1:])) == frozenset()
        assert (await every_row(store))["snapshots"] == list(newer)
        async with store.transaction() as tx:
            await tx.write(change(insert=(replace(newer[0], sequence=10),), delete=(newer[1],)))
        assert (await every_row(store))["snapshots"] == [replace(newer[0], sequence=10), newer[2]]


@pytest.mark.parametrize("taken", range(3))
async def test_k1_one_row_of_a_decider_that_exists_keeps_the_whole_flush_out(site: Site, taken: int) -> None:
    """An event, an observation, a command id: each has the last word."""
    batch = (a_fact(), an_observation(), an_input())
    async with site.opened(VirtualClock()) as store:
        await put(store, batch[taken])
        with pytest.raises(Conflict):
            await store.flush(change(insert=(an_instance(), *batch)))
        stored = await every_row(store)
    assert [row for table in stored.values() for row in table] == [batch[taken]]


async def test_i33_a_timer_is_set_anew_by_one_flush(site: Site) -> None:
    """Its input, its codec and all the rest are those of the new one: nothing of the old is left."""
    run = an_instance(active=1)
    old = a_work(node="timer/k", kind="timer", token=3, failures=2, losses=1, error=b"e", payload=b"1", worker="w")
    new = replace(
        a_work(node="timer/k", kind="timer", token=4, gate=1, due=EPOCH_US + 5, payload=b"2"),
        **{"codec": "pickle", "name": "Order:Remind", "queue": "slow", "priority": 3, "created": 7, "timeout": 8},
        **{"policy": "{}", "required": 1},
    )
    async with site.opened(VirtualClock()) as store:
        await put(store, run, old)
        changes = change(insert=(a_fact(),), update=((run, replace(run, version=2, base=1)), (old, new)))
        assert await store.flush(changes) == frozenset()
        assert (await every_row(store))["work"] == [new]
        stale = change(update=((run, replace(run, version=3)), (old, replace(old, status="completed"))))
        assert await refusal(store, stale) in (frozenset({"r1"}), None)


def deleted_rows(run: str) -> tuple[Any, ...]:
    return (a_wait(run), a_wait(run, slot=1), an_event(f"{run}-e", target=run), an_input(run))


@pytest.mark.parametrize("count", [1, 3])
async def test_k1_a_flush_takes_rows_away_with_the_run_that_they_belong_to(site: Site, count: int) -> None:
    """Waits, events and command ids go in the same commit; what belongs to others stays."""
    runs = tuple(an_instance(f"r{number}", mailbox=1) for number in range(count))
    others = (an_instance("other"), *deleted_rows("other"), an_event("broadcast"))
    rows = tuple(row for run in runs for row in deleted_rows(run.id))
    moved = tuple((run, replace(run, version=2, mailbox=0, base=1)) for run in runs)
    async with site.opened(VirtualClock()) as store:
        await put(store, *others)
        before = await every_row(store)
        await put(store, *runs, *rows)
        facts = tuple(a_fact(run.id) for run in runs)
        assert await store.flush(change(insert=facts, update=moved, delete=rows)) == frozenset()
        stored = await every_row(store)
        assert await store.rows(QueuedEvents("paid", "r0")) == []
    assert {name: stored[name] for name in ("waits", "events", "inputs")} == {
        name: before[name] for name in ("waits", "events", "inputs")
    }
    assert len(stored["stream"]) == count


@pytest.mark.parametrize("gone", range(4))
async def test_k1_a_row_that_someone_else_has_consumed_keeps_the_flush_out(site: Site, gone: int) -> None:
    """An event that is taken twice would be delivered twice."""
    run, rows = an_instance(mailbox=1), deleted_rows("r1")
    there = tuple(row for number, row in enumerate(rows) if number != gone)
    async with site.opened(VirtualClock()) as store:
        await put(store, run, *there)
        before = await every_row(store)
        changes = change(insert=(a_fact(),), update=((run, replace(run, version=2, base=1)),), delete=rows)
        with pytest.raises(Conflict):
            await store.flush(changes)
        assert await every_row(store) == before


async def test_k1_a_flush_that_lost_its_run_takes_nothing_away(site: Site) -> None:
    """The version is checked before any row goes."""
    run, rows = an_instance(version=3), deleted_rows("r1")
    seen = replace(run, version=2)
    async with site.opened(VirtualClock()) as store:
        await put(store, run, *rows)
        before = await every_row(store)
        changes = change(update=((seen, replace(seen, version=3)),), delete=rows)
        assert await refusal(store, changes) in (frozenset({"r1"}), None)
        assert await every_row(store) == before


async def test_k4_the_events_of_an_instance_are_found_after_a_sequence(site: Site) -> None:
    """At most as many as asked for; together for many instances, and in each store's transaction."""
    facts = {run: [a_fact(run, number) for number in range(1, 6)] for run in ("r1", "r2", "r3")}
    async with site.opened(VirtualClock()) as store:
        await put(store, *(fact for rows in facts.values() for fact in rows))
        needs = [
            *(StreamAfter("r1", 0, 100), StreamAfter("r2", 3, 100), StreamAfter("r3", 1, 2), StreamAfter("r3", 0, 1)),
            *(StreamAfter("r1", 5, 100), StreamAfter("none", 0, 100), StreamAfter("r1", 0, 100)),
        ]
        expected = [
            *(facts["r1"], facts["r2"][3:], facts["r3"][1:3], facts["r3"][:1]),
            *([], [], facts["r1"]),
        ]
        async with store.transaction() as tx:
            loaded = await tx.load(needs)
        alone = [await store.rows(need) for need in needs]
    without_positions = [[replace(fact, position=0) for fact in rows] for rows in loaded]
    assert without_positions == expected
    assert alone == loaded


async def test_k8_the_events_that_an_input_caused_are_found(site: Site) -> None:
    """So that an input whose answer was lost is not applied again."""
    mine = [replace(a_fact(sequence=number), cause="input:7") for number in (2, 3)]
    async with site.opened(VirtualClock()) as store:
        await put(store, a_fact(), *mine, replace(a_fact("r2"), cause="input:7"))
        found = await store.rows(FactsCausedBy("r1", "input:7"))
    assert [replace(fact, position=0) for fact in found] == mine


async def test_k4_rows_of_deciders_are_read_by_key(site: Site) -> None:
    """Present or absent, in the order asked for."""
    rows = (a_fact(), a_snapshot(), an_observation())
    async with site.opened(VirtualClock()) as store:
        await put(store, *rows)
        async with store.transaction() as tx:
            found = await tx.load([(STREAM, ("r1", 1)), (SNAPSHOTS, ("r1",)), (OBSERVATIONS, ("r1", 1))])
            absent = await tx.load([(STREAM, ("r1", 2)), (SNAPSHOTS, ("r2",)), (OBSERVATIONS, ("r2", 1))])
    assert replace(found[0][0], position=0) == rows[0]
    assert found[1:] == [[rows[1]], [rows[2]]]
    assert absent == [[], [], []]


@pytest.mark.parametrize("kind", ["effect", "timer", "inbox"])
async def test_i34_what_the_last_decision_asked_for_is_claimed_after_the_end(site: Site, kind: str) -> None:
    """A completed instance's work is work; and nobody deletes the instance before it is done."""
    ended = an_instance(status="completed", finished=1, active=1)
    work = a_work(node=kind, kind=kind, workflow="Order", name="Order.Ship")
    async with site.opened(VirtualClock()) as store:
        await put(store, ended, work)
        await store.enroll(a_worker(workflows=("Order",), actions=("Order.Other",)), 60)
        assert await store.prune(EPOCH_US, 10) == 0
        assert [item.node for item in await store.unknown(EPOCH_US + 1, 10)] == [kind]
        (handed,) = await store.claim(asked(workflows=("Order",), actions=("Order.Ship",)))
        assert handed.run == ended
        assert await store.prune(EPOCH_US, 10) == 0
        moved = (ended, replace(ended, version=2, active=0))
        done = (handed.work, replace(handed.work, status="completed", finished=2))
        assert await store.flush(change(update=(moved, done))) == frozenset()
        assert await store.prune(EPOCH_US, 10) == 1
        assert not any((await every_row(store)).values())


async def test_i34_an_effect_that_waits_for_another_keeps_its_instance(site: Site) -> None:
    """Effects of an instance run one after the other: those that wait are blocked."""
    async with site.opened(VirtualClock()) as store:
        await put(store, an_instance(status="completed", finished=1), a_work(kind="effect", status="blocked"))
        assert await store.prune(EPOCH_US, 10) == 0
        await put(store, a_run("r2", status="failed", finished=1), a_work("r2", status="blocked"))
        assert await store.prune(EPOCH_US, 10) == 1  # a node that a failed run never came to keeps nothing


async def test_i36_a_projection_that_is_parked_is_not_pruned(site: Site) -> None:
    """Its run holds its position: without it, the projection would begin anew."""
    async with site.opened(VirtualClock()) as store:
        await put(store, a_run(model="projection", status="failed", finished=1, base=70))
        assert await store.prune(EPOCH_US, 10) == 0


async def test_i1_pruning_takes_the_stream_the_snapshot_and_the_observations(site: Site) -> None:
    """And a new instance under the same key begins at one again."""
    async with site.opened(VirtualClock()) as store:
        kept = (an_instance("r2", base=1), a_fact("r2"), a_snapshot("r2"), an_observation("r2"))
        await put(store, *kept)
        before = await every_row(store)
        ended = an_instance(base=2, status="completed", finished=1)
        rows = (ended, a_fact(), a_fact(sequence=2), a_snapshot(), an_observation(), an_input())
        await put(store, *rows)
        assert await store.prune(EPOCH_US, 10) == 1
        assert await every_row(store) == before
        await put(store, *rows)
        assert await objections(store) == []


@pytest.mark.parametrize(
    ("base", "sequences"), [(2, (1,)), (1, (1, 2)), (2, (1, 3)), (1, ()), (2, (2, 3))], ids=lambda value: str(value)
)
async def test_g10_doctor_names_a_stream_that_is_not_whole(site: Site, base: int, sequences: tuple[int, ...]) -> None:
    """A gap, an event too many or too few: the instance and what it says."""
    async with site.opened(VirtualClock()) as store:
        await put(store, an_instance("sound", base=2), a_fact("sound", 1), a_fact("sound", 2))
        await put(store, an_instance("torn", base=base), *(a_fact("torn", number) for number in sequences))
        (objection,) = await objections(store)
    assert objection.startswith("stream: instance torn ")
    assert f"has {base} events" in objection


@pytest.mark.parametrize("row", [a_fact(), a_snapshot(), an_observation()], ids=lambda row: type(row).__name__)
async def test_g10_doctor_names_rows_of_deciders_that_belong_to_no_run(shared_site: Site, row: Any) -> None:
    """An instance that was deleted by hand leaves orphans in every table that has rows of it."""
    async with shared_site.opened(VirtualClock()) as store:
        await put(store, an_instance(base=1), row)
        await execute(store, "DELETE FROM runs")
        (objection,) = await objections(store)
    assert "1 rows" in objection
    assert "no run" in objection


async def test_k10_stats_count_the_inputs_that_wait(site: Site) -> None:
    """An event that a function was sent under the same name is none, and neither is one that is dead."""
    clock = VirtualClock()
    async with site.opened(clock) as store:
        assert await inbox(store) == (0, 0.0)
        waiting = (an_event(f"e{number}", "input", "r1", EPOCH_US + number * 1_000_000) for number in range(3))
        dead = replace(an_event("dead", "input", "r1", 1), status="dead")
        await put(store, an_instance(), *waiting, dead, a_run("r2"), an_event("function's", "input", "r2", 1))
        await put(store, an_event("broadcast", "input", None, 1))
        clock.advance(10)
        assert await inbox(store) == (3, 10.0)


async def test_i9_stats_count_dead_events_of_every_kind(site: Site) -> None:
    """Inputs, events for a run and events for anybody: whoever watches a number sees that somebody has to look."""
    async with site.opened(VirtualClock()) as store:
        assert (await store.stats()).dead_events == 0
        dead = (
            an_event("input", "input", "r1", 1),
            an_event("sent", "paid", "r2", 2),
            an_event("any", "paid", None, 3),
        )
        await put(store, an_instance(), a_run("r2"), *(replace(each, status="dead") for each in dead))
        await put(
            store, an_event("waits", "paid", "r2", 4), replace(an_event("late", "paid", "r2", 5), status="orphaned")
        )
        assert (await store.stats()).dead_events == 3


async def inbox(store: Store) -> tuple[int, float]:
    stats = await store.stats()
    return stats.inbox, stats.inbox_oldest_seconds


async def test_k10_instances_are_found_by_model_and_by_the_start_of_their_key(site: Site) -> None:
    """Signs that mean something to a database are letters here; no key starts with nothing but no other."""
    keys = ["a%1", "a_1", "ab1", "A%1", "ü1", None]
    async with site.opened(VirtualClock()) as store:
        for number, key in enumerate(keys):
            await put(store, an_instance(f"r{number}", key=key), a_run(f"s{number}", workflow="Order"))
        instances = [f"r{number}" for number in reversed(range(len(keys)))]
        assert [run.id for run in await store.find(FindRuns(model="decider"))] == instances
        assert await found(store, "a%") == ["a%1"]
        assert await found(store, "a_") == ["a_1"]
        assert await found(store, "a") == ["ab1", "a_1", "a%1"]
        assert await found(store, "ü") == ["ü1"]
        assert await found(store, "") == ["ü1", "A%1", "ab1", "a_1", "a%1"]


async def found(store: Store, prefix: str) -> list[str | None]:
    return [run.key for run in await store.find(FindRuns(workflow="Order", model="decider", key_prefix=prefix))]


@pytest.mark.parametrize(
    ("view", "columns"),
    [
        (
            "workflow_instances",
            "workflow_type = 'Order' AND workflow_id = 'r1' AND events = 1 AND completed_at IS NULL",
        ),
        ("timers", "node = 'timer/k' AND workflow = 'Order' AND status = 'ready'"),
        ("input_observations", "type = 'Create' AND outcome = 'applied'"),
        ("outbox", "node = 'effect/1.0'"),
    ],
)
async def test_k10_people_find_instances_under_the_names_of_the_seed(
    shared_site: Site, view: str, columns: str
) -> None:
    """Views over the tables that the engine uses; each has the one row that fits."""
    async with shared_site.opened(VirtualClock()) as store:
        await put(store, an_instance(base=1), a_run("r2"), a_fact(), an_observation())
        await put(
            store, a_work(node="timer/k", kind="timer", workflow="Order"), a_work(node="effect/1.0", kind="effect")
        )
        everything = await count(store, f"SELECT count(*) FROM {view}")
        assert (everything, await count(store, f"SELECT count(*) FROM {view} WHERE {columns}")) == (1, 1)


async def count(store: Any, statement: str) -> int:
    if store.kind == "sqlite":
        return int(store.db.execute(statement).fetchone()[0])
    async with store.connections.use() as connection:
        return int(await connection.fetchval(statement))
