"""I53 for functions and events: a batch gives the results and rows of its operations one by one; the seed's fusions.

One seed again: `FUSION_SEED=17 python -m pytest tests/functions/test_batches.py`; more of them: `FUSION_SEEDS=1000`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.coordinator import Commit, Coordinator
from holdfast.core.errors import EngineClosed
from holdfast.core.function_operations import TURN, Delivered, Queued
from holdfast.core.operations import LapseWork
from holdfast.core.rows import EVENTS, WAITS
from tests.functions.event_scripts import write_event_script
from tests.functions.kernel_moves import (
    broadcast,
    cancel,
    claim_functions,
    entries_of,
    queued_call,
    result,
    returns,
    send,
    start,
    suspend,
    time_comes,
    turn,
    unsound,
    wait,
)
from tests.kernel.kernels import make_coordinator, opened_kernel
from tests.kernel.scripts import Batch, Script, follow
from tests.kernel.test_fused_equals_sequential import seeds
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, empty, every_row

STEPS = 30


@pytest.fixture(scope="module")
def written() -> list[Script]:
    """The scripts, written once."""
    return [asyncio.run(write_event_script(seed, STEPS)) for seed in seeds()]


async def _check(site: Site, written: list[Script], *, engines: int, fused: bool) -> None:
    for script in written:
        clock = VirtualClock()
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(site.opened(clock)) for _ in range(engines)]
            kernels = [(make_coordinator(store, clock), store) for store in stores]
            try:
                await follow(script, kernels, clock, fused=fused)
                for name, rows in (await every_row(stores[0])).items():
                    assert rows == script.rows[name]
            except AssertionError as error:
                test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
                again = f"FUSION_SEED={script.seed} python -m pytest {test!r}"
                raise AssertionError(f"seed {script.seed}; repeat with\n  {again}\n{error}") from error
            for coordinator, _ in kernels:
                await coordinator.close()
            await empty(stores[0])


async def test_i53_a_fused_batch_of_turns_and_events_equals_one_by_one(site: Site, written: list[Script]) -> None:
    """Results in order and all rows of all tables, with the cache emptied at random (K5)."""
    await _check(
        site, written if site.kind == "memory" else written[: max(1, len(written) // 2)], engines=1, fused=True
    )


async def test_i53_every_store_decides_turns_and_events_alike(site: Site, written: list[Script]) -> None:
    """One by one, the rows are the same in SQLite and PostgreSQL as in memory."""
    if site.kind == "memory":
        pytest.skip("memory one by one is the reference itself")
    await _check(site, written[: max(1, len(written) // 4)], engines=1, fused=False)


async def test_k4_two_engines_that_take_turns_with_functions_equal_one(site: Site, written: list[Script]) -> None:
    """What one engine remembers never hides what the other has written, delivered or claimed."""
    if site.kind not in SHARED_KINDS:
        pytest.skip("memory is not shared")
    await _check(site, written[: max(1, len(written) // 4)], engines=2, fused=True)


def test_g10_no_sequence_of_turns_and_events_leaves_rows_that_contradict_each_other(written: list[Script]) -> None:
    """Counters agree with what they count, a wait is answered once, and what has ended waits for nothing."""
    wrong = {script.seed: found for script in written if (found := unsound(functions_only(script.rows)))}
    assert not wrong, "\n".join(f"seed {seed}: {line}" for seed, lines in wrong.items() for line in lines)


def functions_only(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    functions = {run.id for run in rows["runs"] if run.model == "function"}
    kept = dict(rows)
    kept["runs"] = [run for run in rows["runs"] if run.id in functions]
    for name in ("work", "history", "waits"):
        kept[name] = [row for row in rows[name] if row.run in functions]
    return kept


def test_the_scripts_say_what_they_are_meant_to_say(written: list[Script]) -> None:
    """Every kind of operation is in them, and every kind of answer to it that matters."""
    pairs = [
        (type(operation).__name__, getattr(answer, "verdict", type(answer).__name__))
        for script in written
        for step in script.steps
        if isinstance(step, Batch)
        for operation, answer in zip(step.operations, step.results, strict=True)
    ]
    if len(written) < 10:
        pytest.skip("a few scripts need not say everything")
    for name in ("TakeTurn", "ContinueAs"):
        assert {verdict for operation, verdict in pairs if operation == name} >= {"recorded", "stale", "repeated"}
    assert {answer for operation, answer in pairs if operation == "SendEvent"} >= {
        "Delivered",
        "Queued",
        "TargetEnded",
        "TargetNotFound",
    }
    assert {answer for operation, answer in pairs if operation == "BroadcastEvent"} >= {"Delivered", "Queued"}


# --- the fusions that the seed names -------------------------------------------------------------------------------


def commits_of(coordinator: Coordinator) -> list[Commit]:
    """What is committed from now on."""
    seen: list[Commit] = []
    coordinator.observers.append(seen.append)
    return seen


async def test_i53_several_events_for_one_run_are_one_commit_the_first_wins_and_the_rest_are_kept(site: Site) -> None:
    """The seed's BatchDeliverEvents: in order, each with its own answer."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit_batch([start("r"), suspend("r", "a", "b")])
        seen = commits_of(coordinator)
        sends = [send("r", "e1", "a"), send("r", "e2", "b"), send("r", "e3", "a")]
        assert await coordinator.submit_batch(sends) == [Delivered("r"), Queued("e2"), Queued("e3")]
        assert len(seen) == 1
        rows = await every_row(store)
        assert [entry.source for entry in entries_of(rows, "r")] == ["e1"]
        assert (rows["waits"], rows["runs"][0].mailbox) == ([], 2)
        (handed,) = await store.claim(claim_functions())
        again = suspend("r", "a", "b", address="0#2", known=1, token=handed.work.token)
        assert [each.entry.source for each in (await coordinator.submit(again)).entries] == ["e2"]


