"""Random scripts of operations, and what a store must hold after each: the memory store, one by one, is the reference.

A script is written while it is carried out on the reference, so that most of its operations make sense where they
stand, also those that depend on an earlier one of the same batch; the rest are stale, repeated or about nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from holdfast.coordinator import Coordinator
from holdfast.core.operations import (
    BuryUnknown,
    CancelRun,
    CompleteWork,
    DiscardDead,
    FailWork,
    Handed,
    KillWork,
    LapseWork,
    Offer,
    Operation,
    PauseRun,
    PolicyOverride,
    ReattemptNode,
    RecordProgress,
    ReleaseWork,
    ResumeRun,
    RetryRun,
    SetHold,
    SkipNode,
    StartRun,
)
from holdfast.core.rows import BLOCKED, LEASED, READY, RUNS, WORK, Work
from holdfast.store.contract import ClaimRequest, Store
from holdfast.store.memory import MemoryStore
from tests.kernel.kernels import GRAPHS, by_key, claim_request, make_coordinator
from tests.support.stores import SECOND, VirtualClock, every_row

QUEUES = ("default", "slow")


@dataclass(frozen=True)
class Batch:
    operations: list[Operation]
    results: list[Any]


@dataclass(frozen=True)
class Claim:
    request: ClaimRequest
    handed: list[Handed]


@dataclass(frozen=True)
class Promote:
    next_due: int | None


@dataclass(frozen=True)
class Advance:
    seconds: float


Step = Batch | Claim | Promote | Advance


@dataclass(frozen=True)
class Script:
    seed: int
    steps: list[Step]
    rows: dict[str, list[Any]] = field(repr=False)


def plain(result: Any) -> Any:
    """A result or an error as a value to compare."""
    return f"{type(result).__name__}: {result}" if isinstance(result, BaseException) else result


async def write_script(seed: int, steps: int) -> Script:
    """A script of about so many steps, with what the reference answered."""
    writer = Writer(random.Random(seed))
    written = [await writer.step() for _ in range(steps)]
    return Script(seed, written, await every_row(writer.store))


class Writer:
    """Writes a script while the reference carries it out."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.coordinator = make_coordinator(self.store, self.clock)
        self.said: list[Operation] = []
        self.started = 0

    async def step(self) -> Step:
        kind = self.chance.choices(["batch", "claim", "promote", "advance"], [10, 4, 1, 3])[0]
        if kind == "batch":
            return await self._batch()
        if kind == "claim":
            request = self.claim_request()
            return Claim(request, by_key(await self.store.claim(request)))
        if kind == "promote":
            return Promote(await self.store.promote(QUEUES))
        seconds = self.chance.choice([0.001, 0.5, 3.0, 100.0])
        self.clock.advance(seconds)
        return Advance(seconds)

    def claim_request(self) -> ClaimRequest:
        return claim_request(self.chance.choice(["w1", "w2"]), self.chance.choice(QUEUES))

    async def _batch(self) -> Batch:
        operations, results = [], []
        for _ in range(self.chance.choice([1, 2, 3, 5, 8, 12])):
            operation = self.operation()
            operations.append(operation)
            self.said.append(operation)
            self.coordinator.cache.clear()  # the reference remembers nothing
            results.append(plain((await self.coordinator.submit_batch([operation]))[0]))
        return Batch(operations, results)

    # -- what to say next

    def operation(self) -> Operation:
        chance = self.chance
        kind = chance.choices(["start", "settle", "operator", "repeat", "hold"], [5, 12, 5, 2, 2])[0]
        if kind == "repeat" and self.said:
            return chance.choice(self.said[-40:])
        if kind == "hold":
            scope, name = chance.choice(
                [("all", ""), ("workflow", "chain"), ("queue", "slow"), ("drain", "solo"), ("drain", "join")]
            )
            return SetHold(scope=scope, name=name, on=chance.random() < 0.45, by=chance.choice(["ann", "bob"]))
        if kind == "settle" and (work := self._some_work()) is not None:
            return self._settle(work)
        if kind == "operator" and self.store.tables[RUNS]:
            return self._ask()
        return self._start()

    def _start(self) -> StartRun:
        chance = self.chance
        self.started += 1
        override = None
        if chance.random() < 0.1:
            override = PolicyOverride(timeout_seconds=2.0, queue="slow", attempts=2, base_seconds=1.0, cap_seconds=9.0)
        return StartRun(
            run=f"run-{self.started:04d}",
            workflow=chance.choice(list(GRAPHS)),
            model="dag",
            key=chance.choice([None, None, "k1", "k2"]),
            input=b'{"n":1}',
            input_digest=chance.choice(["one", "one", "one", "two"]),
            on_failure=chance.choice(["fail", "pause", "cancel", "skip"]),
            queue=chance.choices(QUEUES, [4, 1])[0],
            priority=chance.choice([0, 0, 5]),
            tags=chance.choice(["{}", '{"colour":"red"}']),
            due=chance.choice([0, 0, 0, self.clock.now_us() + 5 * SECOND]),
            paused=chance.random() < 0.1,
            if_exists=chance.choice(["same", "restart"]),
            override=override,
            offer=self._offer(),
        )

    def _offer(self) -> Offer | None:
        if self.chance.random() < 0.4:
            return None
        return Offer(worker=self.chance.choice(["w1", "w2"]), room=self.chance.choice([1, 2]), queues=("default",))

    def _some_work(self) -> Work | None:
        items = self._items()
        leased = [item for item in items if item.status == LEASED]
        if leased and self.chance.random() < 0.85:
            return self.chance.choice(leased)
        return self.chance.choice(items) if items else None

    def _items(self) -> list[Work]:
        return list(self.store.tables[WORK].values())

    def _settle(self, work: Work) -> Operation:
        chance = self.chance
        token = max(0, work.token + chance.choices([0, -1, 1], [20, 1, 1])[0])
        at: dict[str, Any] = {"run": work.run, "node": work.node, "attempt": work.attempt, "token": token}
        kinds = ["complete", "fail", "release", "lapse", "kill", "progress", "bury"]
        kind = chance.choices(kinds, [8, 4, 1, 2, 1, 1, 1])
        if kind == ["complete"]:
            result = chance.choice([None, b"1", b'"text"'])
            return CompleteWork(**at, result=result, outcome=chance.choice([None, b"{}"]), offer=self._offer())
        if kind == ["fail"]:
            retryable, timed_out = chance.random() < 0.6, chance.random() < 0.3
            return FailWork(**at, error=b'{"type":"E"}', timed_out=timed_out, retryable=retryable, attempts=3)
        if kind == ["release"]:
            return ReleaseWork(**at)
        if kind == ["lapse"]:
            return LapseWork(**at, lost_limit=2)
        if kind == ["kill"]:
            return KillWork(**at, error=b'{"type":"Undecodable"}')
        if kind == ["progress"]:
            return RecordProgress(**at, note=chance.choice(["", "half way"]))
        return BuryUnknown(run=work.run, node=work.node, attempt=work.attempt, error=b'{"type":"MissingJob"}')

    def _ask(self) -> Operation:
        chance = self.chance
        run = chance.choice(list(self.store.tables[RUNS].values()))
        run_id = "run-none" if chance.random() < 0.03 else run.id
        kinds: list[type[Any]] = [CancelRun, PauseRun, ResumeRun, RetryRun, ReattemptNode, SkipNode, DiscardDead]
        kind = chance.choices(kinds, [2, 2, 4, 4, 2, 3, 2])[0]
        if kind in (ReattemptNode, SkipNode, DiscardDead):
            node = chance.choice([*GRAPHS[run.workflow].by_id, "nowhere"])
            asked: Operation = kind(run=run_id, node=node, by="ann")
            return asked
        asked = kind(run=run_id, by=chance.choice(["ann", "bob"]))
        return asked


