"""K11: hints among the processes of one machine that use the same PostgreSQL, past its server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import neighbours
from holdfast.store.file_bell import FileBell
from holdfast.store.neighbours import MOST_EXPECTED, Neighbours
from holdfast.store.postgres import PostgresStore
from tests.support.stores import Site
from tests.worker.support import until

NEWS = frozenset({"work"})


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files lie in this test."""
    monkeypatch.setattr(neighbours, "MEMORY", str(tmp_path))
    return tmp_path


def files_in(memory: Path) -> list[str]:
    return sorted(path.name for path in memory.glob("holdfast-*/*"))


class Neighbour:
    """One session, and what it has heard."""

    def __init__(self, session: int, database: str = "one") -> None:
        self.heard: list[str] = []
        self.session = session
        found = Neighbours.of(database, session, self._hear)
        if found is None:
            pytest.skip("this system does not tell of writes to a file")
        self.bell = found

    def _hear(self, channels: Iterable[str]) -> None:
        self.heard += channels


@asynccontextmanager
async def living(*sessions: int, database: str = "one") -> AsyncIterator[list[Neighbour]]:
    there = [Neighbour(session, database) for session in sessions]
    await asyncio.sleep(0)  # that they came is a ring, too
    try:
        yield there
    finally:
        for each in there:
            each.bell.close()


# --- through the store ---------------------------------------------------------------------------------------------


async def test_k11_on_postgresql_a_neighbour_hears_of_work_without_a_notification(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site("postgresql", postgres_url)
    async with site.opened() as ours, site.opened() as theirs:
        assert isinstance(ours, PostgresStore)
        heard: list[str] = []
        await ours.listen(lambda _: None)
        await theirs.listen(heard.append)
        await until(lambda: ours._neighbours is not None and "ended" in heard, "both listen")
        run = ours._run

        async def without_notifications(connection: Any, method: str, sql: str, *args: Any) -> Any:
            return None if sql.startswith("NOTIFY") else await run(connection, method, sql, *args)

        monkeypatch.setattr(ours, "_run", without_notifications)
        heard.clear()
        await ours.announce(NEWS)
        await until(lambda: heard == ["work"], "the bell is heard")


async def test_k11_on_postgresql_what_the_bell_has_told_is_not_told_again_by_its_notification(
    postgres_url: str,
) -> None:
    site = Site("postgresql", postgres_url)
    async with site.opened() as ours, site.opened() as theirs:
        assert isinstance(ours, PostgresStore)
        assert isinstance(theirs, PostgresStore)
        heard: list[str] = []
        await ours.listen(lambda _: None)
        await theirs.listen(heard.append)
        await until(lambda: None not in (ours._neighbours, theirs._neighbours) and "ended" in heard, "both listen")
        heard.clear()
        for times in (1, 2, 3):
            await ours.announce(NEWS)
            await until(lambda: theirs._neighbours is not None and not theirs._neighbours._expected, "both have come")
            assert heard == ["work"] * times


async def test_k11_on_postgresql_notifications_suffice_where_there_is_no_bell(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileBell, "listen", lambda self, heard: False)
    site = Site("postgresql", postgres_url)
    async with site.opened() as ours, site.opened() as theirs:
        assert isinstance(theirs, PostgresStore)
        heard: list[str] = []
        await theirs.listen(heard.append)
        await until(lambda: "ended" in heard, "they listen")
        assert theirs._neighbours is None
        heard.clear()
        await ours.announce(NEWS)
        await until(lambda: heard == ["work"], "they are notified")


# --- the bell ------------------------------------------------------------------------------------------------------


async def test_k11_all_neighbours_but_who_rings_hear_it_and_pass_over_its_notification_once() -> None:
    async with living(11, 12, 13) as (ringer, *others):
        ringer.bell.ring(("work", "ended"))
        await until(lambda: all(len(each.heard) == 2 for each in others), "both hear it")
        assert ringer.heard == []
        for each in others:
            assert each.heard == ["work", "ended"]
            assert not each.bell.has_told(12, "ended"), "that would be another's"
            assert [each.bell.has_told(11, "ended") for _ in range(2)] == [True, False]


async def test_k11_of_two_who_ring_at_once_one_is_heard_and_the_notification_of_the_other_counts() -> None:
    async with living(11, 12, 13) as (one, two, listener):
        one.bell.ring(("ended",))
        two.bell.ring(("work",))
        await until(lambda: bool(listener.heard), "it looks")
        assert listener.heard == ["work"]
        assert not listener.bell.has_told(11, "ended")
        assert listener.bell.has_told(12, "work")


async def test_k11_a_short_hint_after_a_long_one_and_what_no_session_has_written_are_read_right(memory: Path) -> None:
    trouble: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: trouble.append(context))
    async with living(11, 123456) as (listener, other):
        other.bell.ring(("ended", "work"))
        await until(lambda: len(listener.heard) == 2, "the long one is heard")
        other.bell.ring(("work",))
        await until(lambda: len(listener.heard) == 3, "the short one is heard")
        (file,) = memory.glob("holdfast-*/one")
        for nonsense in (b"!", b"\xff\xfe\n", b"work work\n", b""):
            file.write_bytes(nonsense)
            listener.bell._listen()
        assert listener.heard == ["ended", "work", "work"]
        other.bell.ring(("ended",))
        await until(lambda: listener.heard[3:] == ["ended"], "it listens still")
    assert not trouble