@pytest.mark.parametrize("to_all", [False, True])
async def test_i53_a_suspend_that_meets_its_broadcast_in_one_batch_is_never_seen_to_wait(
    site: Site, to_all: bool
) -> None:
    """The seed's SuspendWithImmediateEvent: the wait is neither written nor deleted, and the turn stays claimable."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        seen = commits_of(coordinator)
        stepped, sent = await coordinator.submit_batch([suspend("r", "a"), broadcast("e1", "a", to_all=to_all)])
        assert (stepped.parked, sent) == (True, Delivered("r", ("r",)))
        (commit,) = seen
        assert not commit.changes.inserts.get(WAITS)
        assert not commit.changes.deletes.get(WAITS)
        assert not commit.changes.inserts.get(EVENTS)
        rows = await every_row(store)
        assert [entry.source for entry in entries_of(rows, "r")] == ["e1"]
        assert (rows["runs"][0].status, rows["work"][0].status) == ("running", "ready")
        assert len(await store.claim(claim_functions())) == 1


async def test_i53_a_broadcast_that_comes_before_its_suspend_in_one_batch_is_never_stored(site: Site) -> None:
    """The other order of the same fusion: the suspend does not park."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        sent, stepped = await coordinator.submit_batch([broadcast("e1", "a"), suspend("r", "a")])
        assert sent == Queued("e1")
        assert not stepped.parked
        assert [each.entry.source for each in stepped.entries] == ["e1"]
        rows = await every_row(store)
        assert (rows["events"], rows["waits"]) == ([], [])


