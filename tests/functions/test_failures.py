"""What a function catches when a call failed: the exception that the action raised, now and after a restart."""

from __future__ import annotations

import datetime
import sys
from typing import Any

import pytest

import holdfast as hf
from tests.worker.support import assert_sound, engine_on


class Declined(Exception):
    """Its message is made from another argument, and one attribute is no JSON."""

    def __init__(self, code: int) -> None:
        super().__init__(f"declined {code}")
        self.code = code
        self.when = datetime.datetime(2026, 11, 16)


class Cards:
    class Expired(Exception):
        def __init__(self, *, year: int) -> None:
            super().__init__(f"expired in {year}")
            self.year = year


async def test_i54_a_function_catches_what_the_action_raised_now_and_in_replay(shared_url: str) -> None:
    """I54: a failed call replays with the same type and message, however its class is built."""
    registry, seen = hf.Registry(), list[str]()

    @hf.action(registry=registry)
    def charge(code: int) -> int:
        raise Declined(code)

    @hf.action(registry=registry)
    async def read_card() -> None:
        raise Cards.Expired(year=2020)

    @hf.workflow(registry=registry)
    async def pay() -> str:
        told = "not asked"
        try:
            await charge(5)
        except Declined as refused:
            told = f"{refused} ({refused.code})"
        try:
            await read_card()
        except Cards.Expired as old:
            told += f", {old} ({old.year})"
        seen.append(told)
        await hf.wait_for("go on")
        return told

    wanted = "declined 5 (5), expired in 2020 (2020)"
    async with engine_on(shared_url, registry) as engine, engine.worker():
        handle = await engine.start(pay)
        await engine.settle()
    async with engine_on(shared_url, registry) as engine, engine.worker():
        await engine.send("go on", None, to=handle.id)
        assert await engine.get(handle.id).result(timeout=10) == wanted
        await assert_sound(engine)
    assert seen == [wanted, wanted]


async def test_i3_what_every_attempt_raised_can_be_reached_from_the_failure(shared_url: str) -> None:
    """I3: the final error keeps the chain of attempts, of a call in a function and of a child as well."""
    registry = hf.Registry()

    @hf.action(registry=registry, retry=hf.Retry(attempts=3, base=0.01))
    async def charge() -> None:
        raise Declined(hf.current().attempt)

    @hf.workflow(registry=registry)
    async def pay() -> None:
        await charge()

    @hf.workflow(registry=registry)
    async def order() -> list[str]:
        try:
            await pay()
        except hf.RunFailed as failed:
            return [str(each) for each in failed.attempts]
        return []

    @hf.workflow(registry=registry)
    async def order_and_fail() -> None:
        await pay()

    wanted = ["declined 1", "declined 2", "declined 3"]
    async with engine_on(shared_url, registry) as engine, engine.worker():
        with pytest.raises(hf.RunFailed) as failed:
            await engine.run(pay, timeout=10)
        assert [str(each) for each in failed.value.attempts] == wanted
        assert all(type(each) is Declined for each in failed.value.attempts)
        assert failed.value.attempts[-1] is failed.value.cause
        assert await engine.run(order, timeout=10) == wanted
        with pytest.raises(hf.RunFailed) as failed:
            await engine.run(order_and_fail, timeout=10)
        assert isinstance(failed.value.cause, hf.RunFailed)
        assert [str(each) for each in failed.value.cause.attempts] == wanted
        await assert_sound(engine)


