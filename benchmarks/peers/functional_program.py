"""The workloads for LangGraph's functional interface, in its environment, with its own savers.

A run is a thread of an entrypoint, a step a task. It runs in the caller's process and has no worker, no queue and no
timers: W4 is its call, W5 an interrupt and a resume, W6 cannot be said. The better of its synchronous and its
asynchronous interface counts where both are easy; steps wait for nothing ("async" durability is its default).
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import uuid
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt
from telling import WARM_UP_PART, arguments, greet_and_idle, refuse, seconds_since, tell, tell_latencies


@task
def add_one(number: int) -> int:
    return number + 1


@task
async def add_one_async(number: int) -> int:
    return number + 1


def settings(thread: str | None = None) -> Any:
    return {"configurable": {"thread_id": thread or uuid.uuid4().hex}, "recursion_limit": 1_000_000}


class Programs:
    """The entrypoints, bound to a saver."""

    def __init__(self, saver: Any) -> None:
        @entrypoint(checkpointer=saver)
        def chain(steps: int) -> int:
            number = 0
            for _ in range(steps):
                number = add_one(number).result()
            return number

        @entrypoint(checkpointer=saver)
        async def chain_async(steps: int) -> int:
            number = 0
            for _ in range(steps):
                number = await add_one_async(number)
            return number

        @entrypoint(checkpointer=saver)
        async def spread(width: int) -> int:
            return sum(await asyncio.gather(*[add_one_async(number) for number in range(width)]))

        @entrypoint(checkpointer=saver)
        async def waits(number: int) -> int:
            return interrupt("go")

        self.chain, self.chain_async, self.spread, self.waits = chain, chain_async, spread, waits


@contextmanager
def sync_saver(url: str) -> Any:
    if url.startswith("sqlite:///"):
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
        saver: Any = SqliteSaver(connection)
        saver.setup()
        yield saver
        connection.close()
        return
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def async_saver(url: str) -> Any:
    if url.startswith("sqlite:///"):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as Saver

        url = url.removeprefix("sqlite:///")
    else:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver as Saver
    async with Saver.from_conn_string(url) as saver:
        await saver.setup()
        yield saver


def sync_seconds(url: str, steps: int, times: int) -> list[float]:
    taken = []
    with sync_saver(url) as saver:
        chain = Programs(saver).chain
        for number in range(times + 2):
            started = time.perf_counter()
            chain.invoke(steps, settings())
            if number >= 2:
                taken.append(seconds_since(started))
    return taken


async def w1(url: str, steps: int) -> None:
    async with async_saver(url) as saver:
        chain = Programs(saver).chain_async
        await chain.ainvoke(steps, settings())
        started = time.perf_counter()
        await chain.ainvoke(steps, settings())
        seconds = seconds_since(started)
    tell(step_ms=min(seconds, *sync_seconds(url, steps, 1)) / steps * 1000)


async def w2(url: str, runs: int) -> None:
    async with async_saver(url) as saver:
        chain = Programs(saver).chain_async

        async def many(number: int) -> float:
            started = time.perf_counter()
            await asyncio.gather(*(chain.ainvoke(3, settings()) for _ in range(number)))
            return seconds_since(started)

        await many(max(1, runs // WARM_UP_PART))
        tell(steps_per_second=3 * runs / await many(runs))


async def w3(url: str, width: int) -> None:
    async with async_saver(url) as saver:
        spread = Programs(saver).spread
        await spread.ainvoke(max(1, width // WARM_UP_PART), settings())
        started = time.perf_counter()
        await spread.ainvoke(width, settings())
        tell(seconds=seconds_since(started))


async def w4(url: str, samples: int) -> None:
    tell_latencies([seconds * 1000 for seconds in sync_seconds(url, 1, samples)])


async def w5(url: str, runs: int) -> None:
    async with async_saver(url) as saver:
        waits = Programs(saver).waits
        threads = [uuid.uuid4().hex for _ in range(runs)]
        await asyncio.gather(*(waits.ainvoke(number, settings(thread)) for number, thread in enumerate(threads)))
        started = time.perf_counter()
        results = await asyncio.gather(
            *(waits.ainvoke(Command(resume=number), settings(thread)) for number, thread in enumerate(threads))
        )
        seconds = seconds_since(started)
    if results != list(range(runs)):
        raise SystemExit("not every thread got its answer")
    tell(seconds=seconds)


async def first(url: str, _: int) -> None:
    with sync_saver(url) as saver:
        Programs(saver).chain.invoke(1, settings())
        greet_and_idle()


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "first": first}


def main() -> None:
    url, workload, count = arguments()
    refuse(workload, WORKLOADS)
    asyncio.run(WORKLOADS[workload](url, count))


if __name__ == "__main__":
    main()
