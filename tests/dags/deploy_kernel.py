"""One run of a class DAG and processes with different code of it: the kernel alone, on a clock that is turned by hand.

A `Program` is a process of a deploy: it has one version of the class, or none. Which version was seen when is what the
programs of one `Site` share, as they share a database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.coordinator import Coordinator
from holdfast.core.codec import encode_error
from holdfast.core.dag_document import graph_of_nodes, stored_nodes
from holdfast.core.graph import Graph, Node
from holdfast.core.operations import LapseWork, Operation, StartRun, StoreGraph
from holdfast.core.queries import AllWork, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    DEFINITIONS,
    FAILED,
    GAVE_UP,
    LEASED,
    OPEN_WORK,
    PAUSED,
    PENDING,
    READY,
    RUNNING,
    SATISFIED,
    Definition,
    Run,
    Wait,
    Work,
)
from holdfast.core.view import View
from holdfast.models.dag_items import method_name, node_name
from holdfast.models.decisions import decisions
from holdfast.store.contract import ClaimRequest, Store
from tests.dags.soundness import by_node
from tests.support.stores import VirtualClock

RUN, WORKFLOW, OTHER = "run", "Order", "upstream"
ERROR = encode_error(ValueError("as planned"))


def graph(**parents: str) -> Graph:
    """Nodes with what they depend on, a letter each: `graph(a="", b="a", c="ab")`."""
    return Graph(
        tuple(Node(id=name, name=name, method=name, depends_on=tuple(above)) for name, above in parents.items())
    )


UPSTREAM = Graph((Node(id=OTHER, name=OTHER, job=OTHER),))


class Program:
    """A process with one version of the class, or without any."""

    def __init__(self, code: Graph | None, seen: dict[str, int], store: Store, clock: VirtualClock) -> None:
        self.code = code
        self.coordinator = Coordinator(store, decisions(self), clock)
        self._seen = seen
        self._stored: dict[str, Graph] = {}

    # -- what the kernel asks of its code

    def graph(self, view: View, run: Run) -> Graph | None:
        if run.workflow == OTHER:
            return UPSTREAM
        if run.definition is None:
            return self.code
        stored = view.get(DEFINITIONS, (run.definition,))
        return None if stored is None else self.parsed(stored)

    def parsed(self, definition: Definition) -> Graph:
        if definition.id not in self._stored:
            self._stored[definition.id] = graph_of_nodes(definition.nodes)
        return self._stored[definition.id]

    def seen(self, run: Run, graph: Graph) -> int:
        return self._seen.get(graph.signature, 0)

    def can_run(self, work: Work) -> bool:
        return work.name in self.names()

    def names(self) -> tuple[str, ...]:
        """What a worker of this process claims."""
        nodes = () if self.code is None else self.code.nodes
        return tuple(sorted({name(WORKFLOW, node.id) for node in nodes for name in (node_name, method_name)}))


class Deploys:
    """A store, the programs on it, and the run."""

    def __init__(self, store: Store, clock: VirtualClock, first: Graph) -> None:
        self.store = store
        self.clock = clock
        self.graphs = {first.signature: first}  # every one that the run may follow
        self.programs: list[Program] = []
        self._seen: dict[str, int] = {}
        self.newest = self.deploy(first)
        self.codeless = self._program(None)

    def deploy(self, code: Graph) -> Program:
        """A process with code that is the latest from now on, also if it was there before. The run is not told yet."""
        self.graphs[code.signature] = code
        self._seen[code.signature] = 1 + max(self._seen.values(), default=0)
        self.newest = self._program(code)
        return self.newest

    def _program(self, code: Graph | None) -> Program:
        program = Program(code, self._seen, self.store, self.clock)
        self.programs.append(program)
        return program

    async def close(self) -> None:
        for program in self.programs:
            await program.coordinator.close()

    # -- what happens

    async def start(self, on_failure: str = "pause") -> None:
        assert self.newest.code is not None
        start = StartRun(
            run=RUN, workflow=WORKFLOW, model="dag", on_failure=on_failure, signature=self.newest.code.signature
        )
        await self.newest.coordinator.submit(start)

    async def start_other(self, run: str) -> None:
        """Another run, for a node to wait for: nothing happens in it until it is cancelled."""
        await self.newest.coordinator.submit(StartRun(run=run, workflow=OTHER, model="dag", paused=True))

    async def say(self, program: Program, operation: Operation) -> Any:
        """Its answer; an error is a value."""
        (answer,) = await program.coordinator.submit_batch([operation])
        return answer

    async def claim(self, program: Program, *, limit: int = 100, remember: bool = True) -> list[Work]:
        await self.store.promote(("default",))
        request = ClaimRequest(worker="w", queue="default", limit=limit, workflows=(WORKFLOW,), actions=program.names())
        handed = await self.store.claim(request)
        if remember:
            program.coordinator.remember(handed)
        return sorted((item.work for item in handed), key=lambda work: work.node)

    def import_of(self, edited: Graph, expected: str | None) -> StoreGraph:
        self.graphs[edited.signature] = edited
        return StoreGraph(run=RUN, nodes=stored_nodes(edited), signature=edited.signature, expected=expected)

    # -- what is there

    async def run(self, run: str = RUN) -> Run:
        (row,) = await self.store.runs([run])
        return row

    async def work(self) -> list[Work]:
        rows: list[Work] = await self.store.rows(AllWork(RUN))
        return rows

    async def waits(self) -> list[Wait]:
        rows: list[Wait] = await self.store.rows(WaitsOf(RUN))
        return rows

    async def states(self) -> dict[str, str]:
        """The status of every node's latest attempt."""
        return {node: mine[-1].status for node, mine in by_node(await self.work()).items()}

    async def wrong(self) -> list[str]:
        """Whatever must not be so after any operation, each as a sentence."""
        run, work = await self.run(), await self.work()
        waiting = {wait.address for wait in await self.waits()}
        shape = None if run.signature is None else self.graphs[run.signature]
        return [*_miscounted(run, work, shape), *_misplaced(run, work, shape, waiting), *_unsaid(run, work, waiting)]


