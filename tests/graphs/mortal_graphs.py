"""A graph that leaves traces outside, and workers for it that die on order.

`python -m tests.graphs.mortal_graphs URL TRACES ORDER...`: one life after another, each a forked process, so that
Python starts once. A life dies where its order says, such as `record.after:2`, and the program prints how each has
ended. The last one has no order, and finishes what is left. What a person is asked is answered by whoever is alive.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import holdfast as hf
from holdfast.runtime.killswitch import VARIABLE, install_from_environment
from holdfast.store.contract import FindRuns
from tests.worker.support import PATIENT

# A life ends at its first steps: what it had claimed besides is lost without any fault of its own.
SETTINGS: dict[str, Any] = {**PATIENT, "lost_limit": 1000}


class Trip(TypedDict):
    day: int
    diary: Annotated[list[str], hf.reducers.append]


def journey(traces: Path) -> tuple[hf.Registry, hf.StateGraph[Trip]]:
    """Three days with a walk and a letter each; on the second day somebody is asked, on each the world is."""
    registry = hf.Registry()
    graph = hf.StateGraph(Trip, name="journey", registry=registry, default_timeout=None)

    def trace(*words: object) -> None:
        with traces.open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    async def ask(ctx: hf.NodeContext, name: str) -> str:
        def call() -> str:
            trace("asked", ctx.run_id, f"{ctx.node}@{ctx.step}", name)
            return f"{name} {ctx.step}"

        return await ctx.record(name, {"step": ctx.step}, call)

    @graph.node(recordable=True)
    async def walk(state: Trip, ctx: hf.NodeContext) -> Any:
        trace("ran", ctx.run_id, f"{ctx.node}@{ctx.step}", ctx.attempt)
        weather = await ask(ctx, "weather")
        if state["day"] == 1:
            weather += f" {await ctx.interrupt({'go out?': weather})}"
        return {"day": state["day"] + 1, "diary": [weather, await ask(ctx, "way")]}

    @graph.node(recordable=True)
    async def letter(state: Trip, ctx: hf.NodeContext) -> Any:
        trace("ran", ctx.run_id, f"{ctx.node}@{ctx.step}", ctx.attempt)
        return {"diary": [await ask(ctx, "post")]}

    graph.start_at("walk", "letter")
    graph.edge("walk", "walk", when=lambda state: state["day"] < 3)
    graph.edge("walk", "letter", when=lambda state: state["day"] < 3)
    graph.finish("walk", "letter")
    return registry, graph


async def live(url: str, traces: Path) -> None:
    """Work until every run has ended, one item at a time: so a death interrupts a single one."""
    registry, _ = journey(traces)
    async with hf.Engine(url, registry=registry, **SETTINGS) as engine, engine.worker(concurrency=1):
        for run in await engine.store.find(FindRuns(limit=100)):
            while True:
                row = await engine.watch.wait(run.id, lambda row: row.ended or row.status == "suspended", 60)
                if row.ended:
                    break
                for question in await engine.get(run.id).interrupts():
                    await engine.get(run.id).resume_with("yes", node=question.node)


def main(url: str, traces: str, *orders: str) -> None:
    for order in (*orders, ""):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                install_from_environment({VARIABLE: order})
                asyncio.run(live(url, Path(traces)))
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(order or "nowhere", code, flush=True)
        if code >= 0:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
