"""Projections on PostgreSQL see every event: the bound stays below every position whose transaction is open (I36)."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.store import audit
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres_horizon import Horizon
from tests.store.conformance.rows import a_fact, put
from tests.support.postgres import Databases
from tests.support.stores import Site, change, site_for

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = 100
WRITERS = 4
WRITE_AND_WAIT = """
import asyncio, sys
from tests.store.conformance.rows import a_fact
from tests.support.stores import Site, change

async def main():
    async with Site("postgresql", sys.argv[1]).opened() as store:
        for line in sys.stdin:
            run, ending = line.split()
            try:
                async with store.transaction() as tx:
                    await tx.write(change(insert=(a_fact(run),)))
                    print("written", flush=True)
                    sys.stdin.readline()
                    if ending == "rollback":
                        raise LookupError
            except LookupError:
                pass
            print("ended", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def postgres_site(databases: Databases, tmp_path: Path) -> Iterator[Site]:
    with site_for("postgresql", databases, tmp_path) as site:
        yield site


class Writer:
    """A transaction that has written an event, and that the test ends when it likes."""

    def __init__(self, store: PostgresStore, run: str) -> None:
        self.run = run
        self._open: Any = store.transaction()

    async def write(self) -> None:
        tx = await self._open.__aenter__()
        await tx.write(change(insert=(a_fact(self.run, 1), a_fact(self.run, 2))))

    async def commit(self) -> None:
        await self._open.__aexit__(None, None, None)

    async def roll_back(self) -> None:
        with suppress(LookupError):
            await self._open.__aexit__(LookupError, LookupError("given up"), None)


class Reader:
    """A projection in small: reads up to the bound, goes on where it was, and keeps what it saw."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.position = 0
        self.seen: list[str] = []

    async def read(self) -> list[str]:
        bound = await self._store.stream_bound()
        while page := await self._store.read_stream("Order", self.position, bound, 3):
            self.seen += [f"{fact.run}/{fact.sequence}" for fact in page]
            self.position = page[-1].position
        self.position = max(self.position, bound)
        return self.seen

    async def read_all(self, count: int) -> list[str]:
        """Until as many were seen: the server's own housekeeping may hold the bound back for a moment."""
        with suppress(TimeoutError):  # what did not come is then missing from the answer
            async with asyncio.timeout(10):
                while len(await self.read()) < count:
                    pass
        return self.seen


@asynccontextmanager
async def opened(site: Site) -> AsyncIterator[PostgresStore]:
    async with site.opened() as store:
        assert isinstance(store, PostgresStore)
        yield store


def both(*runs: str) -> list[str]:
    return [f"{run}/{number}" for run in runs for number in (1, 2)]


async def test_i36_the_bound_waits_for_a_lower_position_that_is_not_committed(postgres_site: Site) -> None:
    """A reader that went by what it sees would read the second, and pass over the first for ever."""
    async with opened(postgres_site) as store:
        first, second, reader = Writer(store, "first"), Writer(store, "second"), Reader(store)
        await first.write()
        await second.write()
        await second.commit()
        assert await reader.read() == []
        await first.commit()
        assert await reader.read_all(4) == both("first", "second")


async def test_i36_the_newest_transaction_of_all_holds_the_bound_back(postgres_site: Site) -> None:
    """Nobody with a higher id has ended, so the upper end of a snapshot is this very transaction: it is not enough."""
    async with opened(postgres_site) as store:
        reader, writer = Reader(store), Writer(store, "only")
        await put(store, a_fact("early"))
        assert await reader.read_all(1) == ["early/1"]
        bound = await store.stream_bound()
        await writer.write()
        assert [await store.stream_bound() for _ in range(3)] == [bound] * 3
        await writer.commit()
        assert await reader.read_all(3) == ["early/1", *both("only")]


async def test_i36_a_position_that_was_rolled_back_is_passed(postgres_site: Site) -> None:
    """It leaves a gap, for which nobody waits."""
    async with opened(postgres_site) as store:
        gone, later, reader = Writer(store, "gone"), Writer(store, "later"), Reader(store)
        await gone.write()
        await later.write()
        await later.commit()
        assert await reader.read() == []
        await gone.roll_back()
        assert await reader.read_all(2) == both("later")
        facts = await store.read_stream("Order", 0, 2**62, 10)
        assert facts[0].position > 2


async def test_i36_what_was_settled_is_read_while_something_newer_is_open(postgres_site: Site) -> None:
    """An open transaction holds back what is above it, and not what is below."""
    async with opened(postgres_site) as store:
        reader = Reader(store)
        await put(store, a_fact("early", 1), a_fact("early", 2))
        assert await reader.read_all(2) == both("early")
        await put(store, a_fact("before", 1), a_fact("before", 2))
        writer = Writer(store, "open")
        await store.stream_bound()
        await writer.write()
        assert await reader.read_all(4) == both("early", "before")
        await put(store, a_fact("late", 1), a_fact("late", 2))
        assert await reader.read() == both("early", "before")
        await writer.commit()
        assert await reader.read_all(8) == both("early", "before", "open", "late")


async def test_i36_an_idle_database_spends_no_transaction_ids(postgres_site: Site) -> None:
    """A reader that polls ten times a second for years must not bring a wraparound nearer."""
    async with opened(postgres_site) as store:
        await put(store, a_fact())
        await store.stream_bound()
        _, taken, _ = await store._statement("fetchrow", "stream_horizon", store._horizon.newest)
        assert taken is None
        _, taken, _ = await store._statement("fetchrow", "stream_horizon", store._horizon.newest - 1)
        assert taken is not None


async def test_i36_random_writers_lose_no_event_and_repeat_none(postgres_site: Site) -> None:
    """A hundred schedules of writers that commit or give up in any order, and two readers that know different marks."""
    seed = random.randrange(10**6)
    choose = random.Random(seed)
    async with opened(postgres_site) as store, opened(postgres_site) as elsewhere:
        readers = [Reader(store), Reader(elsewhere)]
        committed: set[str] = set()
        for schedule in range(SCHEDULES):
            await _one_schedule(choose, store, schedule, readers, committed)
            for reader in readers:
                seen = await reader.read_all(len(committed))
                assert len(seen) == len(set(seen)), f"seed {seed}, schedule {schedule}: an event came twice"
                assert set(seen) == committed, f"seed {seed}, schedule {schedule}: {committed - set(seen)} never came"
        for run in {name.split("/")[0] for name in committed}:
            for reader in readers:
                assert reader.seen.index(f"{run}/1") < reader.seen.index(f"{run}/2"), f"seed {seed}"
        positions = [fact.position for fact in await store.read_stream("Order", 0, 2**62, 10_000)]
        assert len(positions) == len(set(positions)) == len(committed)


async def _one_schedule(
    choose: random.Random, store: PostgresStore, schedule: int, readers: list[Reader], committed: set[str]
) -> None:
    waiting = [f"s{schedule}w{number}" for number in range(WRITERS)]
    under_way: list[Writer] = []
    while waiting or under_way:
        move = choose.random()
        if move < 0.3:
            await choose.choice(readers).read()
        elif waiting and (move < 0.65 or not under_way):
            under_way.append(Writer(store, waiting.pop()))
            await under_way[-1].write()
        elif under_way:
            writer = under_way.pop(choose.randrange(len(under_way)))
            if choose.random() < 0.3:
                await writer.roll_back()
            else:
                await writer.commit()
                committed.update(both(writer.run))


async def test_i36_events_written_at_once_are_all_seen(postgres_site: Site) -> None:
    """Flushes of two stores in parallel, as workers make them, while a reader follows."""
    async with opened(postgres_site) as one, opened(postgres_site) as two:
        reader = Reader(one)
        writing = asyncio.gather(
            *(store.flush(change(insert=(a_fact(f"r{number}"),))) for number in range(150) for store in (one,)),
            *(two.flush(change(insert=(a_fact(f"q{number}"),))) for number in range(150)),
        )
        while not writing.done():
            await reader.read()
        await writing
        await reader.read_all(300)
        assert sorted(reader.seen) == sorted(f"{name}{number}/1" for name in "rq" for number in range(150))


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_i36_a_writer_in_another_process_holds_the_bound_back(postgres_site: Site, ending: str) -> None:
    """What this process has not seen begin is waited for all the same; killed in the middle, it is passed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WRITE_AND_WAIT, postgres_site.url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={"PYTHONPATH": f"{Path(sys.modules['holdfast'].__path__[0]).parent}:{ROOT}", "PATH": ""},
    )

    async def told(line: str) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n".encode())
        return (await asyncio.wait_for(process.stdout.readline(), 20)).strip()

    try:
        async with opened(postgres_site) as store:
            reader = Reader(store)
            assert await told(f"there {ending}") == b"written"
            await put(store, a_fact("here"))
            assert await reader.read() == []
            assert await told("") == b"ended"
            expected = ["there/1", "here/1"] if ending == "commit" else ["here/1"]
            assert await reader.read_all(len(expected)) == expected
            assert await told("killed commit") == b"written"
            await put(store, a_fact("here", 2))
            before = list(reader.seen)
            assert await reader.read() == before
            process.kill()  # the server notices that its client is gone
            assert await reader.read_all(len(before) + 1) == [*before, "here/2"]
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_i36_a_transaction_that_holds_the_horizon_back_is_reported(
    postgres_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its age, also to a process that has just begun to look, and by doctor with the process to blame."""
    monkeypatch.setattr(audit, "LONG_WRITER_SECONDS", 0.0)
    idle = await asyncpg.connect(postgres_site.url, server_settings={"application_name": "nightly-import"})
    try:
        async with opened(postgres_site) as store, opened(postgres_site) as fresh:
            assert await store.horizon_age() == 0.0
            await idle.execute("BEGIN")
            await idle.execute("CREATE TEMPORARY TABLE mine (x integer)")
            await put(store, a_fact())
            first = await store.horizon_age()
            assert first > 0
            assert await store.horizon_age() > first
            assert await fresh.horizon_age() > first
            (finding,) = [each for each in await store.doctor() if each.subject == "horizon"]
            assert finding.severity == "warning"
            assert "nightly-import" in finding.message
            assert str(idle.get_server_pid()) in finding.message
            await idle.execute("ROLLBACK")
            assert await Reader(store).read_all(1) == ["r1/1"]
            assert await store.horizon_age() == 0.0
            assert not [each for each in await store.doctor() if each.subject == "horizon"]
    finally:
        await idle.close()


def test_i36_marks_settle_in_their_order() -> None:
    """A mark is settled when everything below its id has ended; the newest settled one is the bound."""
    horizon = Horizon()
    horizon.note(5, 100, now=1.0)
    horizon.note(9, 103, now=2.0)
    horizon.note(9, 104, now=3.0)  # nothing new
    assert horizon.settle(99) == 0
    assert horizon.waiting is not None
    assert horizon.waiting.seen == 1.0
    assert horizon.settle(100) == 5
    assert horizon.settle(102) == 5
    assert horizon.settle(103) == 9
    assert horizon.waiting is None
    assert horizon.newest == 9


def test_i36_marks_stay_few_however_long_a_transaction_is_open() -> None:
    """The newest takes the place of the one before it: nothing is passed over, it settles later."""
    horizon = Horizon()
    for number in range(1, 3 * Horizon.LIMIT):
        horizon.note(number, 100 + number, now=0.0)
    assert len(horizon._marks) == Horizon.LIMIT
    assert horizon.settle(100 + Horizon.LIMIT - 1) == Horizon.LIMIT - 1
    assert horizon.settle(10**9) == 3 * Horizon.LIMIT - 1
