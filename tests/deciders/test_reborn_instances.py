"""An instance that was pruned and begins anew under its id, in a process that still remembers the one before."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.operations import Handed
from holdfast.store.contract import ClaimRequest
from tests.deciders.conftest import Stage
from tests.worker.support import assert_sound


class Open(msgspec.Struct, frozen=True, tag=True):
    id: str
    owner: str


class Greet(msgspec.Struct, frozen=True, tag=True):
    id: str


class Close(msgspec.Struct, frozen=True, tag=True):
    id: str


class Opened(msgspec.Struct, frozen=True, tag=True):
    owner: str


class Greeted(msgspec.Struct, frozen=True, tag=True):
    owner: str


class Closed(msgspec.Struct, frozen=True, tag=True):
    pass


class Letter(msgspec.Struct, frozen=True, tag=True):
    owner: str


CLOSED = "closed"


def accounts() -> tuple[hf.Registry, Any]:
    registry = hf.Registry()

    class Account(hf.Decider[str, Open | Greet | Close, Opened | Greeted | Closed, Letter], registry=registry):
        def workflow_id(self, input: Open | Greet | Close) -> str:
            return input.id

        def initial(self) -> str:
            return ""

        def evolve(self, state: str, event: Opened | Greeted | Closed) -> str:
            if isinstance(event, Opened):
                return event.owner
            return CLOSED if isinstance(event, Closed) else state

        def decide(
            self, now: datetime, state: str, input: Open | Greet | Close
        ) -> hf.Decision[Opened | Greeted | Closed, Letter, Open | Greet | Close]:
            if isinstance(input, Open):
                return hf.Decision.event(Opened(input.owner)).with_effect(Letter(input.owner))
            return hf.Decision.event(Greeted(state) if isinstance(input, Greet) else Closed())

        def is_terminal(self, state: str) -> bool:
            return state == CLOSED

        async def handle(self, effect: Letter, ctx: hf.EffectContext) -> None: ...

    return registry, Account


async def claimed(engine: hf.Engine) -> list[Handed]:
    """What a worker would be handed that goes by what its process remembers."""
    wanted = ClaimRequest(
        worker="w",
        queue="default",
        limit=1,
        workflows=engine.definitions.known_workflows(),
        actions=engine.definitions.known_actions(),
        recall=engine.coordinator.cache.recall,
    )
    return await engine.store.claim(wanted)


@pytest.mark.parametrize("asks", ["for the state", "for work"])
async def test_k4_an_instance_that_began_anew_elsewhere_is_not_taken_for_the_one_before(
    shared_stage: Stage, asks: str
) -> None:
    """Its rows have the same ids, and would have the same versions and tokens, as those that are remembered here."""
    registry, Account = accounts()
    async with (
        shared_stage.engine(registry, work=False) as here,
        shared_stage.engine(registry, work=False) as there,
    ):
        await here.execute(Account, Open("x", "Ada"))
        async with there.worker():
            await there.execute(Account, Close("x"))
            await there.settle()
        assert await there.prune(older_than_seconds=0) == 1
        await there.execute(Account, Open("x", "Bob"))
        if asks == "for the state":
            await here.execute(Account, Greet("x"))
            assert [fact.event for fact in await here.stream(Account, "x")] == [Opened("Bob"), Greeted("Bob")]
        else:
            (handed,) = await claimed(here)
            assert b"Bob" in (handed.work.payload or b"")
        await assert_sound(there)
