"""Completions of a flow that are planned later, or once more: by somebody who has the code, or after a failure.

A completion is recorded by whoever ran the action. Planning what follows needs the code that the run's graph names,
which a worker of another deploy may lack: then an item of its own, under the name of the graph's version, is left for
a worker that has it (I8). The same kind of item stands for a computation that failed the run, so that a retry plans
from the same completion again. Where a gather failed the run, its failed elements are what a retry tries again.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.codec_failure import ErrorRecord, encode_record
from holdfast.core.errors import RunError
from holdfast.core.flow_addresses import FlowAddress, parse_address
from holdfast.core.flow_graph import ENTRY, FlowGraph
from holdfast.core.queries import AllWork, Attempts
from holdfast.core.rows import BARRIER, COMPLETED, FAILED, GAVE_UP, READY, SETTLE, WORK, Run, Work
from holdfast.core.view import View
from holdfast.models.dag_items import version_name
from holdfast.models.delivery import gate_for
from holdfast.models.machine import TAKEN, Handing, new_attempt, was_taken

__all__ = ["blame", "leave_to_others", "origin_of", "reopened"]

GATHER_FAILED = "gather failed"
"""Stands where the parents' hash of a DAG's attempt does: this barrier opens again when its elements are retried."""


def leave_to_others(view: View, run: Run, work: Work) -> Run:
    """The completion is recorded; what follows from it is for a worker that has this version. The caller writes it."""
    if work.status in GAVE_UP:
        view.put(WORK, replace(work, parents=TAKEN))
        run = replace(run, gave_up=run.gave_up - 1, error=None, reason=None)
    item = _item(view, run, work.node, work.attempt + 1, work.node)
    item = replace(item, name=version_name(run.workflow, run.signature or ""), status=READY)
    view.insert(WORK, replace(item, gate=gate_for(run, view.now, view.now)))
    return replace(run, active=run.active + 1)


def origin_of(view: View, run: Run, work: Work) -> Work | None:
    """The attempt whose completion is to be planned; None for the start of the run."""
    if work.kind != SETTLE:
        return work
    node = (work.payload or b"").decode()
    if node == ENTRY:
        return None
    attempts: list[Work] = view.find(Attempts(run.id, frozenset({node})))
    found = [each for each in attempts if each.kind != SETTLE]
    if not found:
        raise RunError(f"node {node} of run {run.id}, from which it is to go on, is not stored any more")
    return found[-1]


def blame(view: View, run: Run, graph: FlowGraph, node_id: str, completed: str, failure: ErrorRecord | None) -> Run:
    """Note what a retry of a run that failed here has to try again. The caller writes the run."""
    address = parse_address(node_id)
    node = graph.by_id.get(address.node)
    if node is not None and node.kind == "barrier" and node_id == completed:
        return _blame_elements(view, run, frozenset(node.branches), address)
    latest: list[Work] = view.find(Attempts(run.id, frozenset({node_id})))
    if node_id == completed and latest and latest[-1].status in GAVE_UP:
        return run  # an action, which is tried again itself
    if node is not None and node.expression is not None and node.expression[0] == "raise":
        return run  # the flow's own decision, which it would make again
    if node is None or node.is_frontier:  # the arguments of what has not begun: an address of their own
        node_id = str(FlowAddress(f"computing {address.node}", address.passes))
        latest = view.find(Attempts(run.id, frozenset({node_id})))
    if latest:  # it is being tried again, and failed again
        item = replace(latest[-1], status=FAILED, finished=view.now)
        view.put(WORK, replace(item, error=None if failure is None else encode_record(failure)))
    else:
        item = _item(view, run, node_id, 1, completed)
        item = replace(item, status=FAILED, started=view.now, finished=view.now)
        view.insert(WORK, replace(item, error=None if failure is None else encode_record(failure)))
    return replace(run, gave_up=run.gave_up + 1)


def _item(view: View, run: Run, node: str, attempt: int, completed: str) -> Work:
    return Work(
        run=run.id,
        node=node,
        attempt=attempt,
        workflow=run.workflow,
        kind=SETTLE,
        name=run.workflow,
        completed=1,
        queue=run.queue,
        priority=run.priority,
        due=view.now,
        payload=completed.encode(),
        created=view.now,
    )


def _blame_elements(view: View, run: Run, branches: frozenset[str], barrier: FlowAddress) -> Run:
    latest: dict[str, Work] = {}
    for work in view.find(AllWork(run.id)):
        latest[work.node] = work
    for work in latest.values():
        place = parse_address(work.node)
        if place.node in branches and place.passes == barrier.passes and was_taken(work) and work.status in GAVE_UP:
            view.put(WORK, replace(work, parents=None))
            run = replace(run, gave_up=run.gave_up + 1)
    settled = latest[str(barrier)]
    view.put(WORK, replace(settled, parents=GATHER_FAILED))
    return run


def reopened(view: View, run: Run, node_id: str, handing: Handing) -> Run | None:
    """An element of a gather that had failed the run has ended again: with the last of them its barrier opens again.

    None if this barrier has not failed the run: then one predecessor more is one too many.
    """
    attempts: list[Work] = view.find(Attempts(run.id, frozenset({node_id})))
    last = attempts[-1]
    if last.kind != BARRIER or last.status != COMPLETED or last.parents != GATHER_FAILED:
        return None
    if run.active > 0:  # control is single: whatever is under way are elements that are tried again
        return run
    view.put(WORK, replace(last, parents=None))
    return new_attempt(view, run, replace(last, parents=None), handing, due=view.now, failures=0, losses=0)
