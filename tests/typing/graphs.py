"""State graphs under the type checker: what must pass, and lines that must fail.

Never run, only checked. A line that must fail has an ignore with its code; unused ignores are errors, so a line that
stops failing is noticed.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict, assert_type

import holdfast as hf


class State(TypedDict, total=False):
    question: str
    notes: Annotated[list[str], operator.add]


graph = hf.StateGraph(State, name="typed")
assert_type(graph, hf.StateGraph[State])


@graph.node
async def search(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    assert_type(await ctx.record("search", {"q": state["question"]}, lambda: 7), int)
    return {"notes": []}


@graph.node(retry=hf.Retry(attempts=3), goes_to=["search"], label="found")
def route(state: State) -> hf.Goto:
    return hf.Goto("search", {"notes": ["again"]})


graph.edge("search", "route", when=lambda state: "x" in state["question"])
graph.edge("search", "route", lambda state: state["answer"])  # type: ignore[typeddict-item]
graph.node(timeout="soon")  # type: ignore[call-overload]


async def children_keep_their_type() -> None:
    child = await hf.start_child(graph, {"question": "why?"}, key="q-1")
    assert_type(child, hf.ChildHandle[State])
    assert_type(await child.result(), State)
    await hf.start_child(graph)  # type: ignore[call-overload]


async def use(engine: hf.Engine) -> None:
    handle = await engine.start(graph, {"question": "why"}, key="q")
    assert_type(handle, hf.Handle[State])
    assert_type(await handle.result(), State)
    assert_type(await engine.run(graph, State(question="why"), timeout=1.0), State)
    assert_type(await handle.checkpoint(step=3), hf.Checkpoint[Any])
    assert_type(await handle.interrupts(), list[hf.Interrupt])
    assert_type(await handle.recorded(), list[hf.RecordedIO])
    assert_type((await handle.scheduler()).metrics, hf.SchedulerMetrics)
    assert_type(await handle.resume_with({"ok": True}), bool)
    assert_type(await engine.replay(handle, mode="lenient"), hf.ReplayReport[Any])
    assert_type(await engine.diff(handle, "run"), hf.RunDiff)
    assert_type(await engine.fork(handle, step=1, update={"question": "how"}), hf.Handle[Any])
    await engine.start(graph)  # type: ignore[call-overload]
    await engine.replay(handle, mode="loose")  # type: ignore[arg-type]


def blocking(engine: hf.BlockingEngine) -> None:
    handle = engine.start(graph, {"question": "why"})
    assert_type(handle.result(), State)
    assert_type(handle.checkpoints(), list[hf.Checkpoint[Any]])
    assert_type(engine.diff(handle, "run"), hf.RunDiff)


assert_type(hf.run(graph, {"question": "why"}), State)
