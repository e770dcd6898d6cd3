"""Crashes inside one process, at every failpoint that the life of a till reaches, each time it is reached.

A life is driven by hand, so that every run of the script reaches the same places in the same order: inputs are
executed and enqueued, effects run, timers fire on a clock that is turned by hand, and the inbox is drained, by the
code that a worker uses. A crash leaves everything as it is; the rows are judged as they were left (`oracle.py`); then
a new engine on the same database takes over and finishes.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.decider_operations import EnqueueInput, ExecuteInput
from holdfast.core.ids import instance_id
from holdfast.core.operations import Handed, Offer
from holdfast.runtime.attempt import Attempt
from holdfast.runtime.folds import submit
from holdfast.runtime.killswitch import Crash
from holdfast.runtime.system import RealIds, real_system
from holdfast.runtime.worker import Worker
from holdfast.store.contract import ClaimRequest
from holdfast.store.sqlite import SqliteStore
from tests.deciders import oracle, tills
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.tills import Book, Deposit, Till, TillInput, TillState, Withdraw
from tests.support.postgres import Databases
from tests.support.stores import VirtualClock, execute, site_for
from tests.worker.support import assert_sound

QUEUES = ("default",)
SEED = int(os.environ.get("CRASH_TEST_SEED", str(random.SystemRandom().randrange(10**9))))
SHARE = {"sqlite": (1.0, 0.3), "postgresql": (0.4, 0.1)}
"""How many of all crashes are tried, by store: with what is remembered, and without. CRASH_TEST_SHARE=1 tries all."""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


class Life:
    """An engine and a worker that does nothing by itself."""

    def __init__(self, engine: hf.Engine, worker: Worker, clock: VirtualClock, forgetful: bool) -> None:
        self.engine = engine
        self._worker = worker
        self._clock = clock
        self._forgetful = forgetful

    async def play(self, book: Book) -> None:
        """The script, from wherever the last life left it."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            for input in tills.first_act(book.key):
                await self._give(book, input)
            await self.settle_all()
            for input in tills.last_act(book.key):
                await self._give(book, input)
            await self.settle_all()

    async def _give(self, book: Book, input: TillInput) -> None:
        if not book.may_give(input):
            return
        book.begun.append(input.id)
        operation = self._queued(input) if input.id in tills.QUEUED else self._executed(input)
        answer = await submit(
            operation, coordinator=self._coordinator(), store=self.engine.store, definitions=self.engine.definitions
        )
        book.acknowledged.append(input.id)
        for handed in answer.handed:
            await self._run(handed)

    def _executed(self, input: TillInput) -> ExecuteInput:
        return ExecuteInput(**self._fields(input), offer=self._offer())

    def _queued(self, input: TillInput) -> EnqueueInput:
        return EnqueueInput(**self._fields(input))

    def _fields(self, input: TillInput) -> dict[str, Any]:
        code = self.engine.definitions.decider("till")
        assert code is not None
        routed = code.route(input)
        return {
            "run": instance_id("till", input.till),
            "workflow": "till",
            "key": input.till,
            "data": routed.data,
            "codec": routed.codec,
            "command": tills.command_of(input),
            "id": self.engine.system.ids.new(),
            "observe": "payload",
        }

    def _offer(self) -> Offer:
        """Room for one: what becomes ready is leased in the same commit, as a worker of this process would get it."""
        return Offer(worker=self._worker.id, room=1, queues=QUEUES)

    def _coordinator(self) -> Any:
        if self._forgetful:
            self.engine.coordinator.cache.clear()  # nothing is remembered, so everything takes the locked path
        return self.engine.coordinator

    async def settle_all(self) -> None:
        """Run everything that is ready, then let time pass up to the next timer, until there is none."""
        names = self.engine.definitions
        request = ClaimRequest(
            worker=self._worker.id,
            queue=QUEUES[0],
            limit=3,
            workflows=names.known_workflows(),
            actions=names.known_actions(),
        )
        while True:
            try:
                found = await self.engine.store.claim(request)
                self.engine.coordinator.remember(found)
                found = found or await self._leased_unawares()
                if not found and not await self._time_passes():
                    return
            except hf.StoreUnavailable:
                continue
            for handed in found:
                await self._run(handed)

    async def _time_passes(self) -> bool:
        """To the next timer; False if none is set."""
        due = await self.engine.store.promote(QUEUES)
        if due is not None:
            self._clock.advance((due - self.engine.store.now()) / 1e6)
            await self.engine.store.promote(QUEUES)
        return due is not None

    async def _leased_unawares(self) -> list[Handed]:
        """What was leased to us by a commit whose answer was lost: a worker finds it when it looks at its leases."""
        leased = await self.engine.store.leased_to(self._worker.id)
        runs = {run.id: run for run in await self.engine.store.runs([work.run for work in leased])}
        return [Handed(work, runs[work.run]) for work in leased]

    async def _run(self, handed: Handed) -> None:
        self._coordinator()
        settled = await self._worker._runner.run(Attempt(handed.work, handed.run), self._offer)
        for following in settled.handed:
            await self._run(following)


