"""State graphs: steps that fan out and merge, a loop, recorded calls, a question to a person, a subgraph, a fork."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import holdfast as hf
from tests.reliability.crash.ledger import Doing, Line
from tests.reliability.crash.oracle import Rows, must
from tests.reliability.crash.scenario import Scenario, Scene

graphs = hf.Registry()


class State(TypedDict):
    turn: int
    log: Annotated[list[str], hf.reducers.append]


def _doing(ctx: hf.NodeContext, what: str) -> Doing:
    return Doing(f"{what}@{ctx.step}", run=ctx.run_id, node=f"{ctx.node}@{ctx.step}")


steps = hf.StateGraph(State, name="steps-graph", registry=graphs, default_timeout=None)


@steps.node(goes_to=("leaf",))
async def fan(state: State, ctx: hf.NodeContext) -> Any:
    with _doing(ctx, "fan"):
        return hf.Many([hf.Send("leaf", {**state, "turn": number}) for number in range(3)], {"log": ["fan"]})


@steps.node
async def leaf(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    with Doing(f"leaf {state['turn']}@{ctx.step}", run=ctx.run_id, node=f"leaf@{ctx.step}.{ctx.order_key}"):
        return {"log": [f"leaf {state['turn']}"]}


@steps.node
async def gate(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    with _doing(ctx, "gate"):
        return {"turn": state["turn"] + 1}


steps.start_at("fan")
steps.edge("leaf", "gate")
steps.edge("gate", "fan", when=lambda state: state["turn"] < 2)
steps.finish("gate")

agent = hf.StateGraph(State, name="agent", registry=graphs, default_timeout=None)


@agent.node(recordable=True)
async def think(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    async def call() -> str:
        with _doing(ctx, "model"):
            return f"thought {ctx.step}"

    with _doing(ctx, "think"):
        said: str = await ctx.record("model", {"turn": state["turn"]}, call)
    answer = await ctx.interrupt({"about": said}) if state["turn"] == 0 else "nobody asked"
    return {"turn": state["turn"] + 1, "log": [said, answer]}


agent.start_at("think")
agent.edge("think", "think", when=lambda state: state["turn"] < 2)
agent.finish("think")

inner = hf.StateGraph(State, name="inner", registry=graphs, default_timeout=None)


@inner.node
async def deep(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    with _doing(ctx, "deep"):
        return {"turn": state["turn"] + 1, "log": [f"deep {state['turn']}"]}


inner.start_at("deep")
inner.edge("deep", "deep", when=lambda state: state["turn"] < 3)
inner.finish("deep")

outer = hf.StateGraph(State, name="outer", registry=graphs, default_timeout=None)


@outer.node
async def shallow(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    with _doing(ctx, "shallow"):
        return {"turn": 1, "log": ["shallow"]}


outer.subgraph(
    "below", inner, input=lambda state: {"turn": state["turn"], "log": []}, output=lambda state: {"log": state["log"]}
)
outer.start_at("shallow")
outer.edge("shallow", "below")
outer.finish("below")


async def _steps(scene: Scene) -> None:
    await (await scene.start(steps, {"turn": 0, "log": []}, key="steps")).result()


async def _agent(scene: Scene) -> None:
    handle = await scene.start(agent, {"turn": 0, "log": []}, key="agent")
    row = await scene.engine.watch.wait(handle.id, lambda row: row.ended or row.status == "suspended", 30)
    if not row.ended and await scene.patiently(handle.interrupts):
        await handle.resume_with("go on")
        scene.ack("resume_with")
    await handle.result()


async def _outer(scene: Scene) -> None:
    await (await scene.start(outer, {"turn": 0, "log": []}, key="outer")).result()


async def _fork(scene: Scene) -> None:
    handle = await scene.start(inner, {"turn": 0, "log": []}, key="forked")
    await handle.result()
    await (await scene.fork(handle, step=2, update={"turn": 0}, key="another end")).result()


def _asked_once(rows: Rows, lines: list[Line]) -> None:
    """I42, I45: what was recorded answers later attempts; each call and the one question are recorded once."""
    kinds = sorted((row["node"], row["kind"]) for row in rows["recorded"])
    must(kinds == [("think@1", "call"), ("think@1", "interrupt"), ("think@2", "call")], "G2", f"recorded: {kinds}")


def scenarios() -> list[Scenario]:
    def made(name: str, play: Any, **fields: Any) -> Scenario:
        return Scenario(name=name, registry=graphs, play=play, **fields)

    # I39: in the order of their order keys, which is the same in every run.
    log = ["fan", "leaf 1", "leaf 2", "leaf 0", "fan", "leaf 2", "leaf 0", "leaf 1"]
    leaves = {f"leaf {number}@{step}": 1 for step in (2, 5) for number in range(3)}
    return [
        made(
            "graph steps",
            _steps,
            results={"steps": {"turn": 2, "log": log}},
            does=leaves | {f"fan@{step}": 1 for step in (1, 4)} | {f"gate@{step}": 1 for step in (3, 6)},
            order=(("fan@1", "leaf 0@2"), ("leaf 2@2", "gate@3"), ("gate@3", "fan@4"), ("leaf 0@5", "gate@6")),
        ),
        made(
            "graph interrupt",
            _agent,
            results={"agent": {"turn": 2, "log": ["thought 1", "go on", "thought 2", "nobody asked"]}},
            does={"model@1": 1, "model@2": 1},
            check=_asked_once,
        ),
        made(
            "subgraph",
            _outer,
            results={"outer": {"turn": 1, "log": ["shallow", "deep 1", "deep 2"]}},
            does={"shallow@1": 1, "deep@1": 1, "deep@2": 1},
        ),
        made(
            "graph fork",
            _fork,
            results={
                "forked": {"turn": 3, "log": ["deep 0", "deep 1", "deep 2"]},
                "another end": {"turn": 3, "log": ["deep 0", "deep 1", "deep 0", "deep 1", "deep 2"]},
            },
        ),
    ]
