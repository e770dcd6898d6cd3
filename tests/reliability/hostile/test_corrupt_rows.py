"""Rows that somebody or something damaged, in every table and every column: their runs suffer, and nothing else does.

Copies of runs of every model get one column each overwritten behind the engine's back. Then a worker serves that
database, and everything is asked about each of those runs and done to it. What is tried is drawn by a seed, some
hundred at a time; HOSTILE_PAIRS=100000 tries all of it.
"""

from __future__ import annotations

import logging
import os
import random
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.rows import TABLES
from tests.reliability.hostile.damage import OF_RUN, Harm, copy_of, harms, inflict, rows_of
from tests.reliability.hostile.looking import DEEDS, LOOKS, OF_ALL, OF_INSTANCES, strange
from tests.reliability.hostile.victims import (
    DEADLINE_SECONDS,
    GONE,
    Parcel,
    Put,
    Till,
    ask,
    engine_on,
    gathered,
    graph_state,
    greet,
    listen,
    make_victims,
    word,
)

SEED_VARIABLE, PAIRS_VARIABLE = "HOSTILE_SEED", "HOSTILE_PAIRS"
MOST_LINES_A_RUN = 40
# Each of these once stopped a worker, hung, or came out as an error that was not ours.
FOUND_BEFORE = (
    Harm("runs", "model", "nonsense"),  # claimed, killed in vain, and claimed again, thousands of times a second
    Harm("runs", "entries", 2**62),  # counted up to
    Harm("runs", "base", 2**62),  # counted up to, in pages
    Harm("runs", "due", -(2**62)),
    Harm("runs", "id", "nobody"),  # its key is taken by a run that is not found: a conflict for ever
    Harm("waits", "since", 2**62),  # no calendar has such a year
    Harm("work", "node", ""),
    Harm("work", "parents", "nonsense"),
    Harm("checkpoints", "totals", b"null"),
)
HOLD = "UPDATE work SET status = 'leased', worker = ?, token = token + 1 WHERE run = ? AND status = 'ready'"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


async def damaged_copies(url: str, dice: random.Random, pairs: int) -> list[tuple[Harm, str]]:
    """Copies of runs with one thing wrong with each of them; some are held by a worker that is no more."""
    victims = await make_victims(url)
    async with rows_of(url) as rows:
        sample = {table.name: await rows.fetch(f"SELECT * FROM {table.name}") for table in TABLES}
        owners = {
            name: {row[OF_RUN.get(name, "run")] for row in found} for name, found in sample.items() if name != "holds"
        }
        possible = [(harm, run) for harm in harms(sample) for run in victims if run in owners[harm.table]]
        found: list[tuple[Harm, str]] = []
        drawn = [pair for pair in possible if pair[0] in FOUND_BEFORE] + dice.sample(
            possible, min(pairs, len(possible))
        )
        for number, (harm, run) in enumerate(drawn):
            copied = await copy_of(rows, run, f"-{number}")
            if number % 3 == 0:
                await rows.execute(HOLD, GONE, copied)
            if await inflict(rows, harm, copied):
                found.append((harm, copied))
        values = (GONE, "host", 1, '["default"]', "[]", "[]", 1, (rows.is_sqlite and 1) or True, 1, 1, 1)
        await rows.execute(f"INSERT INTO workers VALUES ({', '.join('?' * len(values))})", *values)
    return found


async def serve_the_healthy(engine: hf.Engine) -> None:
    """A run of every model ends as if nothing were wrong."""
    handles: list[Any] = [
        await engine.start(greet, "Bob"),
        await engine.start(Parcel(weight=1)),
        await engine.start(gathered, ["a"]),
        await engine.start(ask, graph_state(asks=False)),
        await engine.start(listen, "Bob"),
    ]
    await engine.send(word, 3, to=handles[-1])
    for handle in handles:
        await handle.result(DEADLINE_SECONDS)
    await engine.execute(Till, Put("healthy"))
    assert await engine.state(Till, "healthy") >= 1


@pytest.mark.timeout(0)
async def test_i8_damaged_rows_stop_nobody_and_whoever_looks_is_told_something(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1 << 30))
    pairs = int(os.environ.get(PAIRS_VARIABLE) or 60)
    print(f"repeat with: {SEED_VARIABLE}={seed} {PAIRS_VARIABLE}={pairs} pytest {__file__} -k damaged_rows")
    copies = await damaged_copies(database_url, random.Random(seed), pairs)
    harm_of = {run: str(harm) for harm, run in copies}
    told: dict[str, str] = {}
    async with engine_on(database_url) as engine, engine.worker():
        await serve_the_healthy(engine)
        for harm, run in copies:
            for name, look in LOOKS.items():
                if wrong := await strange(look(engine, engine.get(run))):
                    told.setdefault(f"{name}: {wrong}", f"{harm} of {run}")
        for harm, run in copies:
            for name, do in DEEDS.items():
                if wrong := await strange(do(engine, engine.get(run))):
                    told.setdefault(f"{name}: {wrong}", f"{harm} of {run}")
        for name, look_at_all in OF_ALL.items():
            if wrong := await strange(look_at_all(engine)):
                told.setdefault(f"{name}: {wrong}", "all")
        for instance in await engine.instances(Till):
            for name, look_at_one in OF_INSTANCES.items():
                if wrong := await strange(look_at_one(engine, instance.workflow_id)):
                    told.setdefault(f"{name}: {wrong}", f"{harm_of.get(instance.run_id)} of {instance.workflow_id}")
        await serve_the_healthy(engine)
    assert not told, "\n".join(f"{wrong}   <- {where}" for wrong, where in told.items())
    assert len(caplog.records) < MOST_LINES_A_RUN * len(copies), "one of them is tried again and again"
