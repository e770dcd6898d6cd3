"""What becomes of runs of flows that failed, wait, or store what is too large: retried, suspended, refused."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.codec_formats import JSON
from holdfast.core.queries import AllWork, ValuesOf
from tests.support.stores import KINDS, Site, site_for
from tests.worker.support import assert_sound, engine_on, until

registry = hf.Registry()
logger = logging.getLogger("tests.flows.again")
broken: set[Any] = set()
called: list[Any] = []


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    broken.clear()
    called.clear()
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@hf.pure
def checked(place: Any) -> Any:
    if ("pure", place) in broken:
        raise ValueError(f"can't compute {place}")
    return place


@hf.action(registry=registry)
async def stop_at(text: str) -> str:
    called.append(text)
    if text in broken:
        raise LookupError(f"no way to {text}")
    return text


@hf.flow(registry=registry)
async def spread(place: int) -> list[str]:
    return await asyncio.gather(*[stop_at(f"[{place}, {stop}]") for stop in range(3)])


async def failed(handle: hf.Handle[Any]) -> str:
    with pytest.raises(hf.RunFailed) as failure:
        await handle.result(timeout=20)
    return str(failure.value)


async def test_i11_retry_of_a_gather_that_failed_the_run_tries_its_failed_elements_again(site: Site) -> None:
    broken.update({"[7, 1]", "[7, 2]"})
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(spread, 7)
        assert "no way to [7, 1]" in await failed(handle)
        assert sorted(map(str, called)) == ["[7, 0]", "[7, 1]", "[7, 2]"]
        broken.discard("[7, 1]")
        await handle.retry()
        assert "no way to [7, 2]" in await failed(handle)
        broken.clear()
        await handle.retry()
        assert await handle.result(timeout=20) == ["[7, 0]", "[7, 1]", "[7, 2]"]
        assert sorted(map(str, called)) == ["[7, 0]", "[7, 1]", "[7, 1]", "[7, 2]", "[7, 2]", "[7, 2]"]
        await assert_sound(engine)


@hf.flow(registry=registry)
async def computing(places: list[str]) -> list[Any]:
    first = checked("before")
    seen = []
    for place in places:
        found = await stop_at(place)
        seen.append(checked(found))
    return [first, seen, await stop_at(checked("end"))]


@pytest.mark.parametrize("where", ["before", "b", "end"])
async def test_i22_retry_computes_again_what_failed_the_run_and_repeats_no_action(site: Site, where: str) -> None:
    """I11, I22: at the start, in a loop, and in the arguments of an action; a helper was mended meanwhile."""
    broken.add(("pure", where))
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(computing, ["a", "b", "c"])
        assert f"can't compute {where}" in await failed(handle)
        told = str(await handle.explain())
        assert f"holdfast retry {handle.id}" in told, told
        await handle.retry()
        assert f"can't compute {where}" in await failed(handle)
        broken.clear()
        await handle.retry()
        assert await handle.result(timeout=20) == ["before", ["a", "b", "c"], "end"]
        assert called == ["a", "b", "c", "end"]
        await assert_sound(engine)


@hf.flow(registry=registry)
async def raises_itself() -> None:
    try:
        await stop_at("nowhere")
    finally:
        await stop_at("cleanup")


async def test_i21_where_a_retry_would_end_the_same_nobody_is_told_to_retry(site: Site) -> None:
    """The failure was taken, and raised again after the `finally`: the flow has gone on with it."""
    broken.add("nowhere")
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(raises_itself)
        message = await failed(handle)
        assert "no way to nowhere" in message
        assert "holdfast retry" not in message
        assert "holdfast retry" not in str(await handle.explain())
        await assert_sound(engine)


@hf.workflow(registry=registry)
async def slow_child() -> str:
    got = await hf.wait_for("again-go")
    return str(got.value)


@hf.flow(registry=registry)
async def waiting() -> str:
    await hf.sleep(hours=1)
    return "late"


@hf.flow(registry=registry)
async def waiting_for_a_child() -> str:
    await stop_at("x")
    first, _ = await asyncio.gather(slow_child(), stop_at("y"))
    return first


async def test_i1_a_flow_that_only_waits_is_suspended_and_runs_again_when_that_is_over(site: Site) -> None:
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        sleeping = await engine.start(waiting)
        parent = await engine.start(waiting_for_a_child)

        async def both_wait() -> bool:
            return await sleeping.status() == "suspended" and await parent.status() == "suspended"

        await until(both_wait, "both are suspended")
        await sleeping.pause()
        await sleeping.resume()
        assert await sleeping.status() == "suspended"
        await engine.broadcast("again-go", "gone")
        assert await parent.result(timeout=20) == "gone"
        await sleeping.cancel()
        await assert_sound(engine)


@hf.flow(registry=registry)
async def sleeps_first() -> str:
    await hf.sleep(seconds=5)
    return await stop_at("awake")


async def test_i4_a_sleep_at_the_beginning_counts_from_when_the_run_is_to_begin(site: Site) -> None:
    async with engine_on(site.url or "memory://", registry) as engine:
        begin = datetime.now(UTC) + timedelta(hours=1)
        handle = await engine.start(sleeps_first, at=begin)
        (item,) = await engine.store.rows(AllWork(handle.id))
        assert abs(item.due / 1e6 - begin.timestamp() - 5) < 1


class Squeezed:
    """A codec of somebody's own."""

    tag = "squeezed"

    def encode(self, plain: object, /) -> bytes:
        return zlib.compress(JSON.encode(plain))

    def decode(self, data: bytes, annotation: object, /) -> object:
        return JSON.decode(zlib.decompress(data), annotation)


