"""Everything that can be asked about a run and done to it. Whatever is stored, only our own errors come out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import holdfast as hf
from tests.reliability.hostile.victims import Put, Till, word

Ask = Callable[[hf.Engine, Any], Awaitable[Any]]
PATIENCE_SECONDS = 10.0

LOOKS: dict[str, Ask] = {
    "status": lambda engine, run: run.status(),
    "explain": lambda engine, run: run.explain(),
    "history": lambda engine, run: run.history(),
    "executions": lambda engine, run: run.step_executions(),
    "nodes": lambda engine, run: run.nodes_with_state(),
    "result": lambda engine, run: run.result(0.01),
    "waits": lambda engine, run: run.waits(),
    "checkpoints": lambda engine, run: run.checkpoints(),
    "scheduler": lambda engine, run: run.scheduler(),
    "interrupts": lambda engine, run: run.interrupts(),
    "recorded": lambda engine, run: run.recorded(),
    "mermaid": lambda engine, run: run.mermaid(),
    "definition": lambda engine, run: run.dag_definition(),
    "ancestry": lambda engine, run: run.verify_ancestry(),
    "replay": lambda engine, run: engine.replay(run.id),
}
DEEDS: dict[str, Ask] = {
    "send": lambda engine, run: engine.send(word, 7, to=run.id),
    "answer": lambda engine, run: run.resume_with("yes"),
    "pause": lambda engine, run: run.pause(),
    "resume": lambda engine, run: run.resume(),
    "retry": lambda engine, run: run.retry(),
    "fork": lambda engine, run: engine.fork(run.id, from_node="pack"),
    "fork a step": lambda engine, run: engine.fork(run.id, step=0),
    "cancel": lambda engine, run: run.cancel(),
}
OF_INSTANCES: dict[str, Callable[[hf.Engine, str], Awaitable[Any]]] = {
    "state": lambda engine, key: engine.state(Till, key),
    "stream": lambda engine, key: engine.stream(Till, key),
    "snapshot": lambda engine, key: engine.snapshot(Till, key),
    "execute": lambda engine, key: engine.execute(Till, Put(key)),
}
OF_ALL: dict[str, Callable[[hf.Engine], Awaitable[Any]]] = {
    "find": lambda engine: engine.find(limit=500),
    "stats": lambda engine: engine.stats(),
    "doctor": lambda engine: engine.doctor(),
    "dead": lambda engine: engine.dead(),
    "workers": lambda engine: engine.workers(),
    "instances": lambda engine: engine.instances(Till),
    "transitions": lambda engine: engine.transitions(Till),
    "projections": lambda engine: engine.projections(),
}


async def strange(asked: Awaitable[Any]) -> str:
    """What came out that is neither an answer nor an error of ours; empty if nothing did."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS) as limit:
            await asked
    except hf.HoldfastError as error:
        return "" if error.message.strip() and error.hint.strip() else f"an error without words: {error!r}"
    except TimeoutError:
        return f"no answer within {PATIENCE_SECONDS:g} s" if limit.expired() else ""
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {error}"[:300]
    return ""
