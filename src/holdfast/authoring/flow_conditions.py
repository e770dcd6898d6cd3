"""`hf.wait_for(…)` in a flow: the names of the events are part of the graph, and a time is computed when it is reached.

A wait is a frontier node like an action's. What it gives is `hf.Received` or `hf.TimeReached`, values that a flow can
store, ask with `isinstance` and read fields of.
"""

from __future__ import annotations

import ast
from typing import Any, Never

from holdfast.authoring.conditions import Received, TimeReached, after, any_of
from holdfast.authoring.events import Event
from holdfast.authoring.flow_building import Stage
from holdfast.authoring.flow_constants import learn_hints, refer_to
from holdfast.authoring.flow_value_calls import compile_arguments
from holdfast.core.flow_expressions import Expression

__all__ = ["wait_arguments"]

Bound = frozenset[str]


def wait_arguments(stage: Stage, call: ast.Call, bound: Bound) -> Expression:
    """What a wait asks for: the names of events, and seconds or None."""
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        stage.refuse(call, "this wait", "it needs one condition", "combine several with `|` or hf.any_of(…)")
    events: dict[str, None] = {}
    times: list[Expression] = []
    _collect(stage, call.args[0], bound, events, times)
    for kind in (Received, TimeReached):
        stage.building.learn_type(kind)
    seconds: Expression = ("const", None)
    if times:
        seconds = times[0] if len(times) == 1 else ("call", "min", tuple(times), ())
    names = ("tuple", *(("const", name) for name in events))
    return ("arguments", (names, seconds), ())


def _collect(stage: Stage, node: ast.expr, bound: Bound, events: dict[str, None], times: list[Expression]) -> None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            stage.refuse(node, "`|` between two texts", "texts have no `|`", "write hf.any_of(…)")
        _collect(stage, node.left, bound, events, times)
        _collect(stage, node.right, bound, events, times)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        events[node.value] = None
        return
    if isinstance(node, ast.Call):
        found = stage.source.object_named(node.func, bound)
        if found is any_of and not node.keywords:
            for each in _members(node):
                _collect(stage, each, bound, events, times)
            return
        if found is after:
            times.append(("call", "hf.after", *compile_arguments(stage, node, bound)))
            return
        _refuse(stage, node)
    found = stage.source.object_named(node, bound)
    if not isinstance(found, Event):
        _refuse(stage, node)
    refer_to(stage, node, found)
    learn_hints(stage.building, found.type)
    events[found.name] = None


def _members(call: ast.Call) -> list[ast.expr]:
    only: Any = call.args[0] if len(call.args) == 1 else None
    return list(only.elts) if isinstance(only, ast.List | ast.Tuple) else list(call.args)


def _refuse(stage: Stage, node: ast.expr) -> Never:
    stage.refuse(
        node,
        f"waiting for `{ast.unparse(node)}`",
        "a flow waits for events that are known when it is compiled, and for spans of time",
        "name an hf.event of the module, a text or hf.after(…); for all of several use asyncio.gather(hf.wait_for(a), "
        "hf.wait_for(b)); for the end of a run await the workflow",
    )
