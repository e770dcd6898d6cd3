"""Where a step's microseconds go: `python tools/profile_step.py [--store S] [--rounds N] [--write]`.

A lone run (W1) has a timeline: its step ends, an operation is made and submitted, waits for the coordinator, is
decided, encoded, written, committed; then the next step is woken. Each part is timed where it happens, by wrapping a
handful of functions of the engine, which costs a few microseconds a step. In a crowd (W2) these overlap: there the
parts are what was spent in them for each step, and the rest is everything else: bodies, the worker, asyncio.

PostgreSQL writes and commits in one round trip. Its own `track_wal_io_timing` says how long a sync of its log takes;
the rest of the trip is the statement, the driver and the way there and back. With --write the table in
docs/performance.md is replaced.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import asyncpg  # noqa: E402

import holdfast as hf  # noqa: E402
from benchmarks.chains import chain_of  # noqa: E402
from benchmarks.measures import POSTGRES, SQLITE  # noqa: E402
from benchmarks.throughput import Cost, many_runs, one_run, working_engine  # noqa: E402
from holdfast.authoring.registry import Registry  # noqa: E402
from holdfast.coordinator import Coordinator  # noqa: E402
from holdfast.runtime.postgres_server import PostgresServer  # noqa: E402
from holdfast.store import postgres, sqlite  # noqa: E402

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- profile: begin -->", "<!-- profile: end -->"
PARTS = ("operation", "queueing", "decide", "encode", "SQL", "commit", "wake-up", "rest")
STEPS, RUNS, WARM = 100, 1000, 3
now = time.perf_counter


class Clockwork:
    """Seconds by part, and the moment at which the present part of the timeline began."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.flushes = 0
        self.step_ended = 0.0
        self.committed = 0.0
        self.submitted: dict[int, float] = {}

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def body(self) -> None:
        """Called in the step's own code, which takes no time: it ends one wake-up and begins one operation."""
        at = now()
        if self.committed:
            self.spent["wake-up"] += at - self.committed
            self.committed = 0.0
        self.step_ended = at


class TimedDatabase:
    """A connection of SQLite whose statements are timed; whatever else happens in a write is encoding."""

    def __init__(self, db: Any, clockwork: Clockwork) -> None:
        self._db, self._clockwork = db, clockwork

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, *args: Any) -> Any:
        started = now()
        try:
            return self._db.execute(*args)
        finally:
            self._clockwork.spent["SQL"] += now() - started

    def executemany(self, *args: Any) -> Any:
        started = now()
        try:
            return self._db.executemany(*args)
        finally:
            self._clockwork.spent["SQL"] += now() - started


