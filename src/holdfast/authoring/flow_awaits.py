"""Awaits: calls of actions, children, timers and other flows. What runs elsewhere becomes a frontier node.

Another flow's body is inlined: its nodes carry its name before a slash, its variables too, and its exceptions go where
the call's would go.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.authoring.actions import Action
from holdfast.authoring.flow_advice import advice_for
from holdfast.authoring.flow_building import FunctionFrame, Place, Stage
from holdfast.authoring.flow_conditions import wait_arguments
from holdfast.authoring.flow_constants import constant, is_container_hint, is_scalar_hint, learn_hints
from holdfast.authoring.flow_expressions import compile_expression
from holdfast.authoring.flow_options import callee, options_of
from holdfast.authoring.flow_source import UNDEFINED, FlowSource
from holdfast.authoring.flow_value_calls import compile_arguments
from holdfast.authoring.function_commands import sleep as durable_sleep
from holdfast.authoring.function_commands import wait_for as durable_wait
from holdfast.authoring.functions import Workflow
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_graph import CallOptions, Category

if TYPE_CHECKING:
    from holdfast.authoring.flows import Flow

__all__ = ["Remote", "compile_await", "remote_call"]

Bound = frozenset[str]

_SLEEPS: Final[dict[int, str]] = {id(asyncio.sleep): "asyncio.sleep", id(durable_sleep): "hf.sleep"}


class Remote(NamedTuple):
    """A call that does not run in the flow itself."""

    category: Category
    name: str
    label: str
    arguments: Expression
    options: CallOptions | None = None


def compile_await(stage: Stage, node: ast.Await, target: str | None) -> str:
    """Make the nodes of an await; gives the variable that has its result, `target` if one was given."""
    from holdfast.authoring.flow_gathers import compile_gather

    call = node.value
    if not isinstance(call, ast.Call):
        stage.refuse(
            node,
            f"awaiting `{ast.unparse(call)}`",
            "only a call can be awaited: tasks and coroutines can't be stored",
            "await the call itself, or several inside of asyncio.gather(…)",
        )
    result = target or stage.hidden("result")
    found = callee(stage, call.func)
    if found is asyncio.gather:
        compile_gather(stage, node, call, result)
        return result
    made = _without_effects_in_arguments(stage, call)
    inlined = _as_flow(found)
    if _is_itself(stage, call.func) or (inlined is not None and inlined in stage.callers):
        stage.refuse(
            node,
            "a flow that calls itself",
            "its graph would have no end",
            "use a loop, or make it a @hf.workflow, which may call itself as a child",
        )
    if inlined is not None:
        _inline(stage, node, made, inlined, result)
        return result
    remote = remote_call(stage, made, frozenset())
    name = stage.emit(
        "action",
        remote.label,
        node,
        category=remote.category,
        call=remote.name,
        options=remote.options,
        expression=remote.arguments,
        target=result,
    )
    hint = _hint_of_result(found)
    if remote.category == "timer" or is_scalar_hint(hint):
        stage.building.scalar_results.add(name)
    elif is_container_hint(hint):
        stage.building.container_results.add(name)
    return result


def _hint_of_result(found: Any) -> Any:
    """The annotation of a call's result, which the codec sees to."""
    try:
        return typing.get_type_hints(found.fn).get("return", Any)
    except Exception:
        return Any


def _is_itself(stage: Stage, node: ast.expr) -> bool:
    """Whether this is the function's own name, which means something else, or nothing, while it is being compiled."""
    return isinstance(node, ast.Name) and node.id == stage.source.name and node.id not in stage.source.local_names


def _without_effects_in_arguments(stage: Stage, call: ast.Call) -> ast.Call:
    from holdfast.authoring.flow_effects import parts_replaced  # an await may hold awaits

    made = parts_replaced(stage, call)
    assert isinstance(made, ast.Call)  # noqa: S101
    return made


def remote_call(stage: Stage, call: ast.Call, bound: Bound) -> Remote:
    """What a call of an action, a workflow or a sleep asks for; anything else is refused."""
    found = callee(stage, call.func, bound)
    shown = ast.unparse(call.func)
    label = _label(call.func)
    flow = _as_flow(found)
    if flow is not None:  # beside others, so it has a run of its own
        _check_call(stage, call, flow.fn, shown)
        _learn_result(stage, flow.fn)
        return Remote("child", flow.name, label, ("arguments", *compile_arguments(stage, call, bound)))
    if isinstance(found, Action | Workflow):
        _check_call(stage, call, found.fn, shown)
        _learn_result(stage, found.fn)
        category: Category = "action" if isinstance(found, Action) else "child"
        arguments = ("arguments", *compile_arguments(stage, call, bound))
        return Remote(category, found.name, label, arguments, options_of(stage, call.func, found))
    if id(found) in _SLEEPS:
        _check_call(stage, call, found, shown)
        if found is asyncio.sleep and len(call.args) + len(call.keywords) != 1:
            stage.refuse(call, "a sleep with a result", "a timer has none", "give it a number of seconds only")
        if any(each.arg in ("until", None) for each in call.keywords):
            stage.refuse(
                call, "a sleep until an instant", "a flow's code has no clock", "give it a span, such as minutes=5"
            )
        name = _SLEEPS[id(found)]
        args, keywords = compile_arguments(stage, call, bound)
        if found is asyncio.sleep and keywords:
            args, keywords = (keywords[0][2],), ()
        return Remote("timer", name, "sleep", ("arguments", (("call", name, args, keywords),), ()))
    if found is durable_wait:
        return Remote("wait", "", "wait_for", wait_arguments(stage, call, bound))
    _refuse_await(stage, call, found, shown)


