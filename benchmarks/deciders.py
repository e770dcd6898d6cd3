"""Deciders: inputs alone and in a crowd, effects, the inbox, instances with long streams, and projections.

The decider does next to nothing, so that only the engine's own cost is left. An instance becomes long by inputs with a
thousand events each: a hundred thousand inputs would take a minute and show nothing more.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import msgspec

import holdfast as hf
from benchmarks.throughput import Cost, working_engine
from holdfast.authoring.registry import Registry
from holdfast.coordinator import Commit
from holdfast.core.rows import COMPLETED, EFFECT, RUNS, WORK

ACCOUNTS = Registry()
CALLERS = 64
A_FILLING = 1_000  # events of one input
PATIENCE_SECONDS = 120


class Deposit(msgspec.Struct, frozen=True):
    account: str
    cents: int


class Notify(msgspec.Struct, frozen=True):
    """Asks for an effect, whose handler answers with `Notified`."""

    account: str


class Notified(msgspec.Struct, frozen=True):
    account: str


class Fill(msgspec.Struct, frozen=True):
    """Leaves very many events at once."""

    account: str
    events: int


class Deposited(msgspec.Struct, frozen=True):
    cents: int


class NoticeAsked(msgspec.Struct, frozen=True):
    pass


class NoticeSent(msgspec.Struct, frozen=True):
    pass


class SendNotice(msgspec.Struct, frozen=True):
    to: str


class Balance(msgspec.Struct, frozen=True):
    cents: int = 0
    notices: int = 0


AccountInput = Deposit | Notify | Notified | Fill
AccountEvent = Deposited | NoticeAsked | NoticeSent


class Account(hf.Decider[Balance, AccountInput, AccountEvent, SendNotice], registry=ACCOUNTS):
    def workflow_id(self, input: AccountInput) -> str:
        return input.account

    def initial(self) -> Balance:
        return Balance()

    def evolve(self, state: Balance, event: AccountEvent) -> Balance:
        if isinstance(event, Deposited):
            return Balance(state.cents + event.cents, state.notices)
        if isinstance(event, NoticeSent):
            return Balance(state.cents, state.notices + 1)
        return state

    def decide(
        self, now: datetime, state: Balance, input: AccountInput
    ) -> hf.Decision[AccountEvent, SendNotice, AccountInput]:
        if isinstance(input, Deposit):
            return hf.Decision.event(Deposited(input.cents))
        if isinstance(input, Notify):
            return hf.Decision.event(NoticeAsked()).with_effect(SendNotice(input.account))
        if isinstance(input, Notified):
            return hf.Decision.event(NoticeSent())
        return hf.Decision(events=tuple(Deposited(1) for _ in range(input.events)))

    async def handle(self, effect: SendNotice, ctx: hf.EffectContext) -> AccountInput | None:
        return Notified(effect.to)


PROJECTED = Registry()  # a projection of its own would otherwise follow every other workload


class Ledger(Account, registry=PROJECTED):
    """The same, with a projection."""


@hf.projection(Ledger, batch=True, registry=PROJECTED)
async def balances(events: list[hf.Recorded[AccountEvent]], tx: hf.Tx) -> None:
    """One row for each account, one statement for each batch and account."""
    added: dict[str, int] = {}
    for recorded in events:
        if isinstance(recorded.event, Deposited):
            added[recorded.workflow_id] = added.get(recorded.workflow_id, 0) + recorded.event.cents
    for account, cents in added.items():
        await tx.execute(
            f"INSERT INTO balances VALUES ('{account}', {cents}) "
            "ON CONFLICT (account) DO UPDATE SET cents = balances.cents + excluded.cents"
        )


# -- inputs


async def deposit(engine: hf.Engine, account: str) -> None:
    await engine.execute(Account, Deposit(account, 1))


async def measure_execute_alone(url: str, *, inputs: int = 300, warm_up: int = 100) -> Cost:
    """One caller, one instance, one input after another."""
    async with hf.Engine(url, registry=ACCOUNTS) as engine:
        for _ in range(warm_up):
            await deposit(engine, "alone")
        with Cost.of(inputs) as cost:
            for _ in range(inputs):
                await deposit(engine, "alone")
        return cost


async def from_callers(inputs: int, give: Callable[[int], Awaitable[None]], callers: int = CALLERS) -> Cost:
    """As many callers, each of whom waits for one input before giving the next."""

    async def caller(first: int) -> None:
        for number in range(first, inputs, callers):
            await give(number)

    with Cost.of(inputs) as cost:
        await asyncio.gather(*(caller(first) for first in range(callers)))
    return cost


async def measure_execute(url: str, *, inputs: int = 8000) -> tuple[Cost, Cost]:
    """64 callers: for instances that exist, one for each caller; then every input for a new one."""
    async with hf.Engine(url, registry=ACCOUNTS) as engine:
        await from_callers(inputs // 4, lambda number: deposit(engine, f"warm {number % CALLERS}"))
        known = await from_callers(inputs, lambda number: deposit(engine, f"warm {number % CALLERS}"))
        fresh = await from_callers(inputs // 2, lambda number: deposit(engine, f"fresh {number}"))
        return known, fresh


# -- effects


@contextmanager
def watched_for(engine: hf.Engine, done: Callable[[Commit], bool]) -> Iterator[Callable[[], Awaitable[None]]]:
    """Gives a wait for the commit of which this is true: asking the store would be a cost of its own."""
    seen = asyncio.Event()

    def on_commit(commit: Commit) -> None:
        if done(commit):
            seen.set()

    async def wait() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await seen.wait()

    engine.coordinator.observers.append(on_commit)
    try:
        yield wait
    finally:
        engine.coordinator.observers.remove(on_commit)


def settled_effects(wanted: int) -> Callable[[Commit], bool]:
    """Whether as many effects are settled, in all commits that were seen."""
    count = 0

    def counted(commit: Commit) -> bool:
        nonlocal count
        count += sum(row.kind == EFFECT and row.status == COMPLETED for row in commit.changes.rows(WORK))
        return count >= wanted

    return counted


async def measure_effects(url: str, *, inputs: int = 4000, instances: int = 1000) -> Cost:
    """From the first input to the last settled effect: execute, hand over, handle, and the input that it returns."""
    async with working_engine(url, ACCOUNTS) as engine:
        await _notify(engine, inputs // 4, instances)
        return await _notify(engine, inputs, instances)


async def _notify(engine: hf.Engine, inputs: int, instances: int) -> Cost:
    async def notify(number: int) -> None:
        await engine.execute(Account, Notify(f"notified {number % instances}"))

    with Cost.of(inputs) as cost, watched_for(engine, settled_effects(inputs)) as all_settled:
        await from_callers(inputs, notify)
        await all_settled()
    return cost


# -- the inbox


async def measure_inbox(url: str, *, inputs: int = 6000, instances: int = 100) -> tuple[Cost, Cost]:
    """Inputs that are enqueued by 64 callers while nobody applies them; then a worker applies them all."""
    async with hf.Engine(url, registry=ACCOUNTS) as engine:

        async def enqueue(number: int) -> None:
            await engine.enqueue_input(Account, Deposit(f"queued {number % instances}", 1))

        await from_callers(instances, enqueue)
        queued = await from_callers(inputs, enqueue)
        with watched_for(engine, _all_applied(instances)) as all_applied:
            async with engine.worker():
                with Cost.of(inputs + instances) as drained:
                    await all_applied()
    return queued, drained


def _all_applied(instances: int) -> Callable[[Commit], bool]:
    empty: set[str] = set()

    def checked(commit: Commit) -> bool:
        empty.update(run.id for run in commit.changes.rows(RUNS) if run.mailbox == 0)
        return len(empty) >= instances

    return checked


# -- long streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What an input costs an instance with a long stream, in terms of what it costs one with a short stream."""

    ms: float
    remembered: float
    rebuilt: float  # its snapshot was deleted, and its state was folded from the first event
    from_snapshot: float  # by a process that knows nothing of it
    rebuild_seconds: float


