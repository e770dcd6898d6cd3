"""I53 for deciders: whatever happens to instances, in batches or one by one, on every store: the same rows and answers.

One seed again: `FUSION_SEED=17 python -m pytest tests/kernel/test_fused_deciders.py`; more: `FUSION_SEEDS=1000`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from tests.kernel.decider_scripts import unsound, write_decider_script
from tests.kernel.kernels import make_coordinator
from tests.kernel.scripts import Script, follow
from tests.kernel.test_fused_equals_sequential import seeds
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, empty, every_row

STEPS = 25


@pytest.fixture(scope="module")
def written() -> list[Script]:
    return [asyncio.run(write_decider_script(seed, STEPS)) for seed in seeds()]


def _comparable(rows: list[Any]) -> list[Any]:
    """Positions are given in the order of writes, which is that of keys within a batch."""
    return [replace(row, position=0) if hasattr(row, "position") else row for row in rows]


def _check_snapshots(stored: dict[str, list[Any]]) -> None:
    """I38: whichever are there, each holds what its stream gives: the number of events that are not the engine's."""
    for snapshot in stored["snapshots"]:
        facts = [fact for fact in stored["stream"] if fact.run == snapshot.run and fact.sequence <= snapshot.sequence]
        assert int(snapshot.state) == sum(not fact.system for fact in facts), snapshot


async def _check(site: Site, written: list[Script], *, engines: int = 1, fused: bool = True) -> None:
    for script in written:
        clock = VirtualClock()
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(site.opened(clock)) for _ in range(engines)]
            kernels = [(make_coordinator(store, clock), store) for store in stores]
            try:
                await follow(script, kernels, clock, fused=fused)
                stored = await every_row(stores[0])
                _check_snapshots(stored)
                for name, rows in stored.items():
                    if name == "snapshots":
                        continue  # when one is made is a matter of what this process remembers (I38)
                    for expected, found in zip(_comparable(script.rows[name]), _comparable(rows), strict=True):
                        assert found == expected
            except AssertionError as error:
                test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
                again = f"FUSION_SEED={script.seed} python -m pytest {test!r}"
                raise AssertionError(f"seed {script.seed}; repeat with\n  {again}\n{error}") from error
            for coordinator, _ in kernels:
                await coordinator.close()
            await empty(stores[0])


async def test_i53_a_batch_about_instances_equals_its_operations_one_by_one(site: Site, written: list[Script]) -> None:
    """With the cache emptied at random, and the remembered states with it (K5)."""
    await _check(site, written)


async def test_i53_every_store_decides_alike_about_instances(site: Site, written: list[Script]) -> None:
    await _check(site, written, fused=False)


async def test_k4_two_engines_that_take_turns_with_instances_equal_one(site: Site, written: list[Script]) -> None:
    """A state that one engine remembers never hides what the other has appended."""
    if site.kind not in SHARED_KINDS:
        pytest.skip("memory is not shared")
    await _check(site, written, engines=2)


def test_g10_nothing_that_happens_to_instances_leaves_rows_that_contradict_each_other(written: list[Script]) -> None:
    """Counters, the one effect that is next, the inbox that is looked into, streams without gaps."""
    wrong = {script.seed: found for script in written if (found := unsound(script.rows))}
    assert not wrong, "\n".join(f"seed {seed}: {line}" for seed, lines in wrong.items() for line in lines)
