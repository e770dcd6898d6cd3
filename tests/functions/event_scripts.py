"""Random scripts of what functions, senders and operators say; carried out one by one on memory they are the reference.

As tests/kernel/scripts.py, whose steps these are: most operations make sense where they stand, the rest are stale,
repeated, or about nothing.
"""

from __future__ import annotations

import random
from typing import Any

from holdfast.core.function_operations import TURN, DropEvent, Entry, OpenWait, RedeliverEvent
from holdfast.core.operations import (
    CancelRun,
    DiscardDead,
    FailWork,
    KillWork,
    LapseWork,
    Offer,
    Operation,
    PauseRun,
    ReattemptNode,
    ReleaseWork,
    ResumeRun,
    RetryRun,
    StartRun,
)
from holdfast.core.rows import EVENTS, HISTORY, LEASED, OPEN_WORK, RUNS, WAITS, WORK, Run, Work
from holdfast.store.contract import ClaimRequest
from holdfast.store.memory import MemoryStore
from tests.functions.kernel_moves import (
    ACTION,
    ERROR,
    WORKFLOW,
    broadcast,
    goes_on,
    queued_call,
    result,
    returns,
    send,
    time_comes,
    turn,
    wait,
)
from tests.kernel.kernels import NAMES, by_key, complete, make_coordinator
from tests.kernel.scripts import QUEUES, Advance, Batch, Claim, Promote, Script, Step, plain
from tests.support.stores import SECOND, VirtualClock, every_row

EVENT_NAMES = ("a", "b", "c")


async def write_event_script(seed: int, steps: int) -> Script:
    """A script of so many steps, with what the reference answered."""
    writer = _Writer(random.Random(f"events {seed}"))
    written = [await writer.step() for _ in range(steps)]
    await writer.coordinator.close()
    return Script(seed, written, await every_row(writer.store))


