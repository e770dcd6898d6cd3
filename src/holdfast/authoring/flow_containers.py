"""Which `+=` surely changes a list, a set or a dict in place, whatever the values are when the flow runs.

Of a number it makes another number, so what a run will do is unknown in general. It is known where every value that
the variable is ever assigned is a container, and where the other operand fits nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from holdfast.authoring.flow_building import Building
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_graph import FlowNode

__all__ = ["changes_container", "container_variables"]

_KINDS = frozenset({"dict", "list", "set"})


def container_variables(building: Building, nodes: Collection[FlowNode]) -> frozenset[str]:
    """Variables that hold containers only. Annotations say so of parameters and results."""
    found = {name for node in nodes for name in node.assigns}
    found = (found - building.scalar_parameters.keys()) | building.container_parameters
    while True:
        wrong = {
            name
            for node in nodes
            for name, is_container in _assigned(node, building.container_results, found)
            if name in found and not is_container
        }
        if not wrong:
            return frozenset(found)
        found -= wrong


def changes_container(node: FlowNode, containers: Collection[str]) -> bool:
    """Whether the augmented assignment of this node can be nothing else than a change in place."""
    if node.expression[0] == "augment":
        _, symbol, left, operand, _ = node.expression
        if _is_container(left, containers):
            return True
    else:
        _, symbol, _, operand, _ = node.expression[3]
    return (symbol == "+" and _is_made(operand, "list")) or (symbol == "|" and _is_made(operand, "dict"))


def _assigned(node: FlowNode, results: Collection[str], found: Collection[str]) -> Iterator[tuple[str, bool]]:
    pattern, expression = node.target, node.expression
    if node.is_frontier:
        yield from ((name, node.id in results) for name in node.assigns)
    elif expression is None or pattern is None or expression[0] == "unbound":
        return
    elif isinstance(pattern, str):
        yield pattern, _is_container(expression, found)
    elif expression[0] == "mutated_with":
        yield pattern[1], True
        yield pattern[2], False
    elif expression[0] == "tuple" and len(expression) == len(pattern):
        for target, part in zip(pattern[1:], expression[1:], strict=True):
            if isinstance(target, str):
                yield target, _is_container(part, found)
    else:
        yield from ((name, False) for name in node.assigns)


def _is_container(expression: Expression, found: Collection[str]) -> bool:
    head = expression[0]
    if head == "var":
        return expression[1] in found
    if head == "if":
        return _is_container(expression[2], found) and _is_container(expression[3], found)
    if head == "augment":  # whatever it does, the kind of the value stays
        return _is_container(expression[2], found)
    return head == "mutated" or any(_is_made(expression, kind) for kind in _KINDS)


def _is_made(expression: Expression, kind: str) -> bool:
    """Whether the expression makes a new value of this kind."""
    head = expression[0]
    called = {"sorted": "list"}.get(expression[1], expression[1]) if head == "call" else None
    return kind in (head, called) or (head == "comprehension" and expression[1] == kind)
