"""What the HTTP server costs a worker: throughput with idle live streams beside it, and how late changes are told.

    python -m benchmarks.web [--clients 200] [--seconds 5] [--url URL]

The server and its clients have a process each, as in production: the worker shares with them the database and the
machine. Rounds with and without clients alternate, so that a noisy neighbour hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import holdfast as hf

ROUNDS = 5
AT_ONCE = 50
LEAST_SHARE = 0.9
LATEST_SECONDS = 1.0

registry = hf.Registry()


@hf.action(registry=registry)
async def step(number: int) -> int:
    return number


# --- the other processes ---------------------------------------------------------------------------------------------


async def _serve(url: str) -> None:
    from holdfast.web import serve

    await serve(url, port=0, ready=lambda address: print(address, flush=True))


async def _listen(port: int, clients: int, run: str) -> None:
    """Hold streams open; for each version on stdin, answer with when the last client heard of it."""
    heard: list[tuple[int, float]] = []
    wanted = f"?run={run}" if run else ""

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /api/v1/live{wanted} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        async for line in reader:
            if run and line.startswith(b"data: "):
                heard.append((json.loads(line[6:])["version"], time.time()))

    tasks = [asyncio.create_task(client()) for _ in range(clients)]
    await asyncio.sleep(0.5 + clients / 500)
    print("listening", flush=True)
    loop = asyncio.get_running_loop()
    while version := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        deadline, times = time.time() + 5, list[float]()
        while len(times) < clients and time.time() < deadline:
            await asyncio.sleep(0.005)
            times = [at for number, at in heard if number >= int(version)]
        heard.clear()
        print(json.dumps({"clients": len(times), "last": max(times, default=0.0)}), flush=True)
    for task in tasks:
        task.cancel()


@contextmanager
def _process(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.web", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise RuntimeError("the process has no output")
    return process.stdout.readline().strip()


# --- the measurement -------------------------------------------------------------------------------------------------


async def _throughput(engine: hf.Engine, seconds: float) -> float:
    """Runs that were started and finished in a second, with so many under way at once."""
    done, until = 0, time.perf_counter() + seconds

    async def keep_going() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await engine.run(step, done)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(keep_going() for _ in range(AT_ONCE)))
    return done / (time.perf_counter() - began)


@asynccontextmanager
async def _listeners(port: str, clients: int, run: str = "") -> AsyncIterator[subprocess.Popen[str]]:
    with _process("--listen", port, "--clients", str(clients), "--run", run) as process:
        await asyncio.to_thread(_line, process)
        yield process


async def _latency(engine: hf.Engine, run: str, process: subprocess.Popen[str], clients: int) -> float:
    """Seconds from a change of a run until the last client has heard of it, while other work goes on."""
    if process.stdin is None:
        raise RuntimeError("the process has no input")
    worst = 0.0
    for number in range(6):
        await (engine.get(run).pause() if number % 2 == 0 else engine.get(run).resume())
        (row,) = await engine.store.runs([run])
        changed = time.time()
        process.stdin.write(f"{row.version}\n")
        process.stdin.flush()
        told = json.loads(await asyncio.to_thread(_line, process))
        if told["clients"] < clients:
            return float("inf")
        worst = max(worst, told["last"] - changed)
    return worst


async def measure(url: str, clients: int, seconds: float, rounds: int = ROUNDS) -> dict[str, Any]:
    """Throughput without and with clients, in alternating rounds, and the latest that anybody heard of a change."""
    async with hf.Engine(url, registry=registry) as engine, engine.worker():
        with _process("--serve", url) as server:
            port = (await asyncio.to_thread(_line, server)).rstrip("/").rpartition(":")[2]
            without, with_clients = [], []
            await _throughput(engine, min(1.0, seconds))
            for _ in range(rounds):
                without.append(await _throughput(engine, seconds))
                async with _listeners(port, clients):
                    with_clients.append(await _throughput(engine, seconds))
            followed = await engine.start(step, 0, at=datetime.now(UTC) + timedelta(days=1))
            async with _listeners(port, clients, followed.id) as process:
                busy = asyncio.create_task(_throughput(engine, 3.0))
                latest = await _latency(engine, followed.id, process, clients)
                await busy
    return {
        "store": engine.url.partition(":")[0],
        "clients": clients,
        "runs_per_second_without": round(statistics.median(without), 1),
        "runs_per_second_with": round(statistics.median(with_clients), 1),
        "share": round(statistics.median(with_clients) / statistics.median(without), 3),
        "told_within_seconds": round(latest, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve")
    parser.add_argument("--listen", type=int)
    parser.add_argument("--run", default="")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--url")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(given.serve))
    elif given.listen:
        asyncio.run(_listen(given.listen, given.clients, given.run))
    else:
        with tempfile.TemporaryDirectory() as folder:
            url = given.url or f"sqlite:///{Path(folder) / 'web.db'}"
            found = asyncio.run(measure(url, given.clients, given.seconds))
        print(json.dumps(found, indent=2))
        if found["share"] < LEAST_SHARE or found["told_within_seconds"] > LATEST_SECONDS:
            raise SystemExit(f"expected a share of {LEAST_SHARE} and {LATEST_SECONDS:g} s")


if __name__ == "__main__":
    main()
