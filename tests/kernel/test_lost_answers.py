"""Orphan hand-over: work that was leased to a worker which never heard of it, because the answer was lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.authoring.dag_nodes import step
from holdfast.authoring.dags import Dag
from holdfast.authoring.registry import Registry
from holdfast.core import failpoints
from holdfast.core.errors import StoreUnavailable
from holdfast.engine import Engine
from tests.support.stores import SHARED_KINDS, Site

LONG_BEFORE_THE_LEASE_ENDS_SECONDS = 25.0
EXECUTED: Counter[str] = Counter()
REGISTRY = Registry()


class Three(Dag, registry=REGISTRY):
    """Three steps, each of which is handed over by the commit of the one before."""

    @step
    async def one(self) -> None:
        EXECUTED["one"] += 1

    @step
    async def two(self) -> None:
        EXECUTED["two"] += 1

    @step
    async def three(self) -> None:
        EXECUTED["three"] += 1


def lose(place: str, nth: int) -> list[str]:
    """Break the connection at the n-th time that the place is reached."""
    reached: list[str] = []

    def hook(name: str) -> None:
        if name == place:
            reached.append(name)
            if len(reached) == nth:
                raise StoreUnavailable(f"the answer was lost at {place}")

    failpoints.arm(hook)
    return reached


@asynccontextmanager
async def open_engine(site: Site) -> AsyncIterator[Engine]:
    """An engine whose workers keep their leases for an hour."""
    if site.kind not in SHARED_KINDS:
        pytest.skip("memory gives every answer")
    settings: dict[str, Any] = {"lease_seconds": 3600.0, "sweep_seconds": 0.05, "poll_seconds": 0.05}
    async with Engine(site.url, registry=REGISTRY, **settings) as engine:
        yield engine


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_g9_work_handed_over_by_a_commit_whose_answer_was_lost_is_run(site: Site, nth: int) -> None:
    """Whichever commit of the run it was, the run completes long before a lease ends, each step once."""
    EXECUTED.clear()
    async with open_engine(site) as engine, engine.worker():
        lose("flush.after_commit", nth)
        async with asyncio.timeout(LONG_BEFORE_THE_LEASE_ENDS_SECONDS):
            await engine.run(Three())
    assert EXECUTED == {"one": 1, "two": 1, "three": 1}


async def test_g9_work_claimed_by_a_statement_whose_answer_was_lost_is_run(site: Site) -> None:
    """The claim is committed and nobody heard of it, while the start is still remembered as ready."""
    EXECUTED.clear()
    async with open_engine(site) as engine:
        run = await engine.start(Three())
        lost = lose("claim.after", 1)
        async with engine.worker(), asyncio.timeout(LONG_BEFORE_THE_LEASE_ENDS_SECONDS):
            await run.result()
    assert lost
    assert EXECUTED == {"one": 1, "two": 1, "three": 1}
