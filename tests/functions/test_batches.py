"""I53 for functions and events: a batch gives the results and rows of its operations one by one; the seed's fusions.

One seed again: `FUSION_SEED=17 python -m pytest tests/functions/test_batches.py`; more of them: `FUSION_SEEDS=1000`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.functions.event_scripts import write_event_script
from tests.functions.kernel_moves import unsound
from tests.kernel.kernels import make_coordinator
from tests.kernel.scripts import Batch, Script, follow
from tests.kernel.test_fused_equals_sequential import seeds
from tests.support.stores import SHARED_KINDS, Site, VirtualClock, empty, every_row

STEPS = 30


@pytest.fixture(scope="module")
def written() -> list[Script]:
    """The scripts, written once."""
    return [asyncio.run(write_event_script(seed, STEPS)) for seed in seeds()]


async def _check(site: Site, written: list[Script], *, engines: int, fused: bool) -> None:
    for script in written:
        clock = VirtualClock()
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(site.opened(clock)) for _ in range(engines)]
            kernels = [(make_coordinator(store, clock), store) for store in stores]
            try:
                await follow(script, kernels, clock, fused=fused)
                for name, rows in (await every_row(stores[0])).items():
                    assert rows == script.rows[name]
            except AssertionError as error:
                test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
                again = f"FUSION_SEED={script.seed} python -m pytest {test!r}"
                raise AssertionError(f"seed {script.seed}; repeat with\n  {again}\n{error}") from error
            for coordinator, _ in kernels:
                await coordinator.close()
            await empty(stores[0])


async def test_i53_a_fused_batch_of_turns_and_events_equals_one_by_one(site: Site, written: list[Script]) -> None:
    """Results in order and all rows of all tables, with the cache emptied at random (K5)."""
    await _check(site, written, engines=1, fused=True)


async def test_i53_every_store_decides_turns_and_events_alike(site: Site, written: list[Script]) -> None:
    """One by one, the rows are the same in SQLite and PostgreSQL as in memory."""
    if site.kind == "memory":
        pytest.skip("memory one by one is the reference itself")
    await _check(site, written[: len(written) // 2], engines=1, fused=False)


async def test_k4_two_engines_that_take_turns_with_functions_equal_one(site: Site, written: list[Script]) -> None:
    """What one engine remembers never hides what the other has written, delivered or claimed."""
    if site.kind not in SHARED_KINDS:
        pytest.skip("memory is not shared")
    await _check(site, written[: len(written) // 2], engines=2, fused=True)


def test_g10_no_sequence_of_turns_and_events_leaves_rows_that_contradict_each_other(written: list[Script]) -> None:
    """Counters agree with what they count, a wait is answered once, and what has ended waits for nothing."""
    wrong = {script.seed: found for script in written if (found := unsound(functions_only(script.rows)))}
    assert not wrong, "\n".join(f"seed {seed}: {line}" for seed, lines in wrong.items() for line in lines)


def functions_only(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    functions = {run.id for run in rows["runs"] if run.model == "function"}
    kept = dict(rows)
    kept["runs"] = [run for run in rows["runs"] if run.id in functions]
    for name in ("work", "history", "waits"):
        kept[name] = [row for row in rows[name] if row.run in functions]
    return kept


def test_the_scripts_say_what_they_are_meant_to_say(written: list[Script]) -> None:
    """Every kind of operation is in them, and every kind of answer to it that matters."""
    pairs = [
        (type(operation).__name__, getattr(answer, "verdict", type(answer).__name__))
        for script in written
        for step in script.steps
        if isinstance(step, Batch)
        for operation, answer in zip(step.operations, step.results, strict=True)
    ]
    if len(written) < 10:
        pytest.skip("a few scripts need not say everything")
    for name in ("TakeTurn", "ContinueAs"):
        assert {verdict for operation, verdict in pairs if operation == name} >= {"recorded", "stale", "repeated"}
    assert {answer for operation, answer in pairs if operation == "SendEvent"} >= {
        "Delivered",
        "Queued",
        "TargetEnded",
        "TargetNotFound",
    }
    assert {answer for operation, answer in pairs if operation == "BroadcastEvent"} >= {"Delivered", "Queued"}
