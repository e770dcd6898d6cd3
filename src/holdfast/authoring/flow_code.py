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
from holdfast.core.codec_label import is_labelled, labelled, unlabelled
from holdfast.core.errors import MissingJob, PayloadTooLarge
from holdfast.core.flow_graph import CallOptions, FlowGraph
from holdfast.core.flow_values import decode_value, encode_value, unpack
from holdfast.core.flow_waits import FlowWait
from holdfast.models.flow_code import NewCall

__all__ = ["BoundFlow", "UnreadableFlow"]


class UnreadableFlow:
    """A version of a flow that this process can't follow: whatever is asked of it is for another worker to answer."""

    def __init__(self, flow: Flow[..., Any], reason: str) -> None:
        self.flow = flow
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        raise MissingJob(
            f"a version of flow {self.flow.name} can't be followed here: {self._reason}",
            hint="start a worker with the code that the run was started with, or cancel the run",
        )


class _Callee(msgspec.Struct, frozen=True):
    """What the flow calls, as this process knows it: of a workflow neither queue nor time are asked for."""

    codec: CallCodec
    is_action: bool
    timeout_seconds: float | None
    queue: str | None


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
        self._parameters = tuple(parameter.name for parameter in graph.parameters)
        self._callees: dict[str, _Callee] = {}
        self._callees_version = registry.version

    def arguments(self, data: bytes, codec: str) -> Mapping[str, Any]:
        given, named = self.flow.call.decode_call(data, codec, codecs=self._codecs)
        return dict(zip(self._parameters, given, strict=False)) | named

    def call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CallOptions | None) -> NewCall:
        callee = self._callee(name)
        timeout, queue = callee.timeout_seconds, callee.queue
        numbers: dict[str, Any] = {}
        if options is not None:
            timeout = timeout if isinstance(options.timeout, msgspec.UnsetType) else options.timeout
            if not isinstance(options.queue, msgspec.UnsetType):
                if not callee.is_action:  # the child goes there; who waits for it stays where the flow is
                    numbers = {"queue": options.queue}
                else:
                    queue = options.queue
            if options.retry is not None:
                numbers = dict(zip(("attempts", "base", "cap"), options.retry, strict=True))
        return NewCall(
            name=name,
            payload=callee.codec.encode_call(args, kwargs, limit=self._limit, codecs=self._codecs),
            codec=self._codecs.default.tag,
            queue=queue,
            timeout=None if timeout is None else int(timeout * 1e6),
            policy=msgspec.json.encode(numbers).decode() if numbers else None,
        )

    def value_of(self, name: str, stored: bytes | None) -> Any:
        return decode_stored_result(self._callee(name).codec, self._codecs, stored or b"null")

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

    def store(self, value: Any, variable: str, node: str) -> bytes:
        known, codec = self.environment.known_types, self._codecs.default
        data = encode_value(value, known, variable, codec.encode)
        if len(data) > self._limit:
            raise PayloadTooLarge(
                f"variable {variable} of flow {self.flow.name}, which is kept for node {node}, is {len(data):,} bytes, "
                f"over the limit of {self._limit:,}",
                hint="store the data elsewhere and pass a reference to it, or raise the engine's payload_limit_bytes",
            )
        return labelled(data, codec.tag)

    def load(self, data: bytes) -> Any:
        if not is_labelled(data):
            return decode_value(data, self.environment.known_types)
        stored = unlabelled(data)
        return unpack(self._codecs.of(stored.codec).decode(stored.data, Any), self.environment.known_types)

    def _callee(self, name: str) -> _Callee:
        if self._callees_version != self._registry.version:
            self._callees.clear()
            self._callees_version = self._registry.version
        known = self._callees.get(name)
        if known is not None:  # asked for twice with every step
            return known
        action = self._registry.actions.get(name)
        found: Any = action or self._registry.workflows.get(name)
        codec = getattr(found, "call", None)
        if not isinstance(codec, CallCodec):
            raise MissingJob(
                f"flow {self.flow.name} calls {name!r}, which is not registered in this process",
                hint="import the module that defines it in this worker",
            )
        policy = None if action is None else action.policy
        callee = self._callees[name] = _Callee(
            codec=codec,
            is_action=action is not None,
            timeout_seconds=None if policy is None else policy.timeout_seconds,
            queue=None if policy is None else policy.queue,
        )
        return callee
