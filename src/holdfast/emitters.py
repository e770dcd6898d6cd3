"""`hf.emitters`: what happens in state graphs, told to whoever listens.

An emitter is given events of what was committed, and never of anything else. It is called where the commit was made,
perhaps from several engines at once: it has to be quick, and may raise without harm to the run.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

from holdfast.core.errors import UsageError

__all__ = [
    "BufferedEmitter",
    "Emitter",
    "GraphEvent",
    "LogEmitter",
    "NullEmitter",
    "OpenTelemetryEmitter",
    "Several",
]

RUN_STARTED: Final = "run_started"
RUN_COMPLETED: Final = "run_completed"
RUN_FAILED: Final = "run_failed"
RUN_CANCELLED: Final = "run_cancelled"
RUN_PAUSED: Final = "run_paused"
RUN_RESUMED: Final = "run_resumed"
STEP_COMPLETED: Final = "step_completed"
NODE_STARTED: Final = "node_started"
NODE_COMPLETED: Final = "node_completed"
NODE_FAILED: Final = "node_failed"
NODE_RETRIED: Final = "node_retried"
INTERRUPT_ASKED: Final = "interrupt_asked"
INTERRUPT_ANSWERED: Final = "interrupt_answered"
BACKPRESSURE: Final = "backpressure"
NO_PROGRESS: Final = "no_progress"

KINDS: Final = (
    *(RUN_STARTED, RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED, RUN_PAUSED, RUN_RESUMED),
    *(STEP_COMPLETED, NODE_STARTED, NODE_COMPLETED, NODE_FAILED, NODE_RETRIED),
    *(INTERRUPT_ASKED, INTERRUPT_ANSWERED, BACKPRESSURE, NO_PROGRESS),
)
"""Every kind of event."""

TROUBLE: Final = frozenset({RUN_FAILED, NODE_FAILED, BACKPRESSURE, NO_PROGRESS})
ENDS: Final = frozenset({RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEvent:
    """Something that happened in a run of a state graph. `at` is the database's time; `data` is JSON's own types."""

    kind: str
    run_id: str
    workflow: str
    step: int
    at: datetime
    node: str | None = None
    attempt: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Emitter(Protocol):
    """Whoever wants to hear of events: `hf.StateGraph(…, emitter=…)`, or `hf.Engine(…, emitter=…)` for all graphs."""

    def emit(self, event: GraphEvent) -> None:
        """Take one event. Called from the event loop, so it must not wait for anything."""


class NullEmitter:
    """Takes events and does nothing."""

    __slots__ = ()

    def emit(self, event: GraphEvent) -> None:
        """Forget it."""


class LogEmitter:
    """Writes events to a logger: what went wrong as warnings, the rest at `level`."""

    def __init__(self, logger: logging.Logger | str = "holdfast.graphs", *, level: int = logging.INFO) -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level

    def emit(self, event: GraphEvent) -> None:
        """Log it, with the run, the workflow, the node and the attempt in the record."""
        level = max(self._level, logging.WARNING) if event.kind in TROUBLE else self._level
        if not self._logger.isEnabledFor(level):
            return
        where = f"step {event.step}" if event.node is None else f"{event.node} in step {event.step}"
        told = "".join(f" {name}={value!r}" for name, value in event.data.items() if value is not None)
        keys = {"run": event.run_id, "workflow": event.workflow, "node": event.node, "attempt": event.attempt}
        self._logger.log(
            *(level, "%s: %s of run %s, %s%s", event.workflow, event.kind, event.run_id, where, told), extra=keys
        )


class BufferedEmitter:
    """Keeps the latest events in memory, for tests and pages; the oldest make room."""

    def __init__(self, limit: int = 10_000) -> None:
        if type(limit) is not int or limit < 1:
            raise UsageError(f"limit={limit!r:.80} of BufferedEmitter", hint="say how many events are kept, 1 or more")
        self._kept: deque[GraphEvent] = deque(maxlen=limit)
        self._lock = threading.Lock()
        self.dropped = 0
        """How many events made room for others."""

    def __len__(self) -> int:
        return len(self._kept)

    def emit(self, event: GraphEvent) -> None:
        """Keep it."""
        with self._lock:
            self.dropped += len(self._kept) == self._kept.maxlen
            self._kept.append(event)

    def history(
        self,
        *,
        run: str | None = None,
        node: str | None = None,
        kind: str | Collection[str] | None = None,
        step: int | None = None,
    ) -> list[GraphEvent]:
        """The events that are kept, oldest first; only those of a run, node, step, or of one or several kinds."""
        kinds = None if kind is None else _known_kinds({kind} if isinstance(kind, str) else set(kind))
        with self._lock:
            kept = list(self._kept)
        return [
            event
            for event in kept
            if (run is None or event.run_id == run)
            and (node is None or event.node == node)
            and (kinds is None or event.kind in kinds)
            and (step is None or event.step == step)
        ]

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._kept.clear()
            self.dropped = 0


class Several:
    """Gives each event to several emitters. One that raises keeps nothing from the others."""

    def __init__(self, *emitters: Emitter) -> None:
        self.emitters = checked_emitters(emitters, "emitters.Several")

    def emit(self, event: GraphEvent) -> None:
        """Give it to all of them; then raise what one of them raised."""
        raised: Exception | None = None
        for emitter in self.emitters:
            try:
                emitter.emit(event)
            except Exception as error:
                raised = error
        if raised is not None:
            raise raised


class OpenTelemetryEmitter:
    """Makes spans: of each attempt of a node, each step and each run; other events are spans without a length.

    Spans of a run are in one trace, whichever processes made them, because its id is derived from the run's. A span is
    made when what it tells has ended, so that nothing is left open by a process that is killed.
    """

    def __init__(self, tracer: Any = None) -> None:
        try:
            trace = importlib.import_module("opentelemetry.trace")
        except ImportError:
            raise UsageError(
                "OpenTelemetryEmitter needs the package opentelemetry-api, which is not installed here",
                hint="pip install opentelemetry-api opentelemetry-sdk, or use another emitter",
            ) from None
        self._trace = trace
        self._tracer = trace.get_tracer("holdfast") if tracer is None else tracer

    def emit(self, event: GraphEvent) -> None:
        """Make the span that ends with this event, if one does."""
        if event.kind in (NODE_STARTED, RUN_STARTED):
            return
        ended = int(event.at.timestamp() * 1_000_000) * 1_000
        took = event.data.get("duration_ms")
        span = self._tracer.start_span(
            self._name(event),
            context=self._trace.set_span_in_context(self._trace.NonRecordingSpan(self._root(event.run_id))),
            start_time=ended - int((took or 0.0) * 1_000_000),
            attributes=self._attributes(event),
        )
        if event.kind in (NODE_FAILED, RUN_FAILED):
            told = str(event.data.get("error") or event.data.get("reason") or event.kind)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, told))
        span.end(end_time=ended)

    @staticmethod
    def _name(event: GraphEvent) -> str:
        if event.kind in (NODE_COMPLETED, NODE_FAILED):
            return f"{event.workflow}.{event.node}"
        if event.kind == STEP_COMPLETED:
            return f"{event.workflow} step"
        return event.workflow if event.kind in ENDS else f"{event.workflow} {event.kind}"

    @staticmethod
    def _attributes(event: GraphEvent) -> dict[str, Any]:
        named: dict[str, Any] = {
            "holdfast.event": event.kind,
            "holdfast.run": event.run_id,
            "holdfast.workflow": event.workflow,
            "holdfast.step": event.step,
            "holdfast.node": event.node,
            "holdfast.attempt": event.attempt,
        }
        for name, value in event.data.items():
            is_list = isinstance(value, list | tuple)
            named[f"holdfast.{name}"] = [str(each) for each in value] if is_list else value
        return {
            name: value if isinstance(value, str | bool | int | float | list) else str(value)
            for name, value in named.items()
            if value is not None
        }

    def _root(self, run: str) -> Any:
        digest = hashlib.sha256(run.encode()).digest()
        return self._trace.SpanContext(
            trace_id=int.from_bytes(digest[:16], "big"),
            span_id=int.from_bytes(digest[16:24], "big"),
            is_remote=True,
            trace_flags=self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED),
        )


def checked_emitters(given: Any, whose: str) -> tuple[Emitter, ...]:
    """One emitter, several or None, as a tuple; UsageError for anything else."""
    if given is None:
        return ()
    each = tuple(given) if isinstance(given, list | tuple) else (given,)
    for emitter in each:
        if isinstance(emitter, type) or not callable(getattr(emitter, "emit", None)):
            shown = emitter.__name__ if isinstance(emitter, type) else f"{emitter!r:.80}"
            raise UsageError(
                f"{whose} was given {shown}, which is no emitter",
                hint="give an object with a method emit(event), such as hf.emitters.LogEmitter()",
            )
    return each


def _known_kinds(kinds: set[str]) -> set[str]:
    if unknown := kinds - set(KINDS):
        raise UsageError(
            f"there are no events of kind {', '.join(sorted(unknown))}", hint=f"kinds are {', '.join(KINDS)}"
        )
    return kinds
