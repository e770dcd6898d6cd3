"""What a node may ask of its context: recorded calls, questions, randomness, time, its log."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.authoring.node_context import NodeContext
from holdfast.core.errors import UsageError
from holdfast.core.state_items import entry_path, item_seed


class Services:
    """Answers from nothing, and keeps what it was asked."""

    replaying = False
    cancelled = False

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def record(self, name: str, request: object, call: Callable[[], Awaitable[Any]]) -> Any:
        self.asked.append((name, request))
        return await call()

    def record_blocking(self, name: str, request: object, call: Callable[[], Any]) -> Any:
        self.asked.append((name, request))
        return call()

    async def interrupt(self, payload: object) -> Any:
        return {"answer to": payload}

    def interrupt_blocking(self, payload: object) -> Any:
        return {"answer to": payload}

    async def heartbeat(self) -> None:
        self.asked.append("heartbeat")

    def note(self, text: str) -> None:
        self.asked.append(text)


def context(services: Services, attempt: int = 1) -> NodeContext:
    return NodeContext(
        run_id="run-1",
        workflow_name="research",
        node="plan",
        step=3,
        attempt=attempt,
        path=entry_path("plan"),
        idempotency_key="key",
        now_us=1_000_000,
        services=services,
    )


async def given_later() -> str:
    return "later"


async def test_a_call_to_record_may_be_plain_or_async_or_give_something_to_await() -> None:
    services = Services()
    ctx = context(services)
    assert await ctx.record("a", 1, lambda: "now") == "now"
    assert await ctx.record("b", 2, given_later) == "later"
    assert await ctx.record("c", 3, lambda: given_later()) == "later"
    assert ctx.record_blocking("d", 4, lambda: "now") == "now"
    assert services.asked == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert await ctx.interrupt("?") == ctx.interrupt_blocking("?") == {"answer to": "?"}


async def test_a_call_that_was_made_already_or_cannot_be_made_is_refused() -> None:
    ctx = context(Services())
    with pytest.raises(UsageError, match=r"the call 'a' of node plan was made already: a coroutine was given"):
        await ctx.record("a", 1, given_later())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"the call 'a' of node plan is 'x', a str"):
        await ctx.record("a", 1, "x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"was given the name ''"):
        await ctx.record("", 1, given_later)
    with pytest.raises(UsageError, match=r"gave something to be awaited, and the node is a plain def"):
        ctx.record_blocking("a", 1, given_later)
    with pytest.raises(UsageError, match=r"a note of node plan is a int"):
        ctx.note(3)  # type: ignore[arg-type]


def test_i43_randomness_and_time_of_an_item_are_the_same_in_every_attempt() -> None:
    first, second = context(Services()), context(Services(), attempt=2)
    assert [first.rng.random() for _ in range(3)] == [second.rng.random() for _ in range(3)]
    assert first.now == second.now == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (first.is_retry, second.is_retry) == (False, True)
    assert first.order_key == entry_path("plan")[:16]
    assert context(Services()).rng.random() == random.Random(item_seed("run-1", entry_path("plan"))).random()


def test_a_nodes_log_says_where_it_comes_from_and_is_silent_in_a_replay(caplog: pytest.LogCaptureFixture) -> None:
    services = Services()
    with caplog.at_level(logging.INFO):
        context(services).logger.info("one")
        services.replaying = True
        context(services).logger.info("two")
    assert [record.message for record in caplog.records] == ["one"]
    assert (caplog.records[0].run, caplog.records[0].node, caplog.records[0].step) == ("run-1", "plan", 3)  # type: ignore[attr-defined]
