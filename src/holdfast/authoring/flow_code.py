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
from holdfast.core.codec_formats import JSON
from holdfast.core.codec_label import labelled, unlabelled
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
        self._call_codecs: dict[str, CallCodec] = {}
        self._codecs_version = registry.version

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
        stored = unlabelled(data)
        if stored.codec == JSON.tag:
            return decode_value(stored.data, self.environment.known_types)
        return unpack(self._codecs.of(stored.codec).decode(stored.data, Any), self.environment.known_types)

    def _call_codec(self, name: str) -> CallCodec:
        if self._codecs_version != self._registry.version:
            self._call_codecs.clear()
            self._codecs_version = self._registry.version
        known = self._call_codecs.get(name)
        if known is not None:  # asked for twice with every step
            return known
        found: Any = self._registry.actions.get(name) or self._registry.workflows.get(name)
        codec = getattr(found, "call", None)
        if not isinstance(codec, CallCodec):
            raise MissingJob(
                f"flow {self.flow.name} calls {name!r}, which is not registered in this process",
                hint="import the module that defines it in this worker",
            )
        self._call_codecs[name] = codec
        return codec
