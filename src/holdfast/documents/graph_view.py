"""The shape of a run with the state of each part, whatever its model is: nodes and edges for a drawing.

`view_of_run` asks the file of the run's model; `view_of_definition` draws the same before anything runs. A graph of
very many nodes is grouped (`graph_grouping.py`), because nobody can read five thousand boxes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from holdfast.documents.graph_grouping import grouped, members

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.engine import Engine

MOST_NODES: Final = 400
# Of several items at one place, the state that a person must know of first.
MOST_URGENT: Final = ("dead", "failed", "timed_out", "lost", "leased", "ready", "blocked", "pending", "cancelled")


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a drawing. Of a group, or of a place that has several items, `states` counts them."""

    id: str
    label: str
    kind: str
    state: str = ""
    attempts: int = 0
    detail: str = ""
    count: int | None = None
    states: dict[str, int] | None = None


class GraphEdge(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """A way from one place to another; a `loop` goes back, and `taken` is what the run has gone along."""

    source: str
    target: str
    label: str = ""
    loop: bool = False
    taken: bool = False


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """A drawing; `truncated` if it is not the whole."""

    kind: str
    direction: Literal["TB", "LR"] = "TB"
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()
    truncated: bool = False


async def view_of_run(engine: Engine, row: Run, *, group: str | None = None, every: bool = False) -> GraphView:
    """The graph that a run follows, with its states; grouped if it is large, unless `every` node was asked for."""
    view = await _whole(engine, row)
    if group is not None:
        return members(view, group)
    return view if every or len(view.nodes) <= MOST_NODES else grouped(view)


async def _whole(engine: Engine, row: Run) -> GraphView:
    from holdfast.documents import dag_view, flow_view, function_view, machine_view, projection_view, state_graph_view

    match row.model:
        case "dag":
            return await dag_view.of_run(engine, row)
        case "flow":
            return await flow_view.of_run(engine, row)
        case "graph":
            return await state_graph_view.of_run(engine, row)
        case "decider":
            return await machine_view.of_run(engine, row)
        case "projection":
            return projection_view.of_run(row)
        case _:
            return await function_view.of_run(engine, row)


def view_of_definition(thing: object) -> GraphView | None:
    """The graph of something that can be started; None if only its runs have one (a function, a template)."""
    from holdfast.authoring.actions import Action
    from holdfast.authoring.dags import Dag
    from holdfast.authoring.deciders import Decider
    from holdfast.authoring.flows import Flow
    from holdfast.authoring.startable import graph_of_action, is_state_graph
    from holdfast.documents import dag_view, flow_view, machine_view, state_graph_view
    from holdfast.documents.machines import declared_machine

    view: GraphView | None = None
    if isinstance(thing, Action):
        view = dag_view.of_graph(graph_of_action(thing))
    elif isinstance(thing, type) and issubclass(thing, Dag):
        view = dag_view.of_graph(thing.compiled_dag())
    elif isinstance(thing, Flow):
        view = flow_view.of_graph(thing.graph)
    elif is_state_graph(thing):
        view = state_graph_view.of_graph(thing)
    elif isinstance(thing, type) and issubclass(thing, Decider):
        machine = declared_machine(thing)
        view = None if machine is None else machine_view.of_machine(machine)
    return grouped(view) if view is not None and len(view.nodes) > MOST_NODES else view


def most_urgent(states: dict[str, int]) -> str:
    """The state of many that a person must know of first."""
    return next((state for state in MOST_URGENT if state in states), next(iter(states), ""))
