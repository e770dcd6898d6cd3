"""A coordinator over a store, with a few small workflows: the kernel without engine, worker or user code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast.coordinator import Coordinator
from holdfast.core.dag_document import graph_of_nodes
from holdfast.core.graph import Graph, Node
from holdfast.core.operations import CompleteWork, Handed, Offer, Operation, StartRun
from holdfast.core.rows import Definition, Run, Work
from holdfast.core.seams import Clock
from holdfast.core.view import View
from holdfast.models.decider_code import DeciderCode
from holdfast.models.decisions import decisions
from holdfast.models.flow_code import FlowCode
from holdfast.models.folding import Folding
from holdfast.store.contract import ClaimRequest, Store
from tests.kernel import waiting_flow
from tests.kernel.little_graph import LITTLE, LittleGraph
from tests.kernel.tally import TALLY, Tally
from tests.support.stores import Site, VirtualClock

JOB = "job"


def _graph(**parents: tuple[str, ...]) -> Graph:
    return Graph(tuple(Node(id=name, name=name, job=JOB, depends_on=above) for name, above in parents.items()))


GRAPHS: Mapping[str, Graph] = {
    "solo": _graph(only=()),
    "chain": _graph(a=(), b=("a",), c=("b",)),
    "diamond": _graph(top=(), left=("top",), right=("top",), bottom=("left", "right")),
    "join": _graph(x=(), y=(), z=(), sum=("x", "y", "z"), after=("sum",)),
}


NAMES = tuple(f"{workflow}.{node.id}" for workflow, graph in GRAPHS.items() for node in graph.nodes)


class Workflows:
    """What this process knows."""

    def seen(self, run: Run, graph: Graph) -> int:
        return 0

    def graph(self, view: View, run: Run) -> Graph | None:
        return GRAPHS.get(run.workflow)

    def parsed(self, definition: Definition) -> Graph:
        return graph_of_nodes(definition.nodes)

    def can_run(self, work: Work) -> bool:
        return True

    def decider(self, workflow: str) -> DeciderCode | None:
        return Tally() if workflow == TALLY else None

    def state_graph(self, workflow: str) -> LittleGraph | None:
        return LittleGraph() if workflow == LITTLE else None

    def flow(self, workflow: str, signature: str) -> FlowCode | None:
        return waiting_flow.CODES.get(workflow)


def make_coordinator(
    store: Store, clock: Clock, *, extra: Mapping[type[Operation], Any] | None = None, **options: Any
) -> Coordinator:
    folding = Folding()
    known = decisions(Workflows(), folding=folding)
    known.update(extra or {})
    coordinator = Coordinator(store, known, clock, **options)
    coordinator.observers.append(lambda commit: folding.absorb(commit.changes))
    return coordinator


@asynccontextmanager
async def opened_kernel(
    site: Site, clock: Clock | None = None, **options: Any
) -> AsyncIterator[tuple[Coordinator, Store]]:
    """A coordinator on an open store; on a clock that stands still unless another is given."""
    clock = clock or VirtualClock()
    async with site.opened(clock) as store:
        coordinator = make_coordinator(store, clock, **options)
        try:
            yield coordinator, store
        finally:
            await coordinator.close()


def start(run: str, workflow: str = "solo", *, lease: bool = False, **fields: Any) -> StartRun:
    """A start; with `lease` its entry points are leased to the worker w at once, with token 1."""
    offer = Offer(worker="w", room=10, queues=("default",)) if lease else None
    return StartRun(run=run, workflow=workflow, model="dag", offer=offer, **fields)


def complete(run: str, node: str = "only", *, token: int = 1, attempt: int = 1, lease: bool = False) -> CompleteWork:
    offer = Offer(worker="w", room=10, queues=("default",)) if lease else None
    return CompleteWork(run=run, node=node, attempt=attempt, token=token, result=b"1", offer=offer)


def claim_request(worker: str = "w", queue: str = "default", limit: int = 1000) -> ClaimRequest:
    return ClaimRequest(worker=worker, queue=queue, limit=limit, workflows=tuple(GRAPHS), actions=NAMES)


def by_key(handed: Sequence[Handed]) -> list[Handed]:
    return sorted(handed, key=lambda item: work_key(item.work))


def work_key(work: Work) -> tuple[str, str, int]:
    return (work.run, work.node, work.attempt)
