"""Snapshots of folded state (I38): made by themselves, used, deletable at any time, never trusted after a change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Never

import msgspec
import pytest

import holdfast as hf
from holdfast.core.queries import SnapshotOf
from tests.deciders.conftest import Stage
from tests.worker.support import assert_sound


class Add(msgspec.Struct, frozen=True):
    id: str
    amount: int


class Added(msgspec.Struct, frozen=True):
    amount: int


class Sum(msgspec.Struct, frozen=True):
    total: int = 0
    count: int = 0


class Adding:
    """A decider that sums, registered as "sum" with whatever options, and a count of what it folded."""

    def __init__(self, *, weight: int = 1, state: Any = Sum, make: Callable[..., Any] = Sum, **options: Any) -> None:
        self.registry = hf.Registry()
        self.folded = 0
        adding = self

        class Adder(hf.Decider[state, Add, Added, Never], name="sum", registry=self.registry, **options):
            def workflow_id(self, input: Add) -> str:
                return input.id

            def initial(self) -> Any:
                return make()

            def evolve(self, state: Any, event: Added) -> Any:
                adding.folded += 1
                return make(state.total + weight * event.amount, state.count + 1)

            def decide(self, now: datetime, state: Any, input: Add) -> hf.Decision[Added, Any, Any]:
                return hf.Decision.event(Added(input.amount))

        self.decider = Adder

    async def fill(self, stage: Stage, count: int) -> None:
        async with stage.engine(self.registry, work=False) as engine:
            for number in range(count):
                await engine.execute(self.decider, Add("s", number))

    async def kept(self, engine: hf.Engine) -> int | None:
        """The sequence of the stored snapshot, if there is one."""
        run = (await engine.instances(self.decider))[0].run_id
        rows = await engine.store.rows(SnapshotOf(run))
        return rows[0].sequence if rows else None


async def test_i38_a_snapshot_is_made_by_itself_and_spares_the_fold(stage: Stage) -> None:
    adding = Adding(snapshot_every=10)
    await adding.fill(stage, 25)
    adding.folded = 0
    async with stage.engine(adding.registry, work=False) as engine:
        assert await adding.kept(engine) == 20
        assert await engine.state(adding.decider, "s") == Sum(sum(range(25)), 25)
        assert adding.folded == 5
        await assert_sound(engine)


async def test_i38_a_snapshot_may_be_deleted_at_any_time(stage: Stage) -> None:
    adding = Adding(snapshot_every=10)
    await adding.fill(stage, 25)
    async with stage.engine(adding.registry, work=False) as engine:
        assert await engine.delete_snapshot(adding.decider, "s")
        assert not await engine.delete_snapshot(adding.decider, "s")
        assert not await engine.delete_snapshot(adding.decider, "nobody")
        assert await adding.kept(engine) is None
        assert await engine.state(adding.decider, "s") == Sum(sum(range(25)), 25)
        await engine.execute(adding.decider, Add("s", 100))
        assert await engine.state(adding.decider, "s") == Sum(sum(range(25)) + 100, 26)
        await assert_sound(engine)


async def test_i38_deleting_after_every_input_changes_no_result(stage: Stage) -> None:
    adding = Adding(snapshot_every=2)
    async with stage.engine(adding.registry, work=False) as engine:
        for number in range(12):
            await engine.execute(adding.decider, Add("s", number))
            if number % 3 == 0:
                await engine.delete_snapshot(adding.decider, "s")
        assert await engine.state(adding.decider, "s") == Sum(sum(range(12)), 12)
        assert [fact.sequence for fact in await engine.stream(adding.decider, "s")] == list(range(1, 13))


async def test_i38_snapshots_can_be_switched_off(stage: Stage) -> None:
    adding = Adding(snapshot_every=0)
    await adding.fill(stage, 120)
    async with stage.engine(adding.registry, work=False) as engine:
        assert await adding.kept(engine) is None
        assert (await engine.state(adding.decider, "s")).count == 120


async def test_i38_a_snapshot_of_other_code_is_not_used(stage: Stage) -> None:
    """The author corrects evolve: the state is folded anew, from the events."""
    await Adding(snapshot_every=10).fill(stage, 25)
    corrected = Adding(snapshot_every=10, weight=2, state_version=2)
    async with stage.engine(corrected.registry, work=False) as engine:
        assert await engine.state(corrected.decider, "s") == Sum(2 * sum(range(25)), 25)
        await engine.execute(corrected.decider, Add("s", 1))
        assert await engine.state(corrected.decider, "s") == Sum(2 * sum(range(25)) + 2, 26)


async def test_i38_a_snapshot_whose_state_has_changed_its_shape_is_not_used(stage: Stage) -> None:
    await Adding(snapshot_every=10).fill(stage, 25)

    class Named(msgspec.Struct, frozen=True):
        total: int = 0
        count: int = 0
        name: str = "a sum"

    changed = Adding(snapshot_every=10, state=Named, make=Named)
    async with stage.engine(changed.registry, work=False) as engine:
        assert await engine.state(changed.decider, "s") == Named(sum(range(25)), 25)
        assert changed.folded == 25


async def test_i38_a_state_in_the_past_comes_from_events_and_not_from_a_later_snapshot(stage: Stage) -> None:
    adding = Adding(snapshot_every=10)
    await adding.fill(stage, 25)
    async with stage.engine(adding.registry, work=False) as engine:
        for at in (0, 1, 9, 10, 11, 20, 24, 25):
            assert await engine.state(adding.decider, "s", at=at) == Sum(sum(range(at)), at)


class Unstorable:
    """A state that no codec can write."""

    def __init__(self, total: int = 0, count: int = 0) -> None:
        self.total, self.count = total, count


async def test_a_state_that_cannot_be_stored_is_folded_each_time_and_said_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    adding = Adding(snapshot_every=5, state=Unstorable, make=Unstorable)
    with caplog.at_level(logging.WARNING, logger="holdfast.deciders"):
        await adding.fill(stage, 20)
    assert len([record for record in caplog.records if "no snapshots of sum" in record.getMessage()]) == 1
    async with stage.engine(adding.registry, work=False) as engine:
        assert await adding.kept(engine) is None
        state = await engine.state(adding.decider, "s")
        assert (state.total, state.count) == (sum(range(20)), 20)


async def test_a_long_stream_is_folded_before_the_decision_and_never_wrongly(stage: Stage) -> None:
    """Longer than what is folded inside a decision; without a snapshot, by an engine that remembers nothing."""
    adding = Adding(snapshot_every=0)

    class Bulk(msgspec.Struct, frozen=True):
        id: str
        count: int

    registry = adding.registry

    class Bulky(hf.Decider[Sum, Bulk, Added, Never], name="bulky", registry=registry, snapshot_every=0):
        def workflow_id(self, input: Bulk) -> str:
            return input.id

        def initial(self) -> Sum:
            return Sum()

        def evolve(self, state: Sum, event: Added) -> Sum:
            return Sum(state.total + event.amount, state.count + 1)

        def decide(self, now: datetime, state: Sum, input: Bulk) -> hf.Decision[Added, Any, Any]:
            return hf.Decision(events=tuple(Added(1) for _ in range(input.count)))

    async with stage.engine(registry, work=False) as engine:
        await engine.execute(Bulky, Bulk("b", 2_500))
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(Bulky, Bulk("b", 1))
        assert await engine.state(Bulky, "b") == Sum(2_501, 2_501)
        assert len(await engine.stream(Bulky, "b")) == 2_501


async def test_i38_an_ended_instance_keeps_its_state_without_its_snapshot(stage: Stage) -> None:
    adding = Adding(snapshot_every=2)
    cls: Any = adding.decider
    cls.is_terminal = lambda self, state: state.count >= 5
    async with stage.engine(adding.registry, work=False) as engine:
        for number in range(8):
            await engine.execute(adding.decider, Add("s", number))
        assert (await engine.state(adding.decider, "s")).count == 5
        await engine.delete_snapshot(adding.decider, "s")
        assert (await engine.state(adding.decider, "s")).count == 5
        assert (await engine.snapshot(adding.decider, "s")).status == "completed"