@hf.flow(registry=registry)
async def carries(text: str) -> list[Any]:
    kept = (text * 10, {"a": text})
    found = await stop_at("on the way")
    return [list(kept), found]


async def test_i14_values_between_nodes_go_through_the_codec_of_the_engine(site: Site) -> None:
    async with (
        site.opened() as store,
        hf.Engine(store=store, registry=registry, codec=Squeezed()) as engine,
    ):
        handle = await engine.start(carries, "secret")
        values = await store.rows(ValuesOf(handle.id))
        assert values
        assert all(b"secret" not in value.value and b"squeezed" in value.value for value in values)
        async with engine.worker():
            assert await handle.result(timeout=20) == [["secret" * 10, {"a": "secret"}], "on the way"]


async def test_i14_a_value_that_is_too_large_is_refused_naming_variable_and_node(site: Site) -> None:
    async with engine_on(site.url or "memory://", registry, payload_limit_bytes=2_000) as engine:
        with pytest.raises(hf.PayloadTooLarge, match=r"variable kept of flow carries, which is kept for node stop_at"):
            await engine.start(carries, "x" * 300)


@hf.flow(registry=registry)
async def speaks(text: str) -> str:
    try:
        found = await stop_at(text)
        twice = found + found
        await stop_at("y")
        return twice
    except Exception as error:
        logger.warning("it was given up: %s", type(error).__name__)
        return "caught"


async def test_i24_what_a_flow_logs_about_a_dead_letter_is_written_too(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tests.flows.again"):
        async with engine_on(site.url or "memory://", registry, payload_limit_bytes=2_000) as engine, engine.worker():
            assert await engine.run(speaks, "x" * 1_500, timeout=20) == "caught"
    lines = [record.getMessage() for record in caplog.records if record.name == "tests.flows.again"]
    assert lines == ["it was given up: PayloadTooLarge"]


charged: list[str] = []


@hf.action(registry=registry)
async def charge(text: str) -> str:
    charged.append(text)
    return text


@hf.flow(registry=registry)
async def returns_too_much(text: str) -> str:
    found = await charge(text)
    return found + found


@hf.flow(registry=registry)
async def passes_too_much(text: str) -> str:
    found = await charge(text)
    return await stop_at(found + found)


@hf.flow(registry=registry)
async def passes_too_much_to_one_of_many(text: str) -> list[str]:
    found = await charge(text)
    return await asyncio.gather(*[stop_at(each) for each in [found, found + found]])


@hf.flow(registry=registry)
async def catches_it(text: str) -> str:
    found = await charge(text)
    try:
        return await stop_at(found + found)
    except hf.PayloadTooLarge:
        return "too much"


@pytest.mark.parametrize("flow", [returns_too_much, passes_too_much, passes_too_much_to_one_of_many])
async def test_g3_what_was_done_stays_done_when_what_follows_cannot_be_stored(site: Site, flow: Any) -> None:
    """An error of the flow's own code, which a retry computes again, and no failure of the action before it."""
    charged.clear()
    async with engine_on(site.url or "memory://", registry, payload_limit_bytes=2_000) as engine, engine.worker():
        handle = await engine.start(flow, "x" * 1_500)
        with pytest.raises(hf.RunFailed, match="PayloadTooLarge"):
            await handle.result(timeout=20)
        states = {each.name: each.state for each in await handle.step_executions()}
        assert states.pop("charge") == "completed"
        assert set(states.values()) == {"failed"}
        assert await engine.dead() == []
        await handle.retry()
        with pytest.raises(hf.RunFailed, match="PayloadTooLarge"):
            await handle.result(timeout=20)
    assert len(charged) == 1


async def test_i21_a_flow_catches_that_arguments_are_too_large_as_a_function_does(site: Site) -> None:
    async with engine_on(site.url or "memory://", registry, payload_limit_bytes=2_000) as engine, engine.worker():
        assert await engine.run(catches_it, "x" * 1_500, timeout=20) == "too much"


async def test_i24_check_looks_at_the_helpers_and_types_of_a_running_graph(site: Site) -> None:
    """A deploy that lacks them is told so beforehand."""
    other, known = hf.Registry(), computing
    other.add(stop_at)

    async def simpler(places: list[str]) -> list[Any]:
        return [await stop_at(place) for place in places]

    hf.flow(registry=other, name="computing")(simpler)
    async with (
        site.opened() as store,
        hf.Engine(store=store, registry=registry) as engine,
        hf.Engine(store=store, registry=other) as later,
    ):
        handle = await engine.start(known, ["a"])
        found = {each.run: each for each in await later.check()}
        assert found[handle.id].verdict == "breaks"
        assert "@hf.pure function 'checked'" in found[handle.id].difference
        fine = {each.run: each for each in await engine.check()}
        assert fine[handle.id].verdict == "fine"
