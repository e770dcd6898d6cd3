"""Runs of every model, in flight and ended, whose rows are going to be damaged."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Annotated, Any, TypedDict

import msgspec

import holdfast as hf

registry = hf.Registry()
word = hf.event("word", int, registry=registry)
DEADLINE_SECONDS = 20.0
GONE = "gone"  # a worker that is no more


@hf.action(registry=registry)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@hf.action(registry=registry)
async def stumble(name: str) -> str:
    raise ValueError(f"stumbled over {name}")


class Parcel(hf.Dag, registry=registry):
    weight: int

    @hf.step
    async def pack(self) -> None:
        if self.weight > 100:
            raise ValueError("too heavy")

    @hf.step
    async def send(self) -> None: ...


@hf.workflow(registry=registry)
async def listen(name: str) -> list[Any]:
    hello = await greet(name)
    heard = await hf.wait_for(word | hf.after(3600))
    return [hello, heard.value if isinstance(heard, hf.Received) else None]


@hf.flow(registry=registry)
async def gathered(names: list[str]) -> list[str]:
    hellos = await asyncio.gather(*[greet(name) for name in names])
    await asyncio.sleep(0 if len(names) < 3 else 3600)
    return [hello + "!" for hello in hellos]


class Put(msgspec.Struct, frozen=True):
    till: str
    fails: bool = False


class Rang(msgspec.Struct, frozen=True):
    till: str


class WasPut(msgspec.Struct, frozen=True):
    amount: int


class Print(msgspec.Struct, frozen=True):
    fails: bool


class Till(
    hf.Decider[int, Put | Rang, WasPut, Print],
    name="till",
    registry=registry,
    retry=hf.Retry(attempts=1),
    snapshot_every=1,
):
    def workflow_id(self, input: Put | Rang) -> str:
        return input.till

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: WasPut) -> int:
        return state + event.amount

    def decide(self, now: datetime, state: int, input: Put | Rang) -> hf.Decision[WasPut, Print, Put | Rang]:
        if isinstance(input, Rang):
            return hf.Decision.event(WasPut(100))
        decision = hf.Decision.event(WasPut(1)).with_effect(Print(input.fails))
        return decision.with_timer_after(timedelta(hours=1), Rang(input.till), key="bell")  # type: ignore[return-value]

    def is_terminal(self, state: int) -> bool:
        return False

    async def handle(self, effect: Print, ctx: hf.EffectContext) -> None:
        if effect.fails:
            raise ValueError("out of paper")


@hf.projection(Till, name="tills", registry=registry)
async def tills(event: hf.Recorded[WasPut], tx: hf.Tx) -> None: ...


class State(TypedDict):
    name: str
    asks: bool
    log: Annotated[list[str], hf.reducers.append]


ask = hf.StateGraph(State, name="ask", registry=registry)


@ask.node(recordable=True)
async def look(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    return {"log": [str(await ctx.record("page", {"name": state["name"]}, lambda: 7))]}


@ask.node
async def question(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    return {"log": [str(await ctx.interrupt({"may": state["name"]}))] if state["asks"] else []}


ask.start_at("look")
ask.edge("look", "question")
ask.finish("question")


def engine_on(url: str) -> hf.Engine:
    return hf.Engine(
        url,
        registry=registry,
        poll_seconds=0.05,
        sweep_seconds=0.1,
        observe_inputs="payload",
        shutdown_seconds=2.0,
        store_timeout_seconds=5.0,
    )


def graph_state(asks: bool) -> dict[str, Any]:
    return {"name": "Ada", "asks": asks, "log": []}


async def make_victims(url: str) -> list[str]:
    """Runs of every model: ended, waiting, failed, and ready to be claimed. Their ids."""
    async with engine_on(url) as engine, engine.worker():
        handles: list[Any] = [
            await engine.start(greet, "Ada"),
            await engine.start(Parcel(weight=1)),
            await engine.start(gathered, ["a", "b"]),
            await engine.start(ask, graph_state(asks=False)),
        ]
        for handle in handles:
            await handle.result(DEADLINE_SECONDS)
        handles += [
            await engine.start(stumble, "Ada"),
            await engine.start(Parcel(weight=200)),
            await engine.start(listen, "Ada"),
            await engine.start(gathered, ["a", "b", "c"]),
            await engine.start(ask, graph_state(asks=True)),
        ]
        await engine.execute(Till, Put("one", fails=True), command_id="put")
        await engine.settle(timeout=DEADLINE_SECONDS)
        await engine.send("other", 7, to=handles[6])
        handles.append(await engine.start(greet, "later", paused=True))
        instances = [run.run_id for run in await engine.instances(Till)]
    async with engine_on(url) as engine:
        built = hf.DagBuilder("built", registry=registry)
        built.node("one", job=greet, args={"name": "Ada"})
        built.node("two", job=greet, args={"name": "Bob"})
        handles += [
            await engine.start(greet, "Ada"),
            await engine.start(greet.options(timeout=5), "held by the dead"),
            await engine.start(Parcel(weight=2)),
            await engine.start(built.build()),
            await engine.start(listen, "Ada"),
            await engine.start(gathered, ["a", "b"]),
            await engine.start(ask, graph_state(asks=True)),
        ]
        await engine.enqueue_input(Till, Put("two"), command_id="put")
        instances += [run.run_id for run in await engine.instances(Till) if run.run_id not in instances]
    return [*(handle.id for handle in handles), *instances]
