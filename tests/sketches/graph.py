"""The graph model in one page: super-steps over a shared state, merged in an order that no schedule can change.

A step's items are work items; a delta is the result of one. Whoever settles the last item of a step merges all
deltas by order key, and writes the next checkpoint, its frontier and the frontier's items in that operation.

Left out: conditional edges, `Goto`, `Send` and `Stop`, reducers other than appending to lists, recorded I/O,
retries and failed items, the bound on the frontier, deltas of large states, forks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.ids import hashed
from holdfast.core.operations import RECORDED, REPEATED, ClaimWork, RunOperation, WorkOperation
from holdfast.core.queries import Attempts
from holdfast.core.rows import COMPLETED, RUNNING, RUNS, WORK, Row, Run, Table
from holdfast.core.view import View
from tests.sketches.kernel import Decisions, claim, held, ready_item

State = dict[str, list[Any]]


class Item(msgspec.Struct, frozen=True, order=True):
    """A place in a frontier; the order key comes first, so sorting items is the merge order (I39)."""

    order_key: str
    path: str
    node: str


class Checkpoint(Row, frozen=True, gc=False):
    """The state after a step, and what runs next. `identity` tells a repeated commit from a different one (I44)."""

    run: str
    step: int
    state: bytes
    frontier: tuple[Item, ...]
    identity: str


CHECKPOINTS: Table[Checkpoint] = Table("checkpoints", Checkpoint, ("run", "step"), "run")


class Start(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Create a run with the checkpoint of step 0. Identity: the run's id."""

    state: msgspec.Raw


class Finish(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A node returned its delta. Identity: the token of its lease."""

    step: int
    delta: msgspec.Raw


class GraphSketch:
    """Decisions for one graph: its entry, and for each node where it leads, in declared order."""

    def __init__(self, entry: str, edges: Mapping[str, tuple[str, ...]]) -> None:
        self.entry = entry
        self.edges = edges

    def decisions(self) -> Decisions:
        return {Start: self.start, ClaimWork: claim, Finish: self.finish}

    def start(self, view: View, op: Start) -> str:
        if view.probe(RUNS, (op.run,)) is not None:
            return REPEATED
        run = Run(op.run, "sketch", "graph", status=RUNNING)
        view.insert(RUNS, run)
        path = hashed(self.entry)
        self._checkpoint(view, run, 0, bytes(op.state), (Item(path[:16], path, self.entry),))
        return RECORDED

    def finish(self, view: View, op: Finish) -> str:
        lease = held(view, op)
        if isinstance(lease, str):
            return lease
        run, work = lease
        view.put(WORK, replace(work, status=COMPLETED, result=bytes(op.delta), finished=view.now))
        run = replace(run, active=run.active - 1)
        view.put(RUNS, run)
        if run.active == 0:
            self._end_step(view, run, op.step)
        return RECORDED

    def _end_step(self, view: View, run: Run, step: int) -> None:
        """I41 and I44: merge, checkpoint and next frontier, in the operation that settled the step's last item."""
        before = view.get(CHECKPOINTS, (run.id, step))
        if before is None:
            raise LookupError(f"run {run.id} has items of step {step} and no checkpoint for it")
        deltas = {w.node: w.result for w in view.find(Attempts(run.id, addresses(before)))}
        state: State = msgspec.json.decode(before.state)
        for item in before.frontier:
            for name, values in msgspec.json.decode(deltas[address(step, item)]).items():
                state[name] = [*state.get(name, []), *values]
        merged = msgspec.json.encode(state, order="sorted")
        frontier = self._next(before.frontier)
        self._checkpoint(view, run, step + 1, merged, frontier)
        if not frontier:
            view.put(RUNS, replace(run, status=COMPLETED, result=merged, finished=view.now))

    def _next(self, frontier: tuple[Item, ...]) -> tuple[Item, ...]:
        """Every edge is taken; a node that several edges reach in one step runs once, under all its parents' paths."""
        reached: dict[str, list[tuple[str, int]]] = {}
        for item in frontier:
            for index, node in enumerate(self.edges[item.node]):
                reached.setdefault(node, []).append((item.path, index))
        found = []
        for node, parents in reached.items():
            path = hashed(node, *(part for path, index in sorted(parents) for part in (path, str(index))))
            found.append(Item(path[:16], path, node))
        return tuple(sorted(found))

    def _checkpoint(self, view: View, run: Run, step: int, state: bytes, frontier: tuple[Item, ...]) -> None:
        identity = hashed(run.id, str(step), state.decode(), msgspec.json.encode(frontier).decode())
        view.insert(CHECKPOINTS, Checkpoint(run.id, step, state, frontier, identity))
        for item in frontier:
            view.insert(WORK, ready_item(run.id, address(step, item)))
        view.put(RUNS, replace(run, active=len(frontier)))


def address(step: int, item: Item) -> str:
    return f"{step}/{item.order_key}/{item.node}"


def addresses(checkpoint: Checkpoint) -> frozenset[str]:
    return frozenset(address(checkpoint.step, item) for item in checkpoint.frontier)
