"""What operators do, and what a worker does beside its work: cancels, edited graphs, forks, migrations, pruning."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import holdfast as hf
from tests.reliability.crash.ledger import Doing, Line, current
from tests.reliability.crash.oracle import Rows, must
from tests.reliability.crash.scenario import Scenario, Scene, ended

operators = hf.Registry()


@hf.action(registry=operators)
async def job(label: str) -> str:
    with Doing(label):
        return label


@hf.action(registry=operators)
async def gate(label: str) -> None:
    """Done once it may be."""
    with Doing(label):
        while not current().has("open", label):  # noqa: ASYNC110 - a line in a file is no event
            await asyncio.sleep(0.01)


class Long(hf.Dag, registry=operators):
    @hf.step
    async def first(self) -> None:
        with Doing("first"):
            pass

    @hf.step
    async def stuck(self) -> None:
        with Doing("stuck"):
            await asyncio.sleep(50)

    @hf.step
    async def last(self) -> None:
        with Doing("last"):
            pass


async def _cancelled(scene: Scene) -> None:
    handle = await scene.start(Long(), key="long")
    await scene.until(lambda: scene.ledger.has("ran", "stuck"))
    await handle.cancel()
    scene.ack("cancel", "long", handle.id)
    await scene.ends(handle)


class Edited(hf.Dag, registry=operators):
    @hf.step
    async def early(self) -> None:
        with Doing("early"):
            pass

    @hf.step
    async def late(self) -> None:
        with Doing("late"):
            pass


async def _import(scene: Scene) -> None:
    handle = await scene.start(Edited(), key="edited", paused=True)
    if not scene.ledger.has("ack", "import"):
        document = json.loads(await scene.patiently(handle.export_dag))
        document["nodes"]["late"]["name"] = "much later"
        await scene.patiently(lambda: handle.import_dag(json.dumps(document), by="a test"))  # asks before it acts
        scene.ack("import")
    await handle.resume()
    scene.ack("resume")
    await handle.result()


def _renamed(rows: Rows, lines: list[Line]) -> None:
    stored = b"".join(bytes(row["nodes"]) for row in rows["definitions"])
    must(b"much later" in stored, "G1", "the graph that was imported is not stored")


async def _fork(scene: Scene) -> None:
    handle = await scene.start(Edited(), key="edited")
    await handle.result()
    await (await scene.fork(handle, from_node="late", key="forked once")).result()


async def _pause(scene: Scene) -> None:
    handle = await scene.start(gate, "gate", key="gate")
    await scene.until(lambda: scene.ledger.has("ran", "gate"))
    await handle.pause()
    scene.ack("pause")
    scene.ledger.write("open", "gate")
    await scene.engine.maintenance(on=True)
    await handle.resume()
    await scene.engine.maintenance(on=False)
    scene.ack("resume")
    await handle.result()


async def _migration(scene: Scene) -> None:
    await (await scene.start(job, "migrated", key="job")).result()


async def _prune(scene: Scene) -> None:
    if not scene.ledger.has("ack", "both"):
        await (await scene.start(Edited(), key="old")).result()
        await (await scene.start(job, "old job", key="old job")).result()
        scene.ack("both")
    kept = await scene.start(job, "kept", key="kept", paused=True)
    if not scene.ledger.has("ack", "prune"):  # the next one would take along what has ended since
        await asyncio.sleep(0.002)
        await scene.engine.prune(older_than_seconds=0)
        scene.ack("prune")
    if await scene.patiently(kept.status) == "paused":
        await kept.resume()
    await kept.result()


def _pruned(rows: Rows, lines: list[Line]) -> None:
    must([row["key"] for row in rows["runs"]] == ["kept"], "G1", f"left: {[row['key'] for row in rows['runs']]}")


@hf.action(registry=operators)
async def stubborn() -> str:
    with Doing("stubborn"):
        if not current().has("allowed"):
            await asyncio.sleep(100)
        return "at last"


async def _stops(scene: Scene) -> None:
    """A worker that stops gives back what it could not finish; the next one goes on with it."""
    handle = await scene.start(stubborn, key="stubborn")
    if not scene.ledger.has("allowed"):
        async with scene.engine.worker():
            await scene.until(lambda: scene.ledger.has("ran", "stubborn"))
        scene.ledger.write("allowed")
    async with scene.engine.worker():
        await handle.result()


@hf.action(registry=operators)
async def lengthy() -> str:
    with Doing("lengthy"):
        await asyncio.sleep(0.25)
        return "done"


async def _heartbeats(scene: Scene) -> None:
    await (await scene.start(lengthy, key="lengthy")).result()


async def _two_workers(scene: Scene) -> None:
    """A worker is gone without a word while another one lives: that one takes over."""
    async with scene.engine.worker(concurrency=1):
        handles = [await scene.start(job, f"shared {number}", key=f"shared {number}") for number in range(4)]
        async with scene.engine.worker(concurrency=2):
            for handle in handles:
                await handle.result()


def scenarios() -> list[Scenario]:
    def made(name: str, play: Any, **fields: Any) -> Scenario:
        return Scenario(name=name, registry=operators, play=play, **fields)

    return [
        made("cancel dag", _cancelled, results={"long": ended("cancelled")}, does={"first": 1, "stuck": 1, "last": 0}),
        made(
            "import_dag",
            _import,
            results={"edited": None},
            does={"early": 1, "late": 1},
            check=_renamed,
            order=(("early", "late"),),
        ),
        made("fork", _fork, results={"edited": None, "forked once": None}, does={"early": 1, "late": 2}),
        made("pause and maintenance", _pause, results={"gate": None}, does={"gate": 1}),
        made("migration", _migration, results={"job": "migrated"}, does={"migrated": 1}, blank=True),
        made("prune", _prune, results={"kept": "kept"}, does={"kept": 1}, check=_pruned),
        made(
            "shutdown",
            _stops,
            results={"stubborn": "at last"},
            does={"stubborn": 2},
            has_worker=False,
            settings={"shutdown_seconds": 0.01},
        ),
        made(
            "heartbeats", _heartbeats, results={"lengthy": "done"}, does={"lengthy": 1}, settings={"lease_seconds": 0.3}
        ),
        made(
            "two workers",
            _two_workers,
            results={f"shared {number}": f"shared {number}" for number in range(4)},
            does={f"shared {number}": 1 for number in range(4)},
            has_worker=False,
        ),
    ]
