"""What a node of a DAG may say about its run, an effect may not: an instance goes on by its inputs alone."""

from __future__ import annotations

from typing import Any

import msgspec

import holdfast as hf
from tests.worker.support import engine_on

REGISTRY = hf.Registry()


class Ask(msgspec.Struct, frozen=True):
    id: str


class Asked(msgspec.Struct, frozen=True):
    pass


class Ring(msgspec.Struct, frozen=True):
    pass


class Bell(hf.Decider[int, Ask, Asked, Ring], name="bell", registry=REGISTRY, retry=hf.Retry(attempts=1)):
    def workflow_id(self, input: Ask) -> str:
        return input.id

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Asked) -> int:
        return state + 1

    def decide(self, now: Any, state: int, input: Ask) -> hf.Decision[Asked, Ring, Ask]:
        return hf.Decision.event(Asked()).with_effect(Ring())

    async def handle(self, effect: Ring, ctx: hf.EffectContext) -> None:
        hf.current().finish("because")


async def test_i34_an_effect_that_tries_to_finish_its_instance_has_failed() -> None:
    """The instance is as it was, and the effect is a dead letter that says why."""
    async with engine_on("memory://", REGISTRY) as engine, engine.worker():
        await engine.execute(Bell, Ask("b"))
        await engine.settle(timeout=10)
        snapshot = await engine.snapshot(Bell, "b")
        assert snapshot.status == "running"
        (effect,) = snapshot.effects
        assert effect.status == "dead"
        assert "only a node of a DAG can decide that" in (effect.error or "")