class _Writer:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.coordinator = make_coordinator(self.store, self.clock)
        self.said: list[Operation] = []
        self.number = 0

    async def step(self) -> Step:
        kind = self.chance.choices(["batch", "claim", "promote", "advance"], [10, 5, 1, 2])[0]
        if kind == "batch":
            return await self._batch()
        if kind == "claim":
            request = ClaimRequest(
                worker=self.chance.choice(["w1", "w2"]),
                queue=self.chance.choices(QUEUES, [4, 1])[0],
                limit=100,
                workflows=(WORKFLOW, "solo"),
                actions=(WORKFLOW, ACTION, *NAMES),
            )
            return Claim(request, by_key(await self.store.claim(request)))
        if kind == "promote":
            return Promote(await self.store.promote(QUEUES))
        seconds = self.chance.choice([0.001, 3.0, 100.0])
        self.clock.advance(seconds)
        return Advance(seconds)

    async def _batch(self) -> Batch:
        operations, results = [], []
        for _ in range(self.chance.choice([1, 2, 3, 5, 8, 13])):
            operation = self._operation()
            operations.append(operation)
            self.said.append(operation)
            self.coordinator.cache.clear()  # the reference remembers nothing
            results.append(plain((await self.coordinator.submit_batch([operation]))[0]))
        return Batch(operations, results)

    # -- what to say next

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _operation(self) -> Operation:
        chance = self.chance
        kind = chance.choices(
            ["start", "function", "settle", "send", "broadcast", "operator", "repeat", "event"],
            [4, 14, 4, 6, 4, 3, 3, 1],
        )[0]
        runs: list[Run] = list(self.store.tables[RUNS].values())
        leased = [work for work in self.store.tables[WORK].values() if work.status == LEASED]
        turns = [work for work in leased if work.node == TURN]
        if kind == "function" and turns:
            return self._turn(chance.choice(turns), runs)
        if kind == "settle" and leased:
            return self._settle(chance.choice(leased))
        if kind == "send" and runs:
            return self._send(chance.choice(runs).id)
        if kind == "broadcast":
            return self._broadcast()
        if kind == "operator" and runs:
            return self._ask(chance.choice(runs))
        if kind == "repeat" and self.said:
            return chance.choice(self.said[-30:])
        if kind == "event" and self.store.tables[EVENTS]:
            event = chance.choice(list(self.store.tables[EVENTS].values()))
            if chance.random() < 0.5:
                return DropEvent(event=event.id, expired=chance.random() < 0.8)
            return RedeliverEvent(event=event.id, name=event.name, run=event.target)
        return self._start(chance.choice([None, *(run.id for run in runs if run.model == "function")]))

    def _start(self, parent: str | None) -> StartRun:
        chance = self.chance
        function = chance.random() < 0.85
        room = Offer(worker=chance.choice(["w1", "w2"]), room=1, queues=("default",))
        return StartRun(
            run=f"run-{self._next():04d}",
            workflow=WORKFLOW if function else "solo",
            model="function" if function else "dag",
            key=chance.choice([None, None, None, "k1", "k2"]),
            input_digest=chance.choice(["one", "one", "one", "two"]),
            queue=chance.choices(QUEUES, [5, 1])[0],
            due=chance.choice([0, 0, 0, self.clock.now_us() + 5 * SECOND]),
            paused=chance.random() < 0.05,
            if_exists=chance.choice(["same", "restart"]),
            parent=parent,
            offer=room if chance.random() < 0.7 else None,
        )

    def _turn(self, work: Work, runs: list[Run]) -> Operation:
        """What the driver of a function could say now: sometimes it does not know of the latest entries."""
        chance = self.chance
        run: Run = self.store.tables[RUNS][(work.run,)]
        known = max(run.base, run.entries - chance.choice([0, 0, 0, 1, 2]))
        token = work.token - chance.choices([0, 1], [15, 1])[0]
        at: dict[str, Any] = {"known": known, "token": token}
        waits = sorted({row.address for row in self.store.tables[WAITS].values() if row.run == run.id})
        kind = chance.choices(["say", "timer", "continue"], [12, 3, 1])[0]
        if kind == "timer" and waits:
            fired = time_comes(run.id, address=chance.choice(waits), **at)
            return turn(
                run.id,
                attempt=work.attempt,
                entries=(*fired.entries, *self._results()),
                closes=fired.closes,
                opens=self._opens(run, runs),
                **at,
            )
        if kind == "continue":
            return goes_on(run.id, **at)
        park = chance.random() < 0.5
        entries: tuple[Entry, ...] = () if park and chance.random() < 0.8 else self._results()
        children = tuple(self._child(run) for _ in range(chance.choice([0, 0, 0, 0, 1, 2])))
        awaited = tuple(wait(f"0#{self._next()}", runs=(child.run,)) for child in children if chance.random() < 0.7)
        open_work = [
            work for work in self.store.tables[WORK].values() if work.run == run.id and work.status in OPEN_WORK
        ]
        calls = sorted(work.node for work in open_work if work.node != TURN)
        unread = [row.sequence for row in self.store.tables[HISTORY].values() if row.run == run.id]
        return turn(
            run.id,
            attempt=work.attempt,
            entries=entries,
            calls=tuple(
                queued_call(f"0#{self._next()}", chance.choice(QUEUES)) for _ in range(chance.choice([0, 0, 1]))
            ),
            opens=(*awaited, *self._opens(run, runs)),
            closes=tuple(address for address in waits if chance.random() < 0.15),
            withdraws=tuple(node for node in calls if chance.random() < 0.15),
            children=children,
            unread=tuple(sequence for sequence in unread if chance.random() < 0.03),
            park=park,
            due=chance.choice([None, None, self.clock.now_us() + 5 * SECOND]),
            **at,
        )

    def _results(self) -> tuple[Entry, ...]:
        return tuple(result(f"0#{self._next()}") for _ in range(self.chance.choice([0, 1, 1, 2])))

    def _opens(self, run: Run, runs: list[Run]) -> tuple[OpenWait, ...]:
        chance = self.chance
        opens = []
        for _ in range(chance.choice([0, 1, 1, 2])):
            others = tuple(
                other.id
                for other in chance.sample(runs, min(len(runs), chance.choice([0, 0, 1, 2])))
                if other.id != run.id
            )
            names = tuple(chance.sample(EVENT_NAMES, chance.choice([1, 1, 2]) if not others else chance.choice([0, 1])))
            opens.append(wait(f"0#{self._next()}", *names, runs=others))
        return tuple(opens)

    def _child(self, run: Run) -> StartRun:
        return self._start(self.chance.choice([run.id, run.id, None]))

    def _settle(self, work: Work) -> Operation:
        chance = self.chance
        at: dict[str, Any] = {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}
        if work.workflow == "solo":
            return complete(work.run, work.node, token=work.token, attempt=work.attempt)
        kind = chance.choices(["complete", "fail", "release", "lapse", "kill"], [6, 3, 1, 3, 1])[0]
        if kind == "complete":
            done = returns(work.run, token=work.token, node=work.node)
            return done if work.attempt == 1 else type(done)(**at, result=b"1")
        if kind == "fail":
            return FailWork(**at, error=ERROR, retryable=chance.random() < 0.5, attempts=2)
        if kind == "release":
            return ReleaseWork(**at)
        if kind == "lapse":
            return LapseWork(**at, lost_limit=3)
        return KillWork(**at, error=ERROR)

    def _send(self, run: str) -> Operation:
        chance = self.chance
        return send(
            chance.choices([run, "run-none"], [30, 1])[0],
            f"e{self._next()}" if chance.random() < 0.8 else chance.choice(["same-1", "same-2"]),
            chance.choice(EVENT_NAMES),
            expires=chance.choice([None, None, 2 * SECOND]),
            on_target_end=chance.choice(["discard", "broadcast", "dead"]),
        )

    def _broadcast(self) -> Operation:
        chance = self.chance
        return broadcast(
            f"e{self._next()}" if chance.random() < 0.8 else chance.choice(["same-1", "same-2"]),
            chance.choice(EVENT_NAMES),
            expires=chance.choice([None, None, 2 * SECOND]),
            to_all=chance.random() < 0.3,
        )

    def _ask(self, run: Run) -> Operation:
        chance = self.chance
        kind = chance.choices(
            ["cancel", "force", "pause", "resume", "retry", "reattempt", "discard"], [3, 1, 2, 4, 3, 1, 1]
        )
        if kind == ["cancel"]:
            return CancelRun(run=run.id, by="ann")
        if kind == ["force"]:
            return CancelRun(run=run.id, force=True, by="ann")
        if kind == ["pause"]:
            return PauseRun(run=run.id, by="ann")
        if kind == ["resume"]:
            return ResumeRun(run=run.id, by="ann")
        if kind == ["retry"]:
            return RetryRun(run=run.id, by="ann")
        node = WORKFLOW if run.model == "function" else "only"
        if kind == ["reattempt"]:
            return ReattemptNode(run=run.id, node=node, by="ann")
        return DiscardDead(run=run.id, node=node, by="ann")
