"""I53 for state graphs: whatever happens to runs, in batches or one by one, on every store: the same rows and answers.

One seed again: `FUSION_SEED=17 python -m pytest tests/kernel/test_fused_graphs.py`; more: `FUSION_SEEDS=1000`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from tests.kernel.graph_scripts import unsound, write_graph_script
from tests.kernel.kernels import make_coordinator
from tests.kernel.scripts import Script, follow
from tests.kernel.test_fused_equals_sequential import seeds
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, empty, every_row

STEPS = 40


@pytest.fixture(scope="module")
def prunes_often() -> Iterator[None]:
    """The graph keeps two checkpoints: let that matter in runs of a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.models.state_graph.PRUNED_TOGETHER", 2)
        yield


@pytest.fixture(scope="module")
def written(prunes_often: None) -> list[Script]:
    return [asyncio.run(write_graph_script(seed, STEPS)) for seed in seeds()]


async def _check(site: Site, written: list[Script], *, engines: int = 1, fused: bool = True) -> None:
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


async def test_i53_a_batch_about_graphs_equals_its_operations_one_by_one(site: Site, written: list[Script]) -> None:
    """With the cache emptied at random (K5)."""
    await _check(site, written)


async def test_i53_every_store_decides_alike_about_graphs(site: Site, written: list[Script]) -> None:
    await _check(site, written, fused=False)


async def test_k4_two_engines_that_take_turns_with_graphs_equal_one(site: Site, written: list[Script]) -> None:
    """A state that one engine remembers never hides a step that the other has merged."""
    if site.kind not in SHARED_KINDS:
        pytest.skip("memory is not shared")
    await _check(site, written, engines=2)


def test_g10_nothing_that_happens_to_graphs_leaves_rows_that_contradict_each_other(written: list[Script]) -> None:
    """Counters, items that were let in, a checkpoint for the step that a run is at."""
    wrong = {script.seed: found for script in written if (found := unsound(script.rows))}
    assert not wrong, "\n".join(f"seed {seed}: {line}" for seed, lines in wrong.items() for line in lines)
