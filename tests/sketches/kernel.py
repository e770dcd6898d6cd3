"""What the sketches share: a clock that stands still, leases, tables that have no migration yet, and `both_ways`.

The coordinator, the View and the memory store are the real ones. Only decisions are sketched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.coordinator import Coordinator
from holdfast.core.operations import RECORDED, REPEATED, STALE, ClaimWork, Operation, WorkOperation
from holdfast.core.rows import COMPLETED, LEASED, READY, TABLES, WORK, Key, Row, Run, Table, Work
from holdfast.core.view import View
from holdfast.store.memory import MemoryStore

NOW = 1_000_000
Decisions = Mapping[type[Operation], Any]


class Timer(Row, frozen=True, gc=False):
    """An input due later. `generation` is never used twice in a run, so what fires late matches nothing."""

    run: str
    key: str
    generation: int
    due: int
    input: str = ""


class Input(Row, frozen=True, gc=False):
    """The id of a command or event that a run has taken."""

    run: str
    id: str


TIMERS: Table[Timer] = Table("timers", Timer, ("run", "key"), "run")
INPUTS: Table[Input] = Table("inputs", Input, ("run", "id"), "run")


class StillClock:
    """Time that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = NOW

    def now_us(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return 0.0


def claim(view: View, op: ClaimWork) -> str:
    work = view.get(WORK, (op.run, op.node, op.attempt))
    if work is None or work.status != READY or work.token != op.token - 1:
        return STALE
    view.put(WORK, replace(work, status=LEASED, token=op.token, worker=op.worker, started=view.now))
    return RECORDED


def held(view: View, op: WorkOperation, *, after_end: bool = False) -> tuple[Run, Work] | str:
    """The run and item of a valid lease, or the verdict when there is none (K3, K8)."""
    run, work = view.run(op.run), view.get(WORK, (op.run, op.node, op.attempt))
    if run is None or work is None or work.token != op.token:
        return STALE
    if work.status == COMPLETED:
        return REPEATED
    if work.status != LEASED or (run.ended and not after_end):
        return STALE
    return run, work


def ready_item(run: str, node: str, payload: object = None) -> Work:
    return Work(
        run=run,
        node=node,
        attempt=1,
        workflow="sketch",
        name=node,
        status=READY,
        completed=1,
        payload=msgspec.json.encode(payload),
    )


def claims(run: str, node: str, token: int = 1) -> ClaimWork:
    return ClaimWork(run=run, node=node, attempt=1, token=token, worker="w")


class Played(NamedTuple):
    """What a list of operations answered, and every row it left."""

    results: list[Any]
    rows: dict[str, dict[Key, Any]]


async def play(
    decisions: Decisions,
    operations: Sequence[Operation],
    tables: tuple[Table[Any], ...] = (),
    *,
    size: int,
    cold: bool = False,
) -> Played:
    """Submit the operations in batches of a size; `cold` empties the cache before each batch."""
    store = MemoryStore(StillClock(), tables=TABLES + tables)
    coordinator = Coordinator(store, decisions, StillClock())
    results: list[Any] = []
    for start in range(0, len(operations), size):
        if cold:
            coordinator.cache.clear()
        results += await coordinator.submit_batch(operations[start : start + size])
    await coordinator.close()
    shown = [repr(result) if isinstance(result, BaseException) else result for result in results]
    return Played(shown, {table.name: dict(rows) for table, rows in store.tables.items()})


async def both_ways(
    decisions: Decisions, operations: Sequence[Operation], tables: tuple[Table[Any], ...] = ()
) -> Played:
    """I53 and K5: one batch, pairs, and one by one with a warm and a cold cache, all leave equal results and rows."""
    fused = await play(decisions, operations, tables, size=len(operations))
    for size, cold in ((1, False), (1, True), (2, True)):
        other = await play(decisions, operations, tables, size=size, cold=cold)
        assert other.results == fused.results, (size, cold)
        assert other.rows == fused.rows, (size, cold)
    return fused