async def test_k11_notifications_that_never_come_are_not_expected_for_ever() -> None:
    async with living(11, 12) as (ringer, listener):
        for number in range(MOST_EXPECTED + 1):
            ringer.bell.ring((f"news {number}",))
            await until(lambda wanted=number + 1: len(listener.heard) == wanted, "each is heard")
        assert len(listener.bell._expected) == 1


async def test_k11_databases_do_not_hear_each_other() -> None:
    async with living(11), living(12, 13, database="two") as (ringer, listener), living(14) as (other,):
        ringer.bell.ring(NEWS)
        await until(lambda: listener.heard == ["work"], "the neighbour hears it")
        assert other.heard == []


# --- the file ------------------------------------------------------------------------------------------------------


async def test_k11_the_last_one_to_go_removes_the_file(memory: Path) -> None:
    async with living(11) as (last,):
        async with living(12):
            assert files_in(memory) == ["one"]
        assert files_in(memory) == ["one"], "somebody listens"
        assert last.bell is not None
    assert files_in(memory) == []


async def test_k11_the_last_one_to_go_leaves_the_file_of_those_who_came_after_it_was_taken_away(memory: Path) -> None:
    """Whoever clears the place does not ask who listens there; newer processes hear each other all the same."""
    before = Neighbour(11)
    (file,) = memory.glob("holdfast-*/one")
    file.unlink()
    async with living(12) as (after,):
        before.bell.close()
        assert files_in(memory) == ["one"]
        async with living(13) as (ringer,):
            ringer.bell.ring(("work",))
            await until(lambda: after.heard == ["work"], "the newer ones share a file")


async def test_k11_a_file_that_a_killed_process_left_behind_serves_the_next(memory: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from holdfast.store import neighbours\n"
        "neighbours.MEMORY = sys.argv[1]\n"
        "async def main():\n"
        "    assert neighbours.Neighbours.of('one', 1, print)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    async with living(11):
        pass
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program, str(memory)], check=False)
    assert done.returncode == -9
    assert files_in(memory) == ["one"]
    async with living(12, 13) as (ringer, listener):
        ringer.bell.ring(NEWS)
        await until(lambda: listener.heard == ["work"], "it is heard")
    assert files_in(memory) == []


async def test_k11_who_comes_while_the_last_one_removes_the_file_makes_a_new_one(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it, it is gone: whoever listened to it would hear nobody."""
    opened: list[str] = []
    real = os.open

    def open_and_lose(path: str, flags: int, mode: int = 0o777) -> int:
        file = real(path, flags, mode)
        if str(path).endswith("/one") and not opened:
            opened.append(path)
            os.unlink(path)
        return file

    async with living(10, database="another"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", open_and_lose)
            early = Neighbour(11)
        async with living(12) as (ringer,):
            ringer.bell.ring(NEWS)
            await until(lambda: early.heard == ["work"], "both have the same file")
        early.bell.close()
    assert opened


@pytest.mark.parametrize("trap", ["open to others", "a link", "a file"])
async def test_k11_a_directory_that_others_may_write_to_is_not_used(memory: Path, trap: str) -> None:
    """Whoever could put a file there could keep us from hearing; then the server's notifications are all there is."""
    directory = memory / f"holdfast-{os.getuid()}"
    if trap == "a file":
        directory.touch()
    elif trap == "a link":
        (memory / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to(memory / "elsewhere")
    else:
        directory.mkdir()
        directory.chmod(0o777)
    assert Neighbours.of("one", 11, print) is None
    assert not list(memory.glob("holdfast-*/one"))


async def test_k11_without_a_place_in_memory_there_is_no_bell(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MEMORY", str(memory / "missing"))
    assert Neighbours.of("one", 11, print) is None