async def fill(engine: hf.Engine, account: str, events: int) -> None:
    while events > 0:
        await engine.execute(Account, Fill(account, min(events, A_FILLING)))
        events -= A_FILLING


async def measure_long(url: str, *, short: int = 100, long: int = 100_000, inputs: int = 200) -> Grown:
    async with hf.Engine(url, registry=ACCOUNTS) as engine:
        await fill(engine, "short", short)
        await fill(engine, "long", long)
        ms, remembered = await _compare(engine, inputs)
    async with hf.Engine(url, registry=ACCOUNTS) as engine:
        await deposit(engine, "short")  # connections, plans and code are warm then; "long" is not
        from_snapshot = await _first_inputs(url)
        for account in ("short", "long"):
            await engine.delete_snapshot(Account, account)
        started = time.perf_counter()
        await deposit(engine, "long")
        rebuild_seconds = time.perf_counter() - started
        _, rebuilt = await _compare(engine, inputs)
    return Grown(
        ms=ms,
        remembered=remembered,
        rebuilt=rebuilt,
        from_snapshot=from_snapshot,
        rebuild_seconds=rebuild_seconds,
    )


async def _compare(engine: hf.Engine, inputs: int) -> tuple[float, float]:
    """Milliseconds for the long one and that to the short one; in turns, so that a noisy moment hits both."""
    taken: dict[str, list[float]] = {"short": [], "long": []}
    for _ in range(20):
        for account in taken:
            await deposit(engine, account)
    for _ in range(inputs):
        for account, times in taken.items():
            started = time.perf_counter()
            await deposit(engine, account)
            times.append((time.perf_counter() - started) * 1000)
    long = statistics.median(taken["long"])
    return long, long / statistics.median(taken["short"])


async def _first_inputs(url: str, engines: int = 7) -> float:
    """The first input that a process gives to the long one, to that for the short one."""
    taken: dict[str, list[float]] = {"short": [], "long": []}
    for number in range(engines):
        async with hf.Engine(url, registry=ACCOUNTS) as engine:
            await deposit(engine, "warm")
            for account in sorted(taken, reverse=bool(number % 2)):
                started = time.perf_counter()
                await deposit(engine, account)
                taken[account].append(time.perf_counter() - started)
    return statistics.median(taken["long"]) / statistics.median(taken["short"])


# -- projections


async def measure_projection(url: str, *, events: int = 50_000) -> Cost:
    """A projection that has all of a stream before it, until it has taken the last event."""
    async with hf.Engine(url, registry=PROJECTED) as engine:
        async with engine.store.transaction(user=True) as tx:
            await tx.user.execute("CREATE TABLE balances (account text PRIMARY KEY, cents bigint NOT NULL)")
        for number in range(0, events, A_FILLING):
            await engine.execute(Ledger, Fill(f"account {number % 10}", A_FILLING))
        with watched_for(engine, _reached(events)) as all_taken:
            async with engine.worker():
                with Cost.of(events) as cost:
                    await all_taken()
    return cost


def _reached(position: int) -> Callable[[Commit], bool]:
    return lambda commit: any(run.model == "projection" and run.base >= position for run in commit.changes.rows(RUNS))
