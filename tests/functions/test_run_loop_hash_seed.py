"""Journals are replayed by other processes, whose strings hash differently."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.runtime.run_calls import ERROR
from holdfast.runtime.run_loop import Entry, RunLoop
from tests.functions.programs import PROGRAMS, Notes, act
from tests.functions.schedules import STARTED_US, Schedule, state_of

ROOT = Path(__file__).resolve().parents[2]
REPLAYS = "import sys; from tests.functions.test_run_loop_hash_seed import replay_all; replay_all()"
SCHEDULES = 4


async def set_of_strings(notes: Notes) -> Any:
    """Walks a set of strings, which no loop can put in order: the digests of the arguments must tell."""
    return await asyncio.gather(*[act("a", name) for name in {"ant", "bee", "cow", "dog", "eel"}])


def test_i49_another_hash_seed_replays_every_journal_to_the_same_states() -> None:
    """I49: nothing that the run's loop does depends on the hashes of the process."""
    journals = []
    for name in PROGRAMS:
        for seed in range(SCHEDULES):
            schedule = Schedule(name, seed, cancel_chance=0.05)
            schedule.play()
            journals.append(record(name, schedule.run_id, schedule.journal, schedule.states))
    for hash_seed in ("1", "20261115"):
        replayed = elsewhere(journals, hash_seed)
        assert [each["error"] for each in replayed] == [None] * len(journals)
        assert [each["states"] for each in replayed] == [each["states"] for each in journals]


def test_i48_a_set_of_strings_is_a_difference_that_is_told() -> None:
    """I48: same name at every address; only the digests show that the elements were given other places."""
    loop = RunLoop("r-set", now_us=STARTED_US)
    loop.begin(lambda: set_of_strings([]))
    journal = [Entry(each.address, "result", each.name, each.digest, each.digest) for each in loop.pending.values()]
    loop.evict()
    journals = [record("set_of_strings", "r-set", journal, {})]
    told = [elsewhere(journals, str(seed))[0]["error"] for seed in range(1, 5)]
    assert any(error is not None and "the same call of a with other arguments" in error for error in told), told


def record(name: str, run_id: str, journal: list[Entry], states: dict[int, Any]) -> dict[str, Any]:
    entries = [
        [
            each.address,
            each.kind,
            each.name,
            each.digest,
            str(each.value) if each.value is not None else None,
            each.at_us,
        ]
        for each in journal
    ]
    shown = {place: repr(state) for place, state in states.items()}
    return {"name": name, "run_id": run_id, "journal": entries, "states": [shown[place] for place in sorted(shown)]}


def elsewhere(journals: list[dict[str, Any]], hash_seed: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", REPLAYS],
        input=json.dumps(journals),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )
    replayed: list[dict[str, Any]] = json.loads(done.stdout)
    return replayed


def replay_all() -> None:
    """What the other process does: journals in, states out."""
    json.dump([replay(each) for each in json.load(sys.stdin)], sys.stdout)


def replay(recorded: dict[str, Any]) -> dict[str, Any]:
    program = PROGRAMS.get(recorded["name"], set_of_strings)
    notes: Notes = []
    loop = RunLoop(recorded["run_id"], now_us=STARTED_US)
    loop.begin(lambda: program(notes))
    states = [repr(state_of(loop, notes))]
    error = None
    try:
        for address, kind, name, digest, value, at_us in recorded["journal"]:
            if len(states) > len(recorded["states"]) > 0:
                break
            loop.deliver(Entry(address, kind, name, digest, ValueError(value) if kind == ERROR else value, at_us))
            states.append(repr(state_of(loop, notes)))
    except Exception as raised:
        error = str(raised)
    loop.evict()
    return {"states": states[: len(recorded["states"])], "error": error}
