"""A run of one step in each model, for latency: client and worker may be different processes, and both import this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

import holdfast as hf
from holdfast.authoring.registry import Registry

ECHOES = Registry()


@hf.action(registry=ECHOES)
async def echo(text: str) -> str:
    return text


@hf.workflow(registry=ECHOES)
async def echoes(text: str) -> str:
    return await echo(text)


@hf.flow(registry=ECHOES)
async def compiled_echo(text: str) -> str:
    return await echo(text)


class OneStep(hf.Dag, registry=ECHOES):
    text: str

    @hf.step
    async def say(self) -> None: ...


class Said(TypedDict):
    text: str


one_node = hf.StateGraph(Said, name="one node", registry=ECHOES)


@one_node.node
async def say(state: Said) -> dict[str, Any]:
    return {"text": state["text"]}


one_node.start_at("say")
one_node.finish("say")

# From start to result, by the model's name.
RUN_ONE: dict[str, Callable[[hf.Engine], Awaitable[Any]]] = {
    "action": lambda engine: engine.run(echo, "x"),
    "function": lambda engine: engine.run(echoes, "x"),
    "dag": lambda engine: engine.run(OneStep(text="x")),
    "flow": lambda engine: engine.run(compiled_echo, "x"),
    "graph": lambda engine: engine.run(one_node, {"text": "x"}),
}
