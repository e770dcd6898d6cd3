"""Before a deploy: would the runs that are open now go on with this code? Nothing is started, and nothing is written.

The history of every function is replayed against the code of this process, up to where it is, and what it then waits
for is compared with what is stored. A flow keeps its graph, so only what that calls is looked for. A class DAG follows
its code as it changes (I31): for one of those the check says what would change, and its fields must be readable. Of a
decider a sample of everything that it has stored is read (`decider_checking`), of a state graph's run the step that is
under way (`graph_checking`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.dags import Dag
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import AllWork, ValuesOf
from holdfast.core.rows import COMPLETED, Run
from holdfast.models.flow_code import FlowNotLoaded
from holdfast.runtime.function_driver import another_python, replayed
from holdfast.store.contract import FindRuns

if TYPE_CHECKING:
    from holdfast.authoring.decider_code import BoundDecider
    from holdfast.core.flow_graph import FlowGraph
    from holdfast.engine import Engine

OPEN = ("pending", "running", "suspended", "paused", "cancelling")
PAGE = 200


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of one run: `verdict` is "fine", "changes" (a DAG that follows its class) or "breaks".

    Of a decider: what this code makes of all that it has stored, or one problem with it and a run in which it shows;
    "changes" is then what nothing fails on, and somebody should know: a stored field that is not read any more.
    """

    run: str | None
    workflow: str
    verdict: str
    difference: str = ""
    what: str = "run"  # or decider, or graph: one that no run could be started of

    @property
    def ok(self) -> bool:
        return self.verdict != "breaks"


async def check_runs(engine: Engine, workflows: Iterable[str] | None = None) -> AsyncIterator[Checked]:
    """Every open run of these workflows, or of all that are known here, with the first difference if there is one."""
    wanted = sorted(workflows) if workflows is not None else sorted(engine.registry.known_workflows())
    for workflow in wanted:
        code = engine.definitions.decider(workflow)
        if code is not None:
            async for checked in _check_decider(engine, workflow, code):
                yield checked
            continue
        broken = _broken_graph(engine, workflow)
        if broken is not None:
            yield broken
            continue
        after: str | None = None
        while True:
            rows = await engine.store.find(FindRuns(workflow=workflow, status=OPEN, limit=PAGE, after=after))
            for row in rows:
                yield await check_run(engine, row)
                await asyncio.sleep(0)  # there may be very many, and others have work to do
            if len(rows) < PAGE:
                break
            after = rows[-1].id


async def _check_decider(engine: Engine, workflow: str, code: BoundDecider) -> AsyncIterator[Checked]:
    fine = True
    from holdfast.decider_checking import problems_of

    async for problem in problems_of(engine, workflow, code):
        fine = False
        yield Checked(
            run=problem.run, workflow=workflow, verdict=problem.verdict, difference=problem.text, what="decider"
        )
    if fine and (workflow == code.name or await engine.store.find(FindRuns(workflow=workflow, limit=1))):
        yield Checked(run=None, workflow=workflow, verdict="fine", what="decider")


def _broken_graph(engine: Engine, workflow: str) -> Checked | None:
    """A state graph that `check()` finds something wrong with: none of its runs could go on, and none could start."""
    try:
        engine.definitions.state_graph(workflow)
    except HoldfastError as error:
        return Checked(run=None, workflow=workflow, verdict="breaks", difference=str(error), what="graph")
    return None


async def check_run(engine: Engine, run: Run) -> Checked:
    """One run against the code of this process."""
    if run.model == "graph":
        return await _check_graph(engine, run)
    if run.model == "flow":
        return await _check_flow(engine, run)
    if run.model != "function":
        return await _check_dag(engine, run)
    try:
        limit = engine.settings.payload_limit_bytes
        function = await replayed(engine.store, engine.definitions, engine.codecs, run, limit_bytes=limit)
    except HoldfastError as error:
        return Checked(run=run.id, workflow=run.workflow, verdict="breaks", difference=str(error))
    except Exception as error:  # a workflow's own code, run with a history that it was not written for
        return Checked(
            run=run.id, workflow=run.workflow, verdict="breaks", difference=f"{type(error).__name__}: {error}"
        )
    stuck = function.loop.stuck()
    function.evict()
    if stuck is None:
        return Checked(run=run.id, workflow=run.workflow, verdict="fine", difference=another_python(run) or "")
    return Checked(run=run.id, workflow=run.workflow, verdict="breaks", difference=stuck)


