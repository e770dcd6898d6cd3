"""One seed from its beginning to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import holdfast as hf
from holdfast.core.queries import OpenWork
from holdfast.core.rows import LEASED, PROJECTION, READY, Work
from holdfast.runtime import function_driver
from holdfast.runtime.run_watchdog import RunWatchdog
from tests.reliability.simulation.actions import enter
from tests.reliability.simulation.dag_programs import Built, Classes
from tests.reliability.simulation.decider_programs import Tills
from tests.reliability.simulation.faults import LEASE_SECONDS, Faults, shown
from tests.reliability.simulation.flow_programs import Flows
from tests.reliability.simulation.function_programs import Functions
from tests.reliability.simulation.graph_programs import Graphs
from tests.reliability.simulation.ledger import must
from tests.reliability.simulation.loop import SimulatedLoop
from tests.reliability.simulation.programs import Program
from tests.reliability.simulation.world import World

KINDS: tuple[Any, ...] = (Built, Built, Classes, Functions, Functions, Functions, Tills, Tills, Flows, Graphs)
LIVELY_LEASES = 3  # how long a run that could go on may stand still, once nothing is broken any more
SOON_SECONDS = 90.0  # by then everything must have ended: no program needs half of it
SQLITE_ONE_IN = 10
SEEDS_A_FUNERAL = 20


@dataclass(slots=True)
class Verdict:
    """What came of a seed."""

    seed: int
    store: str
    faults: str
    digest: str = ""
    broken: str = ""
    seconds: float = 0.0  # virtual ones
    runs: int = 0
    commits: int = 0
    callbacks: int = 0
    met: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


def simulate(
    seed: int, *, store: str | None = None, faults: Faults | None = None, trace: bool = False, late: bool = False
) -> Verdict:
    """Run a seed. The same seed gives the same verdict, to the last commit."""
    kind = store or ("sqlite" if seed % SQLITE_ONE_IN == SQLITE_ONE_IN - 1 else "memory")
    with undisturbed(), _folder(kind) as folder:
        return _simulate(seed, kind, folder, faults, trace, late)


def simulate_all(
    seeds: Iterable[int], *, store: str | None = None, trace: bool = False, late: bool = False
) -> Iterator[Verdict]:
    """Run many seeds: what they leave behind is collected now and then, and what is loaded is not looked at."""
    gc.collect()
    gc.freeze()
    try:
        with undisturbed():
            for number, seed in enumerate(seeds, 1):
                yield simulate(seed, store=store, trace=trace, late=late)
                if number % SEEDS_A_FUNERAL == 0:
                    _bury_the_dead()
    finally:
        gc.unfreeze()


def _simulate(seed: int, kind: str, folder: Path | None, faults: Faults | None, trace: bool, late: bool) -> Verdict:
    """Nothing but the verdict outlives this call."""
    world = World(seed, file=None if folder is None else folder / "simulated.db", faults=faults, late=late)
    world.trace = [] if trace else None
    verdict = Verdict(seed, kind, shown(world.faults))
    enter(world)
    try:
        world.run(lambda: _seed(world))
    except Exception as error:
        verdict.broken = f"{type(error).__name__}: {error}"
    finally:
        enter(None)
    verdict.digest, verdict.seconds = world.digest, world.loop.time()
    verdict.runs, verdict.commits = len(world.shadow.runs), world.shadow.commits
    verdict.callbacks, verdict.met = world.loop.callbacks, world.ledger.met
    verdict.trace = world.trace or []
    return verdict


async def _seed(world: World) -> None:
    dice = world.dice
    await _prepare(world)
    hosts = dice.randint(1, 3)
    for _ in range(hosts):
        world.begin_host()
    kinds = (Functions,) if world.late else KINDS
    programs: list[Program] = [dice.choice(kinds)(world, number) for number in range(dice.randint(1, 6))]
    driving = [asyncio.create_task(program.drive()) for program in programs]
    await world.mischief.rage(LEASE_SECONDS * dice.uniform(1.0, 4.0), hosts)
    world.faults = world.stormy.calmed()
    keeping = asyncio.create_task(_keep_up(world, hosts))
    await _until_all_is_done(world, programs, driving)
    keeping.cancel()
    await _checks(world, programs)


async def _keep_up(world: World, hosts: int) -> None:
    """Who was asked to stop, or thaws and dies, in the storm's last moment is replaced by another."""
    while True:
        await asyncio.sleep(LEASE_SECONDS / 2)
        while len(world.hosts) < hosts:
            world.begin_host()


async def _prepare(world: World) -> None:
    store = world.real_store()
    await store.open()
    await store.migrate()
    if world.kind == "sqlite":
        async with store.transaction(user=True) as tx:
            await tx.user.execute("CREATE TABLE projected (till text, sequence int)")
        await store.close()


