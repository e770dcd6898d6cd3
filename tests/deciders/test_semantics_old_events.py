"""Events that outlive the code that wrote them (I37): upcasts, what no longer decodes, tags, on every store."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Never

import msgspec
import pytest

import holdfast as hf
from tests.deciders.conftest import Stage


class Add(msgspec.Struct, frozen=True):
    id: str
    cents: int = 1


def ledger(registry: hf.Registry, event: type, fold: Any, make: Any, **options: Any) -> Any:
    """A decider called "ledger" whose only event is of this class: the code of one deploy."""

    class Ledger(hf.Decider[int, Add, event, Never], name="ledger", registry=registry, **options):  # type: ignore[valid-type]
        def workflow_id(self, input: Add) -> str:
            return input.id

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Any) -> int:
            return int(state + fold(event))

        def decide(self, now: datetime, state: int, input: Add) -> hf.Decision[Any, Any, Any]:
            return hf.Decision.event(make(input.cents))

    return Ledger


def first_deploy() -> Any:
    class Added(msgspec.Struct, frozen=True):
        cents: int

    registry = hf.Registry()
    return registry, ledger(registry, Added, lambda event: event.cents, Added)


def second_deploy() -> Any:
    """Cents became an amount with a currency: old events cannot be read as they are."""

    class Added(msgspec.Struct, frozen=True):
        amount: int
        currency: str

    registry = hf.Registry()
    return registry, ledger(registry, Added, lambda event: event.amount, lambda cents: Added(cents, "EUR"))


async def test_i37_an_event_that_no_longer_decodes_names_type_key_sequence_and_field(stage: Stage) -> None:
    registry, old = first_deploy()
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(old, Add("a", 7))
    registry, new = second_deploy()
    async with stage.engine(registry, work=False) as engine:
        for ask in (
            lambda: engine.state(new, "a"),
            lambda: engine.stream(new, "a"),
            lambda: engine.execute(new, Add("a", 1)),
            lambda: engine.snapshot(new, "a"),
        ):
            with pytest.raises(hf.HoldfastError) as caught:
                await ask()
            said = str(caught.value)
            for part in ("Added", "'a'", "sequence 1", "amount", "upcast"):
                assert part in said, said
        await engine.execute(new, Add("b", 1))  # others go on
        assert await engine.state(new, "b") == 1
    registry, old = first_deploy()
    async with stage.engine(registry, work=False) as engine:
        assert await engine.state(old, "a") == 7, "the instance is intact"


async def test_i37_an_upcast_reads_old_events_as_the_code_of_today_has_them(stage: Stage) -> None:
    registry, old = first_deploy()
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(old, Add("a", 7))
    registry, new = second_deploy()

    @hf.upcast(new, "Added", from_version=1)
    def with_currency(event: dict[str, Any]) -> dict[str, Any]:
        return {"type": "Added", "amount": event["cents"], "currency": "EUR"}

    async with stage.engine(registry, work=False) as engine:
        await engine.execute(new, Add("a", 3))
        assert await engine.state(new, "a") == 10
        first, second = await engine.stream(new, "a")
        assert (first.event.amount, first.event.currency, first.version) == (7, "EUR", 1)
        assert (second.event.amount, second.version) == (3, 2)


async def test_i37_upcasts_follow_each_other_version_by_version_and_may_rename(stage: Stage) -> None:
    registry, old = first_deploy()
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(old, Add("a", 7))
    registry = hf.Registry()

    class Credited(msgspec.Struct, frozen=True):
        amount: int
        currency: str
        by: str = "nobody"

    new = ledger(registry, Credited, lambda event: event.amount, lambda cents: Credited(cents, "EUR"))

    @hf.upcast(new, "Added", from_version=1)
    def with_currency(event: dict[str, Any]) -> dict[str, Any]:
        return {"type": "Added", "amount": event["cents"], "currency": "EUR"}

    @hf.upcast(new, "Added", from_version=2)
    def renamed(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "type": "Credited"}

    async with stage.engine(registry, work=False) as engine:
        await engine.execute(new, Add("a", 3))
        first, second = await engine.stream(new, "a")
        assert (first.event, first.type) == (Credited(7, "EUR"), "Credited")
        assert second.event == Credited(3, "EUR")
        assert await engine.state(new, "a") == 10


async def test_i37_an_event_whose_class_is_gone_names_it_and_those_there_are(stage: Stage) -> None:
    registry, old = first_deploy()
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(old, Add("a", 7))

    class Credited(msgspec.Struct, frozen=True):
        amount: int

    registry = hf.Registry()
    new = ledger(registry, Credited, lambda event: event.amount, Credited)
    async with stage.engine(registry, work=False) as engine:
        with pytest.raises(hf.HoldfastError, match=r"'Added'.*known: Credited"):
            await engine.state(new, "a")


async def test_i37_events_of_newer_code_are_refused_by_older_code(stage: Stage) -> None:
    """Two deploys at once: the older one says what it met instead of misreading it."""
    registry, new = second_deploy()
    hf.upcast(new, "Added", from_version=1)(lambda event: event)
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(new, Add("a", 3))
    registry, old = first_deploy()
    async with stage.engine(registry, work=False) as engine:
        with pytest.raises(hf.HoldfastError, match=r"version 2 of Added.*newer code"):
            await engine.state(old, "a")
        with pytest.raises(hf.HoldfastError, match="version 2 of Added"):
            await engine.execute(old, Add("a", 3))


async def test_i37_a_field_with_a_default_may_be_added_without_an_upcast(stage: Stage) -> None:
    registry, old = first_deploy()
    async with stage.engine(registry, work=False) as engine:
        await engine.execute(old, Add("a", 7))

    class Added(msgspec.Struct, frozen=True):
        cents: int
        currency: str = "EUR"

    registry = hf.Registry()
    new = ledger(registry, Added, lambda event: event.cents, Added)
    async with stage.engine(registry, work=False) as engine:
        (fact,) = await engine.stream(new, "a")
        assert fact.event == Added(7, "EUR")


@pytest.mark.parametrize(
    ("payload", "wrong"),
    [
        ({"id": "a"}, r'no "type"'),
        ({"type": "Nothing", "id": "a"}, r"no input 'Nothing'.*Add"),
        ({"type": 7, "id": "a"}, "no input 7"),
        ({"type": "Add"}, r"id"),
        ({"type": "Add", "id": 7}, r"id"),
        ({"type": "Add", "id": "a", "cents": "many"}, r"cents"),
        ([("type", "Add")], "list"),
        (None, "NoneType"),
    ],
)
async def test_i37_a_missing_or_unknown_tag_is_an_error_that_lists_the_known_ones(payload: Any, wrong: str) -> None:
    registry, old = first_deploy()
    async with Stage.memory().engine(registry, work=False) as engine:
        with pytest.raises(hf.UsageError, match=wrong):
            await engine.execute_dynamic("ledger", payload)
        assert await engine.instances(old) == []