async def test_i54_what_is_no_exception_is_the_cause_under_its_own_name(shared_url: str) -> None:
    """I54: SystemExit is built in, so nobody has to import anything for it; it is told, and never raised."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def leaves() -> None:
        sys.exit(3)

    @hf.workflow(registry=registry)
    async def quits() -> None:
        sys.exit(2)

    @hf.workflow(registry=registry)
    async def asks() -> None:
        await quits()

    @hf.workflow(registry=registry)
    async def calls() -> None:
        await leaves()

    async with engine_on(shared_url, registry) as engine, engine.worker():
        causes: list[BaseException | None] = []
        for workflow in (quits, asks, calls):
            with pytest.raises(hf.RunFailed) as failed:
                await engine.run(workflow, timeout=10)
            causes.append(failed.value.cause)
        own, of_child, of_action = causes
        assert type(own) is SystemExit
        assert own.code == 2
        assert isinstance(of_child, hf.RunFailed)
        assert type(of_child.cause) is SystemExit
        assert isinstance(of_action, RuntimeError)
        assert type(of_action.__cause__) is SystemExit
        await assert_sound(engine)


@pytest.mark.parametrize("options", [{"queue": "side"}, {"transactional": True}], ids=["queued", "transactional"])
async def test_i54_arguments_that_are_refused_are_a_failure_of_the_call(
    shared_url: str, options: dict[str, Any]
) -> None:
    """I54: of a call that others carry out too, in its code and in a replay; what is registered to be undone is."""
    registry, seen = hf.Registry(), list[str]()

    @hf.action(registry=registry, **options)
    async def file(document: str) -> int:
        return len(document)

    @hf.action(registry=registry)
    async def forget(document: str) -> None:
        seen.append(f"forgot {document}")

    @hf.workflow(registry=registry)
    async def archive(document: str) -> None:
        hf.on_rollback(forget, document)
        try:
            await file(document * 2_000)
        except hf.PayloadTooLarge as error:
            seen.append(error.message)
        await hf.wait_for("go on")
        await file(document * 3_000)

    async with engine_on(shared_url, registry, payload_limit_bytes=1_000) as engine, engine.worker():
        handle = await engine.start(archive, "a")
        await engine.settle()
    async with engine_on(shared_url, registry, payload_limit_bytes=1_000) as engine, engine.worker():
        await engine.send("go on", to=handle.id)
        with pytest.raises(hf.RunFailed) as failed:
            await engine.get(handle.id).result(timeout=10)
        assert isinstance(failed.value.cause, hf.PayloadTooLarge)
        await assert_sound(engine)
    told, again, undone = seen
    assert told == again
    assert "the arguments of action file" in told
    assert undone == "forgot a"


async def test_i54_a_failure_names_the_call_that_the_function_ended_with(shared_url: str) -> None:
    """I54: an action, a child or a flow; of its own errors, and of what it did something about, it names none."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def charge() -> None:
        raise Declined(5)

    @hf.action(registry=registry, queue="side")
    async def charge_elsewhere() -> None:
        raise Declined(6)

    @hf.workflow(registry=registry)
    async def child() -> None:
        await charge()

    @hf.workflow(registry=registry)
    async def fine() -> None: ...

    @hf.flow(registry=registry)
    async def flow() -> None:
        await charge()

    @hf.workflow(registry=registry)
    async def pay(how: str) -> None:
        if how == "rolled back":
            hf.on_rollback(charge_elsewhere)
        match how:
            case "charge" | "rolled back":
                await charge()
            case "charge_elsewhere":
                await charge_elsewhere()
            case "child":
                await child()
            case "flow":
                await flow()
            case "waits":
                await hf.wait_for(hf.ended(await hf.start_child(child)))
        await fine()
        raise LookupError(how)

    named, unnamed = ("charge", "charge_elsewhere", "child", "flow"), ("own", "waits", "rolled back")
    async with engine_on(shared_url, registry) as engine, engine.worker(queues=("default", "side")):
        for how in (*named, *unnamed):
            with pytest.raises(hf.RunFailed) as failed:
                await engine.run(pay, how, timeout=10)
            assert failed.value.node == (how if how in named else None)
        await assert_sound(engine)


async def test_the_cause_of_a_failure_says_which_lines_of_the_authors_code_it_came_through(shared_url: str) -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def charge() -> None:
        raise Declined(5)  # the action's line

    @hf.workflow(registry=registry)
    async def pay() -> None:
        await charge()  # the workflow's line

    async with engine_on(shared_url, registry) as engine, engine.worker():
        for asked, lines in ((charge, 1), (pay, 2)):
            with pytest.raises(hf.RunFailed) as failed:
                await engine.run(asked, timeout=10)
            (note,) = failed.value.cause.__notes__  # type: ignore[union-attr]
            assert note.count("  File ") == lines
            assert "raise Declined(5)  # the action's line" in note
            assert ("await charge()  # the workflow's line" in note) is (asked is pay)