def _miscounted(run: Run, work: Sequence[Work], shape: Graph | None) -> list[str]:
    latest = {node: mine[-1].status for node, mine in by_node(work).items()}
    counted = {
        "active": (run.active, sum(row.status in (READY, LEASED) for row in work)),
        "gave_up": (run.gave_up, sum(status in GAVE_UP for status in latest.values())),
    }
    if shape is not None and not run.ended:
        counted["remaining"] = (run.remaining, sum(latest.get(node) not in SATISFIED for node in shape.by_id))
    return [f"{name} is {said} and should be {found}" for name, (said, found) in counted.items() if said != found]


def _misplaced(run: Run, work: Sequence[Work], shape: Graph | None, waiting: set[str]) -> list[str]:
    """I17, G4: the first attempt counts the parents that are done, and nothing is ready before all of them are."""
    found = []
    attempts = by_node(work)
    done = {node for node, mine in attempts.items() if any(row.status in SATISFIED for row in mine)}
    for node, mine in attempts.items():
        if any(row.status in SATISFIED or row.status in OPEN_WORK for row in mine[:-1]):
            found.append(f"{node} has an attempt after one that was done or open: {[row.status for row in mine]}")
        if [row.token for row in mine] != sorted(row.token for row in mine):
            found.append(f"the tokens of {node} shrink: {[row.token for row in mine]}")
        if shape is None or node not in shape.by_id or run.ended:
            continue
        met = sum(parent in done for parent in shape.by_id[node].depends_on) if shape.by_id[node].depends_on else 1
        counts, status = (mine[0].completed, mine[0].required), mine[-1].status
        if counts != (met, shape.required(node)):
            found.append(f"{node} counts {counts} of its parents, and it is {(met, shape.required(node))}")
        if status == READY and met < shape.required(node):
            found.append(f"{node} is ready, and {met} of its {shape.required(node)} parents are done")
        if status == BLOCKED and met == shape.required(node) and node not in waiting:
            found.append(f"{node} is blocked, and nothing is before it")
        if status in (READY, LEASED) and node in waiting:
            found.append(f"{node} is {status}, and waits for another run")
    return found


def _unsaid(run: Run, work: Sequence[Work], waiting: set[str]) -> list[str]:
    """G9: a run moves, waits for something that will come, or says why it does not."""
    found = []
    if run.status in (FAILED, PAUSED) and run.reason is None:
        found.append(f"the run is {run.status} and does not say why")
    if run.ended and run.status != FAILED and (waiting or any(row.status in OPEN_WORK for row in work)):
        found.append(f"the run is {run.status}, and something of it is open or waits")
    if run.status in (PENDING, RUNNING) and run.active == 0 and not waiting and run.signature is not None:
        found.append("the run looks as if it ran, and nothing can move it")
    return found


def at(work: Work) -> dict[str, Any]:
    return {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}


def lapse(work: Work) -> LapseWork:
    return LapseWork(**at(work), lost_limit=10_000)