def _label(func: ast.expr) -> str:
    """What a node is called: the last part of the name that is called, without options."""
    while isinstance(func, ast.Call) and isinstance(func.func, ast.Attribute):
        func = func.func.value
    return ast.unparse(func).rpartition(".")[2]


def _refuse_await(stage: Stage, call: ast.Call, found: Any, shown: str) -> typing.Never:
    if found is UNDEFINED:
        stage.refuse(
            call.func,
            f"the name `{shown}`",
            "nothing is defined under it when the flow is compiled",
            "define or import it above the flow, or check its spelling",
        )
    if isinstance(call.func, ast.Attribute) and call.func.attr == "options":
        stage.refuse(
            call, "`.options(…)` that is awaited", "it gives an action, not a result", f"write `await {shown}(…)(…)`"
        )
    if (advice := advice_for(found)) is not None:
        stage.refuse(call, f"`{shown}`", *advice)
    if inspect.iscoroutinefunction(found):
        stage.refuse(
            call,
            f"awaiting `{shown}(…)`",
            "it is an ordinary coroutine, of which nothing would be recorded",
            f"decorate {shown} with @hf.action, or with @hf.flow if it only awaits actions",
        )
    stage.refuse(
        call,
        f"awaiting `{shown}(…)`",
        "a flow awaits actions, workflows, other flows, asyncio.gather and asyncio.sleep",
        "call it in an action and await that",
    )


def _check_call(stage: Stage, call: ast.Call, function: Callable[..., Any], shown: str) -> None:
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return
    signature = inspect.signature(function)
    try:
        signature.bind(*call.args, **{each.arg or "": each.value for each in call.keywords})
    except TypeError as error:
        stage.refuse(call, f"this call of `{shown}`", str(error), f"its signature is {shown}{signature}")


def _learn_result(stage: Stage, function: Callable[..., Any]) -> None:
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # its own codec will say so when it is called
        return
    learn_hints(stage.building, hints.get("return"))


# --- other flows -------------------------------------------------------------------------------------------------


def _as_flow(found: Any) -> Flow[..., Any] | None:
    from holdfast.authoring.flows import Flow

    return found if isinstance(found, Flow) else None


def _inline(stage: Stage, node: ast.Await, call: ast.Call, flow: Flow[..., Any], result: str) -> None:
    from holdfast.authoring.flow_statements import compile_body

    source: FlowSource = flow.source
    _check_call(stage, call, flow.fn, flow.source.name)
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        stage.refuse(call, "`*` in a call of a flow", "which arguments it gives must be known", "write them one by one")
    prefix = stage.building.unique(f"{stage.prefix}{source.name}") + "/"
    inner = Stage(
        stage.building,
        source,
        prefix,
        (*stage.callers, flow),
        Place(stage.place.loops, stage.place.on_error, (FunctionFrame(result),)),
    )
    names, values = _bound_arguments(stage, call, flow, inner)
    stage.emit("fn_call", source.name, node, expression=("tuple", *values), target=("tuple", *names))
    others = sorted(inner.variable(name) for name in source.local_names if inner.variable(name) not in names)
    if stage.place.loops and others:
        # A second call must not see what the first one left in its variables.
        stage.assign(("tuple", *others), ("unbound", len(others)), node, "forget")
    compile_body(inner)


def _bound_arguments(
    stage: Stage, call: ast.Call, flow: Flow[..., Any], inner: Stage
) -> tuple[list[str], list[Expression]]:
    """Parameters and their values, in the order in which the call computes them; defaults at the end."""
    parameters = list(inspect.signature(flow.fn).parameters.values())
    names = [inner.variable(parameters[position].name) for position in range(len(call.args))]
    values = [compile_expression(stage, each) for each in call.args]
    for keyword in call.keywords:
        names.append(inner.variable(keyword.arg or ""))
        values.append(compile_expression(stage, keyword.value))
    for parameter in parameters:
        name = inner.variable(parameter.name)
        if name not in names:
            default = constant(parameter.default, stage.building)
            names.append(name)
            values.append(("const", None) if default is None else default)
    return names, values