@asynccontextmanager
async def alive(stage: Stage, clock: VirtualClock, *, forgetful: bool) -> AsyncIterator[Life]:
    """A life that takes over from the dead, and ends as suddenly as they did: nothing is given back or finished."""
    real = real_system()
    engine = hf.Engine(
        registry=tills.registry,
        store=stage.site.store(clock),
        system=replace(real, clock=clock, ids=RealIds(clock, real.randomness)),
        observe_inputs="payload",
        notify=False,
    )
    await engine.open()
    store = engine.store
    if isinstance(store, SqliteStore):
        store.db.execute("PRAGMA synchronous = OFF")  # quick, and a process that crashes loses nothing by it
    worker = Worker(
        store=store,
        coordinator=engine.coordinator,
        definitions=engine.definitions,
        settings=engine.settings,
        clock=clock,
        ids=engine.system.ids,
        randomness=real.randomness,
        metrics=engine.metrics,
        codecs=engine.codecs,
    )
    try:
        await worker._enroll()
        await worker._caretaker.take_over(worker.id)
        yield Life(engine, worker, clock, forgetful)
    finally:
        await store.close()


async def crashes(life: Life, book: Book, place: str, hit: int) -> bool:
    """Play until the place is reached for that time. False if it never is."""
    loop, reached, hits, dead = asyncio.get_running_loop(), asyncio.Event(), 0, False

    def hook(name: str) -> None:
        nonlocal hits, dead  # from this very instant on; the event is set a turn of the loop later
        hits += name == place
        if dead or (name == place and hits == hit):
            dead = True
            loop.call_soon_threadsafe(reached.set)
            raise Crash(f"{place}:{hit}")

    failpoints.arm(hook)
    playing = asyncio.ensure_future(life.play(book))
    crashing = asyncio.ensure_future(reached.wait())
    await asyncio.wait({playing, crashing}, return_when=asyncio.FIRST_COMPLETED)
    failpoints.disarm()
    crashed = reached.is_set()
    crashing.cancel()
    if not crashed:
        await playing
        return False
    playing.cancel()  # it may wait for an answer that nobody will give
    runner = life.engine.coordinator._runner
    await asyncio.wait({playing} if runner is None else {playing, runner})
    for task in (playing, runner):
        assert task is None or task.cancelled() or isinstance(task.exception(), Crash | None), task
    return True


async def counted(life: Life, book: Book) -> Counter[str]:
    """How often an undisturbed life reaches each place."""
    hits: Counter[str] = Counter()
    failpoints.arm(lambda name: hits.update([name]))
    await life.play(book)
    failpoints.disarm()
    return hits


def some_of(places: Counter[str], kind: str, forgetful: bool) -> Iterator[tuple[str, int]]:
    """Places to crash at, each place at least once."""
    print(f"CRASH_TEST_SEED={SEED}")
    chance, share = random.Random(SEED), float(os.environ.get("CRASH_TEST_SHARE", SHARE[kind][forgetful]))
    for place, count in sorted(places.items()):
        surely = chance.randint(1, max(1, count - 1))  # not the last: now and then a life has one commit less
        yield from ((place, hit) for hit in range(1, count + 1) if hit == surely or chance.random() < share)


FORGETFUL = pytest.mark.parametrize("forgetful", [False, True], ids=["remembering", "forgetful"])


@FORGETFUL
async def test_g1_g2_g3_i33_i34_a_till_crashed_at_every_place_is_a_serial_order_of_its_inputs(
    shared_stage: Stage, forgetful: bool
) -> None:
    """G1, G2, G3, I12, I33, I34: before, between and after the writes of every commit, on both paths to a commit."""
    clock = VirtualClock()
    async with oracle.Reader(shared_stage.site.url) as reader:
        book = Book("undisturbed")
        async with alive(shared_stage, clock, forgetful=forgetful) as life:
            places = await counted(life, book)
            await _is_finished(life, reader, book)
        _reaches_what_it_should(places, shared_stage.kind, forgetful)
        left, crashed = book, Counter[str]()
        for place, hit in some_of(places, shared_stage.kind, forgetful):
            async with alive(shared_stage, clock, forgetful=forgetful) as life:
                await life.play(left)
                await _is_finished(life, reader, left)
                left = Book(f"{place}:{hit}")
                crashed[place] += await crashes(life, left, place, hit)
            found = await reader.till(left.key)
            if found is not None:
                left.judge(oracle.check(found))
        async with alive(shared_stage, clock, forgetful=forgetful) as life:
            await life.play(left)
            await _is_finished(life, reader, left)
    async with shared_stage.engine(tills.registry, work=False) as engine:
        await assert_sound(engine)
    print(f"{crashed.total()} crashes on {shared_stage.kind}: {dict(sorted(crashed.items()))}")
    assert set(places) - set(+crashed) == set(), "no crash there"


def _reaches_what_it_should(places: Counter[str], kind: str, forgetful: bool) -> None:
    expected = {"flush.before", "flush.after_commit", "action.before", "action.after", "timer.before", "inbox.before"}
    if kind == "sqlite":
        expected |= {"flush.between", "flush.before_commit", "claim.before_commit"}
    if forgetful:
        expected |= {"load.after_locks", "load.after_rows", "flush.before_commit", "flush.between"}
    assert expected <= set(places), f"never reached: {expected - set(places)}"


