"""K11: who hears an announcement, and who does not need to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.core.operations import StartRun
from holdfast.store import sqlite
from holdfast.store.file_bell import FileBell
from holdfast.store.postgres import PostgresStore
from holdfast.store.statements import statements
from tests.kernel.kernels import make_coordinator
from tests.support.stores import Site, VirtualClock, execute
from tests.worker.support import until


async def test_k11_an_announcement_reaches_the_others_and_not_its_sender(shared_site: Site) -> None:
    """What this process committed its own observers know; following its own hints would cost it a read each."""
    async with shared_site.opened() as ours, shared_site.opened() as theirs:
        we, they = list[str](), list[str]()
        await ours.listen(we.append)
        await theirs.listen(they.append)
        # The first listening and opening are hints of their own: they have passed when both have heard the other.
        await _write(ours)
        await ours.announce(frozenset({"work"}))
        await _write(theirs)
        await theirs.announce(frozenset({"ended"}))
        await until(lambda: "work" in they and "ended" in we, "both hear each other")
        await _settled(we, they)
        before = list(we)
        await _write(ours)
        they.clear()
        await ours.announce(frozenset({"work"}))
        await until(lambda: "work" in they, "the other hears it")
        assert we == before


async def test_k11_two_engines_on_one_store_both_hear(shared_site: Site) -> None:
    """Each has observers for its own commits alone; and the second does not deafen the first."""
    before = asyncio.all_tasks()
    async with shared_site.opened() as store, shared_site.opened() as other:
        one, two = list[str](), list[str]()
        await store.listen(one.append)
        await store.listen(two.append)
        await _write(other)
        await other.announce(frozenset({"work"}))
        await until(lambda: "work" in one and "work" in two, "both hear the other process")
        await _settled(one, two)
        one.clear()
        two.clear()
        await store.announce(frozenset({"ended"}))
        assert "ended" in one
        assert "ended" in two
    assert asyncio.all_tasks() == before, "nobody listens on a closed store"


async def test_k11_on_postgresql_an_announcement_wakes_no_session_of_its_sender(postgres_url: str) -> None:
    """It comes from the session that listens; while there is none, from any other."""
    async with Site("postgresql", postgres_url).opened() as store:
        assert isinstance(store, PostgresStore)
        heard: list[tuple[str, int]] = []
        witness = await store.connections.connect()
        try:
            await witness.add_listener("holdfast", lambda _ear, sender, _channel, said: heard.append((said, sender)))
            await store.announce(frozenset({"work"}))
            await until(lambda: len(heard) == 1, "it is heard before anybody of ours listens")
            await store.listen(lambda channel: None)
            session = (await until(lambda: store._ear, "our session listens")).get_server_pid()
            await store.announce(frozenset({"ended"}))
            await until(lambda: len(heard) == 2, "it is heard")
            assert heard[1] == ("ended", session)
            await witness.execute("SELECT pg_terminate_backend($1)", session)
            await until(lambda: store._ear is None or store._ear.get_server_pid() != session, "the loss is noticed")
            await store.announce(frozenset({"work"}))
            await until(lambda: len(heard) == 3, "it is heard from another session")
            assert heard[2][0] == "work"
            assert heard[2][1] != session
        finally:
            await witness.close()


async def _write(store: object) -> None:
    """On SQLite the bell says when to look, and what is seen is that somebody has written."""
    if isinstance(store, sqlite.SqliteStore):
        await execute(store, "INSERT INTO topics (name) VALUES (hex(randomblob(8)))")


async def _settled(*heard: list[str]) -> None:
    sizes = (-1,)
    while sizes != (sizes := tuple(map(len, heard))):
        for _ in range(50):
            await asyncio.sleep(0)


async def test_k11_a_ring_of_the_bell_wakes_who_listens(tmp_path: Path) -> None:
    """At once, and as often as it takes: several rings may be one."""
    rung = asyncio.Event()
    listener, ringer = FileBell(tmp_path / "bell"), FileBell(tmp_path / "bell")
    if not listener.listen(rung.set):
        pytest.skip("this system does not tell of writes to a file")
    try:
        for _ in range(3):
            rung.clear()
            ringer.ring()
            async with asyncio.timeout(10):
                await rung.wait()
    finally:
        listener.close()
        ringer.close()


async def test_k11_without_a_bell_others_look_from_time_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system does not tell of writes, the file is looked at instead."""
    monkeypatch.setattr(FileBell, "listen", lambda self, heard: False)
    site = Site("sqlite", f"sqlite:///{tmp_path / 'store.db'}")
    async with site.opened() as ours, site.opened() as theirs:
        heard: list[str] = []
        await theirs.listen(heard.append)
        await _write(ours)
        await until(lambda: "work" in heard, "the change of the file is seen")


async def test_k4_on_sqlite_what_another_process_wrote_elsewhere_costs_no_second_try(tmp_path: Path) -> None:
    """Each row is guarded by itself, as on PostgreSQL; what else was remembered is forgotten."""
    site, clock = Site("sqlite", f"sqlite:///{tmp_path / 'store.db'}"), VirtualClock()
    async with site.opened(clock) as ours, site.opened(clock) as theirs:
        here, there = make_coordinator(ours, clock), make_coordinator(theirs, clock)
        locked: list[bool] = []
        here.observers.append(lambda commit: locked.append(commit.locked))
        await here.submit(StartRun(run="a", workflow="solo", model="dag"))
        await there.submit(StartRun(run="b", workflow="solo", model="dag"))
        await here.submit(StartRun(run="c", workflow="solo", model="dag"))
        assert locked == [False, False]
        assert here.cache.run_row("a") is None
        assert here.cache.run_row("c") is not None
        await here.close()
        await there.close()


async def test_g1_on_postgresql_only_what_is_done_again_anyway_is_not_waited_for(postgres_url: str) -> None:
    """Letting in what is due does not wait for the disk: who asks next does it again. All else of the session does.

    Some claims do not wait either: `test_leases_of_sleepers.py`.
    """
    async with Site("postgresql", postgres_url).opened() as store:
        assert isinstance(store, PostgresStore)
        sql = statements("postgres")
        for name, waits in (("promote", False), ("heartbeat", True), ("flush_end", True)):
            assert ("synchronous_commit" in sql[name]) is not waits, name
        await store.promote(["default"])
        async with store.connections.use() as connection:  # the one that was used last
            assert await connection.fetchval("SHOW synchronous_commit") == "on"
