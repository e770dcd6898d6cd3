"""A worker needs no right to change the schema: the owner migrates, workers read and write rows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any

import asyncpg
import pytest

import holdfast as hf
from holdfast.core.errors import StoreError
from tests.support.postgres import external_url
from tests.upgrade import programs
from tests.upgrade.test_upgrades import SECONDS
from tests.worker.support import ROOT, assert_sound

SETTINGS: dict[str, Any] = {"sweep_seconds": 0.1, "poll_seconds": 0.05}
_numbers = count(1)


def grants() -> str:
    """The statements that the page tells users to run, as they stand there."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)
    return str(block)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def only_what_is_called_here() -> Iterator[None]:
    programs.calls.clear()
    yield
    programs.calls.clear()


@pytest.fixture
def role() -> str:
    if external_url() is not None:
        pytest.skip("roles belong to the whole server, and this one is somebody else's")
    return f"holdfast_test_worker_{next(_numbers)}"


def as_role(url: str, role: str) -> str:
    changed = re.sub(r"user=[^&]*", f"user={role}", url)
    assert changed != url
    return changed


async def make_role(url: str, role: str) -> None:
    async with connected(url) as owner:
        await owner.execute(f"CREATE ROLE {role} LOGIN")
        await owner.execute(grants().replace("holdfast_worker", role))


async def drop_role(url: str, role: str) -> None:
    async with connected(url) as owner:
        await owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def work_through(engine: hf.Engine) -> None:
    """Runs of every model, a projection, operators, housekeeping."""
    async with engine.worker() as worker:
        greeted = await engine.start(programs.greet, "ann", key="ann")
        errand = await engine.start(programs.Errand(name="errand"))
        waits = await engine.start(programs.wait_for_approval, "bob")
        rounds = await engine.start(programs.rounds, "carl", [1, 2])
        research = await engine.start(programs.research, {"topic": "wells", "notes": []})
        await engine.execute(programs.Tills, programs.Take("till", 5))
        await engine.enqueue_input(programs.Tills, programs.Take("till", 6))
        await engine.send(programs.approved, 3, to=waits.id)
        assert await greeted.result(timeout=SECONDS) == "hello ann"
        await errand.result(timeout=SECONDS)
        assert await waits.result(timeout=SECONDS) == "hello bob, 3"
        assert await rounds.result(timeout=SECONDS) == "hello carl 1 2: 28"
        await engine.settle(timeout=SECONDS)
        await research.resume_with("yes")
        assert "told yes" in (await research.result(timeout=SECONDS))["notes"]
        paused = await engine.start(programs.greet, "dora", paused=True)
        await paused.resume()
        await engine.settle(timeout=SECONDS)
        assert (await engine.state(programs.Tills, "till")).cents == 11
        await engine.maintenance(True)
        await engine.maintenance(False)
        await worker.look_after_others()
    assert await engine.store.prune(2**62, 100) >= 5
    await assert_sound(engine)


async def test_a_role_that_may_only_read_and_write_rows_does_all_the_work(postgres_url: str, role: str) -> None:
    """What is granted is what docs/security.md says, no more; and the role can change no table."""
    with only_what_is_called_here():
        async with hf.Engine(postgres_url, registry=programs.registry, **SETTINGS):
            pass  # the owner migrates
        async with connected(postgres_url) as owner:
            await owner.execute("CREATE TABLE takings (till TEXT NOT NULL, cents INTEGER NOT NULL)")
        await make_role(postgres_url, role)
        try:
            url = as_role(postgres_url, role)
            async with hf.Engine(url, registry=programs.registry, **SETTINGS) as engine:
                await work_through(engine)
            async with connected(url) as worker:
                for forbidden in (
                    "CREATE TABLE mine (n integer)",
                    "ALTER TABLE runs ADD COLUMN mine integer",
                    "DROP TABLE history",
                    "TRUNCATE runs",
                    "CREATE INDEX mine ON runs (id)",
                    "DELETE FROM holdfast_migrations",
                    "INSERT INTO holdfast_migrations VALUES (9999, 'mine', 'x', 1)",
                    "SELECT setval('stream_positions', 1)",
                ):
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await worker.execute(forbidden)
        finally:
            await drop_role(postgres_url, role)


async def test_a_role_without_the_right_to_migrate_is_told_who_has_to(postgres_url: str, role: str) -> None:
    """A worker of a new version, before its owner has migrated: an error with the fix, and nothing is changed."""
    await make_role(postgres_url, role)
    try:
        with pytest.raises(StoreError, match=r"holdfast migrate"):
            async with hf.Engine(as_role(postgres_url, role), registry=programs.registry):
                pass
        async with connected(postgres_url) as owner:
            assert await owner.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []
    finally:
        await drop_role(postgres_url, role)
