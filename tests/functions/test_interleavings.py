"""Suspend against everything that can end a wait, and those against each other: one winner, nothing lost or twice.

Two operations are made to overlap: one is stopped at a place inside its transaction while the other comes. Whatever
happens, results and rows must be those of one order of the two, on every store; where the operations come from two
engines or two processes, both orders must have happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.function_operations import TURN, Delivered, DropEvent, Queued
from holdfast.core.operations import ClaimWork, LapseWork, Operation, PauseRun, ResumeRun
from holdfast.store.contract import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from tests.functions.kernel_moves import (
    LATER,
    broadcast,
    cancel,
    goes_on,
    queued_call,
    raises,
    result,
    returns,
    send,
    start,
    suspend,
    time_comes,
    turn,
    unsound,
    wait,
    whereabouts,
)
from tests.functions.rival import Rival, outcome_of
from tests.kernel.kernels import make_coordinator
from tests.kernel.postgres_watch import outsider
from tests.kernel.scripts import plain
from tests.support.stores import Site, VirtualClock, empty, every_row

# A second time: what turns out to concern a run that it has not locked begins again, with that run locked.
UNLOCKED = ("batch.taken", "flush.after_commit", "flush.after_commit again")
INSIDE = {
    "memory": ("load.after_rows", "flush.before"),
    "sqlite": ("load.after_rows",),  # its one writer holds every lock from the first statement on
    "postgresql": ("load.after_topics", "load.after_rows", "load.after_rows again", "flush.before_commit"),
}
PLACES_FOR_PROCESSES = ("batch.taken", "load.after_rows", "flush.before_commit")
SOMEONE_WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted"
A_MOMENT_SECONDS = 0.01  # SQLite does not tell that somebody waits for its lock


@dataclass(frozen=True)
class Race:
    """Two operations that come at once, and what was there before."""

    before: tuple[Operation, ...]
    one: Operation
    other: Operation


RUNNING = (start("r"),)
WAITING = (*RUNNING, suspend("r", "a", "b", due=LATER))
DRIVEN = (*RUNNING, turn("r", opens=(wait("0#1", "a", "b"),)))  # it waits in one branch and acts in another
TAKEN = (*WAITING, ClaimWork(run="r", node=TURN, attempt=1, token=2, worker="w"))  # its time came, a worker has it
PARENT = (*RUNNING, start("child", parent="r"))
AWAITING = (*PARENT, suspend("r", "a", runs=("child",), due=LATER))
CALLING = (
    *RUNNING,
    turn("r", calls=(queued_call("0#2"),), opens=(wait("0#1", "a"),)),
    ClaimWork(run="r", node="0#2", attempt=1, token=1, worker="v"),
)
SUSPEND = suspend("r", "a", "b", due=LATER)
LOST = LapseWork(run="r", node=TURN, attempt=1, token=1)
CHILD_RETURNS, CHILD_RAISES = returns("child"), raises("child")
TAKEN_AWAITING = (*AWAITING, ClaimWork(run="r", node=TURN, attempt=1, token=2, worker="w"))
SUSPEND_FOR_CHILD = suspend("r", "a", runs=("child",), due=LATER)
CALL_RETURNS = returns("r", node="0#2")

RACES: dict[str, Race] = {
    "suspend and send": Race(RUNNING, SUSPEND, send("r", "e1", "a")),
    "suspend and broadcast": Race(RUNNING, SUSPEND, broadcast("e1", "a")),
    "suspend and broadcast to all": Race(RUNNING, SUSPEND, broadcast("e1", "b", to_all=True)),
    "suspend and cancel": Race(RUNNING, SUSPEND, cancel("r")),
    "suspend and force": Race(RUNNING, SUSPEND, cancel("r", force=True)),
    "suspend and pause": Race(RUNNING, SUSPEND, PauseRun(run="r")),
    "suspend and take-over": Race(RUNNING, SUSPEND, LOST),
    "suspend and the end of a child": Race(PARENT, SUSPEND_FOR_CHILD, CHILD_RETURNS),
    "suspend and the failure of a child": Race(PARENT, SUSPEND_FOR_CHILD, CHILD_RAISES),
    "suspend and the cancel of a child": Race(PARENT, SUSPEND_FOR_CHILD, cancel("child", force=True)),
    "suspend and the cancel of a parent": Race(
        (*PARENT, start("grandchild", parent="child")), suspend("child", "a"), cancel("r")
    ),
    "suspend for a time and send": Race(RUNNING, turn("r", park=True, due=LATER), send("r", "e1", "a")),
    "suspend for a time and cancel": Race(RUNNING, turn("r", park=True, due=LATER), cancel("r")),
    "suspend and the result of a call elsewhere": Race(CALLING, turn("r", park=True), CALL_RETURNS),
    "suspend and the failure of a call elsewhere": Race(CALLING, turn("r", park=True), raises("r", node="0#2")),
    "suspend and suspend for one event": Race((*RUNNING, start("s"), broadcast("e1", "a")), SUSPEND, suspend("s", "a")),
    "suspend and an event that is dropped": Race((*RUNNING, broadcast("e1", "a")), SUSPEND, DropEvent(event="e1")),
    "suspend and a second send": Race((*RUNNING, send("r", "e1", "a")), SUSPEND, send("r", "e2", "a")),
    "suspend and the same suspend": Race(RUNNING, SUSPEND, SUSPEND),
    "record and send": Race(DRIVEN, turn("r", entries=(result("0#2"),)), send("r", "e1", "a")),
    "record and broadcast": Race(DRIVEN, turn("r", entries=(result("0#2"),)), broadcast("e1", "b")),
    "record and cancel": Race(DRIVEN, turn("r", entries=(result("0#2"),)), cancel("r")),
    "record and pause": Race(DRIVEN, turn("r", entries=(result("0#2"),)), PauseRun(run="r")),
    "record and take-over": Race(DRIVEN, turn("r", entries=(result("0#2"),)), LOST),
    "give a wait up and send": Race(DRIVEN, turn("r", closes=("0#1",)), send("r", "e1", "a")),
    "give a call up and its result": Race(CALLING, turn("r", withdraws=("0#2",)), CALL_RETURNS),
    "give a call up and its failure": Race(CALLING, turn("r", withdraws=("0#2",)), raises("r", node="0#2")),
    "give a call up and cancel": Race(CALLING, turn("r", withdraws=("0#2",)), cancel("r")),
    "go on as another and send": Race(DRIVEN, goes_on("r"), send("r", "e1", "a")),
    "go on as another and broadcast": Race(DRIVEN, goes_on("r"), broadcast("e1", "a")),
    "go on as another and cancel": Race(DRIVEN, goes_on("r"), cancel("r")),
    "go on as another and take-over": Race(DRIVEN, goes_on("r"), LOST),
    "go on as another and the result of a call": Race(CALLING, goes_on("r"), CALL_RETURNS),
    "return and send": Race(DRIVEN, returns("r"), send("r", "e1", "a")),
    "return and broadcast": Race(DRIVEN, returns("r"), broadcast("e1", "a")),
    "return and cancel": Race(DRIVEN, returns("r"), cancel("r")),
    "return and take-over": Race(DRIVEN, returns("r"), LOST),
    "raise and send": Race(DRIVEN, raises("r"), send("r", "e1", "a")),
    "send and a second send": Race(WAITING, send("r", "e1", "a"), send("r", "e2", "a")),
    "send and a send of another name": Race(WAITING, send("r", "e1", "a"), send("r", "e2", "b")),
    "send and the same send": Race(WAITING, send("r", "e1", "a"), send("r", "e1", "a")),
    "send and one of the same id elsewhere": Race((*RUNNING, start("s")), send("r", "e1", "a"), send("s", "e1", "a")),
    "send and broadcast": Race(WAITING, send("r", "e1", "a"), broadcast("e2", "b")),
    "send and timer": Race(TAKEN, time_comes("r"), send("r", "e1", "a")),
    "send and cancel": Race(WAITING, send("r", "e1", "a"), cancel("r")),
    "send and force": Race(WAITING, send("r", "e1", "a"), cancel("r", force=True)),
    "send and pause": Race(WAITING, send("r", "e1", "a"), PauseRun(run="r")),
    "send and resume": Race((*WAITING, PauseRun(run="r")), send("r", "e1", "a"), ResumeRun(run="r")),
    "send and take-over": Race(TAKEN, send("r", "e1", "a"), LapseWork(run="r", node=TURN, attempt=1, token=2)),
    "send and the result of a call": Race(CALLING, send("r", "e1", "a"), CALL_RETURNS),
    "broadcast and a second broadcast": Race(WAITING, broadcast("e1", "a"), broadcast("e2", "a")),
    "broadcast and the same broadcast": Race(WAITING, broadcast("e1", "a"), broadcast("e1", "a")),
    "broadcast to all and a second one": Race(
        (*WAITING, start("s"), suspend("s", "a")), broadcast("e1", "a", to_all=True), broadcast("e2", "a", to_all=True)
    ),
    "broadcast and timer": Race(TAKEN, time_comes("r"), broadcast("e1", "b")),
    "broadcast and cancel": Race(WAITING, broadcast("e1", "a"), cancel("r")),
    "timer and cancel": Race(TAKEN, time_comes("r"), cancel("r")),
    "timer and the end of a child": Race(TAKEN_AWAITING, time_comes("r"), CHILD_RETURNS),
    "send and the end of a child": Race(AWAITING, send("r", "e1", "a"), CHILD_RETURNS),
    "cancel and the end of a child": Race(AWAITING, cancel("r"), CHILD_RETURNS),
    "cancel and cancel": Race(AWAITING, cancel("r"), cancel("r")),
    "cancel of a parent and cancel of its child": Race(AWAITING, cancel("r"), cancel("child")),
}
INTERLEAVINGS = [f"{name}: {which} first" for name in RACES for which in ("one", "other")]

Outcome = tuple[list[Any], dict[str, list[Any]]]


def sides(name: str) -> tuple[Race, Operation, Operation]:
    """The race, and who of the two is stopped on its way."""
    race = RACES[name.partition(":")[0]]
    return (race, race.one, race.other) if name.endswith("one first") else (race, race.other, race.one)


async def in_order(before: Sequence[Operation], *operations: Operation) -> Outcome:
    """The results of these operations one after another, and all rows then."""
    store = MemoryStore(VirtualClock())
    coordinator = make_coordinator(store, VirtualClock())
    for operation in before:
        coordinator.cache.clear()
        assert not isinstance(await coordinator.submit(operation), BaseException)
    results = []
    for operation in operations:
        coordinator.cache.clear()
        results.append(plain((await coordinator.submit_batch([operation]))[0]))
    await coordinator.close()
    return results, await every_row(store)


async def expected_of(race: Race, held: Operation, free: Operation) -> dict[str, Outcome]:
    forward, backward = await in_order(race.before, held, free), await in_order(race.before, free, held)
    return {"held first": forward, "free first": (backward[0][::-1], backward[1])}


async def prepare(coordinator: Coordinator, race: Race) -> None:
    answers = await coordinator.submit_batch(race.before)
    assert not [answer for answer in answers if isinstance(answer, BaseException)]


async def empty_at_once(store: Store) -> None:
    """Delete all that is stored, on SQLite in one commit: each costs a write to the disk."""
    if isinstance(store, SqliteStore):
        store.db.execute("BEGIN IMMEDIATE")
    await empty(store)
    if isinstance(store, SqliteStore):
        store.db.execute("COMMIT")


class Stop:
    """Holds whoever comes to a place first until it is let go."""

    def __init__(self, place: str) -> None:
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()
        self._place, _, again = place.partition(" ")
        self._passing = 1 if again else 0

    def hook(self, name: str) -> asyncio.Future[bool] | None:
        if name != self._place or self.arrived.is_set():
            return None
        if self._passing:
            self._passing -= 1
            return None
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a store's own thread, where nobody can be held
            return None
        self.arrived.set()
        return asyncio.ensure_future(self.go_on.wait())


async def overlap(
    site: Site, place: str, held: asyncio.Future[Any], free: Callable[[], asyncio.Future[Any]], watcher: Any
) -> tuple[list[Any], bool]:
    """Both results, and whether the first was really held at this place while the second came."""
    stop = Stop(place)
    failpoints.arm(stop.hook)  # type: ignore[arg-type]
    arriving = asyncio.ensure_future(stop.arrived.wait())
    await asyncio.wait([held, arriving], return_when=asyncio.FIRST_COMPLETED)
    was_held = stop.arrived.is_set()
    coming = free()
    if was_held:
        await until_it_waits(site, place, coming, watcher)
    stop.go_on.set()
    arriving.cancel()
    results = await asyncio.gather(held, coming, return_exceptions=True)
    failpoints.disarm()
    return [plain(each) for each in results], was_held


def check(found: Outcome, expected: dict[str, Outcome], sent: Sequence[Operation]) -> str:
    """Which order the outcome is equal to. Nothing lost, nothing twice, and rows that agree with each other."""
    results, rows = found
    assert not unsound(rows)
    for operation, answer in zip(sent, results, strict=True):
        if isinstance(answer, Delivered | Queued) and not any(run.ended for run in rows["runs"]):
            places = whereabouts(rows, operation.event, getattr(operation, "run", None))  # type: ignore[attr-defined]
            reached = len(answer.runs) if isinstance(answer, Delivered) and answer.runs else 1
            assert len(places) == reached, "lost, or twice"
    for order, outcome in expected.items():
        if found == outcome:
            return order
    explained = "\n".join(_difference(order, outcome, found) for order, outcome in expected.items())
    raise AssertionError(f"neither one order nor the other:\n{explained}")


def _difference(order: str, expected: Outcome, found: Outcome) -> str:
    lines = [f"{order}:"]
    if expected[0] != found[0]:
        lines.append(f"  results {expected[0]}\n  found   {found[0]}")
    for name, rows in expected[1].items():
        if rows != found[1][name]:
            lines.append(f"  {name} {rows}\n  found {found[1][name]}")
    return "\n".join(lines)


@asynccontextmanager
async def watching(site: Site) -> AsyncIterator[Any]:
    """A connection that tells whether somebody waits for a lock, on the store where that can be told."""
    if site.kind != "postgresql":
        yield None
        return
    async with outsider(site.url) as connection:
        yield connection


@asynccontextmanager
async def two_engines(site: Site) -> AsyncIterator[tuple[Store, Coordinator, Coordinator]]:
    """Two coordinators as two processes have them; memory belongs to one process, and has one."""
    clock = VirtualClock()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(site.opened(clock))
        other = one if site.kind == "memory" else await stack.enter_async_context(site.opened(clock))
        first = make_coordinator(one, clock)
        second = first if other is one else make_coordinator(other, clock)
        try:
            yield one, first, second
        finally:
            await first.close()
            await second.close()


async def until_it_waits(site: Site, place: str, coming: asyncio.Future[Any], watcher: Any) -> None:
    """Return when the second operation is done, or waits for what the first one holds."""
    if site.kind == "memory":
        return  # one coordinator: it is in the queue behind the first
    if place in UNLOCKED:
        await asyncio.wait([coming])
    elif site.kind == "sqlite":
        await asyncio.wait([coming], timeout=A_MOMENT_SECONDS)
    else:
        while not coming.done() and not await watcher.fetchval(SOMEONE_WAITS):
            pass


@pytest.mark.parametrize("name", INTERLEAVINGS)
async def test_i50_g5_two_that_come_at_once_have_one_order(site: Site, name: str) -> None:
    """I50, I54, G5, K1, K4: held at every place of its transaction, on every store."""
    race, held, free = sides(name)
    expected = await expected_of(race, held, free)
    orders = set()
    async with two_engines(site) as (store, first, second), watching(site) as watcher:
        for place in (*UNLOCKED, *INSIDE[site.kind]):
            await prepare(first, race)
            second.cache.clear()
            results, was_held = await overlap(site, place, first.submit(held), partial(second.submit, free), watcher)
            order = check((results, await every_row(store)), expected, (held, free))
            if was_held:
                orders.add(order)
            await empty_at_once(store)
            first.cache.clear()
    if site.kind == "memory":
        assert orders
    elif expected["held first"] != expected["free first"]:
        assert orders == {"held first", "free first"}, "not every order was forced"


@pytest.fixture(scope="module")
def rival() -> Iterator[Rival]:
    made = Rival()
    yield made
    made.close()


@pytest.mark.parametrize("name", [name for name in INTERLEAVINGS if name.endswith("one first")])
async def test_i50_g5_two_processes_that_come_at_once_have_one_order(
    postgres_site: Site, rival: Rival, name: str
) -> None:
    """I50, I54, G5, K1, K4: one of them stands still inside its transaction, in a process of its own."""
    race, held, free = sides(name)
    expected = await expected_of(race, held, free)
    orders = set()
    clock = VirtualClock()
    async with postgres_site.opened(clock) as store, watching(postgres_site) as watcher:
        coordinator = make_coordinator(store, clock)
        for place in PLACES_FOR_PROCESSES:
            await prepare(coordinator, race)
            answer = await rival.submit(postgres_site.url, place, held)
            coming = asyncio.ensure_future(coordinator.submit(free))
            if answer.held:
                await until_it_waits(postgres_site, place, coming, watcher)
                outcome = await rival.go_on()
            else:
                outcome = outcome_of(answer)
            results = [outcome, *map(plain, await asyncio.gather(coming, return_exceptions=True))]
            order = check((results, await every_row(store)), expected, (held, free))
            orders.update([order] if answer.held else [])
            await empty_at_once(store)
            coordinator.cache.clear()
        await coordinator.close()
    assert orders, "it was never held"


def test_there_are_more_than_forty_named_interleavings() -> None:
    """Each is one of two orders of one race."""
    assert len(INTERLEAVINGS) == len(set(INTERLEAVINGS)) == 2 * len(RACES) > 40
