"""What the tables say about tills, read with SQL of its own and folded by rules of its own: it shares no code with src.

A till (`tests/deciders/tills.py`) is a decider whose events name the input that they came from and the balance after
it. So the stream alone shows in which order inputs were accepted, and whatever was lost, applied twice or decided on a
stale state contradicts it. `check` may be called at any moment between two commits, also right after a crash.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import asyncpg

IDLE_US = 30_000
"""A till rests when there was no deposit for this long, and once more after that."""
NO_COMMAND = "free-"
"""Ids of inputs that begin like this were given without a command id."""

Row = dict[str, Any]
ROWS_OF = {
    "stream": "SELECT * FROM stream WHERE run = $1 ORDER BY sequence",
    "work": "SELECT * FROM work WHERE run = $1 ORDER BY node, attempt",
    "inbox": "SELECT * FROM events WHERE name = 'input' AND target = $1 AND status = 'queued' ORDER BY at, id",
    "commands": "SELECT * FROM inputs WHERE scope = $1",
    "observations": "SELECT * FROM observations WHERE run = $1 ORDER BY number",
    "snapshots": "SELECT * FROM snapshots WHERE run = $1",
}
OPEN = ("blocked", "ready", "leased")
ACTIVE = ("ready", "leased")
INPUT_OF = {
    "Deposited": "Deposit",
    "Withdrawn": "Withdraw",
    "Refused": "Withdraw",
    "Receipted": "Printed",
    "Rested": "Idle",
    "Checked": "Check",
    "Closed": "Close",
}
"""The first event of every decision, and the input that is decided so. `Audited` only ever follows `Closed`."""
SOURCE_OF = {"Printed": "effect", "Idle": "timer", "Check": "timer"}


@dataclass(slots=True)
class Books:
    """Every row of one till."""

    run: Row
    stream: list[Row]
    work: list[Row]
    inbox: list[Row]
    commands: list[Row]
    observations: list[Row]
    snapshots: list[Row]


class Reader:
    """A connection of its own to the database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._postgres: Any = None
        self._sqlite: sqlite3.Connection | None = None

    async def __aenter__(self) -> Self:
        if self._url.startswith("postgres"):
            self._postgres = await asyncpg.connect(self._url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._postgres is not None:
            await self._postgres.close()
        if self._sqlite is not None:
            self._sqlite.close()

    async def till(self, key: str) -> Books | None:
        """One till; None if it was given nothing yet."""
        for run in await self._fetch("SELECT * FROM runs WHERE workflow = 'till' AND key = $1", key):
            return Books(run, **{name: await self._fetch(sql, run["id"]) for name, sql in ROWS_OF.items()})
        return None

    async def all_tills(self) -> dict[str, Books]:
        """Every till by its key. Not of one moment: for when nothing is going on."""
        keys = [row["key"] for row in await self._fetch("SELECT key FROM runs WHERE workflow = 'till'")]
        found = {key: await self.till(key) for key in keys}
        return {key: books for key, books in found.items() if books is not None}

    async def _fetch(self, sql: str, *args: Any) -> list[Row]:
        if self._postgres is not None:
            return [dict(row) for row in await self._postgres.fetch(sql, *args)]
        if self._sqlite is None:  # not before somebody has made the file
            self._sqlite = sqlite3.connect(self._url.removeprefix("sqlite:///"), isolation_level=None)
            self._sqlite.row_factory = sqlite3.Row
        return [dict(row) for row in self._sqlite.execute(sql.replace("$1", "?"), args)]


# --- the fold ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """A till as its stream tells it."""

    balance: int = 0
    status: str = "open"
    rests: int = 0  # how often it will rest
    waiting: int = 0  # receipts and checks that are still to come
    accepted: list[tuple[str, str]] = field(default_factory=list)  # type and id of every input, in order
    effects: dict[str, Row] = field(default_factory=dict)  # by node: the payload
    answers: Counter[str] = field(default_factory=Counter)  # by node: how often the answer of an effect was accepted
    timers: dict[str, tuple[Row, int]] = field(default_factory=dict)  # set now, by node: payload and due time
    timers_gone: dict[str, str] = field(default_factory=dict)  # by node: what its row says when it is not set
    owed: str | None = None  # the cause of a decision that cancels the timer, until the record of that follows
    states: dict[int, Row] = field(default_factory=dict)  # by sequence
    queued: list[str] = field(default_factory=list)  # ids of what waits in the inbox, oldest first

    def state(self) -> Row:
        return {"balance": self.balance, "status": self.status, "rests": self.rests, "waiting": self.waiting}

    @property
    def closed(self) -> bool:
        return self.status == "closed"

    def client_ids(self) -> list[str]:
        """Ids of what clients gave, in the order in which it was applied."""
        return [id for kind, id in self.accepted if kind not in SOURCE_OF]


def fold(stream: list[Row]) -> Tally:
    """Replay a stream. Every event must be what a till decides on its input in the state before it."""
    tally, position, before = Tally(), 0, Row()
    for number, fact in enumerate(stream, start=1):
        assert fact["sequence"] == number, f"a gap: number {number} of the stream has sequence {fact['sequence']}"
        assert fact["position"] > position, f"positions go backwards: {fact}"
        position = fact["position"]
        data = json.loads(fact["data"])
        if fact["system"]:
            assert (fact["type"], data) == ("TimerCancelled", {"key": "idle"}), fact
            assert tally.owed == fact["cause"], f"cancelled, and nobody asked for it: {fact}"
            tally.owed = None
            del tally.timers["timer/idle"]
            tally.timers_gone["timer/idle"] = "cancelled"
        elif fact["type"] == "Audited":
            assert (before["type"], before["cause"]) == ("Closed", fact["cause"]), f"half a decision: {before}, {fact}"
            assert data["balance"] == tally.balance, f"{fact} with a balance of {tally.balance}"
        else:
            _is_whole(tally, before)
            _decided(tally, fact, data)
        tally.states[number], before = tally.state(), fact
    _is_whole(tally, before)
    return tally


def _is_whole(tally: Tally, last: Row) -> None:
    """What the decision before this one wrote is all there."""
    assert last.get("type") != "Closed", f"half a decision: there is no audit after {last}"
    assert tally.owed is None, f"the timer was to be cancelled, and the stream does not say so: {last}"


def _decided(tally: Tally, fact: Row, data: Row) -> None:
    kind, id, before = fact["type"], data["id"], tally.balance
    assert not tally.closed, f"accepted after the end: {fact}"
    assert (INPUT_OF[kind], id) not in tally.accepted or kind == "Rested", f"accepted twice: {fact}"
    tally.accepted.append((INPUT_OF[kind], id))
    first = f"{fact['sequence']}.0"
    if kind == "Deposited":
        tally.balance, tally.rests, tally.waiting = before + data["amount"], 2, tally.waiting + 1
        _asks_to_print(tally, first, id)
        _sets_timer(tally, "timer/idle", {"type": "Idle", "id": id, "round": 0}, fact["at"] + IDLE_US)
    elif kind == "Withdrawn":
        assert before >= data["amount"], f"{fact} with a balance of {before}"
        tally.balance, tally.waiting = before - data["amount"], tally.waiting + 2
        _asks_to_print(tally, first, id)
        _sets_timer(tally, f"timer/#{first}", {"type": "Check", "id": id}, fact["at"])
    elif kind == "Refused":
        assert before < data["amount"], f"{fact} with a balance of {before}"
    elif kind == "Receipted":
        tally.waiting -= 1
        assert tally.effects.get(fact["cause"]) == {"type": "Print", "id": id}, f"an answer that nobody awaits: {fact}"
        tally.answers[fact["cause"]] += 1
    elif kind == "Rested":
        tally.rests -= 1
        _fires(tally, fact, {"type": "Idle", "id": id, "round": data["round"]})
        if data["round"] == 0:
            _sets_timer(tally, "timer/idle", {"type": "Idle", "id": id, "round": 1}, fact["at"] + IDLE_US)
    elif kind == "Checked":
        tally.waiting -= 1
        _fires(tally, fact, {"type": "Check", "id": id})
    else:
        tally.status = "closed"
        tally.effects[f"effect/{first}"] = {"type": "Ring", "id": id}
        tally.effects[f"effect/{fact['sequence']}.1"] = {"type": "Print", "id": id}
        tally.owed = fact["cause"] if "timer/idle" in tally.timers else None
    if "balance" in data:
        assert data["balance"] == tally.balance, f"{fact} after a balance of {before}: decided on another state"


def _asks_to_print(tally: Tally, number: str, id: str) -> None:
    tally.effects[f"effect/{number}"] = {"type": "Print", "id": id}


def _sets_timer(tally: Tally, node: str, payload: Row, due: int) -> None:
    """Of one key the newest alone is set (I33)."""
    tally.timers[node] = payload, due


def _fires(tally: Tally, fact: Row, payload: Row) -> None:
    assert fact["cause"] in tally.timers, f"a timer that was not set has fired: {fact}"
    expected, due = tally.timers.pop(fact["cause"])
    tally.timers_gone[fact["cause"]] = "completed"
    assert expected == payload, f"not the newest timer of its key, which is {expected}: {fact}"
    assert fact["at"] >= due, f"fired {due - fact['at']} µs too early: {fact}"


# --- the rows ------------------------------------------------------------------------------------------------------


def check(books: Books) -> Tally:
    """The stream is a serial order of inputs, and every other row is what the stream asks for."""
    tally = fold(books.stream)
    latest = {row["node"]: row for row in books.work}
    _effects_are_right(tally, books, latest)
    _timers_are_right(tally, latest)
    _inbox_is_right(tally, books, latest)
    _commands_are_right(tally, books)
    _observations_are_right(tally, books)
    for row in books.snapshots:
        state = json.loads(row["state"])
        assert state == tally.states[row["sequence"]], f"the snapshot at {row['sequence']} is of another state"
    told = {name: books.run[name] for name in ("base", "remaining", "active", "mailbox", "token", "gave_up", "entries")}
    statuses = Counter(row["status"] for row in books.work)
    assert told == {
        "base": len(books.stream),
        "remaining": sum(latest[node]["status"] in OPEN for node in tally.effects),
        "active": sum(statuses[status] for status in ACTIVE),
        "mailbox": len(books.inbox),
        "token": len(tally.accepted),
        "gave_up": 0,
        "entries": len(books.observations),
    }
    assert books.run["status"] == ("completed" if tally.closed else "running")
    assert (books.run["finished"] is not None) == tally.closed
    return tally


def _effects_are_right(tally: Tally, books: Books, latest: dict[str, Row]) -> None:
    """Exactly those that the events ask for; one at a time; each answer with the end of its effect."""
    nodes = {row["node"] for row in books.work if row["kind"] == "effect"}
    assert nodes == set(tally.effects), f"asked for {sorted(tally.effects)}, stored {sorted(nodes)}"
    for node, payload in tally.effects.items():
        attempts = [row for row in books.work if row["node"] == node]
        assert [row["attempt"] for row in attempts] == list(range(1, len(attempts) + 1))
        assert {row["status"] for row in attempts[:-1]} <= {"lost"}, f"{node} went on after its end: {attempts}"
        assert attempts[-1]["status"] in (*OPEN, "completed"), attempts[-1]
        assert {row["name"] for row in attempts} == {f"till.{payload['type']}"}
        assert all(json.loads(row["payload"]) == payload for row in attempts)
        done = attempts[-1]["status"] == "completed"
        if payload["type"] == "Print" and done and not tally.closed:
            assert tally.answers[node] == 1, f"{node} is done, and its answer was accepted {tally.answers[node]} times"
        else:  # whatever it answers after the end is ignored
            assert tally.answers[node] <= done, f"{node}: {attempts[-1]['status']}, {tally.answers[node]} answers"
    open_now = [latest[node] for node in tally.effects if latest[node]["status"] in OPEN]
    running = [row["node"] for row in open_now if row["status"] in ACTIVE]
    assert len(running) == min(1, len(open_now)), f"of {len(open_now)} open effects these are on: {running}"


def _timers_are_right(tally: Tally, latest: dict[str, Row]) -> None:
    timers = {node: row for node, row in latest.items() if row["kind"] == "timer"}
    assert set(timers) == {*tally.timers, *tally.timers_gone}
    for node, row in timers.items():
        assert row["attempt"] == 1
        if node not in tally.timers:
            assert row["status"] == tally.timers_gone[node], row
            continue
        payload, due = tally.timers[node]
        stored = json.loads(row["payload"])
        assert (stored, row["due"]) == (payload | {"till": stored["till"]}, due), f"{node} is not as asked for: {row}"
        # I34: one of a till that has ended fires all the same, and what it gives is ignored.
        assert row["status"] in ACTIVE or (tally.closed and row["status"] == "completed"), row


def _inbox_is_right(tally: Tally, books: Books, latest: dict[str, Row]) -> None:
    tally.queued = waiting = [json.loads(row["payload"])["id"] for row in books.inbox]
    assert not set(waiting) & set(tally.client_ids()), f"applied, and still in the inbox: {waiting}"
    assert len(set(waiting)) == len(waiting), f"twice in the inbox: {waiting}"
    arrived = [row["at"] for row in books.inbox]
    assert arrived == sorted(set(arrived)), f"the order of arrival is not told: {arrived}"
    inbox = latest.get("inbox")
    if waiting:
        assert inbox is not None, f"nobody will look into the inbox, where {waiting} wait"
        assert inbox["status"] in ACTIVE, inbox
    elif inbox is not None:
        assert inbox["status"] == "completed", inbox


def _commands_are_right(tally: Tally, books: Books) -> None:
    """A command id is remembered in the commit that accepts its input, and in no other."""
    known = [row["id"].removeprefix("command:") for row in books.commands]
    expected = {id for id in tally.client_ids() + tally.queued if not id.startswith(NO_COMMAND)}
    assert expected <= set(known), f"not remembered: {sorted(expected - set(known))}"
    assert tally.closed or set(known) == expected, f"remembered and not accepted: {sorted(set(known) - expected)}"


def _observations_are_right(tally: Tally, books: Books) -> None:
    seen = books.observations
    assert [row["number"] for row in seen] == list(range(1, len(seen) + 1))
    applied = [row for row in seen if row["outcome"] == "applied"]
    given = [(row["type"], json.loads(row["payload"])["id"]) for row in applied]
    assert given == tally.accepted, "what was observed to be applied is not what the stream says"
    for row in applied:
        sources = {SOURCE_OF[row["type"]]} if row["type"] in SOURCE_OF else {"command", "inbox"}
        assert row["source"] in sources, row
    for row in seen:
        assert row["outcome"] in ("applied", "duplicate") or tally.closed, f"ignored before the end: {row}"


def check_finished(books: Books) -> Tally:
    """`check`, and there is nothing left to be done."""
    tally = check(books)
    open_work = [(row["node"], row["status"]) for row in books.work if row["status"] in OPEN]
    assert (open_work, books.inbox) == ([], []), f"not done: {open_work}, {len(books.inbox)} inputs wait"
    assert tally.closed or (tally.waiting, tally.rests) == (0, 0), f"not done: {tally.state()}"
    return tally
