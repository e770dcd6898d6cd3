"""What an operation will read, as far as that is known before it is decided, and whose rows those are."""

from __future__ import annotations

from holdfast.core.function_operations import TURN, SendEvent, TakeTurn
from holdfast.core.operations import Operation
from holdfast.core.queries import Attempts, WaitsOf
from holdfast.core.rows import INPUTS, RUNS, WORK
from holdfast.store.contract import Need

_TURN = frozenset({TURN})


def is_run(need: Need) -> bool:
    """Whether it is a run's own row."""
    return isinstance(need, tuple) and need[0] is RUNS


def run_of(need: Need) -> str | None:
    """The run that the needed rows belong to, if they are of one."""
    if not isinstance(need, tuple):  # sooner told than a Query, whose metaclass asks around
        return need.of_run
    table, key = need
    return str(key[0]) if table.by_run else None


def likely_needs(operation: Operation) -> list[Need]:
    """Rows that an operation surely reads, loaded with the first round."""
    if isinstance(operation, SendEvent):
        run = operation.run
        return [(INPUTS, (run, operation.event)), WaitsOf(run), Attempts(run, _TURN)]
    if isinstance(operation, TakeTurn) and (operation.opens or operation.closes):
        return [(WORK, (operation.run, operation.node, operation.attempt)), WaitsOf(operation.run)]
    node, attempt = getattr(operation, "node", None), getattr(operation, "attempt", None)
    if node is not None and attempt is not None:
        return [(WORK, (operation.runs[0], node, attempt))]
    return []
