"""Code inside decisions that raises what is no Exception: it concerns whoever asked, and the engine goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Never

import pytest

import holdfast as hf
from holdfast.core.operations import Operation
from tests.worker.support import engine_on

SOON_SECONDS = 10.0


class Poison(BaseException):
    """As `pytest.fail` and others raise it."""


KINDS = [Poison, SystemExit, asyncio.CancelledError, GeneratorExit]


@dataclass
class Given:
    id: str
    poison: bool = False


@dataclass
class Counted:
    pass


def make_registry(kind: type[BaseException]) -> tuple[hf.Registry, Any, Any, Any]:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def quick(number: int) -> int:
        return number

    @hf.pure
    def refuse(number: int) -> int:
        raise kind("poison")

    @hf.flow(registry=registry)
    async def poisoned(number: int) -> int:
        found = await quick(number)
        return refuse(found)

    class Counter(hf.Decider[int, Given, Counted, Never], name="counter", registry=registry):
        def workflow_id(self, given: Given) -> str:
            return given.id

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Counted) -> int:
            return state + 1

        def decide(self, now: Any, state: int, given: Given) -> Any:
            if given.poison:
                raise kind("poison")
            return hf.Decision.event(Counted())

        def is_terminal(self, state: int) -> bool:
            return False

    return registry, quick, poisoned, Counter


@pytest.mark.parametrize("kind", KINDS)
async def test_k9_a_flow_fails_with_it_and_others_go_on(url: str, kind: type[BaseException]) -> None:
    registry, quick, poisoned, _ = make_registry(kind)
    engine = engine_on(url, registry)
    async with engine, engine.worker():
        with pytest.raises(hf.RunFailed, match=r"refuse raised .*poison.*, which is no Exception"):
            await engine.run(poisoned, 1, timeout=SOON_SECONDS)
        assert await engine.run(quick, 2, timeout=SOON_SECONDS) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_k9_an_input_fails_with_it_and_the_next_is_decided(url: str, kind: type[BaseException]) -> None:
    registry, _, _, counter = make_registry(kind)
    async with engine_on(url, registry) as engine:
        with pytest.raises(hf.DecideFailed, match=rf"{kind.__name__}: poison"):
            await asyncio.wait_for(engine.execute(counter, Given("a", poison=True)), SOON_SECONDS)
        await asyncio.wait_for(engine.execute(counter, Given("a")), SOON_SECONDS)


class Odd(Operation, frozen=True):
    run: str

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.run,)


@pytest.mark.parametrize("kind", KINDS)
async def test_k9_whatever_a_decision_raises_its_caller_is_told(url: str, kind: type[BaseException]) -> None:
    registry, quick, _, _ = make_registry(kind)

    def decide(view: Any, operation: Odd) -> None:
        raise kind("poison")

    engine = engine_on(url, registry)
    async with engine, engine.worker():
        engine.coordinator._decisions = {**engine.coordinator._decisions, Odd: decide}
        with pytest.raises(RuntimeError, match=r"code inside a decision raised .*, which is no Exception"):
            await asyncio.wait_for(engine.coordinator.submit(Odd(run="x")), SOON_SECONDS)
        assert await engine.run(quick, 3, timeout=SOON_SECONDS) == 3
