"""Judges what a crash left and what became of it: from plain rows and the ledger, with none of the engine's own code.

`as_left` is asked about the rows that a death left behind, `at_the_end` about those after somebody else has finished.
Each raises `Broken` with the promise that does not hold.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tests.reliability.crash.ledger import Line

if TYPE_CHECKING:
    from tests.reliability.crash.scenario import Scenario

Row = dict[str, Any]
ENDED = ("completed", "failed", "cancelled")
OPEN = ("ready", "leased")
SET_IN_PLACE = ("timer", "inbox", "projection", "turn")
OWNED = (
    "work",
    "history",
    "waits",
    "definitions",
    "stream",
    "snapshots",
    "observations",
    "inbox",
    "checkpoints",
    "recorded",
)


class Broken(AssertionError):
    """A promise was broken."""


def must(holds: object, promise: str, told: str) -> None:
    if not holds:
        raise Broken(f"{promise}: {told}")


class Rows(Mapping[str, Sequence[Row]]):
    """Every row of every table, as they are stored."""

    def __init__(self, tables: dict[str, list[Row]]) -> None:
        self._tables = tables

    def __getitem__(self, table: str) -> list[Row]:
        return self._tables.get(table, [])

    def __iter__(self) -> Any:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def decoded(self, data: Any) -> Any:
        return None if data is None else json.loads(bytes(data))

    def result(self, run: Row) -> Any:
        return self.decoded(run["result"])

    def of(self, table: str, run: str) -> list[Row]:
        return [row for row in self[table] if row["run"] == run]


def as_left(rows: Rows) -> None:
    """G10, G2: whatever instant a process died at, the rows agree with each other."""
    runs = {run["id"]: run for run in rows["runs"]}
    for table in OWNED:
        strays = {row["run"] for row in rows[table]} - set(runs)
        must(not strays, "G10", f"rows of {table} belong to no run: {strays}")
    for run in runs.values():
        _agrees_with_itself(rows, run)
    keys = Counter((run["workflow"], run["key"]) for run in runs.values() if run["key"] and not run["superseded"])
    must(all(times == 1 for times in keys.values()), "I12", f"several runs under one key: {keys}")


def _agrees_with_itself(rows: Rows, run: Row) -> None:
    id, work = run["id"], rows.of("work", run["id"])
    named = f"{run['model']} {run['key'] or id}"
    active = [item for item in work if item["status"] in OPEN]
    if run["status"] not in ENDED:
        must(
            len(active) == run["active"], "G10", f"{named} says {run['active']} items are active, and {len(active)} are"
        )
    elif run["status"] != "failed":
        left = [item["node"] for item in active if item["kind"] not in ("effect", "timer", "inbox")]
        must(not left, "G7", f"{named} is {run['status']}, and {left} can still be claimed")
    for item in work:
        told = f"{named}, {item['node']} attempt {item['attempt']}"
        must(
            item["completed"] <= item["required"], "G4", f"{told} was counted {item['completed']} of {item['required']}"
        )
        must((item["status"] == "leased") <= bool(item["worker"]), "G10", f"{told} is leased to nobody")
        if item["started"] is not None and item["kind"] not in SET_IN_PLACE:
            must(item["started"] >= item["due"], "G6", f"{told} started {item['due'] - item['started']} us early")
    _recorded_once(named, work)
    _is_without_gaps(named, "history", run["entries"], [row["sequence"] for row in rows.of("history", id)], run)
    if run["model"] == "decider":
        _is_without_gaps(named, "stream", run["base"], [row["sequence"] for row in rows.of("stream", id)], run)
    if run["model"] == "graph" and run["status"] != "pending":
        steps = sorted(row["step"] for row in rows.of("checkpoints", id))
        must(steps == list(range(steps[0] if steps else 0, run["base"] + 1)), "I44", f"{named} has checkpoints {steps}")


def _recorded_once(named: str, work: list[Row]) -> None:
    attempts: dict[str, list[Row]] = defaultdict(list)
    for item in sorted(work, key=lambda item: item["attempt"]):
        attempts[item["node"]].append(item)
    for node, items in attempts.items():
        numbers = [item["attempt"] for item in items]
        first = numbers[0]  # of a function's call 2, if the first attempt was made by its driver
        must(numbers == list(range(first, first + len(items))), "G2", f"{named}: {node} has the attempts {numbers}")
        done = [item["attempt"] for item in items if item["status"] == "completed"]
        must(done in ([], numbers[-1:]), "G2", f"{named}: {node} was completed in the attempts {done} of {numbers}")


def _is_without_gaps(named: str, what: str, last: int, found: list[int], run: Row) -> None:
    found.sort()
    must(len(set(found)) == len(found), "G2", f"{named}: a number of its {what} was given twice: {found}")
    ends = found[-1] if found else 0
    must(ends == last, "G10", f"{named} says its {what} ends at {last}, and it ends at {ends}")
    if what == "stream":
        must(
            found == list(range(1, last + 1)), "G10", f"{named} says its {what} has {last} entries, and it has {found}"
        )


def finished(rows: Rows) -> set[tuple[str, str]]:
    """What is recorded as completed, as run and node: nobody may do it again."""
    done = {
        (item["run"], item["node"]) for item in rows["work"] if item["status"] == "completed" and item["kind"] != "turn"
    }
    for entry in rows["history"]:
        if entry["kind"] == "result":  # of a function's call: address, kind and so on, in msgpack
            done.add((entry["run"], msgspec.msgpack.decode(entry["data"])[0]))
    return done


def not_again(left: Rows, lines: list[Line], life: int) -> None:
    """G3: what was recorded when a process died is not executed by those who come after it."""
    done = finished(left)
    again = [line.facts for line in lines if line.kind == "ran" and line.life > life and tuple(line.facts[1:3]) in done]
    must(not again, "G3", f"executed again although it was recorded: {again}")


def at_the_end(scenario: Scenario, rows: Rows, lines: list[Line], deaths: int) -> None:
    """All promises, when somebody has finished what was begun."""
    as_left(rows)
    _acknowledged_runs_exist(rows, lines, scenario)
    for key, wanted in scenario.results.items():
        found = [run for run in rows["runs"] if run["key"] == key]
        must(len(found) == 1, "G1", f"there are {len(found)} runs under the key {key}")
        _ended_as_wanted(rows, found[0], wanted)
    _done_as_often_as_it_should(scenario, lines, deaths)
    _done_in_order(scenario, lines)
    _nothing_after_a_cancel(lines)
    leased = [
        (row["node"], row["worker"])
        for row in rows["work"]
        if row["status"] == "leased" and row["kind"] != "projection"
    ]
    must(not leased, "G9", f"still leased when all workers have stopped: {leased}")
    if scenario.check is not None:
        scenario.check(rows, lines)


def nobody_is_enrolled(rows: Rows) -> None:
    """G9: those who stopped have said so, and those who died have been noticed."""
    must(not rows["workers"], "G9", f"workers are still enrolled when all have stopped: {len(rows['workers'])}")


def _acknowledged_runs_exist(rows: Rows, lines: list[Line], scenario: Scenario) -> None:
    ids: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line.kind == "ack" and line.facts[0] == "start":
            ids[line.facts[1]].add(line.facts[2])
    for key, found in ids.items():
        must(len(found) == 1, "G1", f"starts under the key {key} were acknowledged as {found}")
        if key in scenario.results:
            must(
                any(run["id"] in found for run in rows["runs"]), "G1", f"{key} was acknowledged as {found}, and is gone"
            )


def _ended_as_wanted(rows: Rows, run: Row, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        must(run["status"] == wanted[1], "G9", f"{run['key']} is {run['status']}, not {wanted[1]}: {run['reason']}")
        return
    must(run["status"] == "completed", "G9", f"{run['key']} is {run['status']}: {run['reason']} {run['error']}")
    must(rows.result(run) == wanted, "G2", f"{run['key']} gave {rows.result(run)}, not {wanted}")


def _done_as_often_as_it_should(scenario: Scenario, lines: list[Line], deaths: int) -> None:
    ran = Counter(line.facts[0] for line in lines if line.kind == "ran")
    for label, times in scenario.does.items():
        least, most = times if isinstance(times, tuple) else (times, times)
        told = f"{label} was executed {ran[label]} times, not {times}, with {deaths} deaths"
        must(ran[label] >= least, "G3", told)
        must(ran[label] <= (most + deaths if most else 0), "G3", told)


def _done_in_order(scenario: Scenario, lines: list[Line]) -> None:
    first_begun: dict[str, int] = {}
    first_done: dict[str, int] = {}
    for place, line in enumerate(lines):
        if line.kind == "ran":
            first_begun.setdefault(line.facts[0], place)
        elif line.kind == "done":
            first_done.setdefault(line.facts[0], place)
    for before, after in scenario.order:
        must(first_done[before] < first_begun[after], "G4", f"{after} began before {before} was done")


def _nothing_after_a_cancel(lines: list[Line]) -> None:
    cancelled: dict[str, int] = {}
    for line in lines:
        if line.kind == "ack" and line.facts[0] == "cancel":
            cancelled.setdefault(line.facts[2], line.life)
        elif line.kind == "ran" and cancelled.get(line.facts[1], line.life) < line.life:
            label = line.facts[0]
            must(label in ("cleaned", "undo"), "G7", f"{label} was executed after the cancel was acknowledged")