async def test_i53_what_reaches_others_comes_before_what_they_say_later_in_its_batch(site: Site) -> None:
    """I53: the end of a run tells its waiter, and a cancel tells the children, though neither names them."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit_batch([start("r"), start("child", parent="r")])
        await coordinator.submit(turn("r", opens=(wait("0#1", runs=("child",)),)))
        ended, told = await coordinator.submit_batch([returns("child"), turn("r", entries=(result("0#2"),))])
        assert (ended.run_status, told.last) == ("completed", 2)
        rows = await every_row(store)
        assert [entry.kind for entry in entries_of(rows, "r")] == ["ended", "result"]
        await coordinator.submit(start("second", parent="r"))
        _, late = await coordinator.submit_batch([cancel("r"), turn("second", entries=(result("0#1"),))])
        assert late.verdict == "stale"


# --- a turn that others have overtaken -----------------------------------------------------------------------------


async def test_i50_a_deadline_that_lost_takes_nothing_else_of_its_turn_down_with_it(site: Site) -> None:
    """I50: the event was there first; the result and the child that came with the deadline are recorded."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit_batch([start("r"), turn("r", opens=(wait("0#1", "a"),))])
        await coordinator.submit(send("r", "e1", "a"))
        late = turn(
            "r",
            entries=(*time_comes("r").entries, result("0#2")),
            closes=("0#1",),
            children=(start("child", lease=False, parent="r"),),
            opens=(wait("0#3", runs=("child",)),),
        )
        stepped = await coordinator.submit(late)
        assert stepped.verdict == "recorded"
        rows = await every_row(store)
        assert [(entry.address, entry.kind) for entry in entries_of(rows, "r")] == [
            ("0#1", "event"),
            ("0#2", "result"),
        ]
        assert [run.id for run in rows["runs"]] == ["child", "r"]
        assert [row.topic for row in rows["waits"]] == ["end:child"]
        assert (await coordinator.submit(late)).verdict == "repeated"
        assert await every_row(store) == rows, "K8: said again, it changes nothing"


async def test_k8_a_call_that_is_queued_again_after_executions_were_lost_is_the_one_that_there_is(site: Site) -> None:
    """Executions that drivers lost have no rows: the first that has one has any number (seed 700706)."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        await coordinator.submit(LapseWork(run="r", node=TURN, attempt=1, token=1))
        (handed,) = await store.claim(claim_functions())
        third = replace(queued_call("0#1"), attempt=3, failures=1)
        said = turn("r", attempt=2, token=handed.work.token, calls=(third,))
        await coordinator.submit(said)
        (claimed,) = await store.claim(claim_functions("other"))
        assert (claimed.work.attempt, claimed.work.token) == (3, 1)
        rows = await every_row(store)
        coordinator.cache.clear()
        await coordinator.submit(said)
        again = await every_row(store)
        assert again["work"] == rows["work"]


# --- reading without the queue, and the end ------------------------------------------------------------------------


async def test_i53_get_active_tells_what_this_process_knows_without_asking_anybody(site: Site) -> None:
    """The seed's getActive: possibly stale by a batch, and nothing of what has ended."""
    async with opened_kernel(site) as (coordinator, _):
        assert coordinator.get_active("r") is None
        starting = coordinator.submit(start("r"))
        assert coordinator.get_active("r") is None, "not committed yet"
        await starting
        active = coordinator.get_active("r")
        assert active is not None
        assert active.status == "running"
        waiting = coordinator.submit(suspend("r", "a"))
        assert coordinator.get_active("r") == active, "stale by one batch"
        await waiting
        suspended = coordinator.get_active("r")
        assert suspended is not None
        assert suspended.status == "suspended"
        await coordinator.submit(cancel("r", force=True))
        assert coordinator.get_active("r") is None


async def test_i54_after_shutdown_every_outstanding_future_has_a_result_or_engine_closed(site: Site) -> None:
    """I54: what was submitted is finished, what comes later is told; nobody waits for ever."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r"))
        said = [suspend("r", "a"), *(send("r", f"e{number}", "a") for number in range(300)), broadcast("b1", "b")]
        futures = [coordinator.submit(operation) for operation in said]
        closing = asyncio.ensure_future(coordinator.close())
        await asyncio.wait([closing])
        assert all(future.done() for future in futures)
        answers = [future.exception() or future.result() for future in futures]
        kept = [answer for answer in answers if isinstance(answer, Delivered | Queued)]
        assert all(isinstance(answer, EngineClosed) for answer in answers[1:] if answer not in kept)
        rows = await every_row(store)
        assert len(rows["events"]) + len(entries_of(rows, "r")) == len(kept), "told the truth"
        with pytest.raises(EngineClosed):
            await coordinator.submit(send("r", "late", "a"))
