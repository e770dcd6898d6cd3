"""What the tables say about tills, read with SQL of its own and folded by rules of its own: it shares no code with src.

A till (`tests/deciders/tills.py`) is a decider whose events name the input that they came from and the balance after
it. So the stream alone shows in which order inputs were accepted, and anything that was lost, applied twice or decided
on a stale state contradicts it. `check` may be called at any moment between two commits, also right after a crash.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import asyncpg

IDLE_US = 30_000
"""After this long without a deposit a till rests, and once more after that."""
NO_COMMAND = "free-"
"""Ids of inputs that begin like this were given without a command id."""

Row = dict[str, Any]
TABLES = {
    "runs": "SELECT * FROM runs WHERE workflow = 'till' AND model = 'decider'",
    "stream": "SELECT * FROM stream WHERE workflow = 'till' ORDER BY run, sequence",
    "work": "SELECT * FROM work WHERE workflow = 'till' ORDER BY run, node, attempt",
    "events": "SELECT * FROM events WHERE name = 'input' AND target IS NOT NULL ORDER BY at",
    "inputs": "SELECT * FROM inputs",
    "observations": "SELECT * FROM observations WHERE workflow = 'till' ORDER BY run, number",
    "snapshots": "SELECT * FROM snapshots",
}
RUN_COLUMN = {"runs": "id", "events": "target", "inputs": "scope"}  # "run" elsewhere
OPEN = ("blocked", "ready", "leased")
INPUT_OF = {
    "Deposited": "Deposit",
    "Withdrawn": "Withdraw",
    "Refused": "Withdraw",
    "Receipted": "Printed",
    "Rested": "Idle",
    "Checked": "Check",
    "Closed": "Close",
}
"""The first event of every decision, and the input that is decided so. An audit only ever follows `Closed`."""
SOURCE_OF = {"Printed": "effect", "Idle": "timer", "Check": "timer"}


@dataclass(slots=True)
class Books:
    """Every row of one till."""

    run: Row
    stream: list[Row] = field(default_factory=list)
    work: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    inputs: list[Row] = field(default_factory=list)
    observations: list[Row] = field(default_factory=list)
    snapshots: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """A till as its stream tells it."""

    balance: int = 0
    closed: bool = False
    waiting: int = 0  # receipts, rests and checks that are still to come
    accepted: list[tuple[str, str]] = field(default_factory=list)  # type and id of every input, in order
    effects: dict[str, Row] = field(default_factory=dict)  # by node: the payload
    follow_ups: Counter[str] = field(default_factory=Counter)  # by node of the effect
    timers: dict[str, tuple[Row, int]] = field(default_factory=dict)  # set now, by node: payload and due time
    timers_ever: set[str] = field(default_factory=set)
    states: dict[int, Row] = field(default_factory=dict)  # by sequence

    def state(self) -> Row:
        return {"balance": self.balance, "status": "closed" if self.closed else "open", "waiting": self.waiting}

    def client_ids(self) -> list[str]:
        """Ids of what clients gave, in the order in which it was accepted."""
        return [id for kind, id in self.accepted if kind not in SOURCE_OF]


class Reader:
    """A connection of its own to the database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._postgres: Any = None

    async def __aenter__(self) -> Self:
        if self._url.startswith("postgres"):
            self._postgres = await asyncpg.connect(self._url.partition("?")[0])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._postgres is not None:
            await self._postgres.close()

    async def books(self) -> dict[str, Books]:
        """Every till, by its key, as of one moment."""
        tables = await self._from_postgres() if self._postgres is not None else self._from_sqlite()
        found = {row["id"]: Books(row) for row in tables["runs"]}
        for table, rows in tables.items():
            for row in rows if table != "runs" else ():
                run = row[RUN_COLUMN.get(table, "run")]
                if run in found:
                    getattr(found[run], table).append(row)
        return {books.run["key"]: books for books in found.values()}

    async def _from_postgres(self) -> dict[str, list[Row]]:
        async with self._postgres.transaction(isolation="repeatable_read", readonly=True):
            return {name: [dict(row) for row in await self._postgres.fetch(sql)] for name, sql in TABLES.items()}

    def _from_sqlite(self) -> dict[str, list[Row]]:
        db = sqlite3.connect(self._url.removeprefix("sqlite:///"), isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            db.execute("BEGIN")
            return {name: [dict(row) for row in db.execute(sql)] for name, sql in TABLES.items()}
        finally:
            db.close()


# --- the fold ------------------------------------------------------------------------------------------------------


def fold(stream: list[Row]) -> Tally:
    """Replay a stream. Every event must be what the till decides on its input in the state before it."""
    tally = Tally()
    first: Row = {}  # of the decision that an event belongs to
    position = 0
    for number, fact in enumerate(stream, start=1):
        assert fact["sequence"] == number, f"a gap: number {number} has sequence {fact['sequence']}"
        assert fact["position"] > position, f"positions go backwards at {fact}"
        position = fact["position"]
        data = json.loads(fact["data"])
        if fact["system"]:
            _timer_cancelled(tally, fact, data, first)
        elif fact["type"] == "Audited":
            assert (first["type"], first["cause"], first["sequence"]) == ("Closed", fact["cause"], number - 1), fact
            assert data["balance"] == tally.balance, f"{fact} when the balance was {tally.balance}"
        else:
            _was_cancelled_in(tally, first)
            first = fact
            _decided(tally, fact, data)
        tally.states[number] = tally.state()
    _was_cancelled_in(tally, first)
    return tally


def _decided(tally: Tally, fact: Row, data: Row) -> None:
    kind, id, before = fact["type"], data["id"], tally.balance
    assert not tally.closed, f"accepted after the end: {fact}"
    tally.accepted.append((INPUT_OF[kind], id))
    if kind == "Deposited":
        tally.balance += data["amount"]
        tally.waiting += 1 + 2 - tally.waiting_rests()
    elif kind == "Withdrawn":
        assert before >= data["amount"], f"{fact} with a balance of {before}"
        tally.balance -= data["amount"]
        tally.waiting += 2
    elif kind == "Refused":
        assert before < data["amount"], f"{fact} with a balance of {before}"
    elif kind in ("Receipted", "Rested", "Checked"):
        tally.waiting -= 1
    elif kind == "Closed":
        tally.closed = True
    if "balance" in data:
        assert data["balance"] == tally.balance, f"{fact} after a balance of {before}: decided on another state"
    _effects_of(tally, fact, data)
    _timers_of(tally, fact, data)