@contextmanager
def wrapped(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a function for a while."""
    before = getattr(owner, name, None)
    if before is None:
        raise SystemExit(f"{owner.__name__} has no {name} any more: tell tools/profile_step.py where that happens now")
    setattr(owner, name, wrap(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def timed(clockwork: Clockwork) -> Iterator[None]:
    """Wrap the places where the parts of a step begin and end."""

    def submit(before: Any) -> Any:
        def timed_submit(self: Coordinator, operation: Any) -> Any:
            at = now()
            if clockwork.step_ended:
                clockwork.spent["operation"] += at - clockwork.step_ended
                clockwork.step_ended = 0.0
            clockwork.submitted[id(operation)] = at
            return before(self, operation)

        return timed_submit

    def decide(before: Any) -> Any:
        def timed_decide(self: Coordinator, batch: Any, *others: Any) -> Any:
            started = now()
            for item in batch:
                clockwork.spent["queueing"] += started - clockwork.submitted.pop(id(item.operation), started)
            decided = before(self, batch, *others)
            clockwork.spent["decide"] += now() - started
            return decided

        return timed_decide

    def flush(before: Any) -> Any:
        async def timed_flush(self: Any, changes: Any) -> Any:
            started, known = now(), _known(clockwork)
            result = await before(self, changes)
            # What the store did around its statements and its commit: locks, hand-over, the way to the server.
            clockwork.spent["SQL"] += now() - started - (_known(clockwork) - known)
            clockwork.flushes += 1
            clockwork.committed = now()
            return result

        return timed_flush

    def encode(before: Any) -> Any:
        def timed_encode(*args: Any, **kwargs: Any) -> Any:
            started = now()
            try:
                return before(*args, **kwargs)
            finally:
                clockwork.spent["encode"] += now() - started

        return timed_encode

    def write(before: Any) -> Any:
        def timed_write(db: Any, *args: Any) -> None:
            started, in_sql = now(), clockwork.spent["SQL"]
            before(TimedDatabase(db, clockwork), *args)
            clockwork.spent["encode"] += now() - started - (clockwork.spent["SQL"] - in_sql)

        return timed_write

    def commit(before: Any) -> Any:
        def timed_commit(self: Any) -> None:
            started = now()
            before(self)
            clockwork.spent["commit"] += now() - started

        return timed_commit

    with (
        wrapped(Coordinator, "submit", submit),
        wrapped(Coordinator, "_decide_fast", decide),
        wrapped(sqlite.SqliteStore, "flush", flush),
        wrapped(sqlite.SqliteStore, "_commit", commit),
        wrapped(sqlite, "write_changes", write),
        wrapped(postgres.PostgresStore, "flush", flush),
        wrapped(postgres, "guarded_flush", encode),
    ):
        yield


def _known(clockwork: Clockwork) -> float:
    return clockwork.spent["encode"] + clockwork.spent["SQL"] + clockwork.spent["commit"]


Measured = tuple[Cost, dict[str, float], int]


async def profile(url: str, model: str, workload: str, clockwork: Clockwork) -> Measured:
    """One run or one crowd, warm: its cost, its parts in seconds, and how many flushes it took."""
    registry = Registry()
    steps = STEPS if workload == "W1" else 3
    dag = chain_of(steps, registry, on_step=lambda number: clockwork.body())
    action = hf.action(registry=registry)(_noting(clockwork))

    async def chain(steps: int) -> int:
        number = 0
        for _ in range(steps):
            number = await action(number)
        return number

    if model == "flow":
        program = hf.flow(registry=registry)(chain)
    else:
        program = hf.workflow(registry=registry)(chain)

    async def once(engine: hf.Engine) -> Cost:
        if workload == "W1":
            if model == "dag":
                return await one_run(engine, dag)
            with Cost.of(steps) as cost:
                await engine.run(program, steps)
            return cost
        if model == "dag":
            return await many_runs(engine, dag, RUNS)
        with Cost.of(RUNS * steps) as cost:
            handles = await asyncio.gather(*(engine.start(program, steps) for _ in range(RUNS)))
            await asyncio.gather(*(handle.result() for handle in handles))
        return cost

    before = await _syncs(url)
    async with working_engine(url, registry) as engine:
        for _ in range(WARM if workload == "W1" else 1):
            await once(engine)
        clockwork.reset()
        cost = await once(engine)
        parts, flushes = dict(clockwork.spent), clockwork.flushes
    if not url.startswith("sqlite"):
        after = await _syncs(url)  # sessions tell their counts when they end, so of all that they did: a mean it is
        a_sync = (after[0] - before[0]) / max(1, after[1] - before[1])
        parts["commit"] = min(a_sync * flushes, parts["SQL"])
        parts["SQL"] -= parts["commit"]
    return cost, parts, flushes


def _noting(clockwork: Clockwork) -> Callable[[int], Any]:
    async def add_one(number: int) -> int:
        clockwork.body()
        return number + 1

    return add_one


async def _syncs(url: str) -> tuple[float, int]:
    """How long the server has waited for its log to be written and synced, in all, and how often."""
    if url.startswith("sqlite"):
        return 0.0, 0
    connection = await asyncpg.connect(url)
    try:
        if connection.get_server_version().major >= 18:
            asked = "SELECT sum(write_time + fsync_time), sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
        else:
            asked = "SELECT wal_write_time + wal_sync_time, wal_sync FROM pg_stat_wal"
        milliseconds, count = await connection.fetchrow(asked)
        return float(milliseconds or 0) / 1000, int(count or 0)
    finally:
        await connection.close()


def row_of(workload: str, parts: dict[str, float], cost: Cost) -> dict[str, float]:
    """Microseconds a step. In a crowd only what the process did itself can be added up."""
    found = {part: parts.get(part, 0.0) / cost.steps * 1e6 for part in PARTS}
    wall = cost.wall_ms * 1000
    if workload == "W2":
        for waited in ("operation", "queueing", "wake-up"):
            found[waited] = 0.0
    found["rest"] = max(0.0, wall - sum(found.values()))
    return found | {"wall": wall, "processor": cost.cpu_ms * 1000}


def measured(stores: list[str], rounds: int) -> list[tuple[str, str, str, dict[str, float], float]]:
    """Rows of the table: workload, model, store, medians in microseconds, steps a commit."""
    found: dict[tuple[str, str, str], list[tuple[dict[str, float], float]]] = defaultdict(list)
    clockwork = Clockwork()
    with (
        tempfile.TemporaryDirectory(prefix="hf-profile-") as directory,
        PostgresServer(fsync=True, settings={"track_wal_io_timing": "on"}) as server,
        timed(clockwork),
    ):
        for number in range(rounds):
            for workload in ("W1", "W2"):
                for model in ("function", "flow", "dag"):
                    for store in stores:
                        name = f"p{number}{workload}{model}".lower()
                        file = Path(directory, f"{name}.db")
                        url = f"sqlite:///{file}" if store == SQLITE else server.create_database(name)
                        cost, parts, flushes = asyncio.run(profile(url, model, workload, clockwork))
                        made = row_of(workload, parts, cost)
                        found[workload, model, store].append((made, cost.steps / max(1, flushes)))
    return [
        (
            *key,
            {part: statistics.median(row[part] for row, _ in rows) for part in rows[0][0]},
            statistics.median(batch for _, batch in rows),
        )
        for key, rows in found.items()
    ]


def table(rows: list[tuple[str, str, str, dict[str, float], float]]) -> str:
    heads = ["", *PARTS, "wall", "processor", "steps a commit"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for workload, model, store, medians, batch in rows:
        # Parts that overlap in a crowd have no share of its time.
        shown = [
            "" if workload == "W2" and part in ("operation", "queueing", "wake-up") else f"{medians[part]:.0f}"
            for part in (*PARTS, "wall", "processor")
        ]
        lines.append(f"| {workload} {model}, {_name(store)} | " + " | ".join(shown) + f" | {batch:.1f} |")
    return "\n".join(lines)


def _name(store: str) -> str:
    return "SQLite" if store == SQLITE else "PostgreSQL"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", action="append", choices=[SQLITE, POSTGRES])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    given = parser.parse_args()
    before = os.getloadavg()[0]
    text = table(measured(given.store or [SQLITE, POSTGRES], given.rounds))
    text += f"\n\nMedians of {given.rounds} rounds at a load of {before:.1f} to {os.getloadavg()[0]:.1f}"
    text += f" on {os.cpu_count()} cores, Python {platform.python_version()}."
    print(text)
    if given.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        _, found, after = rest.partition(END)
        if not found:
            raise SystemExit(f"{PAGE.name} has no {BEGIN} … {END} to write between")
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
