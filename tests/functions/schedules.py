"""A driver without a store: one journal in memory, random schedules, crashes, and a check after every entry.

Theory. The state of a run is a function of its journal: whatever the order of completions, the groups in which they
were committed, the crashes in between and the memory layout of the process, after the same entries the same requests
are pending, the same timer is next, and the code has seen the same. So the driver keeps what it saw after each entry,
and every replay is compared with it, entry by entry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.runtime.run_calls import CANCEL, ERROR, RESULT, TIMER
from holdfast.runtime.run_loop import Entry, Pending, RunLoop
from tests.functions.programs import PROGRAMS, Notes, Program

STARTED_US = 1_700_000_000_000_000
SECOND_US = 1_000_000

State = tuple[Any, ...]
Replay = Callable[["Schedule", RunLoop], None]


class Diverged(AssertionError):
    """Two runs of one journal differ."""


class Schedule:
    """One run of a program under one random schedule. `play` returns how it ended, or raises `Diverged`."""

    def __init__(
        self,
        name: str,
        seed: int,
        *,
        crash_chance: float = 0.12,
        cancel_chance: float = 0.0,
        replay: Replay | None = None,
    ) -> None:
        self.name = name
        self.program: Program = PROGRAMS[name]
        self.random = random.Random(f"{name}/{seed}")
        self.run_id = f"run-{name}-{seed}"
        self.crash_chance = crash_chance
        self.cancel_chance = cancel_chance
        self.replay = replay or in_order
        self.journal: list[Entry] = []
        self.states: dict[int, State] = {}
        self.given_up: set[str] = set()
        self.in_flight: dict[str, Pending] = {}
        self.now_us = STARTED_US
        self.crashes = 0
        self.loop: RunLoop
        self.notes: Notes

    def play(self) -> State:
        self.restart()
        for _ in range(10_000):
            if self.loop.done:
                break
            self.start_and_stop()
            if self.random.random() < self.crash_chance:
                self.crash()
                continue
            group = self.commit()
            self.journal.extend(group)
            for place, entry in enumerate(group):
                self.deliver(self.loop, len(self.journal) - len(group) + place, entry)
                if self.loop.done:
                    break
                if self.random.random() < self.crash_chance / 2:
                    self.crash()  # all of the group is committed, not all of it delivered
                    break
                if self.random.random() < 0.3:
                    self.start_and_stop()
        else:
            raise Diverged(f"{self.run_id} does not end")
        outcome = self.states[max(self.states)]
        self.crash()
        self.loop.evict()
        return outcome

    def restart(self) -> None:
        self.notes = []
        self.loop = RunLoop(self.run_id, now_us=STARTED_US)
        notes = self.notes
        self.loop.begin(lambda: self.program(notes))
        self.observe(self.loop, 0)
        self.replay(self, self.loop)

    def crash(self) -> None:
        self.crashes += 1
        self.loop.evict()
        self.in_flight.clear()
        self.restart()

    def deliver(self, loop: RunLoop, place: int, entry: Entry) -> None:
        before = set(loop.pending)
        loop.deliver(entry)
        self.given_up |= before - set(loop.pending) - {entry.address}
        self.in_flight.pop(entry.address, None)
        self.observe(loop, place + 1)

    def observe(self, loop: RunLoop, place: int) -> None:
        """Compare with what was seen after this many entries, or keep it if nobody has been here."""
        state = state_of(loop, self.notes)
        known = self.states.setdefault(place, state)
        if known != state:
            raise Diverged(f"{self.run_id} after {place} entries:\n  first {known}\n  now   {state}")
        if (stuck := loop.stuck()) is not None:
            raise Diverged(stuck)

    def start_and_stop(self) -> None:
        recorded = {entry.address for entry in self.journal}
        for request in self.loop.new_requests():
            if request.address in recorded:
                raise Diverged(f"{self.run_id} starts {request.address} again, which is recorded")
            if request.address in self.given_up:
                raise Diverged(f"{self.run_id} starts {request.address} again, which the code gave up")
            self.in_flight[request.address] = request
        for request in self.loop.withdrawn_requests():
            # Sometimes the action was quicker than the withdrawal: its result is committed and must change nothing.
            if self.random.random() < 0.7:
                self.in_flight.pop(request.address, None)

    def commit(self) -> list[Entry]:
        """Choose what happens next in the world: one or several completions, a timer, a cancel, in one commit."""
        self.now_us += self.random.randrange(SECOND_US)
        timer = self.loop.next_timer()
        running = list(self.in_flight.values())
        if timer is not None and not running:
            self.now_us = max(self.now_us, timer[1])
        group = [
            self.answer(each)
            for each in self.random.sample(running, k=min(len(running), self.random.choice((1, 1, 1, 2, 3))))
        ]
        if timer is not None and timer[1] <= self.now_us and (not group or self.random.random() < 0.6):
            group.append(Entry(timer[0], TIMER, digest=str(timer[1]), at_us=self.now_us))
        if self.random.random() < self.cancel_chance and not any(entry.kind == CANCEL for entry in self.journal):
            group.append(Entry("", CANCEL, at_us=self.now_us))
        self.random.shuffle(group)
        if not group:
            raise Diverged(f"{self.run_id} waits for nothing: {state_of(self.loop, self.notes)}")
        return group

    def answer(self, request: Pending) -> Entry:
        if request.name.startswith("fail"):
            value: Any = ValueError(f"{request.name}{request.digest}")
            return Entry(request.address, ERROR, request.name, request.digest, value, self.now_us)
        return Entry(
            request.address, RESULT, request.name, request.digest, f"{request.name}{request.digest}", self.now_us
        )


def state_of(loop: RunLoop, notes: Iterable[Any]) -> State:
    """All that the driver or the code can see of a run."""
    ended: Any = None
    if loop.done:
        outcome = loop.outcome()
        ended = ("value", repr(outcome.value)) if outcome.error is None else ("error", repr(outcome.error))
    pending = tuple((each.address, each.name, each.digest) for each in loop.pending.values())
    return pending, loop.next_timer(), loop.now_us, repr(list(notes)), ended


def in_order(schedule: Schedule, loop: RunLoop) -> None:
    """The right replay: one entry at a time, in the order of the journal."""
    for place, entry in enumerate(schedule.journal):
        schedule.deliver(loop, place, entry)
