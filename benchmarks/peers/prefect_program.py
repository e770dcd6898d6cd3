"""The workloads for Prefect, in its environment: flows and tasks against a server that is started for the process.

The server keeps its state in the database of the URL. A flow runs where it is called. Prefect is made for steps that
take seconds, so the counts are small; what its server still does after a flow has ended is not waited for.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time

from telling import arguments, greet_and_idle, refuse, seconds_since, tell, tell_latencies

URL, WORKLOAD, COUNT = arguments()
HOME = tempfile.TemporaryDirectory(prefix="prefect-bench-")
if URL.startswith("sqlite:///"):
    connection = URL.replace("sqlite:///", "sqlite+aiosqlite:///", 1)
else:
    connection = URL.replace("postgresql:", "postgresql+asyncpg:", 1)
# Before the import: it reads its settings then. An ephemeral server, and nothing told to anybody.
os.environ |= {
    "PREFECT_HOME": HOME.name,
    "PREFECT_API_DATABASE_CONNECTION_URL": connection,
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "60",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "DO_NOT_TRACK": "1",
}

from prefect import flow, task  # noqa: E402


@task
def add_one(number: int) -> int:
    return number + 1


@task
async def add_one_async(number: int) -> int:
    return number + 1


@flow
def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = add_one(number)
    return number


@flow
async def chain_async(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one_async(number)
    return number


@flow
def spread(width: int) -> int:
    return sum(add_one.map(range(width)).result())


def w1(steps: int) -> None:
    chain(2)
    started = time.perf_counter()
    chain(steps)
    tell(step_ms=seconds_since(started) / steps * 1000)


def w2(runs: int) -> None:
    async def many(number: int) -> float:
        started = time.perf_counter()
        await asyncio.gather(*(chain_async(3) for _ in range(number)))
        return seconds_since(started)

    async def both() -> float:
        await many(1)
        return await many(runs)

    tell(steps_per_second=3 * runs / asyncio.run(both()))


def w3(width: int) -> None:
    spread(max(1, width // 5))
    started = time.perf_counter()
    spread(width)
    tell(seconds=seconds_since(started))


def w4(samples: int) -> None:
    chain(1)
    taken = []
    for _ in range(samples):
        started = time.perf_counter()
        chain(1)
        taken.append(seconds_since(started) * 1000)
    tell_latencies(taken)


def first(_: int) -> None:
    chain(1)
    greet_and_idle()


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "first": first}


if __name__ == "__main__":
    refuse(WORKLOAD, WORKLOADS)
    WORKLOADS[WORKLOAD](COUNT)
