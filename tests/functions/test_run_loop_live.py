"""The run's loop inside a real one: actions really run concurrently there, and the journal replays what happened."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from holdfast.runtime.run_calls import ERROR, RESULT, TIMER
from holdfast.runtime.run_loop import Entry, Pending, RunLoop
from tests.functions.programs import PROGRAMS, Notes
from tests.functions.schedules import STARTED_US, state_of


class LiveDriver:
    """Runs a program on a real loop: actions are tasks there, their ends come whenever they come."""

    def __init__(self, name: str) -> None:
        self.program = PROGRAMS[name]
        self.random = random.Random(name)
        self.notes: Notes = []
        self.journal: list[Entry] = []
        self.states: list[Any] = []
        self.actions: dict[str, asyncio.Task[None]] = {}
        self.loop = RunLoop(f"live-{name}", now_us=STARTED_US)
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None

    def turn(self, entry: Entry | None) -> None:
        """A plain callback of the real loop."""
        if self.loop.done:
            return
        try:
            if entry is None:
                self.loop.begin(lambda: self.program(self.notes))
            else:
                self.journal.append(entry)
                self.loop.deliver(entry)
            self.states.append(state_of(self.loop, self.notes))
        except BaseException as error:
            self.failure = error
        if self.failure is not None or self.loop.done:
            self.ended.set()
            return
        for request in self.loop.new_requests():
            self.actions[request.address] = asyncio.get_running_loop().create_task(self.act(request))
        for request in self.loop.withdrawn_requests():
            self.actions[request.address].cancel()
        timer = self.loop.next_timer()
        if timer is not None and all(action.done() for action in self.actions.values()):
            # Virtual time: it passes when nothing else happens.
            asyncio.get_running_loop().call_soon(self.turn, Entry(timer[0], TIMER, at_us=timer[1]))

    async def act(self, request: Pending) -> None:
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)
        kind, value = RESULT, f"{request.name}{request.digest}"
        at_us = STARTED_US + len(self.journal) * 50_000
        entry = Entry(request.address, kind, request.name, request.digest, value, at_us)
        if request.name.startswith("fail"):
            entry = Entry(request.address, ERROR, request.name, request.digest, ValueError(value), at_us)
        asyncio.get_running_loop().call_soon(self.turn, entry)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_i49_what_happened_on_a_real_loop_is_repeated_by_its_journal(name: str) -> None:
    """I49: live and in replay the same entries give the same states."""
    driver = LiveDriver(name)
    outer = asyncio.get_running_loop()
    outer.call_soon(driver.turn, None)
    await driver.ended.wait()
    assert driver.failure is None
    for action in driver.actions.values():
        action.cancel()
    await asyncio.gather(*driver.actions.values(), return_exceptions=True)

    again = LiveDriver(name)
    again.loop = RunLoop(driver.loop.run_id, now_us=STARTED_US)

    def replay() -> None:
        again.loop.begin(lambda: again.program(again.notes))
        again.states.append(state_of(again.loop, again.notes))
        for entry in driver.journal:
            again.loop.deliver(entry)
            again.states.append(state_of(again.loop, again.notes))
        driver.loop.evict()
        again.loop.evict()
        again.ended.set()

    outer.call_soon(replay)
    await again.ended.wait()
    assert again.states == driver.states
