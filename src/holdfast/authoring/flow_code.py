"""One version of a flow bound to the codecs of an engine: `FlowCode`, as the machine asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.authoring.conditions import Received, TimeReached
from holdfast.authoring.durations import instant
from holdfast.authoring.flows import Flow, FlowEnvironment
from holdfast.authoring.registry import Registry
from holdfast.core.codec import CallCodec, Codecs, decode_stored_result, encode_stored_result
from holdfast.core.errors import MissingJob
from holdfast.core.flow_graph import CallOptions, FlowGraph
from holdfast.core.flow_values import decode_value, encode_value
from holdfast.core.flow_waits import FlowWait
from holdfast.models.flow_code import NewCall

__all__ = ["BoundFlow"]


class BoundFlow:
    """Implements `models.flow_code.FlowCode`. The graph may be an older one than the code has now."""

    def __init__(
        self, flow: Flow[..., Any], graph: FlowGraph, *, registry: Registry, codecs: Codecs, limit: int
    ) -> None:
        self.flow = flow
        self.graph = graph
        self.environment: FlowEnvironment = flow.environment
        self._registry = registry
        self._codecs = codecs
        self._limit = limit

    def arguments(self, data: bytes, codec: str) -> Mapping[str, Any]:
        given, named = self.flow.call.decode_call(data, codec, codecs=self._codecs)
        names = [parameter.name for parameter in self.graph.parameters]
        return dict(zip(names, given, strict=False)) | named

    def call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CallOptions | None) -> NewCall:
        action = self._registry.actions.get(name)
        timeout = None if action is None else action.policy.timeout_seconds
        queue = None if action is None else action.policy.queue
        numbers: dict[str, Any] = {}
        if options is not None:
            timeout = timeout if isinstance(options.timeout, msgspec.UnsetType) else options.timeout
            if not isinstance(options.queue, msgspec.UnsetType):
                if action is None:  # the child goes there; who waits for it stays where the flow is
                    numbers = {"queue": options.queue}
                else:
                    queue = options.queue
            if options.retry is not None:
                numbers = dict(zip(("attempts", "base", "cap"), options.retry, strict=True))
        return NewCall(
            name=name,
            payload=self._call_codec(name).encode_call(args, dict(kwargs), limit=self._limit, codecs=self._codecs),
            codec=self._codecs.default.tag,
            queue=queue,
            timeout=None if timeout is None else int(timeout * 1e6),
            policy=msgspec.json.encode(numbers).decode() if numbers else None,
        )

    def value_of(self, name: str, stored: bytes | None) -> Any:
        return decode_stored_result(self._call_codec(name), self._codecs, stored or b"null")

    def outcome_of(self, wait: FlowWait) -> Received[Any] | TimeReached:
        """PayloadRefused if what was sent is not of the type that this process expects."""
        answer = wait.answer
        if answer is None:
            return TimeReached(instant(wait.until or 0))
        event = self.environment.event_named(answer.event)
        if event is None:
            event = self._registry.events.get(answer.event)
        if event is not None:
            value = event.decode(answer.payload, answer.codec, codecs=self._codecs)
        else:
            where = f"the payload of event {answer.event}"
            value = self._codecs.decode(answer.payload, where=where, codec=answer.codec)
        return Received(value, answer.event, answer.id, instant(answer.at))

    def result(self, value: Any) -> bytes:
        return encode_stored_result(self.flow.call, self._codecs, self._limit, value)

    def store(self, value: Any, variable: str) -> bytes:
        return encode_value(value, self.environment.known_types, variable)

    def load(self, data: bytes) -> Any:
        return decode_value(data, self.environment.known_types)

    def _call_codec(self, name: str) -> CallCodec:
        found: Any = self._registry.actions.get(name) or self._registry.workflows.get(name)
        codec = getattr(found, "call", None)
        if not isinstance(codec, CallCodec):
            raise MissingJob(
                f"flow {self.flow.name} calls {name!r}, which is not registered in this process",
                hint="import the module that defines it in this worker",
            )
        return codec
