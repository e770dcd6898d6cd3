"""Graphs whose every run must become the same, whatever happens to it; and what is compared of two runs.

Nothing in them depends on the run's id, on time or on who runs them: what looks random comes from the state and from
the item's own order key. Nodes fail by plan, so that retries happen in every run.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import holdfast as hf
from holdfast.core.queries import CheckpointsOf
from holdfast.core.rows import Checkpoint
from holdfast.store.contract import Store

Delay = Callable[[str], float]
ELSEWHERE = "elsewhere"
LATEST = 2**62


class State(TypedDict):
    seed: int
    turn: int
    log: Annotated[list[str], hf.reducers.append]
    seen: Annotated[list[str], hf.reducers.union]
    sum: Annotated[int, hf.reducers.counter]
    top: Annotated[int, hf.reducers.maximum]
    last: Annotated[str, hf.reducers.last_writer]
    table: Annotated[dict[str, int], hf.reducers.merge_dicts]


def beginning(seed: int) -> State:
    return {"seed": seed, "turn": 0, "log": [], "seen": [], "sum": 0, "top": 0, "last": "", "table": {}}


def dice(*parts: object) -> int:
    """A number that looks random and never changes."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")


def delta(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    """What a node says about itself and about the state that it was given: all fields, so that all merges matter."""
    drawn = dice(state["seed"], ctx.order_key)
    told = f"{ctx.step}:{ctx.node}:{ctx.order_key}:{len(state['log'])}"
    return {
        "log": [told],
        "seen": [ctx.node, f"{drawn % 5}"],
        "sum": drawn % 1000,
        "top": drawn,
        "last": told,
        "table": {f"{ctx.node}{drawn % 3}": ctx.step, "latest": drawn},
    }


@dataclass(frozen=True)
class World:
    """The graphs in a registry of their own, by name."""

    registry: hf.Registry
    graphs: dict[str, hf.StateGraph[State]]


class Failing(Exception):
    """A failure by plan."""


def made(*, delay: Delay = lambda _: 0.0, queue: str | None = None, recorded: Callable[[str], None] = str) -> World:
    """`delay` says how long each call of a node takes; `queue` is where every other node runs; `recorded` hears of
    every call that a node makes to the world outside."""
    registry = hf.Registry()
    world = World(registry, {})
    for make in (_fan_out, _cycle, _map_reduce, _routed, _nested):
        make(world, delay, queue, recorded)
    return world


def _graph(world: World, name: str, **options: Any) -> hf.StateGraph[State]:
    graph = hf.StateGraph(State, name=name, registry=world.registry, default_timeout=3600.0, **options)
    world.graphs[name] = graph
    return graph


def _worker_of(
    graph: hf.StateGraph[State], delay: Delay, recorded: Callable[[str], None]
) -> Callable[..., Callable[..., Any]]:
    """Makes nodes that wait, fail by plan, ask the world something, and then do what they are for."""

    def node(
        name: str, answer: Callable[[State, dict[str, Any]], Any] = lambda _, given: given, **policy: Any
    ) -> Callable[..., Any]:
        async def work(state: State, ctx: hf.NodeContext) -> Any:
            if pause := delay(f"{ctx.run_id} {ctx.order_key} {ctx.attempt}"):
                await asyncio.sleep(pause)
            given = delta(state, ctx)
            drawn = dice("plan", state["seed"], ctx.order_key)

            def ask() -> int:
                recorded(f"{ctx.run_id} {ctx.order_key}")
                return dice("answer", state["seed"], ctx.order_key) % 100

            if drawn % 3 == 0:
                given["sum"] += await ctx.record("ask", {"seed": state["seed"], "node": ctx.node}, ask)
            if ctx.attempt <= drawn % 4:  # so 0 to 3 failures; a lost attempt counts as one of them
                raise Failing(f"{ctx.node} at attempt {ctx.attempt}")
            return answer(state, given)

        work.__name__ = name
        return graph.node(name=name, retry=hf.Retry(attempts=4, base=0.001, cap=0.004), **policy)(work)

    return node


def _fan_out(world: World, delay: Delay, queue: str | None, recorded: Callable[[str], None]) -> None:
    """Two entries, five branches of two lengths, and joins of several edges."""
    graph = _graph(world, "fan out", max_concurrent=4)
    node = _worker_of(graph, delay, recorded)
    for number, name in enumerate(("left", "right", "a", "b", "c", "d", "e", "long", "join")):
        node(name, queue=queue if number % 2 else None, label="joined" if name == "join" else None)
    graph.start_at("left", "right")
    for source, targets in {"left": "abc", "right": "cde"}.items():
        for target in targets:
            graph.edge(source, target)
    graph.edge("a", "long")
    for source in ("long", "b", "c", "d", "e"):
        graph.edge(source, "join")
    graph.finish("join")


def _cycle(world: World, delay: Delay, queue: str | None, recorded: Callable[[str], None]) -> None:
    """A loop whose passes differ, with a branch that is taken in some of them."""
    graph = _graph(world, "cycle")
    node = _worker_of(graph, delay, recorded)
    node("turn", lambda state, given: {**given, "turn": state["turn"] + 1})
    node("even", queue=queue)
    node("odd")
    node("check", queue=queue)
    graph.start_at("turn")
    graph.edge("turn", "even", when=lambda state: state["sum"] % 2 == 0)
    graph.edge("turn", "odd", when=lambda state: state["top"] % 3 != 0)
    graph.edge("turn", "check")
    graph.edge("even", "check")
    graph.edge("check", "turn", when=lambda state: state["turn"] < 4)
    graph.finish("check", "odd")


def _map_reduce(world: World, delay: Delay, queue: str | None, recorded: Callable[[str], None]) -> None:
    """Items that are sent, some of which send more, into a frontier that holds few of them."""
    graph = _graph(world, "map reduce", max_concurrent=3, queue_depth=4, backpressure_seconds=None)
    node = _worker_of(graph, delay, recorded)

    def spread(state: State, given: dict[str, Any]) -> Any:
        return hf.Many([hf.Send("leaf", {"turn": number}) for number in range(5 + state["seed"] % 4)], given)

    def grow(state: State, given: dict[str, Any]) -> Any:
        if state["turn"] % 3 == 0 and state["turn"] < 20:
            return hf.Many([hf.Send("leaf", {"turn": 20 + number}) for number in range(3)], given)
        return given

    node("spread", spread, goes_to=("leaf",))
    node("leaf", grow, queue=queue)
    node("total")
    graph.start_at("spread")
    graph.edge("leaf", "total")
    graph.finish("total")


def _routed(world: World, delay: Delay, queue: str | None, recorded: Callable[[str], None]) -> None:
    """Nodes that say where to go, and one that stops everything."""
    graph = _graph(world, "routed", max_steps=40)
    node = _worker_of(graph, delay, recorded)

    def choose(state: State, given: dict[str, Any]) -> Any:
        drawn = given["top"] % 4
        if drawn == 0:
            return hf.Goto("choose", {**given, "turn": state["turn"] + 1})
        if drawn == 1:
            return hf.Many(["one", "two", hf.Goto("three")], given)
        return hf.Many(["one", hf.Send("two", {"turn": 7}), hf.Send("two", {"turn": 8})], given)

    def maybe_stop(state: State, given: dict[str, Any]) -> Any:
        return hf.Stop(given) if given["top"] % 5 == 0 else given

    node("choose", choose, goes_to=("choose", "one", "two", "three"))
    node("one", queue=queue)
    node("two", maybe_stop)
    node("three", queue=queue)
    node("end")
    graph.start_at("choose")
    for name in ("one", "two", "three"):
        graph.edge(name, "end")
    graph.finish("end")


def _nested(world: World, delay: Delay, queue: str | None, recorded: Callable[[str], None]) -> None:
    """A graph inside of a graph, beside a node."""
    inner = _graph(world, "inner")
    node = _worker_of(inner, delay, recorded)
    node("deep")
    node("deeper", queue=queue)
    inner.start_at("deep")
    inner.edge("deep", "deeper")
    inner.finish("deeper")
    graph = _graph(world, "nested")
    node = _worker_of(graph, delay, recorded)
    node("before", lambda state, given: {**given, "turn": state["turn"] + 1})
    graph.subgraph("part", inner, output=lambda end: {"last": end["last"], "sum": end["sum"]})
    node("beside", queue=queue)
    node("after")
    graph.start_at("before")
    graph.edge("before", "part")
    graph.edge("before", "beside")
    graph.edge("part", "after")
    graph.edge("beside", "after")
    graph.edge("after", "before", when=lambda state: state["turn"] < 2)
    graph.finish("after")


Step = tuple[int, bool, bytes, str, bytes, str | None]


async def trail(store: Store, run: str) -> tuple[str, bytes | None, list[Step]]:
    """All of a run that may depend on its input alone: how it ended, its last state, and each of its checkpoints as
    it is stored: state, digest, frontier with paths in merge order, labels."""
    (row,) = await store.runs([run])
    checkpoints: list[Checkpoint] = await store.rows(CheckpointsOf(run, LATEST, 10_000))
    steps = [
        (each.step, each.whole, bytes(each.state), each.digest, bytes(each.frontier), each.label)
        for each in sorted(checkpoints, key=lambda each: each.step)
    ]
    return row.status, row.result, steps


def shown_difference(found: Any, wanted: Any) -> str:
    """Where two trails part."""
    if found[0] != wanted[0]:
        return f"ended as {found[0]}, undisturbed as {wanted[0]}"
    for mine, other in zip(found[2], wanted[2], strict=False):
        if mine != other:
            return f"step {mine[0]}:\n  {mine}\nundisturbed:\n  {other}"
    return f"{len(found[2])} steps, undisturbed {len(wanted[2])}; result {found[1]!r}, undisturbed {wanted[1]!r}"
