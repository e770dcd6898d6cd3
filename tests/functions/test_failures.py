"""What a function catches when a call failed: the exception that the action raised, now and after a restart."""

from __future__ import annotations

import datetime

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
