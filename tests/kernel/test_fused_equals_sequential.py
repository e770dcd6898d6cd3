"""I53: a batch gives the results and the rows of its operations submitted one by one, on every store.

Every seed is a random script (see scripts.py). One seed again:
`FUSION_SEED=17 python -m pytest tests/kernel/test_fused_equals_sequential.py`; more of them: `FUSION_SEEDS=1000`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack

import pytest

from tests.kernel.kernels import make_coordinator
from tests.kernel.scripts import Script, follow, unsound, write_script
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, empty, every_row

STEPS = 25
SEEDS_IN_CI = 40


def seeds() -> list[int]:
    if one := os.environ.get("FUSION_SEED"):
        return [int(one)]
    return list(range(1, 1 + int(os.environ.get("FUSION_SEEDS", SEEDS_IN_CI))))


def scripts() -> list[Script]:
    if not _written:
        _written.extend(asyncio.run(write_script(seed, STEPS)) for seed in seeds())
    return _written


_written: list[Script] = []


async def _check(site: Site, *, engines: int, fused: bool, written: list[Script]) -> None:
    for script in written:
        clock = VirtualClock()
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(site.opened(clock)) for _ in range(engines)]
            kernels = [(make_coordinator(store, clock), store) for store in stores]
            try:
                await follow(script, kernels, clock, fused=fused)
                for name, rows in (await every_row(stores[0])).items():
                    for expected, found in zip(script.rows[name], rows, strict=True):
                        assert found == expected
            except AssertionError as error:
                test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
                again = f"FUSION_SEED={script.seed} python -m pytest {test!r}"
                raise AssertionError(f"seed {script.seed}; repeat with\n  {again}\n{error}") from error
            for coordinator, _ in kernels:
                await coordinator.close()
            await empty(stores[0])


@pytest.fixture(scope="module")
def written() -> list[Script]:
    """The scripts, written once."""
    return scripts()


async def test_i53_a_fused_batch_equals_its_operations_one_by_one(site: Site, written: list[Script]) -> None:
    """Results in order, all rows of all tables, with the cache emptied at random (K5)."""
    await _check(site, engines=1, fused=True, written=written)


async def test_i53_every_store_decides_alike_one_by_one(site: Site, written: list[Script]) -> None:
    """The same operations leave the same rows in SQLite and PostgreSQL as in memory."""
    await _check(site, engines=1, fused=False, written=written)


async def test_k4_two_engines_that_take_turns_equal_one(site: Site, written: list[Script]) -> None:
    """What one engine remembers never hides what the other has written or claimed."""
    if site.kind not in SHARED_KINDS:
        pytest.skip("memory is not shared")
    await _check(site, engines=2, fused=True, written=written)


def test_g10_no_sequence_of_operations_leaves_rows_that_contradict_each_other(written: list[Script]) -> None:
    """Counters agree with the work they count, and what has ended holds nothing that could run."""
    wrong = {script.seed: found for script in written if (found := unsound(script.rows))}
    assert not wrong, "\n".join(f"seed {seed}: {line}" for seed, lines in wrong.items() for line in lines)
