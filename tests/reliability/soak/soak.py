"""One soak from its beginning to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import holdfast as hf
from holdfast.runtime.postgres_server import PostgresServer
from tests.reliability.simulation.ledger import must
from tests.reliability.soak import app, audit, journal
from tests.reliability.soak.plan import Plan
from tests.reliability.soak.programs import KINDS, Books, Program
from tests.reliability.soak.storm import CONCURRENCY, SETTINGS, Network, Storm, cuts_of, journal_of
from tests.reliability.soak.surroundings import small_disk

T = TypeVar("T")
PATIENCE_SECONDS = 5.0
SERVER_SETTINGS = {"max_connections": "120", "shared_buffers": "32MB", "max_wal_size": "64MB", "min_wal_size": "32MB"}


@dataclass(slots=True)
class Report:
    """What was done, and what it came to."""

    plan: Plan
    runs: int = 0
    deeds: int = 0
    did: Counter[str] = field(default_factory=Counter)
    left_out: list[str] = field(default_factory=list)
    broken: str = ""
    seconds: float = 0.0

    @property
    def cuts(self) -> int:
        return cuts_of(self.did)

    def __str__(self) -> str:
        done = ", ".join(f"{name} {count}" for name, count in sorted(self.did.items()))
        lines = [
            f"soak of {self.seconds:.0f} s, seed {self.plan.seed}: {self.runs} runs, {self.deeds} executions; {done}"
        ]
        lines += [f"left out: {reason}" for reason in self.left_out]
        lines.append(f"BROKEN: {self.broken}" if self.broken else "nothing lost, nothing twice, nothing stuck")
        again = f"MINUTES={self.plan.seconds / 60:g} SEED={self.plan.seed}"
        return "\n".join([*lines, f"the same storm again: make soak {again}"])


class Client:
    """Asks through the bad network, again and again until it is answered. What it asks is harmless to repeat."""

    def __init__(self, engine: hf.Engine, did: Counter[str]) -> None:
        self._engine, self._did = engine, did

    async def ask(self, call: Callable[[hf.Engine], Awaitable[T]]) -> T:
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    return await call(self._engine)
            except (hf.StoreError, TimeoutError) as error:
                self._did[f"client met {type(error).__name__}"] += 1
                await asyncio.sleep(0.05)


def soak(plan: Plan) -> Report:
    """Run it. What is broken is in the report; so is what this machine did not allow."""
    report = Report(plan)
    began = time.monotonic()
    with small_disk(plan.megabytes) as disk, tempfile.TemporaryDirectory(prefix="hf-soak-") as folder:
        settings = SERVER_SETTINGS
        with PostgresServer(disk.folder / "cluster", fsync=False, settings=settings) as server:
            direct = server.create_database("soak")
            with contextlib.closing(Network(server, plan)) as network:
                storm = Storm(plan, server, disk, network.url("soak"), Path(folder))
                report.left_out = storm.what_was_left_out()
                try:
                    asyncio.run(_weather(report, storm, network, direct, Path(folder)))
                except Exception as error:  # whatever a client was told that it should not have been told, too
                    report.broken = f"{type(error).__name__}: {error}{_last_words(Path(folder))}"
                finally:
                    storm.let_go()
                report.did += storm.did
    report.seconds = time.monotonic() - began
    return report


async def _weather(report: Report, storm: Storm, network: Network, direct: str, folder: Path) -> None:
    journal_path = journal_of(folder)
    opening = hf.Engine(direct, registry=app.registry, **SETTINGS)
    async with opening as engine, engine.store.transaction(user=True) as tx:
        for statement in app.TABLES:
            await tx.user.execute(statement)
    storm.hire()
    programs: list[Program] = []
    client_engine = hf.Engine(network.url("soak"), registry=app.registry, **SETTINGS)
    await client_engine.open(migrate=False)
    client = Client(client_engine, report.did)
    raging = asyncio.Event()
    raging.set()
    numbers = range(report.plan.clients)
    makers = [asyncio.create_task(_one_client(client, each, raging, report.plan, programs)) for each in numbers]
    network.rage()
    await storm.rage(network.cuts)
    report.did.update(await asyncio.to_thread(network.calm))
    raging.clear()
    async with hf.Engine(direct, registry=app.registry, **SETTINGS) as engine:
        await _until_all_is_done(engine, makers, storm, report.plan)
        report.runs = sum(max(1, len(program.runs)) for program in programs)
        await _check(engine, programs, journal_path, report)
    await client_engine.close()


async def _one_client(client: Client, number: int, raging: asyncio.Event, plan: Plan, programs: list[Program]) -> None:
    dice = random.Random(f"client {number} of {plan.seed}")
    place = 0
    while raging.is_set():
        place += 1
        kind = dice.choice(KINDS)
        program = kind(number * 1_000_000 + place, random.Random(dice.random()))
        programs.append(program)
        await program.drive(client)


async def _until_all_is_done(engine: hf.Engine, makers: list[asyncio.Task[None]], storm: Storm, plan: Plan) -> None:
    """G9: everything ends soon after the storm, and nothing that could go on stands still on the way."""
    calm_since = time.monotonic()
    while True:
        storm.replace_the_dead()
        for maker in makers:
            if maker.done():
                maker.result()
        passed = time.monotonic() - calm_since
        if passed > audit.STANDSTILL_SECONDS:
            await audit.check_nothing_stands_still(engine, plan.workers * CONCURRENCY // 2)
        left = await audit.what_is_open(engine)
        if all(maker.done() for maker in makers) and not left:
            return
        told = await audit.explained(engine, left) if passed > plan.calm_seconds else ""
        must(passed <= plan.calm_seconds, "G9", f"{passed:.0f} s after the storm there is still: {told or left}")
        await asyncio.sleep(0.5)


async def _check(engine: hf.Engine, programs: list[Program], path: Path, report: Report) -> None:
    deeds = journal.read(path)
    report.deeds = len(deeds)
    books = Books(deeds)
    for program in programs:
        program.check(await program.results(engine), books)
    report.did.update({f"attempts {status}": count for status, count in await audit.attempts(engine)})
    await audit.check_rows(engine, {run for program in programs for run in program.runs.values()})


def _last_words(folder: Path) -> str:
    """What workers wrote to standard error, as far as it may matter."""
    return "".join(_tails(sorted(folder.glob("worker-*.err"), key=lambda path: path.stat().st_mtime)[-4:]))


def _tails(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        text = path.read_text(errors="replace")
        if text:
            yield f"\n--- {path.name}\n{text[-1500:]}"
