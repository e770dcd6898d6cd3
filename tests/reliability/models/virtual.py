"""A whole engine with a worker on any store, on a clock that stands still until it is turned."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import holdfast as hf
from holdfast.core.seams import Clock
from holdfast.runtime.system import RealIds, real_system
from holdfast.store.contract import Store
from holdfast.testing.virtual_clock import VirtualClock
from tests.support.stores import EPOCH_US, Site, empty

PATIENCE_SECONDS = 5.0


class _Chance:
    """Chance that repeats."""

    def __init__(self) -> None:
        self.random = random.Random(7).random


@asynccontextmanager
async def engine_on(site: Site, registry: hf.Registry) -> AsyncIterator[tuple[hf.Engine, VirtualClock]]:
    """An engine on the site's store, emptied, with a worker; and its clock."""
    clock = VirtualClock(EPOCH_US, patience_seconds=PATIENCE_SECONDS)
    real = real_system()
    system = replace(real, clock=clock, ids=RealIds(clock, _Chance()), randomness=_Chance(), within=clock.within)
    store = await _emptied(site, clock)
    engine = hf.Engine(
        registry=registry,
        system=system,
        store=store,
        shutdown_seconds=1.0,
        poll_seconds=0.02,
        lease_seconds=1e9,  # nobody dies here, and time makes large steps
        observe_inputs="payload",
    )
    async with engine, engine.worker():
        clock.belongs_to(engine)
        try:
            yield engine, clock
        finally:
            clock.belongs_to(None)


async def _emptied(site: Site, clock: Clock) -> Store:
    async with site.opened(clock) as store:
        await empty(store)
    return site.store(clock)
