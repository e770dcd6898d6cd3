"""From a function's source to its graph, in steps that each have a file of their own.

1.  `flow_source`, `flow_refusals`: read the text; refuse what is never supported.
2.  `flow_statements`, `flow_loops`, `flow_tries`, `flow_awaits`, `flow_options`, `flow_gathers`, `flow_tasks`,
    `flow_effects`, `flow_mutations`, `flow_expressions`, `flow_value_calls`, `flow_constants`: make nodes and order
    edges, in the order of the source.
3.  `flow_dataflow`: drop what can't be reached; find what may be unbound.
4.  `flow_aliases`, `flow_sharing`, `flow_containers`: refuse changes in place that another variable could see.
5.  `flow_dataflow`: draw data edges.

Nothing runs meanwhile, and nothing of the function is ever executed by the engine.
"""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.authoring.flow_aliases import with_owners
from holdfast.authoring.flow_building import Building, End, FunctionFrame, Place, Stage
from holdfast.authoring.flow_constants import constant, is_container_hint, is_scalar_hint, learn_hints
from holdfast.authoring.flow_dataflow import (
    Control,
    data_edges,
    may_be_unbound,
    with_kept_parts,
    without_needless_checks,
    without_unreachable,
)
from holdfast.authoring.flow_refusals import refusal, refuse_syntax
from holdfast.authoring.flow_source import FlowSource
from holdfast.authoring.flow_statements import compile_body
from holdfast.authoring.flow_tasks import refuse_doubtful_results, tasks_as_results
from holdfast.core.flow_graph import ENTRY, OUTPUT, FlowGraph, FlowNode, FlowParameter

__all__ = ["Compiled", "compile_flow"]

RESULT = "$return"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph, the types whose values its variables may hold, and the objects that its expressions refer to."""

    graph: FlowGraph
    types: dict[str, type]
    references: dict[str, Any]


def compile_flow(name: str, function: Callable[..., Any], source: FlowSource) -> Compiled:
    """The compiled flow; FlowNotSupported with file, line and alternative for what can't be compiled."""
    _refuse_wrapped(function, source)
    refuse_syntax(source)
    tasks_as_results(source)
    building = Building()
    parameters = _parameters(building, function, source)
    building.nodes[ENTRY] = FlowNode(id=ENTRY, kind="input", line=source.line_of(source.tree), label=name)
    building.syntax[ENTRY] = (source, source.tree)
    for taken in (ENTRY, OUTPUT):
        building.unique(taken)
    building.ends = [End(ENTRY)]
    stage = Stage(building, source, place=Place(frames=(FunctionFrame(RESULT),)))
    compile_body(stage)
    stage.make(OUTPUT, "output", source.tree, label="return", category="output", expression=("var", RESULT))
    building.connect(building.take_ends(), OUTPUT)
    return Compiled(_graph(name, building, parameters), building.types, building.references)


def _refuse_wrapped(function: Callable[..., Any], source: FlowSource) -> None:
    """A wrapper made with functools.wraps gives the text of what it wraps, which says nothing of the wrapper."""
    if not hasattr(function, "__wrapped__"):
        return
    raise refusal(
        source,
        [source.tree, *source.tree.decorator_list][-1],
        "another decorator around the function",
        "a flow is compiled from the text of its function, and what the decorator adds is not in it",
        "put @hf.flow directly above the async def and no other decorator below it; write what that did into the flow",
    )


def _graph(name: str, building: Building, parameters: tuple[FlowParameter, ...]) -> FlowGraph:
    given = frozenset(parameter.name for parameter in parameters)
    nodes, edges = without_unreachable(building)
    unbound = may_be_unbound(Control.of(nodes, edges, given), given)
    refuse_doubtful_results(building, unbound)
    nodes, edges = without_needless_checks(nodes, edges, unbound)
    control = Control.of(nodes, edges, given)
    nodes = with_kept_parts(with_owners(building, control, nodes))
    control = Control.of(nodes, edges, given)
    return FlowGraph(
        name,
        parameters,
        tuple(nodes.values()),
        tuple(edges),
        data_edges(control, given),
        frozenset(building.sequences),
        frozenset(variable for names in unbound.values() for variable in names),
    )


def _parameters(building: Building, function: Callable[..., Any], source: FlowSource) -> tuple[FlowParameter, ...]:
    stage = Stage(building, source)
    given = source.tree.args
    for variadic in (given.vararg, given.kwarg):
        if variadic is not None:
            stage.refuse(
                variadic,
                f"the parameter `*{variadic.arg}`",
                "a run's input has one value for each name",
                "take a list or a dict as an ordinary parameter",
            )
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # the codec of the flow's arguments says so when it is started
        hints = {}
    for hint in hints.values():
        learn_hints(building, hint)
    found: list[FlowParameter] = []
    for parameter in inspect.signature(function).parameters.values():
        default = None
        if parameter.default is not inspect.Parameter.empty:
            default = constant(parameter.default, building)
            if default is None:
                stage.refuse(
                    _default_of(given, parameter.name),
                    f"the default of `{parameter.name}`",
                    "a graph can hold constants that never change",
                    "use None as the default and make the value in the flow",
                )
        found.append(FlowParameter(parameter.name, default))
        annotated = parameter.name in hints and parameter.default is inspect.Parameter.empty
        building.scalar_parameters[parameter.name] = annotated and is_scalar_hint(hints[parameter.name])
        if annotated and is_container_hint(hints[parameter.name]):
            building.container_parameters.add(parameter.name)
    return tuple(found)


def _default_of(given: ast.arguments, name: str) -> ast.AST:
    positional = [*given.posonlyargs, *given.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    return next((default for argument, default in pairs if argument.arg == name and default is not None), given)