async def _check_flow(engine: Engine, run: Run) -> Checked:
    """I24: it follows the graph that it was started with, so what that calls must be here still."""
    graph = await engine.definitions.flow_graph(engine.store, run)
    if graph is None:
        told = "the graph that it was started with is neither stored nor that of this code"
        return Checked(run=run.id, workflow=run.workflow, verdict="breaks", difference=told)
    known = {*engine.registry.known_actions(), *engine.registry.known_workflows()}
    gone = sorted({node.call for node in graph.nodes if node.category in ("action", "child") and node.call} - known)
    if gone:
        told = f"its graph calls what this code does not have: {', '.join(gone)}"
        return Checked(run=run.id, workflow=run.workflow, verdict="breaks", difference=told)
    try:
        await _check_values(engine, run, graph)
    except HoldfastError as error:
        return Checked(run=run.id, workflow=run.workflow, verdict="breaks", difference=error.message)
    return Checked(run=run.id, workflow=run.workflow, verdict="fine")


async def _check_values(engine: Engine, run: Run, graph: FlowGraph) -> None:
    """What the graph's expressions name must be in the code, and what the run has stored must be readable with it."""
    from holdfast.core.flow_expression_reading import references_of

    try:
        code = engine.definitions.flow(run.workflow, graph.signature)
    except FlowNotLoaded:
        await engine.definitions.load_flow(engine.store, run.workflow, graph.signature)
        code = engine.definitions.flow(run.workflow, graph.signature)
    if code is None:
        return
    for node in graph.nodes:
        for kind, name in references_of(node.expression):
            if kind == "pure":
                code.environment.pure_function(name)
            else:
                code.environment.type_named(name)
    for value in await engine.store.rows(ValuesOf(run.id)):
        code.load(value.value)


async def _check_graph(engine: Engine, run: Run) -> Checked:
    from holdfast.graph_checking import graph_change, graph_problem

    problem = await graph_problem(engine, run)
    if problem:
        return Checked(run=run.id, workflow=run.workflow, verdict="breaks", difference=problem)
    change = graph_change(engine, run)
    return Checked(run=run.id, workflow=run.workflow, verdict="changes" if change else "fine", difference=change)


async def _check_dag(engine: Engine, run: Run) -> Checked:
    if unreadable := _unreadable_input(engine, run):
        return Checked(run=run.id, workflow=run.workflow, verdict="breaks", difference=unreadable)
    graph = engine.definitions.of_code(run.workflow)
    if run.definition is not None or graph is None or graph.signature == run.signature:
        return Checked(run=run.id, workflow=run.workflow, verdict="fine")
    latest = {work.node: work for work in await engine.store.rows(AllWork(run.id))}
    gone = [node for node, work in latest.items() if node not in graph.by_id and work.status == COMPLETED]
    dropped = [node for node, work in latest.items() if node not in graph.by_id and work.status != COMPLETED]
    told = []
    if gone:
        told.append(f"completed nodes that this code does not have: {', '.join(sorted(gone))}")
    if dropped:
        told.append(f"nodes that would be skipped: {', '.join(sorted(dropped))}")
    new = [node.name for node in graph.nodes if node.id not in latest]
    told.append(f"{len(new)} of {len(graph.nodes)} nodes of this code have not begun")
    return Checked(run=run.id, workflow=run.workflow, verdict="changes", difference="; ".join(told))


def _unreadable_input(engine: Engine, run: Run) -> str:
    """What the code of now cannot read of what the run was started with, which every attempt begins with."""
    found = engine.definitions.thing(run.workflow)
    try:
        if isinstance(found, type) and issubclass(found, Dag):
            found.decode_fields(run.input, run.codec, engine.codecs)
        elif isinstance(found, Action) and run.definition is None:
            found.call.decode_call(run.input, run.codec, codecs=engine.codecs)
    except HoldfastError as error:
        return str(error)
    return ""
