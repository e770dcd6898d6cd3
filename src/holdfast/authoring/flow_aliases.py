"""Who else could see a change: the check behind every statement that changes a value in place.

In Python two variables may hold one object, and a change through one shows in the other. A flow stores its variables
apart, so it makes changed copies instead; that is the same only while nobody else holds the object. This file finds
out who might, and refuses the statement rather than mean something else by it.

An assignment of `e` to a variable links it with the variables that `e` shares something with (`flow_sharing.py`). A
change of what is `m` levels inside of a variable is refused if a link at most that deep was made at a node from which
the change can be reached without the variable being assigned a new value in between. Where the variable's own object
changes, and not an item of it, it must also be that a variable that is linked with it, directly or through others, is
read after the change. Arguments and results of actions are copies, so they link nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.authoring.flow_building import Building
from holdfast.authoring.flow_containers import changes_container, container_variables
from holdfast.authoring.flow_dataflow import Control
from holdfast.authoring.flow_refusals import refusal
from holdfast.authoring.flow_sharing import (
    NOTHING_SHARED,
    Known,
    Shares,
    bound_shares,
    inside_new,
    known_of,
    part_of,
    shares,
    union,
)
from holdfast.core.flow_expression_reading import pattern_names
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_graph import FlowNode

__all__ = ["with_owners"]

# What these methods are given is an item afterwards, or its items are.
_ENTERING = frozenset({"append", "insert", "setdefault"})
_WITH_KEY = frozenset({"insert", "setdefault"})
_ENTERING_ITEMS = frozenset({"extend", "update", "symmetric_difference_update"})


class _Link(NamedTuple):
    """Made by a node: `variable` at `depth` may be what `other` has at some depth."""

    node: str
    variable: str
    depth: int
    other: str


class _Change(NamedTuple):
    """Made by a node to what is `level` deep in a variable. A soft one depends on values: where those are not known
    when the flow is compiled, whether to refuse it is left to the run."""

    node: str
    variable: str
    level: int
    soft: bool


def with_owners(building: Building, control: Control, nodes: dict[str, FlowNode]) -> dict[str, FlowNode]:
    """The nodes, with every `+=` told whether it owns its list; FlowNotSupported for a change others could see."""
    changes = [change for node in nodes.values() for change in _changes(node)]
    if not changes:
        return nodes
    known = known_of(nodes.values(), building.scalar_parameters, building.scalar_results)
    links: dict[str, list[_Link]] = {}
    for node in nodes.values():
        for link in _links(node, known):
            links.setdefault(link.variable, []).append(link)
    containers = container_variables(building, nodes.values())
    walked = _walked(nodes)
    live = _live_after(control)
    made = dict(nodes)
    for change in changes:
        blame = _seen_by(control, change, links, known, live) or _walked_over(nodes, change, walked)
        if blame is None:
            if change.soft:
                made[change.node] = _owning(made[change.node])
        elif not change.soft or changes_container(nodes[change.node], containers):
            source, syntax = building.syntax[change.node]
            raise refusal(
                source,
                syntax,
                f"changing `{_shown(change.variable)}` in place",
                f"{blame} could see the change in Python, but not in a flow, which stores each variable by itself",
                "make a new value instead: `rows = rows + [x]`, `d = {**d, key: value}`, or change a copy",
            )
    return made


def _shown(variable: str) -> str:
    return variable.rpartition("/")[2]


# --- changes -----------------------------------------------------------------------------------------------------


def _changes(node: FlowNode) -> Iterator[_Change]:
    expression = node.expression
    if expression is None:
        return
    if expression[0] == "augment":
        yield _Change(node.id, node.target, 0, True)
    elif expression[0] in ("mutated", "mutated_with"):
        _, root, path, change = expression
        yield _Change(node.id, root, len(path), False)
        if change[0] == "augment":
            yield _Change(node.id, root, len(path) + 1, True)


def _owning(node: FlowNode) -> FlowNode:
    expression = node.expression
    if expression[0] == "augment":
        return msgspec.structs.replace(node, expression=(*expression[:4], True))
    change = (*expression[3][:4], True)
    return msgspec.structs.replace(node, expression=(*expression[:3], change))


def _seen_by(
    control: Control,
    change: _Change,
    links: Mapping[str, list[_Link]],
    known: Known,
    live: Mapping[str, frozenset[str]],
) -> str | None:
    near = [link for link in links.get(change.variable, ()) if link.depth <= change.level]
    if not near:
        return None
    holding = _holding(control, change, known)
    made = [link for link in near if link.node in holding]
    if any(link.other in (change.variable, "*") for link in made):
        return f"something else that holds a part of `{_shown(change.variable)}`"
    if not made:
        return None
    seers = sorted(_linked(change.variable, links) - {change.variable})
    if change.level == 0:
        # An item may be in a container twice, so deeper changes can be seen through the variable itself.
        seers = [name for name in seers if name in live[change.node]]
    named = [name for name in seers if not name.startswith("$")]
    if named:
        return f"`{_shown(named[0])}`"
    return f"something else that holds a part of `{_shown(change.variable)}`" if seers else None


def _linked(variable: str, links: Mapping[str, list[_Link]]) -> set[str]:
    """Every variable that may share something with this one, directly or through others."""
    found: set[str] = set()
    waiting = [variable]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [link.other for link in links.get(name, ())]
    return found


def _live_after(control: Control) -> dict[str, frozenset[str]]:
    """For every node the variables that may be read after it before they are assigned anew."""
    live_in: dict[str, frozenset[str]] = {name: frozenset() for name in control.nodes}
    waiting = list(control.nodes)
    while waiting:
        name = waiting.pop()
        found = control.reads(control.nodes[name])
        for step in control.steps[name]:
            found |= live_in[step.target] - step.assigns - step.forgets
        if found != live_in[name]:
            live_in[name] = found
            waiting += [before for before, _ in control.before.get(name, ())]
    return {name: frozenset().union(*(live_in[step.target] for step in control.steps[name])) for name in control.nodes}


def _holding(control: Control, change: _Change, known: Known) -> set[str]:
    """The nodes from which control can go to the change while the variable keeps its object."""
    found: set[str] = set()
    passed: set[str] = set()
    waiting = [change.node]
    while waiting:
        for name, failing in control.before.get(waiting.pop(), ()):
            found.add(name)
            node = control.nodes[name]
            rebinds = change.variable in node.assigns and not _keeps_object(node, change.variable, known)
            # A node that fails has assigned nothing.
            if name not in passed and (failing or not rebinds):
                passed.add(name)
                waiting.append(name)
    return found


def _keeps_object(node: FlowNode, variable: str, known: Known) -> bool:
    """Whether the variable may still hold a part of what it held before: `a = a`, `a = a or b`, `a += b`."""
    expression = node.expression
    if expression is None or node.is_frontier:
        return False
    if expression[0] in ("mutated", "mutated_with"):
        return bool(expression[1] == variable)
    return any(name == variable for name, _, _ in shares(expression, {}, known))


# --- lists that are walked while they change ---------------------------------------------------------------------


def _walked(nodes: Mapping[str, FlowNode]) -> dict[str, frozenset[str]]:
    """For every loop the variables that Python would walk over live."""
    sources = {node.target: node.expression for node in nodes.values() if isinstance(node.target, str)}
    found: dict[str, frozenset[str]] = {}
    for node in nodes.values():
        if node.expression is not None and node.expression[0] == "more":
            items = sources.get(node.expression[1])
            found[node.loops[-1]] = frozenset() if items is None else _live(items[2][0])
    return found


def _live(expression: Expression) -> frozenset[str]:
    head = expression[0]
    if head == "var":
        return frozenset({expression[1]})
    if head in ("item", "attr"):
        return _live(expression[1])
    if head == "method" and expression[1] in ("items", "keys", "values", "get"):
        return _live(expression[2])
    if head == "call" and expression[1] in ("enumerate", "reversed", "zip"):
        return frozenset(name for argument in expression[2] for name in _live(argument))
    if head in ("if", "and", "or", "star"):
        return frozenset(name for part in expression[1:] for name in _live(part))
    return frozenset()


def _walked_over(nodes: Mapping[str, FlowNode], change: _Change, walked: Mapping[str, frozenset[str]]) -> str | None:
    for loop in nodes[change.node].loops:
        if change.variable in walked.get(loop, ()):
            return f"the loop over `{_shown(change.variable)}`"
    return None


# --- links -------------------------------------------------------------------------------------------------------


def _links(node: FlowNode, known: Known) -> Iterator[_Link]:
    expression = node.expression
    if expression is None or node.target is None or node.is_frontier or node.fork is not None:
        return
    if expression[0] in ("mutated", "mutated_with"):
        yield from _links_of_change(node, known)
        return
    yield from _links_of_pattern(node.id, node.target, expression, known)


def _links_of_pattern(node: str, pattern: Any, expression: Expression, known: Known) -> Iterator[_Link]:
    if not isinstance(pattern, str) and expression[0] == "tuple" and len(pattern) == len(expression):
        plain = all(isinstance(part, str) or part[0] != "rest" for part in pattern[1:])
        if plain and all(part[0] != "star" for part in expression[1:]):
            for target, part in zip(pattern[1:], expression[1:], strict=True):
                yield from _links_of_pattern(node, target, part, known)
            return
    yield from _bind(node, pattern, shares(expression, {}, known))


def _bind(node: str, pattern: Any, shared: Shares) -> Iterator[_Link]:
    for name, part in bound_shares(pattern, shared):
        for other, other_depth, depth in part:
            if other == name and other_depth == depth:
                continue
            yield _Link(node, name, depth, other)
            if other != "*":
                yield _Link(node, other, other_depth, name)


def _links_of_change(node: FlowNode, known: Known) -> Iterator[_Link]:
    """What enters a container is inside of it from now on; what a method gives back came out of it."""
    _, root, path, change = node.expression
    level = len(path)
    shared, given = NOTHING_SHARED, NOTHING_SHARED
    if change[0] == "set":
        given = shares(change[2], {}, known)
        if change[1][0] == "slice":  # its items enter, not the value itself
            given = part_of(given)
        shared, given = inside_new(given), NOTHING_SHARED
    elif change[0] == "augment":
        shared = inside_new(inside_new(part_of(shares(change[3], {}, known))))
    elif change[0] == "call":
        # A key or an index holds nothing that could be changed: what can be hashed can't.
        args = change[2][1:] if change[1] in _WITH_KEY else change[2]
        parts = [part[1] if part[0] == "star" else part for part in args] + [part[2] for part in change[3]]
        given = union(shares(part, {}, known) for part in parts if part[0] != "lambda")
        if change[1] in _ENTERING:
            shared = inside_new(given)
        elif change[1] in _ENTERING_ITEMS:
            items = part_of(given)
            shared = inside_new(given) | inside_new(items) | inside_new(part_of(items))
    for other, other_depth, depth in shared:
        yield _Link(node.id, root, level + depth, other)
        if other != "*":
            yield _Link(node.id, other, other_depth, root)
    if node.expression[0] == "mutated_with":
        result = pattern_names(node.target)[1]
        taken = frozenset({(root, level + 1, 0), (root, level + 1, 1)}) | given
        yield from _bind(node.id, result, taken)