async def follow(
    script: Script,
    engines: list[tuple[Coordinator, Store]],
    clock: VirtualClock,
    *,
    fused: bool,
    always_remember: bool = False,
) -> None:
    """Carry a script out and check every answer; which engine does what, and what is forgotten when, is chance."""
    chance = random.Random(f"{script.seed}-{fused}-{len(engines)}")
    for number, step in enumerate(script.steps):
        coordinator, store = chance.choice(engines)
        _forget(coordinator, chance)
        match step:
            case Advance(seconds):
                clock.advance(seconds)
            case Promote(next_due):
                _same(number, step, next_due, await store.promote(QUEUES))
            case Claim(request, handed):
                if chance.random() < 0.5:  # what is remembered need not be read, however old it is
                    request = structs.replace(request, recall=coordinator.cache.recall)
                claimed = by_key(await store.claim(request))
                _same(number, step, handed, claimed)
                if always_remember or chance.random() < 0.7:
                    coordinator.remember(claimed)
            case Batch(operations, results) if fused:
                found = [plain(result) for result in await coordinator.submit_batch(operations)]
                for operation, expected, answer in zip(operations, results, found, strict=True):
                    _same(number, operation, expected, answer)
            case Batch(operations, results):
                for operation, expected in zip(operations, results, strict=True):
                    coordinator, _ = chance.choice(engines)
                    _forget(coordinator, chance)
                    (answer,) = await coordinator.submit_batch([operation])
                    _same(number, operation, expected, plain(answer))


def _forget(coordinator: Coordinator, chance: random.Random) -> None:
    """K5: what is remembered may vanish at any moment."""
    if chance.random() < 0.1:
        coordinator.cache.clear()
    for run in list(coordinator.cache.runs):
        if chance.random() < 0.1:
            coordinator.cache.drop(run)


def _same(number: int, what: object, expected: object, found: object) -> None:
    assert found == expected, f"step {number}, {what}:\n  expected {expected}\n  found    {found}"


def unsound(rows: dict[str, list[Any]]) -> list[str]:
    """What no sequence of operations may leave behind, whatever its results were."""
    runs = {run.id: run for run in rows["runs"]}
    wrong = []
    for work in rows["work"]:
        run = runs[work.run]
        if run.status in ("completed", "cancelled") and work.status in (BLOCKED, READY, LEASED):
            wrong.append(f"{run.id} is {run.status}, and its {work.node} is {work.status}")
        if run.status == "failed" and work.status in (READY, LEASED):
            wrong.append(f"{run.id} has failed, and its {work.node} is {work.status}")
        if work.completed > work.required:
            wrong.append(f"{work.node} of {run.id} was counted too often")
    for run in runs.values():
        active = sum(1 for work in rows["work"] if work.run == run.id and work.status in (READY, LEASED))
        if active != run.active:
            wrong.append(f"{run.id} ({run.status}) counts {run.active} active items and has {active}")
        latest = {work.node: work.status for work in rows["work"] if work.run == run.id}
        open_nodes = [node for node in GRAPHS[run.workflow].by_id if latest.get(node) not in ("completed", "skipped")]
        if run.remaining != len(open_nodes):
            wrong.append(f"{run.id} ({run.status}) counts {run.remaining} nodes left and has {len(open_nodes)}")
        gave_up = sum(1 for status in latest.values() if status in ("failed", "timed_out", "dead"))
        if run.gave_up != gave_up:
            wrong.append(f"{run.id} ({run.status}) counts {run.gave_up} nodes that gave up and has {gave_up}")
    return wrong
