"""A run that goes on as another call of its own: what it draws there, and what it undoes of the calls before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.function_operations import Entry
from tests.worker.support import assert_sound, engine_on, until


@dataclass(frozen=True)
class Counted:
    letters: int


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


async def suspended(handle: hf.Handle[Any]) -> None:
    async def is_suspended() -> bool:
        return await handle.status() == "suspended"

    await until(is_suspended, "the run is suspended")


async def test_i56_every_call_that_a_run_goes_on_as_draws_other_numbers_and_the_same_in_a_replay(url: str) -> None:
    """What it has drawn may be in use: an id for something that the call before it made, say."""
    registry, drawn = hf.Registry(), list[tuple[str, float]]()

    @hf.workflow(registry=registry)
    async def draws(left: int) -> None:
        drawn.append((str(hf.uuid4()), hf.rng().random()))
        if left:
            hf.continue_as(draws, left - 1)
        await hf.wait_for("come")

    async with engine_on(url, registry) as engine:
        async with engine.worker():
            handle = await engine.start(draws, 2)
            await suspended(handle)
        first = list(drawn)
        async with engine.worker():
            await engine.send("come", to=handle)
            await handle.result(timeout=20)
    assert len({id for id, _ in first}) == len({number for _, number in first}) == 3
    assert drawn == [*first, first[-1]]


async def test_i56_a_call_that_an_older_version_has_begun_draws_on_as_it_did(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions wrote no seed, and drew the same in every call: a replay must find what was drawn then."""

    def as_before(**fields: Any) -> Entry:
        return Entry(**fields | ({"digest": ""} if fields["kind"] == "continued" else {}))

    monkeypatch.setattr("holdfast.models.function_operations.Entry", as_before)
    registry, drawn = hf.Registry(), list[str]()

    @hf.workflow(registry=registry)
    async def draws(left: int) -> None:
        drawn.append(str(hf.uuid4()))
        if left:
            hf.continue_as(draws, left - 1)

    async with engine_on(url, registry) as engine, engine.worker():
        await engine.run(draws, 2, timeout=20)
    assert len(drawn) == 3
    assert len(set(drawn)) == 1


@pytest.mark.parametrize("end", ["fails", "is cancelled"])
async def test_i10_what_was_registered_before_a_run_went_on_as_another_call_is_undone_with_it(
    url: str, end: str
) -> None:
    """It is the same run: what was registered last is undone first, across all of its calls and in another process."""
    registry, undone = hf.Registry(), list[tuple[int, str]]()

    @hf.action(registry=registry)
    async def undo(number: int, *, of: str) -> None:
        undone.append((number, of))
        if number == 1:
            raise ValueError("too late")

    @hf.workflow(registry=registry)
    async def books(left: int) -> None:
        hf.on_rollback(undo.bind(left, of="a room"))
        if left:
            hf.continue_as(books, left - 1)
        await hf.wait_for("come")
        raise LookupError("no room")

    async with engine_on(url, registry) as engine:
        async with engine.worker():
            handle = await engine.start(books, 2)
            await suspended(handle)
        async with engine.worker():
            if end == "fails":
                await engine.send("come", to=handle)
                with pytest.raises(hf.RunFailed, match="no room"):
                    await handle.result(timeout=20)
            else:
                await handle.cancel()
                with pytest.raises(hf.RunCancelled):
                    await handle.result(timeout=20)
        assert [entry.kind for entry in await handle.history()][:4] == ["rollbacks", "continued"] * 2
        await assert_sound(engine)
    assert undone == [(0, "a room"), (1, "a room"), (2, "a room")]


async def test_i10_a_rollback_of_an_earlier_call_whose_action_is_gone_is_noted_and_the_others_run(url: str) -> None:
    registry, undone = hf.Registry(), list[str]()

    @hf.action(registry=registry)
    async def kept(what: str) -> None:
        undone.append(what)

    @hf.action(registry=hf.Registry())
    async def gone() -> None: ...

    @hf.workflow(registry=registry)
    async def books(first: bool) -> None:
        if first:
            hf.on_rollback(kept, "one")
            hf.on_rollback(gone)
            hf.continue_as(books, False)
        await hf.wait_for("come")
        raise LookupError("no room")

    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(books, True)
        await suspended(handle)
        await engine.send("come", to=handle)
        with pytest.raises(hf.RunFailed, match="no room"):
            await handle.result(timeout=20)
        (row,) = await engine.store.runs([handle.id])
        assert b"its rollback gone failed: MissingJob" in (row.error or b"")
    assert undone == ["one"]


async def test_i54_a_task_of_a_group_may_go_on_as_another_call_as_one_of_a_gather_may(url: str) -> None:
    """The group cancels the other tasks and wraps what left this one: it is the request all the same."""
    registry = hf.Registry()

    @hf.workflow(registry=registry)
    async def rounds(left: int) -> str:
        async def one_of_several() -> None:
            hf.continue_as(rounds, left - 1)

        async def asks_in_a_group() -> None:
            async with asyncio.TaskGroup() as inner:
                inner.create_task(one_of_several())

        if left == 3:
            await asyncio.gather(one_of_several(), asyncio.sleep(60))
        if left == 2:
            async with asyncio.TaskGroup() as group:
                group.create_task(one_of_several())
                group.create_task(asyncio.sleep(60))
        if left == 1:
            async with asyncio.TaskGroup() as group:
                group.create_task(asks_in_a_group())
        return f"{left} left"

    async with engine_on(url, registry) as engine, engine.worker():
        assert await engine.run(rounds, 3, timeout=20) == "0 left"
        await assert_sound(engine)
    assert await rounds(3) == "0 left", "outside of a run as in one"


async def test_i10_a_request_to_go_on_that_leaves_a_group_with_a_failure_is_a_failure(url: str) -> None:
    registry, undone = hf.Registry(), list[str]()

    @hf.action(registry=registry)
    async def undo() -> None:
        undone.append("undone")

    @hf.workflow(registry=registry)
    async def torn() -> None:
        hf.on_rollback(undo)

        async def goes_on() -> None:
            hf.continue_as(torn)

        async def fails() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                raise LookupError("no room")

        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            group.create_task(goes_on())

    async with engine_on(url, registry) as engine, engine.worker():
        with pytest.raises(hf.RunFailed):
            await engine.run(torn, timeout=20)
    assert undone == ["undone"]


async def test_i54_a_result_is_of_the_workflow_that_the_run_went_on_as(url: str) -> None:
    """I14: whoever asks for it, by a handle, as a parent or by its end, decodes it as what was returned."""
    registry = hf.Registry()

    @hf.workflow(registry=registry)
    async def counts(text: str) -> Counted:
        return Counted(len(text))

    @hf.workflow(registry=registry)
    async def asks(times: int) -> str:
        if times:
            hf.continue_as(asks, times - 1)
        hf.continue_as(counts, "abc")

    @hf.workflow(registry=registry)
    async def tells() -> list[str]:
        called: Any = await asks(1)
        child = await hf.start_child(asks, 0)
        ended = await hf.wait_for(hf.ended(child))
        again: Any = await child.result()
        return [repr(each) for each in (called, ended.result, again)]

    async with engine_on(url, registry) as engine, engine.worker():
        handle: hf.Handle[Any] = await engine.start(asks, 2)
        assert await handle.result(timeout=20) == Counted(3)
        assert await engine.get(handle.id).result(timeout=20) == Counted(3)
        assert await engine.run(tells, timeout=20) == ["Counted(letters=3)"] * 3
        await assert_sound(engine)
