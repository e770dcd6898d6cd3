"""Which function decides which operation: the one table of everything that can change."""

from __future__ import annotations

from holdfast.core.operations import Operation
from holdfast.models.dag import DagMachine
from holdfast.models.dag_operations import DagOperations, StoredGraphs
from holdfast.models.decider import DECIDER, DeciderMachine
from holdfast.models.decider_operations import DeciderOperations
from holdfast.models.event_operations import EventOperations
from holdfast.models.flow_code import FLOW
from holdfast.models.folding import Folding
from holdfast.models.function import FunctionMachine
from holdfast.models.function_operations import FunctionOperations
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import Machine
from holdfast.models.operators import Operators
from holdfast.models.projection import PROJECTION_MODEL, ProjectionMachine, ProjectionOperations


class Machines(dict[str, Machine]):
    """The machines by model. That of flows brings an interpreter along, and is made when there is a flow."""

    def __missing__(self, model: str) -> Machine:
        if model != FLOW:
            raise KeyError(model)
        from holdfast.models.flow import FlowMachine

        machine = self[model] = FlowMachine()
        return machine


def decisions(
    definitions: StoredGraphs, *, folding: Folding | None = None, observe_inputs: str = "off"
) -> dict[type[Operation], object]:
    """Every operation with its decision, given the graphs that this process knows."""
    dag, decider = DagMachine(), DeciderMachine(folding or Folding())
    decider.observe = observe_inputs
    machines = Machines(
        {"dag": dag, "function": FunctionMachine(), DECIDER: decider, PROJECTION_MODEL: ProjectionMachine()}
    )
    lifecycle = Lifecycle(machines, definitions)
    return {
        **lifecycle.decisions(),
        **FunctionOperations(lifecycle).decisions(),
        **DeciderOperations(decider, lifecycle, definitions).decisions(),
        **ProjectionOperations(lifecycle).decisions(),
        **EventOperations().decisions(),
        **Operators(machines, definitions).decisions(),
        **DagOperations(dag, definitions).decisions(),
    }
