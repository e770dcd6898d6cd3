"""An instance that others create between the locks and the reads of a transaction: it is read as of one moment."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

import holdfast as hf
from holdfast.core import failpoints
from holdfast.core.decider_operations import ExecuteInput
from holdfast.core.ids import instance_id
from tests.deciders.projection_world import Add, counter

KEY = "k"


@pytest.fixture(autouse=True)
def _disarmed() -> object:
    yield
    failpoints.disarm()


async def test_g2_an_instance_created_after_the_locks_is_locked_before_it_is_read(postgres_url: str) -> None:
    """What does not exist cannot be locked. Two inputs of others come in between: one creates it, one adds to it."""
    registry = hf.Registry()
    Counter = counter(registry)
    async with hf.Engine(postgres_url, registry=registry) as ours, hf.Engine(postgres_url, registry=registry) as others:
        code = ours.definitions.decider("counter")
        assert code is not None
        routed = code.route(Add(KEY, (4,)))
        given = ExecuteInput(
            run=instance_id("counter", KEY),
            workflow="counter",
            key=KEY,
            data=routed.data,
            codec=routed.codec,
            input_type=routed.type,
            id="ours",
        )
        meanwhile = {"load.after_locks": Add(KEY, (1, 2)), "load.after_rows": Add(KEY, (3,))}

        def hook(name: str) -> Awaitable[None] | None:
            return others.execute(Counter, meanwhile.pop(name)) if name in meanwhile else None

        failpoints.arm(hook)
        async with ours.store.transaction() as tx:
            _, committed = await ours.coordinator.apply_in(tx, given)
        committed()
        failpoints.disarm()
        assert [each.event.number for each in await ours.stream(Counter, KEY)] == [1, 2, 3, 4]
