"""Which function decides which operation: the one table of everything that can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import RunError
from holdfast.core.operations import Operation
from holdfast.models.dag import DagMachine
from holdfast.models.dag_operations import DagOperations, StoredGraphs
from holdfast.models.decider import DECIDER, DeciderMachine
from holdfast.models.decider_operations import DeciderOperations
from holdfast.models.event_operations import EventOperations
from holdfast.models.flow_code import FLOW
from holdfast.models.flow_waits import FlowWaits
from holdfast.models.folding import Folding
from holdfast.models.function import FunctionMachine
from holdfast.models.function_operations import FunctionOperations
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import Machine
from holdfast.models.operators import Operators
from holdfast.models.projection import PROJECTION_MODEL, ProjectionMachine, ProjectionOperations
from holdfast.models.state_code import GRAPH

if TYPE_CHECKING:
    from holdfast.models.state_memory import StateMemory


class Machines(dict[str, Machine]):
    """The machines by model. Those of flows and graphs are made when there is one: not everybody has them."""

    def __init__(self, machines: dict[str, Machine], states: Callable[[], StateMemory] | None) -> None:
        super().__init__(machines)
        self._states = states

    def __missing__(self, model: str) -> Machine:
        machine: Machine
        if model == FLOW:
            from holdfast.models.flow import FlowMachine

            machine = FlowMachine()
        elif model == GRAPH:
            from holdfast.models.state_graph import GraphMachine
            from holdfast.models.state_memory import StateMemory

            machine = GraphMachine(StateMemory() if self._states is None else self._states())
        else:
            raise RunError(
                f"a run is of the model {model!r:.80}, which this version of Holdfast does not know",
                hint="upgrade Holdfast; if there is no such version, somebody changed the row: cancel the run",
            )
        self[model] = machine
        return machine


class Decisions(dict[type[Operation], object]):
    """Every operation with its decision. Those of state graphs are looked up when the first of them comes."""

    def __init__(self, known: dict[type[Operation], object], lifecycle: Lifecycle) -> None:
        super().__init__(known)
        self._lifecycle = lifecycle

    def __missing__(self, kind: type[Operation]) -> object:
        from holdfast.models.state_operations import GraphOperations

        lifecycle = self._lifecycle
        machine: Any = lifecycle.machines[GRAPH]
        known = GraphOperations(machine, lifecycle, lifecycle.definitions).decisions()
        if kind not in known:
            raise KeyError(kind)
        self.update(known)
        return self[kind]


def decisions(
    definitions: StoredGraphs,
    *,
    folding: Folding | None = None,
    states: Callable[[], StateMemory] | None = None,
    observe_inputs: str = "off",
) -> dict[type[Operation], object]:
    """Every operation with its decision, given the graphs that this process knows."""
    dag, decider = DagMachine(), DeciderMachine(folding or Folding())
    decider.observe = observe_inputs
    machines = Machines(
        {"dag": dag, "function": FunctionMachine(), DECIDER: decider, PROJECTION_MODEL: ProjectionMachine()}, states
    )
    lifecycle = Lifecycle(machines, definitions)
    known = {
        **lifecycle.decisions(),
        **FunctionOperations(lifecycle).decisions(),
        **DeciderOperations(decider, lifecycle, definitions).decisions(),
        **ProjectionOperations(lifecycle).decisions(),
        **EventOperations().decisions(),
        **FlowWaits(lifecycle).decisions(),
        **Operators(machines, definitions).decisions(),
        **DagOperations(dag, definitions).decisions(),
    }
    return Decisions(known, lifecycle)
