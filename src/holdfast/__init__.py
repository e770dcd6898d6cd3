"""Holdfast: durable workflows in ordinary Python.

The public names, found when first used, so that `import holdfast` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "holdfast.authoring.actions": ("Action", "Bound", "action"),
    "holdfast.authoring.conditions": (
        *("Condition", "Received", "RunEnded", "TimeReached", "after", "all_of", "any_of", "at", "ended"),
    ),
    "holdfast.authoring.context": ("Context", "Tx", "current"),
    "holdfast.authoring.dag_builder": ("BuiltDag", "BuiltNode", "DagBuilder"),
    "holdfast.authoring.dag_template": ("DagTemplate", "dag_template"),
    "holdfast.authoring.flow_control": (
        *("CancelThisRun", "FinishThisRun", "FlowControl", "PauseThisRun", "ReattemptThisNode", "SkipThisNode"),
    ),
    "holdfast.authoring.dag_nodes": ("PREVIOUS", "step", "task"),
    "holdfast.authoring.dags": ("Dag",),
    "holdfast.authoring.deciders": ("Decider",),
    "holdfast.authoring.decision": ("Decision",),
    "holdfast.authoring.deduplication": ("Dedup", "idempotent"),
    "holdfast.authoring.effect_context": ("EffectContext",),
    "holdfast.authoring.events": ("Event", "event"),
    "holdfast.authoring.function_commands": (
        *("ChildHandle", "broadcast", "continue_as", "execute", "expose", "now", "on_rollback", "patched", "rng"),
        *("send", "side_effect", "sleep", "start_child", "uuid4", "wait_for"),
    ),
    "holdfast.authoring.flows": ("Flow", "flow"),
    "holdfast.authoring.functions": ("Workflow", "workflow"),
    "holdfast.authoring.pure": ("pure",),
    "holdfast.authoring.projections": ("Projection", "projection"),
    "holdfast.authoring.recorded": ("Recorded", "TimerCancelled"),
    "holdfast.authoring.registry": ("Registry",),
    "holdfast.authoring.node_context": ("NodeContext",),
    "holdfast.authoring.routes": ("Goto", "Many", "Send", "Stop"),
    "holdfast.authoring.state_graphs": ("StateGraph", "reducers"),
    "holdfast.authoring.state_machine": ("StateInfo", "StateMachine", "StateMachineDefinition", "TransitionInfo"),
    "holdfast.authoring.upcasting": ("upcast",),
    "holdfast.blocking": ("BlockingEngine", "BlockingHandle"),
    "holdfast.core.errors": (
        *("HoldfastError", "UsageError", "RunError", "StoreError", "NonRetryable"),
        *("UnknownWorkflow", "UnknownNode", "DagError", "FlowNotSupported", "GraphError", "KeyConflict"),
        *("PayloadRefused", "PayloadTooLarge", "RunFailed", "RunCancelled", "RunPaused", "RemoteError"),
        *("NonDeterminism", "ReplayMismatch", "ReattemptRefused", "MissingJob", "ReadinessOverflow"),
        *("ConflictingWrites", "NoProgress", "DecideFailed"),
        *("StoreUnavailable", "SchemaTooNew", "NotOurDatabase", "EngineClosed"),
    ),
    "holdfast.core.codec": ("JSON", "MSGPACK", "Codec", "Codecs"),
    "holdfast.core.function_operations": ("Delivered", "Queued", "TargetEnded", "TargetNotFound"),
    "holdfast.core.graph": ("Graph",),
    "holdfast.core.retry": ("Retry",),
    "holdfast.core.settings": ("Settings",),
    "holdfast.emitters": ("emitters",),
    "holdfast.engine": ("Engine",),
    "holdfast.graph_diff": ("RunDiff", "StepDifference"),
    "holdfast.graph_documents": (
        *("Checkpoint", "Interrupt", "RecordedIO", "SchedulerMetrics", "SchedulerState", "WorkItem"),
    ),
    "holdfast.graph_replay": ("Difference", "ReplayReport"),
    "holdfast.instance_documents": ("InstanceSnapshot",),
    "holdfast.script": ("run",),
    "holdfast.handle": ("Handle",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

# Written out a second time because type checkers read literals only; a test compares the two.
__all__ = [
    "Action",
    "BlockingEngine",
    "BlockingHandle",
    "Bound",
    "Codec",
    "Codecs",
    "Context",
    "Dag",
    "Engine",
    "Graph",
]
__all__ += ["Handle", "PREVIOUS", "Registry", "Retry", "Settings", "Tx", "action", "current", "run", "step", "task"]
__all__ += ["BuiltDag", "BuiltNode", "DagBuilder", "DagTemplate", "dag_template"]
__all__ += ["FlowControl", "SkipThisNode", "PauseThisRun", "CancelThisRun", "ReattemptThisNode", "FinishThisRun"]
__all__ += ["Flow", "flow", "pure"]
__all__ += ["StateGraph", "NodeContext", "Goto", "Many", "Send", "Stop", "reducers", "emitters"]
__all__ += ["Checkpoint", "Difference", "Interrupt", "RecordedIO", "ReplayReport", "RunDiff", "SchedulerMetrics"]
__all__ += ["SchedulerState", "StepDifference", "WorkItem"]
__all__ += ["Workflow", "workflow", "ChildHandle", "start_child", "continue_as", "on_rollback", "expose", "patched"]
__all__ += ["Event", "event", "Condition", "after", "at", "ended", "any_of", "all_of", "wait_for"]
__all__ += ["Received", "TimeReached", "RunEnded", "send", "broadcast", "execute", "side_effect"]
__all__ += ["Delivered", "Queued", "TargetEnded", "TargetNotFound", "sleep", "now", "uuid4", "rng"]
__all__ += ["Decider", "Decision", "Dedup", "EffectContext", "Recorded", "TimerCancelled", "idempotent", "upcast"]
__all__ += ["Projection", "projection", "StateInfo", "StateMachine", "StateMachineDefinition", "TransitionInfo"]
__all__ += ["InstanceSnapshot", "JSON", "MSGPACK", "__version__"]
__all__ += ["HoldfastError", "UsageError", "RunError", "StoreError", "NonRetryable", "UnknownWorkflow"]
__all__ += ["UnknownNode", "DagError", "FlowNotSupported", "GraphError", "KeyConflict", "PayloadRefused"]
__all__ += ["PayloadTooLarge", "RunFailed", "RunCancelled", "RunPaused", "RemoteError", "NonDeterminism"]
__all__ += ["ReplayMismatch", "ReattemptRefused", "MissingJob", "ReadinessOverflow", "ConflictingWrites"]
__all__ += ["NoProgress", "DecideFailed", "StoreUnavailable", "SchemaTooNew", "NotOurDatabase", "EngineClosed"]

if TYPE_CHECKING:
    from holdfast import emitters
    from holdfast.authoring import reducers
    from holdfast.authoring.actions import Action, Bound, action
    from holdfast.authoring.conditions import (
        Condition,
        Received,
        RunEnded,
        TimeReached,
        after,
        all_of,
        any_of,
        at,
        ended,
    )
    from holdfast.authoring.context import Context, Tx, current
    from holdfast.authoring.dag_builder import BuiltDag, BuiltNode, DagBuilder
    from holdfast.authoring.dag_nodes import PREVIOUS, step, task
    from holdfast.authoring.dag_template import DagTemplate, dag_template
    from holdfast.authoring.dags import Dag
    from holdfast.authoring.deciders import Decider
    from holdfast.authoring.decision import Decision
    from holdfast.authoring.deduplication import Dedup, idempotent
    from holdfast.authoring.effect_context import EffectContext
    from holdfast.authoring.events import Event, event
    from holdfast.authoring.flow_control import (
        CancelThisRun,
        FinishThisRun,
        FlowControl,
        PauseThisRun,
        ReattemptThisNode,
        SkipThisNode,
    )
    from holdfast.authoring.flows import Flow, flow
    from holdfast.authoring.function_commands import (
        ChildHandle,
        broadcast,
        continue_as,
        execute,
        expose,
        now,
        on_rollback,
        patched,
        rng,
        send,
        side_effect,
        sleep,
        start_child,
        uuid4,
        wait_for,
    )
    from holdfast.authoring.functions import Workflow, workflow
    from holdfast.authoring.node_context import NodeContext
    from holdfast.authoring.projections import Projection, projection
    from holdfast.authoring.pure import pure
    from holdfast.authoring.recorded import Recorded, TimerCancelled
    from holdfast.authoring.registry import Registry
    from holdfast.authoring.routes import Goto, Many, Send, Stop
    from holdfast.authoring.state_graphs import StateGraph
    from holdfast.authoring.state_machine import StateInfo, StateMachine, StateMachineDefinition, TransitionInfo
    from holdfast.authoring.upcasting import upcast
    from holdfast.blocking import BlockingEngine, BlockingHandle
    from holdfast.core.codec import JSON, MSGPACK, Codec, Codecs
    from holdfast.core.errors import (
        ConflictingWrites,
        DagError,
        DecideFailed,
        EngineClosed,
        FlowNotSupported,
        GraphError,
        HoldfastError,
        KeyConflict,
        MissingJob,
        NonDeterminism,
        NonRetryable,
        NoProgress,
        NotOurDatabase,
        PayloadRefused,
        PayloadTooLarge,
        ReadinessOverflow,
        ReattemptRefused,
        RemoteError,
        ReplayMismatch,
        RunCancelled,
        RunError,
        RunFailed,
        RunPaused,
        SchemaTooNew,
        StoreError,
        StoreUnavailable,
        UnknownNode,
        UnknownWorkflow,
        UsageError,
    )
    from holdfast.core.function_operations import Delivered, Queued, TargetEnded, TargetNotFound
    from holdfast.core.graph import Graph
    from holdfast.core.retry import Retry
    from holdfast.core.settings import Settings
    from holdfast.engine import Engine
    from holdfast.graph_diff import RunDiff, StepDifference
    from holdfast.graph_documents import (
        Checkpoint,
        Interrupt,
        RecordedIO,
        SchedulerMetrics,
        SchedulerState,
        WorkItem,
    )
    from holdfast.graph_replay import Difference, ReplayReport
    from holdfast.handle import Handle
    from holdfast.instance_documents import InstanceSnapshot
    from holdfast.script import run


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = importlib.import_module(module)
    value = found if module == f"holdfast.{name}" else getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
