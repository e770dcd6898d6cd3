"""Reading expressions without computing them: which variables they need, whether this version knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.core.errors import FlowNotSupported
from holdfast.core.flow_expressions import OPERATIONS
from holdfast.core.flow_operations import BINARY, COMPARISONS, FUNCTIONS, MUTATOR_NAMES, UNARY

__all__ = ["check_expression", "free_variables", "pattern_names", "references_of"]

# Parts that occur only inside of operations.
_PARTS: Final = frozenset({"star", "pair", "field", "keyword", "set", "delete"})


def pattern_names(pattern: Any) -> tuple[str, ...]:
    """Every name that a pattern assigns."""
    if pattern is None:
        return ()
    if isinstance(pattern, str):
        return (pattern,)
    if pattern[0] == "rest":
        return pattern_names(pattern[1])
    return tuple(name for target in pattern[1:] for name in pattern_names(target))


def free_variables(expression: Any) -> frozenset[str]:
    """The variables that the expression reads, without those that its comprehensions and lambdas bind."""
    found: set[str] = set()
    _collect(expression, frozenset(), found)
    return frozenset(found)


def _collect(part: Any, bound: frozenset[str], found: set[str]) -> None:
    if not isinstance(part, tuple) or not part:
        return
    head = part[0]
    if head == "var":
        if part[1] not in bound:
            found.add(part[1])
    elif head in ("matches", "element", "more"):
        found.add(part[1])
    elif head in ("mutated", "mutated_with"):
        found.add(part[1])
        _collect(part[2:], bound, found)
    elif head == "isinstance":
        _collect(part[1], bound, found)
    elif head == "lambda":
        _collect(part[2], bound | set(part[1]), found)
    elif head == "comprehension":
        _, _, element, clauses = part
        inner = bound
        for position, (target, items, conditions) in enumerate(clauses):
            _collect(items, bound if position == 0 else inner, found)
            inner = inner | set(pattern_names(target))
            for condition in conditions:
                _collect(condition, inner, found)
        _collect(element, inner, found)
    elif head not in ("const", "value"):
        for child in part:
            _collect(child, bound, found)


def references_of(expression: Any) -> Iterator[tuple[str, str]]:
    """The objects of the flow's module that an expression names: ("pure", name) or ("type", name)."""
    if not isinstance(expression, tuple) or not expression or expression[0] in ("const", "value", "var"):
        return
    head = expression[0]
    if head == "pure":
        yield "pure", expression[1]
    elif head == "make":
        yield "type", expression[1]
    elif head in ("isinstance", "matches"):
        yield from (("type", name) for name in expression[2])
    for part in expression[1:]:
        yield from references_of(part)


def check_expression(expression: Any) -> None:
    """FlowNotSupported if a stored expression names an operation, function or operator that is not on the list."""
    if not isinstance(expression, tuple) or not expression:
        return
    head = expression[0]
    if head in ("const", "value", "var", "matches"):
        return
    if isinstance(head, str):
        unknown = _unknown_part(head, expression)
        if unknown is not None:
            raise FlowNotSupported(
                f"a stored flow uses {unknown!r}, which this version does not have",
                hint="run it with the version of holdfast that compiled it, or a later one",
            )
    if head == "comprehension":
        check_expression(expression[2])
        for _, items, conditions in expression[3]:
            check_expression(items)
            check_expression(conditions)
    elif head == "isinstance":
        check_expression(expression[1])
    elif head == "lambda":
        check_expression(expression[2])
    elif head == "compare":
        check_expression(expression[1])
        for _, operand in expression[2:]:
            check_expression(operand)
    else:
        for child in expression:
            check_expression(child)


def _unknown_part(head: str, expression: tuple[Any, ...]) -> str | None:
    if head not in OPERATIONS and head not in _PARTS:
        return head
    named: str | None = None
    allowed: Any = ()
    if head == "call" and len(expression) == 4:
        # Inside of a change, `call` is one of the methods that change a value.
        named, allowed = expression[1], FUNCTIONS.keys() | MUTATOR_NAMES
    elif head in ("binary", "augment"):
        named, allowed = expression[1], BINARY
    elif head == "unary":
        named, allowed = expression[1], UNARY
    elif head == "compare":
        return next((symbol for symbol, _ in expression[2:] if symbol not in COMPARISONS), None)
    return named if named is not None and named not in allowed else None
