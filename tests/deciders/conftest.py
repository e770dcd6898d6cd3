"""The stores on which deciders are checked, each in real time or on a clock that the test turns."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.runtime.system import RealIds, real_system
from holdfast.testing.virtual_clock import VirtualClock
from tests.deciders.orders import World
from tests.support.stores import KINDS, SHARED_KINDS, Site, site_for
from tests.worker.support import ROOT, child_environment

START_US = 1_900_000_000_000_000
PATIENCE_SECONDS = 0.2
DEADLINE_SECONDS = 20.0


class Stage:
    """A store of one kind, on which engines are opened: one after the other, or several at once."""

    def __init__(self, site: Site) -> None:
        self.site = site

    @classmethod
    def memory(cls) -> Stage:
        """For what no store can change."""
        return cls(Site("memory"))

    @property
    def kind(self) -> str:
        return self.site.kind

    @asynccontextmanager
    async def engine(self, registry: hf.Registry, *, work: bool = True, **settings: Any) -> AsyncIterator[hf.Engine]:
        """An engine in real time, with a worker unless told otherwise."""
        hurried = {"poll_seconds": 0.05, "sweep_seconds": 0.1, **settings}
        async with hf.Engine(registry=registry, store=self.site.store(), **hurried) as engine:
            if not work:
                yield engine
                return
            async with engine.worker():
                yield engine

    async def asked_and_killed(self) -> None:
        """A process executed an input of the puppet "p", and was killed by the handler of its effect "a"."""
        async with self.engine(hf.Registry(), work=False):
            pass  # so that the tables are there
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.deciders.orders", self.site.url, cwd=ROOT, env=child_environment()
        )
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await process.wait() == -signal.SIGKILL

    @asynccontextmanager
    async def virtual(
        self, registry: hf.Registry, *, work: bool = True, start_us: int = START_US, **settings: Any
    ) -> AsyncIterator[tuple[hf.Engine, VirtualClock]]:
        """An engine whose time stands still until `clock.advance(…)`, on any store."""
        clock = VirtualClock(start_us, patience_seconds=PATIENCE_SECONDS)
        real = real_system()
        system = replace(real, clock=clock, ids=RealIds(clock, real.randomness), within=clock.within)
        settings = {"shutdown_seconds": PATIENCE_SECONDS, **settings}
        async with hf.Engine(registry=registry, store=self.site.store(clock), system=system, **settings) as engine:
            clock.belongs_to(engine)
            try:
                if not work:
                    yield engine, clock
                    return
                async with engine.worker():
                    yield engine, clock
            finally:
                clock.belongs_to(None)


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Each of the three stores in turn, empty."""
    yield from _stage(request, tmp_path)


@pytest.fixture(params=SHARED_KINDS)
def shared_stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Each store that several processes can share, empty."""
    yield from _stage(request, tmp_path)


def _stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as site:
        yield Stage(site)


@pytest.fixture
def world() -> World:
    return World()
