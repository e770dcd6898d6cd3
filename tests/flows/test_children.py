"""What a flow sees of a child that failed or was cancelled: what a function sees, from the same source."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.flows import flow
from holdfast.core.codec import decode_error, encode_error
from holdfast.core.codec_failure import encode_record
from holdfast.core.flow_operations import attribute
from holdfast.core.flow_values import Raised
from holdfast.core.queries import ChildrenOf
from holdfast.models.delivery import RunEnd
from holdfast.runtime.child_failures import child_failure
from tests.support.stores import KINDS, Site, site_for
from tests.worker.support import assert_sound, engine_on, until


class Declined(Exception):
    """Its message is made from another argument."""

    def __init__(self, code: int) -> None:
        super().__init__(f"declined {code}")
        self.code = code


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each of the three stores in turn."""
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


def world(registry: hf.Registry) -> hf.Workflow[[str], int]:
    """A child that ends in the way it is asked to."""

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.001))
    async def charge(how: str) -> int:
        if how == "ours":
            raise hf.UsageError("the order has no lines", hint="add a line to the order")
        if how == "at length":  # too long for the sentence that says why a run has failed
            raise hf.UsageError("no line " * 40, hint="add a line to the order")
        raise Declined(hf.current().attempt)

    @hf.workflow(registry=registry)
    async def child(how: str) -> int:
        if how == "waits":
            await hf.wait_for("never")
        return await charge(how)

    return child


def telling(child: hf.Workflow[[str], int]) -> Callable[[str], Awaitable[list[Any]]]:
    async def told(how: str) -> list[Any]:
        try:
            return [await child(how)]
        except hf.RunFailed as e:
            cause = e.cause
            known = [e.run_id, e.workflow, isinstance(cause, Declined), isinstance(cause, hf.UsageError)]
            return ["failed", str(e), str(cause), [str(each) for each in e.attempts], *known]
        except hf.RunCancelled as e:
            return ["cancelled", str(e), e.run_id]

    return told


async def child_of(engine: hf.Engine, handle: hf.Handle[Any]) -> str:
    async def found() -> Any:
        return await engine.store.rows(ChildrenOf(handle.id))

    (row,) = await until(found, "the child is begun")
    run: str = row.id
    return run


@pytest.mark.parametrize("how", ["fails", "ours", "waits"])
async def test_i21_a_flow_catches_of_a_child_what_a_function_catches(site: Site, how: str) -> None:
    """I21, I54: the same class and message, the cause and its attempts; one that was cancelled has not failed."""
    registry = hf.Registry()
    told = telling(world(registry))
    forms: list[Any] = [hf.workflow(registry=registry)(told), flow(registry=registry, name="as a flow")(told)]
    seen: list[str] = []
    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        for form in forms:
            handle = await engine.start(form, how)
            child = await child_of(engine, handle)
            if how == "waits":
                await engine.get(child).cancel()
            seen.append(repr(await handle.result(timeout=20)).replace(child, "CHILD"))
        await assert_sound(engine)
    assert seen[0] == seen[1]
    shown = "see `holdfast show CHILD --traceback`"
    wanted = {
        "fails": f"['failed', 'child run CHILD of child failed: declined 2. Fix: {shown}', 'declined 2'",
        "ours": f"'child run CHILD of child failed: the order has no lines. Fix: add a line to the order; {shown}'",
        "waits": "['cancelled', 'child run CHILD of child was cancelled. Fix: start it again",
    }
    assert wanted[how] in seen[0]


async def test_i54_the_cause_of_a_failed_child_is_at_the_bottom_of_a_flows_failure(site: Site) -> None:
    """I3, I54: through as many runs as there are between them, and with one fix."""
    registry = hf.Registry()
    child = world(registry)

    @hf.flow(registry=registry)
    async def lowest(how: str) -> int:
        return await child(how)

    @hf.workflow(registry=registry)
    async def between(how: str) -> int:
        return await (await hf.start_child(lowest, how)).result()

    @hf.flow(registry=registry)
    async def highest(how: str) -> int:
        return await between(how)

    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        for how, kind in (("fails", Declined), ("at length", hf.UsageError), ("ours", hf.UsageError)):
            handle = await engine.start(highest, how)
            with pytest.raises(hf.RunFailed) as failed:
                await handle.result(timeout=20)
            assert str(failed.value).count("Fix: ") == 1
            assert " RUN" not in str(failed.value)
            error: BaseException | None = failed.value
            for workflow in ("highest", "between", "lowest", "child"):
                assert isinstance(error, hf.RunFailed)
                assert error.workflow == workflow
                assert error.cause is error.__cause__
                assert error.message.count(" failed: ") == (2 if workflow == "highest" else 1)
                attempts, error = error.attempts, error.cause
            assert type(error) is kind
            assert [type(each) for each in attempts] == [kind, kind]
            assert attempts[-1] is error
        assert isinstance(failed.value.cause, hf.RunFailed)
        assert "no lines. Fix: add a line to the order; see" in str(failed.value.cause)
        await assert_sound(engine)


async def test_i10_a_flow_beside_others_that_was_cancelled_is_told_as_that(site: Site) -> None:
    """I10, I20: of one that failed its own exception is raised, as if it were part of the gathering flow."""
    registry = hf.Registry()
    child = world(registry)

    @hf.flow(registry=registry)
    async def part(how: str) -> int:
        return await child(how)

    @hf.flow(registry=registry)
    async def both(how: str) -> list[str]:
        ends = await asyncio.gather(part(how), part("fails"), return_exceptions=True)
        return [type(each).__name__ for each in ends]

    async with engine_on(site.url or "memory://", registry) as engine, engine.worker():
        handle = await engine.start(both, "waits")

        async def waiting() -> Any:
            rows = await engine.store.rows(ChildrenOf(handle.id))
            left = [row.id for row in rows if row.status != "failed"]
            return left if len(left) < len(rows) == 2 else None

        (part_that_waits,) = await until(waiting, "the other one has failed")
        await engine.get(part_that_waits).cancel()
        assert await handle.result(timeout=20) == ["RunCancelled", "RunFailed"]
        await assert_sound(engine)


def test_i14_a_failure_that_an_older_version_has_stored_has_no_cause() -> None:
    """I14: rows of before hold the text alone, and are read as they were."""
    stored = decode_error(encode_error(hf.RunFailed("run 1 of child is failed: declined 2")))
    failure = Raised(stored)
    assert (attribute(failure, "cause"), attribute(failure, "attempts")) == (None, ())
    assert failure.is_a(hf.RunFailed)
    end = RunEnd(run="2", status="failed", error=encode_record(stored), workflow="parent")
    assert child_failure("parent", end).message == "child run 2 of parent failed: declined 2"
