"""State graphs: a fan-out that is merged again, a loop, recorded calls, and a question to a person."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

import holdfast as hf
from holdfast.core.rows import COMPLETED
from tests.reliability.simulation.actions import RETRY, Job, here, perform, registry
from tests.reliability.simulation.ledger import must
from tests.reliability.simulation.programs import Basis


class State(TypedDict):
    label: str
    width: int
    turns: int
    turn: int
    asks: bool
    sum: Annotated[int, hf.reducers.counter]
    log: Annotated[list[str], hf.reducers.append]
    answer: str


graph = hf.StateGraph(State, name="rounds", registry=registry, max_concurrent=3)


async def _work(state: State, ctx: hf.NodeContext, part: str, *, fails: int = 0) -> int:
    job = Job(label=f"{state['label']} {ctx.step} {part}", takes=0.1, fails=fails)
    return (await perform(job, ctx.run_id, f"{ctx.node}@{ctx.step}.{ctx.order_key}", ctx.attempt))["nonce"]


@graph.node(retry=RETRY, goes_to=("leaf",))
async def fan(state: State, ctx: hf.NodeContext) -> Any:
    await _work(state, ctx, "fan", fails=state["turn"] % 2)
    sends = [hf.Send("leaf", {**state, "turn": number}) for number in range(state["width"])]
    return hf.Many(sends, {"log": [f"fan {state['turn']}"]})


@graph.node(retry=RETRY, recordable=True)
async def leaf(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    label = f"{state['label']} {ctx.step} {state['turn']}"

    async def call() -> int:
        nonce = await _work(state, ctx, f"call {state['turn']}")
        here().ledger.note(label, nonce)
        return nonce

    got = await ctx.record("ask", {"label": label}, call)
    here().ledger.note(f"seen {label}", got)
    await _work(state, ctx, f"leaf {state['turn']}", fails=1 if state["turn"] == 1 else 0)
    return {"sum": state["turn"], "log": [f"leaf {state['turn']}"]}


@graph.node
async def gate(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    if state["asks"] and state["turn"] == 0:
        return {"answer": str(await ctx.interrupt({"question": state["label"]})), "turn": state["turn"] + 1}
    return {"turn": state["turn"] + 1}


graph.start_at("fan")
graph.edge("leaf", "gate")
graph.edge("gate", "fan", when=lambda state: state["turn"] < state["turns"])
graph.finish("gate")


class Graphs(Basis):
    """One run of the graph."""

    def __init__(self, world: Any, number: int) -> None:
        super().__init__(world, number)
        self.width, self.turns = self.dice.randint(1, 3), self.dice.randint(1, 2)
        self.asks = self.dice.random() < 0.4

    async def drive(self) -> None:
        state = {"label": self.name, "width": self.width, "turns": self.turns, "turn": 0, "asks": self.asks, "log": []}
        run = await self.start(graph, {**state, "sum": 0, "answer": ""})
        while self.asks:
            if await self.world.ask(lambda engine: _is_asked(engine, run)):
                try:
                    await self.world.ask(lambda engine: engine.get(run).resume_with("yes"))
                except hf.HoldfastError:
                    self.world.ledger.met["answered twice"] += 1  # the first answer was given, and its answer lost
                return
            if await self.world.ask(lambda engine: _has_ended(engine, run)):
                return
            await asyncio.sleep(0.5)

    async def check(self, engine: hf.Engine) -> None:
        run = self.runs[self.name]
        row = (await engine.store.runs([run]))[0]
        must(row.status == COMPLETED, "G9", f"{self.name} {run} is {row.status}: {row.reason}")
        state: Any = await engine.get(run).result()
        one_turn = sum(range(self.width))
        must(state["sum"] == self.turns * one_turn, "G2", f"{self.name} {run} merged {state['log']} to {state['sum']}")
        expected = self.turns * (1 + self.width)
        must(len(state["log"]) == expected, "G2", f"{self.name} {run} has the log {state['log']}")
        must(state["answer"] == ("yes" if self.asks else ""), "G5", f"{self.name} was answered {state['answer']!r}")
        self._check_records()

    def _check_records(self) -> None:
        """I42, I45: an attempt is answered once, and one that follows a failure asks anew."""
        for subject, seen in self.world.ledger.notes.items():
            if subject.startswith(f"seen {self.name} "):
                made = self.world.ledger.notes[subject.removeprefix("seen ")]
                must(set(seen) <= set(made), "G8", f"{subject}: {seen} were seen, and {made} were answered")
                failures = 1 if subject.endswith(" 1") else 0
                must(
                    len(made) <= 1 + failures or self.world.stormy.rough,
                    "G3",
                    f"{subject}: asked {made}, without faults",
                )


async def _is_asked(engine: hf.Engine, run: str) -> bool:
    return bool(await engine.get(run).interrupts())


async def _has_ended(engine: hf.Engine, run: str) -> bool:
    return (await engine.store.runs([run]))[0].ended
