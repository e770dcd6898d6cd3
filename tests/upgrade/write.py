"""Leave a database behind as a killed worker of this version would: `python -m tests.upgrade.write URL`.

Run by `tests.upgrade.make` with the code of the version on the path. Every run is brought to a place in the middle of
things, and then the process kills itself, leases and all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import holdfast as hf
from tests.upgrade import programs
from tests.upgrade.programs import registry

PATIENCE_SECONDS = 60.0


async def until(what: str, holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = holds()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come about; called were {programs.calls}")
        await asyncio.sleep(0.01)


def status_is(handle: Any, status: str) -> Callable[[], Any]:
    async def holds() -> bool:
        return str(await handle.status()) == status

    return holds


def was_called(*names: str) -> Callable[[], bool]:
    return lambda: set(names) <= set(programs.calls)


async def write_dags(engine: Any) -> None:
    await (await engine.start(programs.greet, "done", key="done")).result()
    await engine.start(programs.greet, "waiting", key="waiting", queue="later")
    await engine.start(programs.greet, "paused", key="paused", paused=True)
    await engine.start(programs.linger, "leased", key="leased")
    await engine.start(programs.Errand(name="errand"), key="errand")
    failed = await engine.start(programs.break_down, "failed", key="failed")
    await until("a failed run", status_is(failed, "failed"))
    cancelled = await engine.start(programs.linger, "cancelled", key="cancelled")
    await until("a run to cancel", was_called("linger cancelled"))
    await cancelled.cancel()
    await engine.start(programs.stumble, "retried", key="retried")
    await until("DAGs", was_called("linger leased", "pack errand", "wrap errand", "stumble retried"))


async def write_functions(engine: Any) -> None:
    waits = await engine.start(programs.wait_for_approval, "waits", key="waits")
    nests = await engine.start(programs.parent, "nests", key="nests")
    await engine.start(programs.built("built"), key="built")
    asks = await engine.start(programs.ask_twice, "asks", key="asks")
    for suspended in (waits, nests, asks):
        await until("a function that waits", status_is(suspended, "suspended"))
    await engine.send(programs.approved, 1, to=asks.id)
    await until("a function between two waits", was_called("linger asks", "linger built-2"))
    await engine.send(programs.approved, 2, to=asks.id)
    sleeps = await engine.start(programs.work_and_sleep, "sleeps", key="sleeps")
    await until("a function that sleeps", status_is(sleeps, "suspended"))


async def write_deciders(engine: Any) -> None:
    for command in (programs.Open("till"), programs.Take("till", 100)):
        await engine.execute(programs.Tills, command)
    await until("an effect that is under way", was_called("print till"))
    await engine.execute(programs.Tills, programs.Take("till", 20), command_id="twenty")
    await engine.enqueue_input(programs.Tills, programs.Take("queued", 7))


async def write_flows(engine: Any) -> None:
    await engine.start(programs.rounds, "rounds", [1, 2], key="rounds")
    await until("a flow in its second pass", was_called("add_up 2 1", "add_up 2 10"))
    await engine.start(programs.nap, "naps", key="naps")
    await until("a flow that sleeps", was_called("greet naps"))


async def write_graphs(engine: Any) -> None:
    await engine.start(programs.research, {"topic": "wells", "notes": []}, key="research")
    await until("a graph in the middle of a step", was_called("look", "search", "dig"))
    asks = await engine.start(programs.quiz, {"topic": "rain", "notes": ["a"]}, key="quiz")
    await until("a graph that asks a person", status_is(asks, "suspended"))


async def main(url: str) -> None:
    models = [("Dag", write_dags), ("workflow", write_functions), ("Decider", write_deciders)]
    models += [("flow", write_flows), ("StateGraph", write_graphs)]
    async with hf.Engine(url, registry=registry) as engine, engine.worker(concurrency=64):
        for name, write in models:
            if hasattr(hf, name):
                await write(engine)
        await asyncio.sleep(0.3)  # commits that follow what was called
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
