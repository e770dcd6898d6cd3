"""I14, I42: what `ctx.record` gives has the type that the call declares: live, after a crash and in a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.codec import UNTYPED
from holdfast.core.codec_call import returned_type
from tests.worker.support import engine_on

SECONDS = 30.0


@dataclass
class Verdict:
    points: int
    why: set[str] = field(default_factory=set)


@dataclass
class State:
    seen: list[str] = field(default_factory=list)


async def ask() -> Verdict:
    return Verdict(3, {"b", "a"})


def ask_later() -> Awaitable[Verdict]:
    return ask()


def ask_plainly() -> Verdict:
    return Verdict(3, {"b", "a"})


def ask_for_one(points: int) -> Verdict:
    return Verdict(points)


async def says_too_much() -> Verdict:
    return {"points": 3}  # type: ignore[return-value]


def says_what_nobody_can_store() -> Counter[Any] | Awaitable[Any]:
    return {"points": 3}  # type: ignore[return-value]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_i14_a_recorded_answer_is_of_the_type_that_the_call_declares(sqlite_url: str, codec: str) -> None:
    registry, seen = hf.Registry(), Counter[str]()
    graph = hf.StateGraph(State, name="g", registry=registry)

    @graph.node(recordable=True, retry=hf.Retry(attempts=2, base=0.001))
    async def talk(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
        answers: list[Any] = [
            await ctx.record("ask", 1, ask),
            await ctx.record("later", 2, ask_later),
            await ctx.record("partial", 3, partial(ask_for_one, 5)),
            await ctx.record("too much", 4, says_too_much),
            await ctx.record("not stored", 5, says_what_nobody_can_store),
            await ctx.record("lambda", 6, lambda: {"points": 1}),
        ]
        seen[repr([*map(_shown, answers)])] += 1
        if ctx.attempt == 1:
            raise RuntimeError("once more, from the record")
        return {"seen": [_shown(each) for each in answers]}

    @graph.node(recordable=True)
    def tell(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
        return {"seen": [*state.seen, _shown(ctx.record_blocking("ask", 1, ask_plainly))]}

    graph.start_at("talk")
    graph.edge("talk", "tell")
    graph.finish("tell")
    verdict = "Verdict(points=3, why=['a', 'b'])"
    async with engine_on(sqlite_url, registry, codec=codec) as engine, engine.worker():
        handle = await engine.start(graph, State())
        state = await handle.result(timeout=SECONDS)
        last = ["Verdict(points=5, why=[])", "Verdict(points=3, why=[])", "{'points': 3}", "{'points': 1}"]
        assert state.seen == [verdict, verdict, *last, verdict]
        assert list(seen.values()) == [2], "the second attempt got something else than the first"
        for mode in ("strict", "live"):
            report = await engine.replay(handle.id, mode=mode)
            assert report.ok, report.differences
            assert report.state == state


def _shown(value: Any) -> str:
    return f"Verdict(points={value.points}, why={sorted(value.why)})" if isinstance(value, Verdict) else repr(value)


async def test_i14_an_answer_that_cannot_be_stored_says_what_would_help() -> None:
    registry = hf.Registry()
    graph = hf.StateGraph(State, name="g", registry=registry)

    @graph.node(recordable=True)
    async def talk(state: State, ctx: hf.NodeContext) -> None:
        await ctx.record("ask", 1, lambda: ask_plainly())

    graph.start_at("talk")
    graph.finish("talk")
    async with engine_on("memory://", registry) as engine, engine.worker():
        handle = await engine.start(graph, State())
        with pytest.raises(hf.RunFailed, match=r"is a Verdict, which JSON does not have.*async def ask\(\) -> Answer"):
            await handle.result(timeout=SECONDS)
        with pytest.raises(hf.PayloadRefused, match=r"is a Verdict.*answer with texts, numbers"):
            await handle.resume_with(Verdict(1))


def test_the_type_that_a_call_declares_is_found_or_left_out() -> None:
    class Asker:
        def __call__(self) -> Verdict: ...  # type: ignore[empty-body]

        async def method(self) -> Verdict: ...  # type: ignore[empty-body]

    def unknown() -> Missing: ...  # type: ignore[name-defined]  # noqa: F821

    assert returned_type(Asker()) is Verdict
    assert returned_type(Asker().method) is Verdict
    assert returned_type(ask_later) is Verdict
    for call in (unknown, lambda: 1, len, says_what_nobody_can_store):
        assert returned_type(call) is UNTYPED
