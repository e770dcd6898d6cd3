"""Statements that change a value in place: `rows.append(x)`, `totals[key] += 1`, `del seen[key]`.

In the graph they make a changed copy and assign it. That is the same as Python only if no other variable holds the
same object; `flow_aliases.py` checks that afterwards and refuses otherwise.
"""

from __future__ import annotations

import ast
from typing import Any

from holdfast.authoring.flow_building import Stage
from holdfast.authoring.flow_expressions import compile_expression, compile_items, symbol_of
from holdfast.authoring.flow_source import NOTHING
from holdfast.authoring.flow_value_calls import compile_consumed, compile_keywords, key_function
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_operations import MUTATOR_NAMES

__all__ = ["compile_augmented_item", "compile_delete_item", "compile_mutator", "compile_set_item", "is_mutator"]

_CONSUMING = frozenset(("extend", "update", "difference_update", "intersection_update", "symmetric_difference_update"))


def is_mutator(stage: Stage, node: ast.AST) -> bool:
    """Whether this is a call of a method that changes what it is called on."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in MUTATOR_NAMES
        and stage.source.object_named(node.func) is NOTHING
    )


def compile_mutator(stage: Stage, node: ast.Call, result: str | None) -> None:
    """The node of a changing method; `result` is the variable for what it returns."""
    assert isinstance(node.func, ast.Attribute)  # noqa: S101  is_mutator has looked
    name = node.func.attr
    root, path = _place_of(stage, node.func.value, f"`.{name}(…)`")
    if name in _CONSUMING:
        args = compile_consumed(stage, node.args, frozenset())
    else:
        args = compile_items(stage, node.args, frozenset())
    keywords: list[Expression] = []
    for each in node.keywords:
        if name == "sort" and each.arg == "key":
            keywords.append(("keyword", "key", key_function(stage, each.value, frozenset())))
        else:
            keywords += compile_keywords(stage, [each], frozenset())
    change = ("call", name, args, tuple(keywords))
    _emit(stage, node, root, path, change, result)


def compile_set_item(stage: Stage, target: ast.Subscript, value: Expression, node: ast.AST) -> None:
    """`root[…][key] = value`; a slice of a list takes the items of the value."""
    root, path = _place_of(stage, target.value, "this assignment")
    _emit(stage, node, root, path, ("set", compile_expression(stage, target.slice), value), None)


def compile_delete_item(stage: Stage, target: ast.Subscript, node: ast.AST) -> None:
    """`del root[…][key]`."""
    root, path = _place_of(stage, target.value, "this deletion")
    _emit(stage, node, root, path, ("delete", compile_expression(stage, target.slice)), None)


def compile_augmented_item(stage: Stage, node: ast.AugAssign, target: ast.Subscript, value: Expression) -> None:
    """`root[…][key] += value`. Whether the item itself may be changed in place is decided later."""
    root, path = _place_of(stage, target.value, "this assignment")
    if isinstance(target.slice, ast.Slice):
        place = ast.unparse(target)
        stage.refuse(
            node,
            "an augmented assignment to a slice",
            "it changes a copy and puts that back",
            f"write the two steps as one: `{place} = {place} {symbol_of(node.op)} …`",
        )
    key = compile_expression(stage, target.slice)
    _emit(stage, node, root, path, ("augment", symbol_of(node.op), key, value, False), None)


def _emit(
    stage: Stage, node: ast.AST, root: str, path: tuple[Expression, ...], change: Any, result: str | None
) -> None:
    if result is None:
        stage.assign(root, ("mutated", root, path, change), node)
    else:
        stage.assign(("tuple", root, result), ("mutated_with", root, path, change), node)


def _place_of(stage: Stage, node: ast.expr, what: str) -> tuple[str, tuple[Expression, ...]]:
    """The variable that a place belongs to, and the keys that lead from it to the container that changes."""
    steps: list[Expression] = []
    inner = node
    while isinstance(inner, ast.Subscript):
        if isinstance(inner.slice, ast.Slice):
            stage.refuse(
                inner,
                f"{what} on a slice",
                "a slice is a copy, so the list that it was taken from stays as it is",
                "assign the slice to a variable and change that, or name the item with one index",
            )
        steps.append(compile_expression(stage, inner.slice))
        inner = inner.value
    if not isinstance(inner, ast.Name) or stage.source.object_named(inner) is not NOTHING:
        stage.refuse(
            node,
            f"{what} on `{ast.unparse(node)}`",
            "only a variable of the flow, or an item of one, can be changed",
            "assign it to a variable first; change records with dataclasses.replace",
        )
    return stage.variable(inner.id), tuple(reversed(steps))
