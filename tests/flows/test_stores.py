"""I24 on real stores: every flow of the corpus ends as plain asyncio does, with rows and commits in between."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.flows import Flow, flow
from holdfast.core.codec import decode_error
from holdfast.core.queries import AllWork, ValuesOf
from tests.flows.actions import registry as actions
from tests.flows.corpus import Case, all_cases
from tests.flows.parity import comparable, ending_of_plain
from tests.support.stores import KINDS, Site, site_for
from tests.worker.support import assert_sound, engine_on

CASES = all_cases()
TOGETHER = 40
SECONDS = 60.0


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


def registered() -> tuple[hf.Registry, dict[Any, Flow[..., Any]]]:
    """The actions of the corpus and all of its flows, under the names of their functions."""
    registry = hf.Registry()
    for found in {id(each): each for each in (*actions.actions.values(), *actions.workflows.values())}.values():
        registry.add(found)
    functions = {case.function for case in CASES}
    return registry, {function: flow(registry=registry)(function) for function in functions}


async def ending(engine: hf.Engine, made: Flow[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """How the run ends, in the form of `ending_of_plain`."""
    return await ending_of_run(engine, await engine.start(made, *copy.deepcopy(args)))


async def ending_of_run(engine: hf.Engine, handle: hf.Handle[Any]) -> tuple[Any, ...]:
    """The same of a run that was started before."""
    try:
        return ("returned", comparable(await handle.result(timeout=SECONDS)))
    except hf.RunFailed:
        (row,) = await engine.store.runs([handle.id])
        assert row.error is not None
        record = decode_error(row.error)
        return ("raised", record.type, record.message)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # plain calls that are never awaited
async def test_i24_the_corpus_ends_on_every_store_as_plain_asyncio_does(site: Site) -> None:
    """Many at once, so that batches of completions of different flows meet."""
    registry, flows = registered()
    room = asyncio.Semaphore(TOGETHER)
    wrong: list[str] = []

    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():

        async def compare(case: Case) -> None:
            wanted = await ending_of_plain(case.function, case.args)
            async with room:
                found = await ending(engine, flows[case.function], case.args)
            if found[:2] == ("raised", "PayloadRefused") and "the result of flow" in found[2]:
                return  # plain asyncio hands anything back; what is stored needs an annotation (I14)
            if found != wanted:
                wrong.append(f"{case.name}\n  plain {wanted}\n  flow  {found}")

        await asyncio.gather(*map(compare, CASES))
        await assert_sound(engine)
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_i24_the_corpus_ends_as_a_workflow_as_plain_asyncio_does() -> None:
    """What a flow is compared with is also what the same function does when it is replayed."""
    registry = hf.Registry()
    for found in {id(each): each for each in (*actions.actions.values(), *actions.workflows.values())}.values():
        registry.add(found)
    workflows = {function: hf.workflow(registry=registry)(function) for function in {case.function for case in CASES}}
    room = asyncio.Semaphore(TOGETHER)
    wrong: list[str] = []

    async with engine_on("memory://", registry) as engine, engine.worker():

        async def compare(case: Case) -> None:
            wanted = await ending_of_plain(case.function, case.args)
            async with room:
                handle = await engine.start(workflows[case.function], *copy.deepcopy(case.args))
                found = await ending_of_run(engine, handle)
            if found[:2] == ("raised", "PayloadRefused") and "the result of" in found[2]:
                return
            if found != wanted:
                wrong.append(f"{case.name}\n  plain     {wanted}\n  workflow  {found}")

        await asyncio.gather(*map(compare, CASES))
    assert not wrong, "\n".join(wrong)


@hf.action(registry=actions)
async def one_more(number: int) -> int:
    return number + 1


async def count_up(times: int) -> int:
    total = 0
    for _ in range(times):
        total = await one_more(total)
    return total


async def test_i18_finished_passes_of_a_loop_give_their_rows_back(site: Site) -> None:
    """Fifty passes leave as many rows as five."""
    registry = hf.Registry()
    registry.add(one_more)
    counting = flow(registry=registry)(count_up)
    rows = []
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        for times in (5, 50):
            handle = await engine.start(counting, times)
            assert await handle.result(timeout=SECONDS) == times
            work = await engine.store.rows(AllWork(handle.id))
            rows.append((len(work), len(await engine.store.rows(ValuesOf(handle.id)))))
        await assert_sound(engine)
    assert rows[0] == rows[1]
