"""Random DAGs whose workers are killed one after another, for real: each node is done once, after all it depends on."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.rows import COMPLETED, FAILED, LOST
from tests.dags.mortal_dags import SETTINGS, all_of_them, registry
from tests.dags.side_effects import execute_sql
from tests.dags.soundness import by_node, contradictions
from tests.endtoend.programs import journal
from tests.worker.support import ROOT, assert_sound, child_environment, until, work_of

KILLS = 4
WORKERS = 2


class Crowd:
    """Worker processes, of which one is killed now and then."""

    def __init__(self, engine: hf.Engine, url: str, log: Path) -> None:
        self._engine = engine
        self._url = url
        self._log = log
        self._chance = random.Random(url)
        self.workers = [self._hire() for _ in range(WORKERS)]

    def _hire(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.dags.mortal_dags", self._url],
                cwd=ROOT,
                env=child_environment(),
                stdout=log,
                stderr=log,
            )

    async def kill_one_at_work(self) -> None:
        """SIGKILL one that holds leases, and hire another in its place."""

        async def busy() -> subprocess.Popen[bytes] | None:
            rows = {row.pid: row.id for row in await self._engine.workers()}
            for worker in self._chance.sample(self.workers, len(self.workers)):
                if worker.pid in rows and await self._engine.store.leased_to(rows[worker.pid]):
                    return worker
            return None

        victim: subprocess.Popen[bytes] = await until(busy, "a worker has something to do")
        victim.kill()
        victim.wait()
        self.workers[self.workers.index(victim)] = self._hire()

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


@contextmanager
def crowd_at_work(engine: hf.Engine, url: str, log: Path) -> Iterator[Crowd]:
    crowd = Crowd(engine, url, log)
    try:
        yield crowd
    finally:
        crowd.stop()


@pytest.mark.timeout(180)
async def test_g4_killed_workers_leave_every_node_of_a_dag_done_once_and_in_order(
    shared_url: str, tmp_path: Path
) -> None:
    """G3, G4, G10: by the rows, and by what the nodes themselves wrote down; tampering with a row is noticed."""
    path = tmp_path / "journal"
    async with hf.Engine(shared_url, registry=registry, **SETTINGS) as engine:
        with crowd_at_work(engine, shared_url, tmp_path / "workers.log") as crowd:
            handles = [await engine.start(dag) for dag in all_of_them(str(path))]
            for _ in range(KILLS):
                await crowd.kill_one_at_work()
            await asyncio.gather(*(handle.result(60) for handle in handles))
        lost = 0
        for handle in handles:
            lost += await _is_done_once_and_in_order(engine, handle, path)
            assert await handle.verify_ancestry()
        assert lost >= KILLS, "no kill met a node at work"
        await assert_sound(engine)
        await _tampering_is_noticed(engine, handles[-1], shared_url)


async def _is_done_once_and_in_order(engine: hf.Engine, handle: hf.Handle[None], path: Path) -> int:
    """How many attempts of this run were lost."""
    (run,) = await engine.store.runs([handle.id])
    graph, rows = await handle.dag(), await work_of(engine, handle.id)
    assert not (wrong := contradictions(run, rows, graph)), wrong
    for node, attempts in by_node(rows).items():
        assert attempts[-1].status == COMPLETED, f"{node}: {[row.status for row in attempts]}"
        assert {row.status for row in attempts[:-1]} <= {FAILED, LOST}
        assert [row.status for row in attempts].count(FAILED) <= 1
    done: set[str] = set()
    for deed in journal.read(path):
        if deed.run != handle.id:
            continue
        if deed.what == journal.DONE:
            done.add(deed.node)
        else:
            parents = {graph.by_id[parent].name for parent in graph.by_name[deed.node].depends_on}
            assert parents <= done, f"{deed} began before {parents - done} was done"
    assert done == set(graph.by_name)
    return sum(row.status == LOST for row in rows)


async def _tampering_is_noticed(engine: hf.Engine, handle: hf.Handle[None], url: str) -> None:
    row = random.Random(handle.id).choice(await work_of(engine, handle.id))
    where = f"WHERE run = '{row.run}' AND node = '{row.node}' AND attempt = {row.attempt}"
    for column in ("ancestry", "parents"):
        await execute_sql(url, f"UPDATE work SET {column} = 'tampered' {where}")
        report = await handle.verify_ancestry()
        assert not report
        assert f"attempt {row.attempt}" in str(report.first_break)
        await execute_sql(url, f"UPDATE work SET {column} = '{getattr(row, column)}' {where}")
    assert await handle.verify_ancestry()
