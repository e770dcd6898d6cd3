"""The drawing of a decider: its state machine, declared or observed, and where an instance stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.documents.graph_view import GraphEdge, GraphNode, GraphView
from holdfast.documents.instance import state_of
from holdfast.documents.machines import declared_machine, observed_machine

if TYPE_CHECKING:
    from holdfast.authoring.state_machine import StateMachine
    from holdfast.core.rows import Run
    from holdfast.engine import Engine

NEW: Final = "(new)"
LONGEST_FOLD: Final = 10_000


async def of_run(engine: Engine, row: Run) -> GraphView:
    """The machine of an instance's decider, with the state that it is in."""
    code = engine.definitions.decider(row.workflow)
    machine = None if code is None else declared_machine(code.definition.cls)
    if machine is None:
        names = (row.workflow,) if code is None else code.definition.cls.__holdfast__.names
        machine = await observed_machine(engine, names)
    status = None
    if code is not None and row.base <= LONGEST_FOLD:
        status = (await state_of(engine, row)).status
    if machine is None:
        nodes = () if status is None else (GraphNode(id=status, label=status, kind="state", state=_standing(row)),)
        return GraphView(kind="decider", direction="LR", nodes=nodes, truncated=True)
    return of_machine(machine, status, _standing(row))


def of_machine(machine: StateMachine, status: str | None = None, standing: str = "") -> GraphView:
    """A machine; `status` is where an instance stands, and `standing` how that is shown."""
    definition = machine.definition
    states = dict.fromkeys(definition.states)
    for one in definition.transitions:
        states |= {name: None for name in (one.from_status, one.to_status) if name is not None}
    if status is not None:
        states[status] = None
    begins = any(one.from_status is None for one in definition.transitions)
    nodes = [GraphNode(id=NEW, label="new", kind="start")] if begins else []
    for name in states:
        kind = "terminal" if name in definition.terminals else "initial" if name == definition.initial else "state"
        nodes.append(GraphNode(id=name, label=name, kind=kind, state=standing if name == status else ""))
    place = {node.id: number for number, node in enumerate(nodes)}
    edges = []
    for one in definition.transitions:
        source = one.from_status or NEW
        count = machine.counts.get((one.from_status, str(one.input), one.to_status))
        edges.append(
            GraphEdge(
                source=source,
                target=one.to_status,
                label=str(one.input) if count is None else f"{one.input} ({count:,})",
                loop=place[one.to_status] <= place[source],
                taken=bool(count),
            )
        )
    return GraphView(kind="decider", direction="LR", nodes=tuple(nodes), edges=tuple(edges))


def _standing(row: Run) -> str:
    return row.status if row.ended or row.status == "paused" else "leased"
