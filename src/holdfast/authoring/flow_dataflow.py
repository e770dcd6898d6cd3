"""After the nodes are made: drop what can't be reached, find variables that may be unbound, and draw the data edges.

Control is a graph whose nodes are reached, then left. An inline node that raises has assigned nothing, or some of what
it `keeps`: then there are two values that can be the latest one, its own and the one of before. A frontier node
has two moments: it is reached (its arguments are computed) and, in a later completion, it is left (its result is
assigned). What the code between two frontier nodes reads and does not assign itself must be in the inbox of the first
of them; every assignment that can still be the latest one at that moment gets an edge to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast.authoring.flow_building import Building
from holdfast.core.flow_graph import ENTRY, DataEdge, FlowNode, OrderEdge

__all__ = [
    "Control",
    "Step",
    "data_edges",
    "may_be_unbound",
    "with_kept_parts",
    "without_needless_checks",
    "without_unreachable",
]

# What changes one item after the other may fail half way: these methods, and `|=` of a dict. `+=` takes no generators.
_BY_PARTS = frozenset({"difference_update", "extend", "sort", "update", "|"})


class Step(NamedTuple):
    """One move of control: an order edge, or the way of a failure."""

    target: str
    assigns: frozenset[str]
    """What is assigned on the way: by leaving normally, or by the handler that takes the failure."""
    forgets: frozenset[str]
    back: str | None
    failing: bool = False
    may_assign: frozenset[str] = frozenset()
    """What a failing node may have assigned, or not."""


@dataclass(slots=True)
class Control:
    """The nodes with all moves between them."""

    nodes: Mapping[str, FlowNode]
    steps: dict[str, list[Step]] = field(default_factory=dict)
    before: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    """For every node those that control may come from, and whether by failing."""
    _reads: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Mapping[str, FlowNode], edges: Iterable[OrderEdge], parameters: frozenset[str]) -> Control:
        """The moves of these nodes and edges; the input assigns the parameters."""
        control = cls(nodes, {name: [] for name in nodes})
        for edge in edges:
            source = nodes[edge.source]
            names = parameters if source.id == ENTRY else frozenset(source.assigns)
            forgets = frozenset[str]()
            if source.expression is not None and source.expression[0] == "unbound":
                names, forgets = forgets, names
            control.steps[source.id].append(Step(edge.target, names, forgets, edge.back))
        for node in nodes.values():
            if node.on_error is not None:
                catches = nodes[node.on_error].catches
                assigned = frozenset({catches}) if catches is not None else frozenset()
                step = Step(node.on_error, assigned, frozenset(), None, failing=True, may_assign=frozenset(node.keeps))
                control.steps[node.id].append(step)
        for name, steps in control.steps.items():
            for step in steps:
                control.before.setdefault(step.target, []).append((name, step.failing))
        return control

    def reads(self, node: FlowNode) -> frozenset[str]:
        """What is read when a node is reached. A fork computes the arguments of its branches."""
        found = self._reads.get(node.id)
        if found is None:
            found = frozenset() if node.barrier is not None else node.reads
            for branch in node.fork or ():
                found |= self.nodes[branch].reads
            self._reads[node.id] = found
        return found


def without_unreachable(building: Building) -> tuple[dict[str, FlowNode], list[OrderEdge]]:
    """The nodes that control can reach from the input, and the edges between them."""
    following: dict[str, set[str]] = defaultdict(set)
    for edge in building.edges:
        following[edge.source].add(edge.target)
    for node in building.nodes.values():
        if node.on_error is not None:
            following[node.id].add(node.on_error)
    reached: set[str] = set()
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += following[name]
    nodes = {name: node for name, node in building.nodes.items() if name in reached}
    return nodes, [edge for edge in building.edges if edge.source in reached]


def may_be_unbound(control: Control, parameters: frozenset[str]) -> dict[str, frozenset[str]]:
    """For every node the variables it reads that some way to it has not assigned."""
    everything = parameters | {name for steps in control.steps.values() for step in steps for name in step.assigns}
    bound: dict[str, frozenset[str]] = {ENTRY: frozenset()}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        for step in control.steps[name]:
            after = (bound[name] | step.assigns) - step.forgets
            known = bound.get(step.target)
            met = after if known is None else known & after
            if known is None or met != known:
                bound[step.target] = met
                waiting.append(step.target)
    return {
        name: control.reads(node) - bound.get(name, everything)
        for name, node in control.nodes.items()
        if control.reads(node) - bound.get(name, everything)
    }


def without_needless_checks(
    nodes: dict[str, FlowNode], edges: list[OrderEdge], unbound: Mapping[str, frozenset[str]]
) -> tuple[dict[str, FlowNode], list[OrderEdge]]:
    """Without the nodes that only check a variable that always has a value, or forget one that is never read so."""
    doubtful = frozenset(name for names in unbound.values() for name in names)
    needless: set[str] = set()
    kept: dict[str, FlowNode] = {}
    for node in nodes.values():
        only_checks = (
            node.kind == "expression" and node.target is None and node.expression and node.expression[0] == "var"
        )
        if only_checks and node.id not in unbound:
            needless.add(node.id)
            continue
        if node.expression is not None and node.expression[0] == "unbound":
            names = tuple(name for name in node.assigns if name in doubtful)
            if not names:
                needless.add(node.id)
                continue
            node = msgspec.structs.replace(node, expression=("unbound", len(names)), target=("tuple", *names))
        kept[node.id] = node
    onward = {edge.source: edge for edge in edges if edge.source in needless}
    shorter: list[OrderEdge] = []
    for edge in edges:
        if edge.source in needless:
            continue
        target, back = edge.target, edge.back
        while target in needless:
            following = onward[target]
            target, back = following.target, back or following.back
        shorter.append(OrderEdge(edge.source, target, edge.when, back))
    return kept, shorter


def with_kept_parts(nodes: Mapping[str, FlowNode]) -> dict[str, FlowNode]:
    """The nodes; those that can fail half way, with a handler around, know which variables they change then."""
    return {
        name: node if node.on_error is None else msgspec.structs.replace(node, keeps=_kept(node))
        for name, node in nodes.items()
    }


def _kept(node: FlowNode) -> tuple[str, ...]:
    target = node.target
    expression: Any = node.expression or ("const", None)
    head, *parts = expression
    if target is None or node.is_frontier or node.fork is not None:
        return ()
    if head == "augment":
        return node.assigns if parts[0] in _BY_PARTS else ()
    if head in ("mutated", "mutated_with"):
        change = parts[2]
        return node.assigns[:1] if change[0] in ("augment", "call") and change[1] in _BY_PARTS else ()
    inner = [part for part in target[1:] if isinstance(part, tuple)]
    is_nested = any(part[0] == "tuple" or isinstance(part[1], tuple) for part in inner)
    return node.assigns if is_nested else ()


def data_edges(control: Control, parameters: frozenset[str]) -> tuple[DataEdge, ...]:
    """Every way of a value from where it is assigned to a frontier node after which it may be read."""
    needed = _needed_after(control)
    found: dict[tuple[str, str, str], int] = {}
    for source, node in control.nodes.items():
        assigned: dict[str, list[Step]] = defaultdict(list)
        for step in control.steps[source]:
            for name in step.assigns | step.forgets | step.may_assign:
                assigned[name].append(step)
        for name, steps in assigned.items():
            for step in steps:
                # A caught failure belongs to the handler: it is assigned by whoever fails, noted under the handler.
                caught = node.on_error is not None and control.nodes[node.on_error].catches == name
                origin = step.target if caught and step.target == node.on_error else source
                _spread_out(control, origin, node, step, name, needed, found)
    for fork in control.nodes.values():
        for step in control.steps[fork.id] if fork.fork is not None else ():
            barrier = control.nodes[step.target]
            if barrier.shape is not None:  # the barrier itself reads it
                found[fork.id, barrier.id, barrier.shape] = len(barrier.loops)
    depths: dict[tuple[str, str], int] = {}
    for (_, target, name), depth in found.items():
        depths[target, name] = min(depth, depths.get((target, name), depth))
    return tuple(DataEdge(source, target, name, depths[target, name]) for source, target, name in sorted(found))


def _needed_after(control: Control) -> dict[str, frozenset[str]]:
    """For every frontier node what the code after it reads before it assigns it, up to the next frontier node."""
    needed: dict[str, frozenset[str]] = {name: frozenset() for name in control.nodes}
    order = list(control.nodes)
    changed = True
    while changed:
        changed = False
        for name in reversed(order):
            wanted: frozenset[str] = frozenset()
            for step in control.steps[name]:
                target = control.nodes[step.target]
                inside = control.reads(target)
                if target.is_frontier:
                    if target.on_error is not None and target.kind != "barrier":
                        inside |= needed[target.on_error] | control.reads(control.nodes[target.on_error])
                        catches = control.nodes[target.on_error].catches
                        inside -= frozenset({catches}) if catches is not None else frozenset()
                else:
                    inside |= needed[step.target]
                wanted |= inside - step.assigns - step.forgets
            if wanted != needed[name]:
                needed[name] = wanted
                changed = True
    return {name: names for name, names in needed.items() if control.nodes[name].is_frontier}


def _spread_out(
    control: Control,
    origin: str,
    source: FlowNode,
    first: Step,
    name: str,
    needed: Mapping[str, frozenset[str]],
    found: dict[tuple[str, str, str], int],
) -> None:
    """Follow a value until it is assigned anew; note every frontier node that needs it and the passes they share."""
    seen: dict[str, int] = {}
    waiting = [(first, _shared(control, source, first, len(source.loops)))]
    while waiting:
        step, depth = waiting.pop()
        known = seen.get(step.target)
        if known is not None and known <= depth:
            continue
        seen[step.target] = depth
        target = control.nodes[step.target]
        if name in needed.get(target.id, ()):
            key = (origin, target.id, name)
            found[key] = min(depth, found.get(key, depth))
        for following in control.steps[target.id]:
            if name not in following.assigns and name not in following.forgets:
                waiting.append((following, _shared(control, target, following, depth)))


def _shared(control: Control, source: FlowNode, step: Step, depth: int) -> int:
    """How many of the outermost loops are still in the same pass after this step."""
    target = control.nodes[step.target]
    common = 0
    for one, other in zip(source.loops, target.loops, strict=False):
        if one != other:
            break
        common += 1
    if step.back is not None:
        common = min(common, target.loops.index(step.back))
    return min(depth, common)
