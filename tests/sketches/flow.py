"""The flow model in one page: a compiled function as a graph, advanced by the dag's counting plus an inbox.

Every completion writes its value to the inbox of the nodes that may need it and counts them; a node runs
when its count is full. Addresses keep iterations and elements apart: `work@2[0]` is element 0 of the
spread in iteration 2.

Left out: the compiler, expressions as data (guards are Python functions here), inline nodes between two
actions, exception edges, `return_exceptions`, several variables, nested loops (`@2.0`), attempts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.core.errors import NoProgress, ReadinessOverflow
from holdfast.core.operations import RECORDED, REPEATED, ClaimWork, RunOperation, WorkOperation
from holdfast.core.rows import BLOCKED, COMPLETED, READY, RUNNING, RUNS, WORK, Row, Run, Table, Work
from holdfast.core.view import Query, View
from tests.sketches.kernel import Decisions, claim, held, ready_item

OUTPUT = "output"


class Inbox(Row, frozen=True, gc=False):
    """A value for a node: from which source, and its place among the elements of a spread."""

    run: str
    node: str
    variable: str
    source: str
    index: int = 0
    value: bytes = b"null"


INBOX: Table[Inbox] = Table("inbox", Inbox, ("run", "node", "variable", "source", "index"), "run")


class InboxOf(Query, frozen=True, gc=False):
    """What has arrived for a node, elements in index order whatever finished first (I20)."""

    table: ClassVar[Table[Any]] = INBOX
    run: str
    node: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: Inbox) -> bool:
        return row.run == self.run and row.node == self.node

    def order(self, row: Inbox) -> Any:
        return (row.index, row.source)


class Edge(NamedTuple):
    """Where control goes next. `when` None is the else branch; `loops` enters the next iteration."""

    to: str
    when: Callable[[Any], bool] | None = None
    spread: str | None = None  # the barrier that gathers the elements of `to`
    loops: bool = False


class Start(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Create a run and its first node. Identity: the run's id."""


class Finish(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """An action returned, or a barrier was claimed to be settled. Identity: the token of its lease."""

    value: msgspec.Raw = msgspec.Raw(b"null")


class FlowSketch:
    """Decisions for one compiled flow: its entry, and the edges that leave each node."""

    def __init__(self, entry: str, edges: Mapping[str, tuple[Edge, ...]]) -> None:
        self.entry = entry
        self.edges = edges
        self.barriers = {edge.spread for leaving in edges.values() for edge in leaving if edge.spread}

    def decisions(self) -> Decisions:
        return {Start: self.start, ClaimWork: claim, Finish: self.finish}

    def start(self, view: View, op: Start) -> str:
        if view.probe(RUNS, (op.run,)) is not None:
            return REPEATED
        view.insert(RUNS, Run(op.run, "sketch", "flow", status=RUNNING))
        view.insert(WORK, ready_item(op.run, self.entry))
        return RECORDED

    def finish(self, view: View, op: Finish) -> str:
        lease = held(view, op)
        if isinstance(lease, str):
            return lease
        run, work = lease
        name, iteration, index = parsed(op.node)
        value = bytes(op.value)
        if name in self.barriers:  # I23: a barrier is claimed and settled like any item; its value is its inbox
            value = b"[" + b",".join(row.value for row in view.find(InboxOf(op.run, op.node))) + b"]"
        view.put(WORK, replace(work, status=COMPLETED, result=value, finished=view.now))
        for edge in self._taken(run, name, msgspec.json.decode(value)):
            if edge.loops:
                self._release(view, work)
            following = iteration + 1 if edge.loops else iteration
            if edge.spread is not None:
                self._spread(view, op.run, edge, following, msgspec.json.decode(value))
            elif edge.to == OUTPUT:
                view.put(RUNS, replace(run, status=COMPLETED, result=value, finished=view.now))
            else:
                self._arrive(view, op, address(edge.to, following), index or 0, value)
        return RECORDED

    def _taken(self, run: Run, name: str, value: Any) -> list[Edge]:
        """I17: guards first; an else edge only when no guard passed; nothing reachable fails, it never stalls."""
        leaving = self.edges[name]
        taken = [edge for edge in leaving if edge.when is not None and edge.when(value)]
        taken = taken or [edge for edge in leaving if edge.when is None]
        if not taken:
            raise NoProgress(f"run {run.id} cannot leave node {name}: no guard holds and there is no else")
        return taken

    def _spread(self, view: View, run: str, edge: Edge, iteration: int, values: list[Any]) -> None:
        """The barrier's count is written with its elements; a spread of nothing opens it at once."""
        for index, value in enumerate(values):
            view.insert(WORK, ready_item(run, address(edge.to, iteration, index), value))
        barrier = ready_item(run, address(edge.spread or "", iteration))
        status = BLOCKED if values else READY
        view.insert(WORK, replace(barrier, kind="barrier", required=len(values), completed=0, status=status))

    def _arrive(self, view: View, op: Finish, target: str, index: int, value: bytes) -> None:
        """One value more for a node. An exclusive join requires 1, since only one of its branches was taken."""
        view.insert(INBOX, Inbox(op.run, target, "value", op.node, index, value))
        item = view.probe(WORK, (op.run, target, 1))
        if item is None:
            view.insert(WORK, replace(ready_item(op.run, target), payload=value))
            return
        if item.completed >= item.required:
            raise ReadinessOverflow(f"node {target} of run {op.run} has {item.required} parents and got one more")
        counted = item.completed + 1
        view.put(WORK, replace(item, completed=counted, status=READY if counted == item.required else BLOCKED))

    def _release(self, view: View, work: Work) -> None:
        """I18: the rows of an iteration go when the next one begins, so a long loop does not grow the run."""
        view.delete(WORK, work)
        for row in view.find(InboxOf(work.run, work.node)):
            view.delete(INBOX, row)


def address(name: str, iteration: int, index: int | None = None) -> str:
    return name + (f"@{iteration}" if iteration else "") + (f"[{index}]" if index is not None else "")


def parsed(node: str) -> tuple[str, int, int | None]:
    name, iteration, index = re.fullmatch(r"(\w+)(?:@(\d+))?(?:\[(\d+)\])?", node).groups()  # type: ignore[union-attr]
    return name, int(iteration or 0), None if index is None else int(index)
