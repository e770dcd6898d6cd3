"""`charge.options(timeout=5)(…)`: a policy for one call. It is constant, so it belongs to the node and to the graph.

What the options are is found out when the flow is compiled, by calling the action's own `options`, so a flow accepts
and refuses what every other caller may give. A name of the module that stands for an action with options, as in
`fast = charge.options(timeout=5)`, means the same.
"""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.flow_building import Stage
from holdfast.authoring.flow_source import NOTHING, UNDEFINED
from holdfast.authoring.functions import Workflow
from holdfast.core.errors import UsageError
from holdfast.core.flow_graph import CallOptions
from holdfast.core.retry import Retry

__all__ = ["callee", "options_of"]


def callee(stage: Stage, node: ast.expr, bound: frozenset[str] = frozenset()) -> Any:
    """The object that a call calls; for `action.options(…)(…)` the action with these options."""
    if not isinstance(node, ast.Call):
        return stage.source.object_named(node, bound)
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "options"):
        return NOTHING
    owner = callee(stage, node.func.value, bound)
    if not isinstance(owner, Action | Workflow):
        return owner
    if node.args:
        stage.refuse(node, "this use of `.options(…)`", "options are given by name", "write .options(timeout=5)")
    given = {each.arg: _constant(stage, each.value, bound) for each in node.keywords if each.arg is not None}
    if len(given) < len(node.keywords):
        stage.refuse(node, "`**` in options", "the graph holds them, so each must be known", "write them one by one")
    try:
        return owner.options(**given)
    except UsageError as wrong:
        stage.refuse(node, "this use of `.options(…)`", wrong.message, wrong.hint or "see the signature of options")


def options_of(stage: Stage, node: ast.AST, found: Action[..., Any] | Workflow[..., Any]) -> CallOptions | None:
    """What this action or workflow has otherwise than the registered one; None for nothing."""
    if isinstance(found, Workflow):
        same = found.queue == found.registered_queue
        return None if same else CallOptions(queue=found.queue)
    now, before = found.policy, found.registered_policy
    if now == before:
        return None
    if now.retry.retry_on != before.retry.retry_on:
        stage.refuse(
            node,
            "a retry_on for one call",
            "which errors are tried again is code, and a graph holds numbers only",
            f"set retry_on where {found.name} is defined, and give the same one here",
        )
    return CallOptions(
        timeout=msgspec.UNSET if now.timeout_seconds == before.timeout_seconds else now.timeout_seconds,
        queue=msgspec.UNSET if now.queue == before.queue else now.queue,
        retry=None if now.retry == before.retry else (now.retry.attempts, now.retry.base, now.retry.cap),
    )


def _constant(stage: Stage, node: ast.expr, bound: frozenset[str]) -> Any:
    """A number, a text, None, an object of the module, or `hf.Retry(…)` of such."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number: Any = node.operand.value
        return -number
    if isinstance(node, ast.Tuple):
        return tuple(_constant(stage, item, bound) for item in node.elts)
    if isinstance(node, ast.Call) and stage.source.object_named(node.func, bound) is Retry and not node.args:
        given = {each.arg: _constant(stage, each.value, bound) for each in node.keywords if each.arg is not None}
        if len(given) == len(node.keywords):
            try:
                return Retry(**given)
            except UsageError as wrong:
                stage.refuse(node, "this Retry", wrong.message, wrong.hint or "see the signature of Retry")
    found = stage.source.object_named(node, bound)
    if found is NOTHING or found is UNDEFINED:
        stage.refuse(
            node,
            f"`{ast.unparse(node)}` as an option",
            "options belong to the graph, so they are known when the flow is compiled",
            "write a number, a text or hf.Retry(…), or name a constant of the module",
        )
    return found
