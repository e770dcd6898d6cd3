"""SIGKILL at every recorded call of a function: nothing recorded runs again, and no lease is waited for."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.function_operations import ENTRY_KINDS, entry_of
from holdfast.core.rows import COMPLETED
from holdfast.store.contract import FindRuns
from tests.endtoend.programs import journal as deeds
from tests.functions import journey
from tests.functions.lives import Death, Lives
from tests.worker.support import PATIENT, assert_sound, engine_on, until

GOES_ON_WITHIN_SECONDS = 3.0


async def recorded(engine: hf.Engine) -> set[tuple[str, str]]:
    """Run and address of every call that is recorded."""
    found = set()
    for run in await engine.store.find(FindRuns(limit=100)):
        rows = [row for row in await engine.store.history(run.id) if row.kind in ENTRY_KINDS]
        addresses = [entry_of(row.data).address for row in rows]
        assert len(addresses) == len(set(addresses)), f"recorded twice: {addresses}"
        found |= {(run.id, address) for address in addresses}
    return found


def executed(path: Path, since: int) -> list[tuple[str, str]]:
    """Run and address of every execution that was begun, from a place in the journal on."""
    parts = [deed.key.split(":", 2) for deed in deeds.begun(path)[since:]]
    return [(run, address) for _, run, address in parts]


async def undisturbed(url: str, path: Path) -> Any:
    async with engine_on(url, journey.registry) as engine, engine.worker():
        return await engine.run(journey.journey, str(path), timeout=20)


@pytest.mark.parametrize(("death", "at_least"), [("recorded", 30), ("called", 18)])
async def test_g1_g2_i49_i55_a_function_killed_at_every_call_returns_what_it_would_have(
    shared_url: str, tmp_path: Path, lives: Lives, death: Death, at_least: int
) -> None:
    """G1, G2, I7, I49, I55: one process after another, each killed with its first record, or in the call after it."""
    if death == "called" and not shared_url.startswith("sqlite"):
        pytest.skip("what was not recorded is not in any store")
    expected = await undisturbed("memory://", tmp_path / "undisturbed")
    path = tmp_path / "journal"
    waited: list[float] = []
    async with engine_on(shared_url, journey.registry, **PATIENT) as engine:
        handle = await engine.start(journey.journey, str(path))
        while True:
            known, since = await recorded(engine), len(deeds.begun(path))
            born = time.monotonic()
            pid = lives.give(shared_url, str(path), death=death, settings=PATIENT)
            code = await _dies_or_finishes(lives, pid, handle)
            again = set(executed(path, since)) & known
            assert not again, f"recorded before, and run again: {again}"
            if code is None:
                break
            assert code == -signal.SIGKILL
            assert await recorded(engine) > known, "it was killed with a record, and there is none"
            waited.append(time.monotonic() - born)
        lives.signal(pid, signal.SIGTERM)
        assert await lives.ended(pid) == 0
        assert await handle.result(timeout=5) == expected
        entries, executions = len(await recorded(engine)), executed(path, 0)
        print(f"{len(waited)} kills, {entries} entries, {len(executions)} executions, worst {max(waited):.2f} s")
        assert entries >= 30
        assert len(waited) >= at_least
        assert max(waited) < GOES_ON_WITHIN_SECONDS < PATIENT["lease_seconds"], "somebody waited for a lease"
        await assert_sound(engine)


async def _dies_or_finishes(lives: Lives, pid: int, handle: hf.Handle[Any]) -> int | None:
    """Its exit code, or None if it lives and the run has ended."""

    async def over() -> list[int | None] | None:
        if (code := lives.exit_of(pid)) is not None:
            return [code]
        return [None] if await handle.status() == COMPLETED else None

    found: list[int | None] = await until(over, f"process {pid} dies, or the run ends")
    return found[0]
