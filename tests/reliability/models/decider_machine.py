"""A decider on a real engine and the model of it, driven by the same hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import holdfast as hf
from holdfast.core.rows import SNAPSHOTS
from holdfast.store.memory import MemoryStore
from tests.reliability.models.decider_model import BELL_SECONDS, CLOSES_AT, Counter
from tests.reliability.models.virtual import engine_on
from tests.support.stores import Site, execute

T = TypeVar("T")
registry = hf.Registry()


class Do(msgspec.Struct, frozen=True):
    counter: str
    what: str
    key: str


class Done(msgspec.Struct, frozen=True):
    what: str
    key: str


class Work(msgspec.Struct, frozen=True):
    key: str
    fails: bool


class Counting(
    hf.Decider[int, Do, Done, Work],
    name="counting",
    registry=registry,
    retry=hf.Retry(attempts=2, base=0.001, cap=0.001),
    snapshot_every=2,
):
    def workflow_id(self, input: Do) -> str:
        return input.counter

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Done) -> int:
        return state + 1

    def decide(self, now: datetime, state: int, input: Do) -> hf.Decision[Done, Work, Do]:
        decision: Any = hf.Decision.event(Done(input.what, input.key))
        if input.what in ("work", "break"):
            decision = decision.with_effect(Work(input.key, fails=input.what == "break"))
        if input.what in ("quiet", "again"):
            decision = decision.cancel_timer(input.key)
        if input.what in ("ring", "again"):
            ring = Do(input.counter, "rang", input.key)
            decision = decision.with_timer_after(timedelta(seconds=BELL_SECONDS), ring, key=input.key)
        return decision  # type: ignore[no-any-return]

    def is_terminal(self, state: int) -> bool:
        return state >= CLOSES_AT

    async def handle(self, effect: Work, ctx: hf.EffectContext) -> Do | None:
        if effect.fails:
            raise ValueError("broken")
        return Do(ctx.workflow_id, "worked", effect.key)


class Deciders(RuleBasedStateMachine):
    """Commands and queued inputs, some of them twice; effects that answer or give up; timers set anew and cancelled."""

    site: Callable[[], Site]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.counters: dict[str, Counter] = {}
        self.now = 0.0
        self.inputs = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def open(self) -> None:
        opened = engine_on(type(self).site(), registry)
        self.engine, self.clock = self.run(self.stack.enter_async_context(opened))

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()

    @rule(
        name=st.sampled_from(["one", "two"]),
        what=st.sampled_from(["count", "work", "break", "ring", "quiet", "again"]),
        key=st.sampled_from(["k", "l"]),
        queued=st.booleans(),
        times=st.sampled_from([1, 1, 2]),
    )
    def give(self, name: str, what: str, key: str, queued: bool, times: int) -> None:
        self.inputs += 1
        id = f"c{self.inputs}"
        counter = self.counters.setdefault(name, Counter())
        for _ in range(times):
            way = self.engine.enqueue_input if queued else self.engine.execute
            self.run(way(Counting, Do(name, what, key), command_id=id))
            counter.give(what, key, self.now, id)
            self.wait(1.0)

    @rule(seconds=st.sampled_from([10.0, 59.0, 61.0, 500.0]))
    def wait(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))
        for counter in self.counters.values():
            counter.wait(self.now, self.now + seconds)
        self.now += seconds

    @rule()
    def forget(self) -> None:
        """I38: a snapshot may be deleted at any time, and what is remembered may be forgotten."""
        self.run(_delete_snapshots(self.engine))

    @invariant()
    def streams_are_what_the_model_says(self) -> None:
        for name, counter in self.counters.items():
            told = []
            for each in self.run(self.engine.stream(Counting, name)):
                told.append(f"cancelled {each.event.key}" if each.system else f"{each.event.what} {each.event.key}")
            assert told == counter.events, f"{name} has {told}, and should have {counter.events}"
            snapshot = self.run(self.engine.snapshot(Counting, name))
            assert {timer.key for timer in snapshot.timers} == set(counter.bells)
            assert not snapshot.inbox
            ignored = [each for each in snapshot.observations if each.outcome == "ignored"]
            assert len(ignored) == counter.ignored, f"{name} ignored {ignored}"


async def _delete_snapshots(engine: hf.Engine) -> None:
    engine.coordinator.cache.clear()
    if isinstance(engine.store, MemoryStore):
        engine.store.tables[SNAPSHOTS].clear()
    else:
        await execute(engine.store, "DELETE FROM snapshots")
