"""Which of two versions of a class is the latest, when workers start while others look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import holdfast as hf
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.store.contract import CodeSeen, WorkerRow
from holdfast.store.memory import MemoryStore
from tests.support.stores import VirtualClock

T = TypeVar("T")


class Watched(MemoryStore):
    """A store in which something happens right after a question was answered."""

    question: str = ""
    happens: Callable[[], Awaitable[None]]

    async def workers(self) -> list[WorkerRow]:
        return await self._then("workers", await super().workers())

    async def see_code(self, *args: Any, **options: Any) -> CodeSeen:
        return await self._then("see_code", await super().see_code(*args, **options))

    async def _then(self, question: str, answer: T) -> T:
        if self.question == question:
            self.question = ""
            await self.happens()
        return answer


def yesterday() -> RegistryDefinitions:
    registry = hf.Registry()

    class Order(hf.Dag, registry=registry):
        @hf.step
        async def ship(self) -> None: ...

    return RegistryDefinitions(registry)


def today() -> RegistryDefinitions:
    registry = hf.Registry()

    class Order(hf.Dag, registry=registry):
        @hf.step
        async def audit(self) -> None: ...

        @hf.step
        async def ship(self) -> None: ...

    return RegistryDefinitions(registry)


@pytest.mark.parametrize("question", ["workers", "see_code"])
async def test_i31_a_worker_that_starts_while_another_looks_for_a_rollback_is_not_taken_for_gone(question: str) -> None:
    """The old worker took its own code for the latest again, and undid the deploy for as long as it lived."""
    clock, old, new = VirtualClock(), yesterday(), today()
    store = Watched(clock)
    await old.see_code(store, serve=True)

    async def a_new_worker_starts() -> None:
        clock.advance(1)
        actions = new.known_actions()
        row = WorkerRow(id="new", host="h", pid=1, queues=("default",), workflows=("Order",), actions=actions)
        await store.enroll(row, 30.0)
        await new.see_code(store, serve=True)
        clock.advance(1)

    store.question, store.happens = question, a_new_worker_starts
    await old.see_code_again(store)
    await new.see_code_again(store)
    seen = {signature: at for _, signature, at in (*old.versions_seen(), *new.versions_seen())}
    assert max(seen, key=seen.__getitem__) == new.versions()[0][1]
