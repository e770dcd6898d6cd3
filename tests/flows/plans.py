"""Plans of flows that are compiled in a test, with an inbox of given values instead of a store."""

from __future__ import annotations

from typing import Any

from holdfast.authoring.flows import Flow, flow
from holdfast.authoring.registry import Registry
from holdfast.core.codec_failure import decode_error, encode_error
from holdfast.models.flow_plan import Completion, CompletionPlan, plan_completion


def compiled(function: Any) -> Flow[..., Any]:
    return flow(registry=Registry())(function)


class Rows:
    """An inbox of given values."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def read(self, target: str, variable: str, index: int | None) -> Any:
        return self._values[variable]

    def gathered(self, target: str, variable: str) -> list[Any]:
        return list(self._values[variable])


def plan(made: Flow[..., Any], node: str, value: Any = None, **inbox: Any) -> CompletionPlan:
    completion = Completion(node_id=node, delivery_token=7, value=value)
    return plan_completion(made.graph, completion, Rows(**inbox), made.environment)


def plan_failure(made: Flow[..., Any], node: str, error: Exception, **inbox: Any) -> CompletionPlan:
    completion = Completion(node_id=node, delivery_token=7, failure=decode_error(encode_error(error)))
    return plan_completion(made.graph, completion, Rows(**inbox), made.environment)


def reached(made: CompletionPlan) -> list[str]:
    return [each.node_id for each in made.readiness_increments]