async def _until_all_is_done(world: World, programs: list[Program], driving: list[asyncio.Task[None]]) -> None:
    """G9: with nothing broken any more, every run comes to its end, and none stands still for long on the way."""
    pending: list[str] = []
    calm_since = world.loop.time()
    while world.loop.time() < calm_since + SOON_SECONDS:
        await asyncio.sleep(LEASE_SECONDS / 2)
        _raise_what_is_broken(world, driving)
        if not all(task.done() for task in driving):
            continue
        pending = await world.ask(lambda engine: _open_runs(engine, programs))
        if not pending:
            return
        await _check_lively(world, calm_since)
    told = await world.ask(lambda engine: _explained(engine, pending))
    undriven = [program.name for program, task in zip(programs, driving, strict=True) if not task.done()]
    must(False, "G9", f"{SOON_SECONDS:g} s after the last fault {undriven or ''} is not done: {told}")


async def _check_lively(world: World, calm_since: float) -> None:
    """G9: what could run is taken up within three leases, and what was leased to somebody who is gone, too.

    Few slots and much to do is no standstill: what waits while something before it in its queue moves may wait on.
    """
    patience_us = int(LIVELY_LEASES * LEASE_SECONDS * 1e6)
    now, calm_us = world.now_us(), world.start_us + int(calm_since * 1e6)
    touched = world.shadow.touched
    still = [run for run in world.shadow.open_runs() if max(touched[run], calm_us) < now - patience_us]
    if not still:
        return
    works: list[Work] = []
    for run in world.shadow.open_runs():
        works += await world.ask(lambda engine, run=run: engine.store.rows(OpenWork(run)))  # type: ignore[misc]
    # A projection is leased for as long as somebody owns it, and takes no slot.
    moving = [work for work in works if work.status == LEASED and work.run not in still and work.kind != PROJECTION]
    for run in still:
        due = [
            work
            for work in works
            if work.run == run and work.status in (READY, LEASED) and work.due < now - patience_us
            if work.status == LEASED or not any(_is_before(other, work) for other in moving)
        ]
        told = "" if not due else await world.ask(lambda engine, run=run: _explained(engine, [run]))  # type: ignore[misc]
        must(not due, "G9", f"run {run} has stood still for {LIVELY_LEASES} leases and could go on: {due}. {told}")


def _is_before(other: Work, work: Work) -> bool:
    """In the order of claims."""
    return other.queue == work.queue and (-other.priority, other.due) <= (-work.priority, work.due)


def _raise_what_is_broken(world: World, driving: list[asyncio.Task[None]]) -> None:
    if world.broken is not None:
        raise world.broken
    for task in driving:
        if task.done():
            task.result()


async def _open_runs(engine: hf.Engine, programs: list[Program]) -> list[str]:
    return [run for program in programs for run in await program.open_runs(engine)]


async def _explained(engine: hf.Engine, runs: list[str]) -> str:
    return "; ".join([str(await engine.get(run).explain()) for run in runs]) or "no run is open"


async def _checks(world: World, programs: list[Program]) -> None:
    await asyncio.sleep(LEASE_SECONDS)  # projections follow, and what was handed out twice shows
    _raise_what_is_broken(world, [])
    for program in programs:
        await world.ask(program.check)
    await world.ask(lambda engine: world.shadow.check_store(engine.store))
    findings = await world.ask(lambda engine: engine.doctor())
    errors = [finding.message for finding in findings if finding.severity == "error"]
    must(not errors, "G10", f"doctor says: {errors}")
    if not world.stormy.rough:
        world.ledger.check_once()


# -- around it


class _NoWatchdog(RunWatchdog):
    """Its thread would look at real time."""

    def start(self) -> None: ...


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """No threads, no logs, and no garbage collection in the middle: it would run what is abandoned."""
    if not gc.isenabled():  # we are inside of another one
        yield
        return
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        with mock.patch.object(function_driver, "RunWatchdog", _NoWatchdog), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what the dead had begun is awaited by nobody
            yield
    finally:
        _bury_the_dead()
        gc.enable()
        logging.disable(disabled)


def _bury_the_dead() -> None:
    """Collect what is suspended somewhere and would rather go on; what it says to that is of no interest."""
    told, sys.unraisablehook = sys.unraisablehook, _ignore
    try:
        with warnings.catch_warnings(), SimulatedLoop(random.Random(0)).as_the_end():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = told


def _ignore(_: object) -> None: ...


@contextlib.contextmanager
def _folder(kind: str) -> Iterator[Path | None]:
    if kind != "sqlite":
        yield None
        return
    memory = Path("/dev/shm")  # a disk whose fsync costs nothing, where there is one
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