async def _is_finished(life: Life, reader: oracle.Reader, book: Book) -> None:
    books = await reader.till(book.key)
    assert books is not None
    tally = oracle.check_finished(books)
    book.judge_finished(tally)
    told = await life.engine.state(Till, book.key)
    assert told == TillState(**tally.state()), "the engine folds another state than the oracle"


# --- an answer that is lost -----------------------------------------------------------------------------------------


def answers_lost(lost: Callable[[int], bool]) -> Counter[str]:
    """The connection breaks right after those commits; how often there was one."""
    hits: Counter[str] = Counter()

    def hook(name: str) -> None:
        hits[name] += 1
        if name == "flush.after_commit" and lost(hits[name]):
            raise hf.StoreUnavailable(f"gone after commit {hits[name]}, for this test")

    failpoints.arm(hook)
    return hits


@FORGETFUL
async def test_k8_i12_g3_a_commit_whose_answer_is_lost_is_not_applied_twice(
    shared_stage: Stage, forgetful: bool
) -> None:
    """K8: at every commit of a life in turn the connection breaks after the commit, and all of it is decided again."""
    clock = VirtualClock()
    async with oracle.Reader(shared_stage.site.url) as reader:
        async with alive(shared_stage, clock, forgetful=forgetful) as life:
            places = await counted(life, Book("undisturbed"))
        commits = Counter({"flush.after_commit": places["flush.after_commit"]})
        for _, hit in some_of(commits, shared_stage.kind, forgetful):
            async with alive(shared_stage, clock, forgetful=forgetful) as life:
                book = Book(f"lost-{hit}")
                answers_lost(hit.__eq__)
                await life.play(book)
                failpoints.disarm()
                await _is_finished(life, reader, book)


@FORGETFUL
async def test_k8_i12_g3_a_life_in_which_every_other_answer_is_lost_comes_out_the_same(
    shared_stage: Stage, forgetful: bool
) -> None:
    """K8, I12: also when the second try is told of a commit that the first one made."""
    clock = VirtualClock()
    async with oracle.Reader(shared_stage.site.url) as reader:
        book = Book("lost-often")
        async with alive(shared_stage, clock, forgetful=forgetful) as life:
            hits = answers_lost(lambda number: number % 2 == 1)
            await life.play(book)
            failpoints.disarm()
            assert hits["flush.after_commit"] > 10
            await _is_finished(life, reader, book)


@pytest.fixture
def postgres_stage(databases: Databases, tmp_path: Path) -> Iterator[Stage]:
    with site_for("postgresql", databases, tmp_path) as site:
        yield Stage(site)


@FORGETFUL
@pytest.mark.parametrize("queued", [False, True], ids=["executed", "queued"])
async def test_k8_i12_an_answer_is_lost_and_somebody_else_goes_on_before_it_is_decided_again(
    postgres_stage: Stage, forgetful: bool, queued: bool
) -> None:
    """K8: the input is not where it was put, because another process has applied it or what followed from it."""
    clock, book = VirtualClock(), Book("meanwhile")
    lost: list[str] = []
    async with (
        oracle.Reader(postgres_stage.site.url) as reader,
        alive(postgres_stage, clock, forgetful=forgetful) as life,
        alive(postgres_stage, clock, forgetful=False) as other,
    ):

        async def goes_on() -> None:
            await other.settle_all()
            raise hf.StoreUnavailable("gone after the commit, for this test")

        def hook(name: str) -> Awaitable[None] | None:
            given = book.begun[-1:]
            if name != "flush.after_commit" or lost or given != [tills.FREE[queued]]:
                return None
            lost.extend(given)
            return goes_on()

        failpoints.arm(hook)
        await life.play(book)
        failpoints.disarm()
        assert lost == [tills.FREE[queued]]
        assert set(tills.FREE) <= set(book.acknowledged)
        await _is_finished(life, reader, book)


# --- a stream that somebody has broken -------------------------------------------------------------------------------


async def test_i37_k9_an_instance_whose_events_were_deleted_is_refused_and_holds_up_nobody(shared_stage: Stage) -> None:
    """I37, K9: rows are gone that the instance counts. It says so, at once, writes nothing, and the others go on."""
    async with shared_stage.engine(tills.registry, work=False) as engine:
        for till in ("broken", "whole"):
            await engine.execute(Till, Deposit(till, "a", 100))
    async with shared_stage.engine(tills.registry, work=False) as engine:
        await execute(engine.store, "DELETE FROM stream WHERE key = 'broken'")
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(hf.RunError, match=r"stream of till 'broken' .* 1 events after number 0, 0 are there"):
                await engine.execute(Till, Withdraw("broken", "b", 10))
            await engine.execute(Till, Withdraw("whole", "b", 10))
        assert (await engine.state(Till, "whole")).balance == 90
        assert await engine.stream(Till, "broken") == []
        assert [found.subject for found in await engine.doctor() if "says its stream has 1" in found.message]
