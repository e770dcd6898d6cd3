"""What a completion does to a flow: `analyse_subgraph` and `plan_completion`, pure functions over a graph and rows.

Every completion is planned the same way, whether an action returned, failed, a timer rang, a child ended, an element
of a spread finished or a barrier is settled (I17, I23). A plan is applied in one transaction, in this order:

1.  the completed row: refuse the plan if its token is not the stored one, or the row is gone (stale);
2.  `released`: rows of passes that are over, and of loops that were left;
3.  `inbox_writes`: each replaces the row at (target, variable, index);
4.  `readiness_increments`: make the row if there is none, with `required_count`; add `increment`; enqueue the node when
    completed equals required; more than required is an overflow and refuses the plan;
5.  `instance_completion`: the run's end, if it is still running.

A failure that a handler of the flow takes is a plan like any other: only the edges differ (I21). One that none takes
ends the run.

Values are given to and taken from the plan as Python values; `core/flow_values.py` has their bytes. The plan never
changes a value that it was given, so it can be made again after a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.core.errors import UsageError
from holdfast.core.flow_addresses import FlowAddress, address_text, parse_address
from holdfast.core.flow_expressions import Environment, evaluate
from holdfast.core.flow_graph import ENTRY, FlowGraph, FlowNode
from holdfast.core.flow_values import Raised
from holdfast.models.flow_steps import (
    Completion,
    CompletionPlan,
    FlowCall,
    FrontierNode,
    InboxRead,
    InboxReader,
    InboxWrite,
    InstanceCompletion,
    LogLine,
    ReadinessIncrement,
    Release,
    SubgraphAnalysis,
)
from holdfast.models.flow_walk import NO_INBOX, Walk

__all__ = [
    "MAX_INLINE_PASSES",
    "Completion",
    "CompletionPlan",
    "FlowCall",
    "FrontierNode",
    "InboxRead",
    "InboxReader",
    "InboxWrite",
    "InstanceCompletion",
    "LogLine",
    "ReadinessIncrement",
    "Release",
    "SubgraphAnalysis",
    "analyse_subgraph",
    "plan_completion",
    "plan_start",
]

MAX_INLINE_PASSES: Final = 100_000

# --- analysis ----------------------------------------------------------------------------------------------------


def analyse_subgraph(graph: FlowGraph, node_id: str) -> SubgraphAnalysis:
    """The inline nodes and frontier nodes that the completion of this node can reach, and the inbox rows to fetch."""
    address = parse_address(node_id)
    start = graph.node(address.node)
    found = graph.memo.get(start.id)
    if found is None:
        found = graph.memo[start.id] = _reachable(graph, start)
    inline, frontier, everything = found
    reads = tuple(
        InboxRead(address_text(start.id, address.passes[:depth]), variable, variable in graph.sequences)
        for variable, depth in graph.inbox_of(start.id).items()
    )
    return SubgraphAnalysis(inline, frontier, everything, reads)


def _reachable(graph: FlowGraph, start: FlowNode) -> tuple[tuple[str, ...], tuple[FrontierNode, ...], frozenset[str]]:
    inline: set[str] = set()
    frontier: dict[str, FrontierNode] = {}
    waiting = [edge.target for edge in graph.leaving(start.id)]
    if start.barrier is None and start.on_error is not None:
        waiting.append(start.on_error)
    while waiting:
        node = graph.node(waiting.pop())
        if node.id in inline or node.id in frontier:
            continue
        if node.on_error is not None:
            waiting.append(node.on_error)  # its expression may raise
        if node.is_frontier:
            frontier[node.id] = FrontierNode(node.id, node.category or "action", node.required)
        else:
            inline.add(node.id)
            waiting += [edge.target for edge in graph.leaving(node.id)]
    in_order = [node.id for node in graph.nodes]
    return (
        tuple(name for name in in_order if name in inline),
        tuple(frontier[name] for name in in_order if name in frontier),
        frozenset(inline) | frozenset(frontier),
    )


# --- planning ----------------------------------------------------------------------------------------------------


def plan_start(
    graph: FlowGraph, arguments: Mapping[str, Any], environment: Environment, *, max_passes: int = MAX_INLINE_PASSES
) -> CompletionPlan:
    """The plan of a new run: its input node completes with the arguments. A missing one is named at once (I19)."""
    entry = graph.node(ENTRY)
    walk = Walk(graph, ENTRY, FlowAddress(ENTRY), entry, NO_INBOX, environment, max_passes, entry, ())
    known = {parameter.name for parameter in graph.parameters}
    for name in arguments:
        if name not in known:
            raise UsageError(f"flow {graph.name} has no parameter {name!r}", hint="give only its own parameters")
    for parameter in graph.parameters:
        if parameter.name in arguments:
            value = arguments[parameter.name]
        elif parameter.is_required:
            raise UsageError(
                f"flow {graph.name} is started without its input {parameter.name!r}", hint=f"pass {parameter.name}=…"
            )
        else:
            value = evaluate(parameter.default, walk)
        walk.assign(entry, parameter.name, value)
    walk.go_on(entry)
    return walk.plan(None, True, None)


def plan_completion(
    graph: FlowGraph,
    completion: Completion,
    inbox: InboxReader,
    environment: Environment,
    *,
    max_passes: int = MAX_INLINE_PASSES,
    refused: Mapping[str, Exception] = {},
) -> CompletionPlan:
    """The plan for one completion. Changes nothing and reads nothing but `inbox`.

    `refused` says what is raised instead of beginning a node: what an earlier plan had for it can't be stored.
    """
    address = parse_address(completion.node_id)
    node = graph.node(address.node)
    success = completion.failure is None
    failure = None if completion.failure is None else Raised(completion.failure)
    result = completion.value if failure is None else failure
    if node.barrier is not None:
        return _plan_of_branch(graph, completion, node, address, result)
    passes = address.passes
    walk = Walk(graph, completion.node_id, address, node, inbox, environment, max_passes, node, passes, refused)
    if node.kind == "barrier":
        result = walk.gathered(node)
        if isinstance(result, Raised):
            failure = result
    if failure is None:
        walk.bind(node, result)
    walk.go_on(node, failure)
    return walk.plan(completion.delivery_token, success, result)


def _plan_of_branch(
    graph: FlowGraph, completion: Completion, node: FlowNode, address: FlowAddress, result: Any
) -> CompletionPlan:
    """An element ends in whatever way: its outcome is a value of the barrier, which counts it (I20)."""
    barrier = address_text(node.barrier or "", address.passes)
    return CompletionPlan(
        completed_node_id=completion.node_id,
        delivery_token=completion.delivery_token,
        success=completion.failure is None,
        result=result,
        inbox_writes=(InboxWrite(barrier, node.id, result, completion.node_id, address.index or 0),),
        readiness_increments=(ReadinessIncrement(barrier, "barrier", None),),
    )
