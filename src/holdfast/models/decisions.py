"""Which function decides which operation: the one table of everything that can change."""

from __future__ import annotations

from holdfast.core.operations import Operation
from holdfast.models.dag import DagMachine
from holdfast.models.dag_operations import DagOperations, StoredGraphs
from holdfast.models.event_operations import EventOperations
from holdfast.models.function import FunctionMachine
from holdfast.models.function_operations import FunctionOperations
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import Machine
from holdfast.models.operators import Operators


def decisions(definitions: StoredGraphs) -> dict[type[Operation], object]:
    """Every operation with its decision, given the graphs that this process knows."""
    dag = DagMachine()
    machines: dict[str, Machine] = {"dag": dag, "function": FunctionMachine()}
    lifecycle = Lifecycle(machines, definitions)
    return {
        **lifecycle.decisions(),
        **FunctionOperations(lifecycle).decisions(),
        **EventOperations().decisions(),
        **Operators(machines, definitions).decisions(),
        **DagOperations(dag, definitions).decisions(),
    }
