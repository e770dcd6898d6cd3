"""Rows as decisions would make them, and what to ask a store for."""

from __future__ import annotations

from typing import Any

from holdfast.core.rows import RUNNING, Event, Fact, History, Hold, Input, Observation, Run, Snapshot, Wait, Work
from holdfast.store.contract import ClaimRequest, Store, WorkerRow
from tests.support.stores import EPOCH_US, change


def a_run(run: str = "r1", **fields: Any) -> Run:
    given: dict[str, Any] = {"status": RUNNING, "active": 0, "created": EPOCH_US, "updated": EPOCH_US}
    names = {"workflow": fields.pop("workflow", "flow"), "model": fields.pop("model", "dag")}
    return Run(id=run, **names, **(given | fields))


def an_instance(run: str = "r1", **fields: Any) -> Run:
    """The run of a decider's instance: `base` is the length of its stream."""
    return a_run(run, **({"workflow": "Order", "model": "decider", "key": run} | fields))


def a_work(run: str = "r1", node: str = "n", attempt: int = 1, **fields: Any) -> Work:
    given: dict[str, Any] = {"name": "job", "status": "ready", "completed": 1, "due": EPOCH_US, "created": EPOCH_US}
    return Work(run=run, node=node, attempt=attempt, workflow=fields.pop("workflow", "flow"), **(given | fields))


def an_entry(run: str = "r1", sequence: int = 1) -> History:
    return History(run=run, sequence=sequence, kind="noted", at=EPOCH_US, data=b'{"n":1}')


def a_wait(run: str = "r1", slot: int = 0, topic: str = "paid", since: int = EPOCH_US) -> Wait:
    return Wait(run=run, slot=slot, topic=topic, since=since)


def an_event(event: str = "e1", name: str = "paid", target: str | None = None, at: int = EPOCH_US) -> Event:
    return Event(id=event, name=name, target=target, payload=b"1", at=at)


def a_hold(scope: str = "all", name: str = "") -> Hold:
    return Hold(scope=scope, name=name, by="ann", since=EPOCH_US)


def a_worker(worker: str = "w1", **fields: Any) -> WorkerRow:
    given: dict[str, Any] = {"queues": ("default",), "workflows": ("flow",), "actions": ("job",)}
    return WorkerRow(id=worker, host="here", pid=1, **(given | fields))


def asked(worker: str = "w1", **fields: Any) -> ClaimRequest:
    given: dict[str, Any] = {"queue": "default", "limit": 10, "workflows": ("flow",), "actions": ("job",)}
    return ClaimRequest(worker=worker, **(given | fields))


def a_fact(run: str = "r1", sequence: int = 1, **fields: Any) -> Fact:
    given: dict[str, Any] = {"workflow": "Order", "key": run, "type": "Created", "at": EPOCH_US + sequence}
    return Fact(run=run, sequence=sequence, **(given | fields))


def a_snapshot(run: str = "r1", sequence: int = 1, **fields: Any) -> Snapshot:
    return Snapshot(run=run, sequence=sequence, **({"state": b"{}", "code": "c1", "at": EPOCH_US} | fields))


def an_observation(run: str = "r1", number: int = 1, **fields: Any) -> Observation:
    given: dict[str, Any] = {"workflow": "Order", "type": "Create", "at": EPOCH_US}
    return Observation(run=run, number=number, **(given | fields))


def an_input(run: str = "r1", id: str = "command:1", **fields: Any) -> Input:
    return Input(scope=run, id=id, run=run, **fields)


async def put(store: Store, *rows: Any) -> None:
    """Insert rows as a committed transaction."""
    async with store.transaction() as tx:
        await tx.write(change(insert=rows))
