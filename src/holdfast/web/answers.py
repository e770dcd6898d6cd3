"""What the server answers, beside the documents of runs: outcomes of operations, and what it knows of itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.documents.instance import EventShown
from holdfast.store.contract import QueueDepth


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it changed anything, and in words what came of it."""

    done: bool
    message: str


class SentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event: delivered, queued or target_ended."""

    done: bool
    message: str
    outcome: str


class StartedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The run; `created` is false if the key had it before."""

    id: str
    key: str | None
    created: bool


class ForkedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The new run."""

    id: str


class BulkFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A run that refused."""

    id: str
    message: str


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many changed, how many had nothing to change; `more` if others match and were not reached."""

    done: int
    skipped: int
    failed: tuple[BulkFailure, ...]
    more: bool


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The input was given; what came of it is in the stream."""


class StateView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an instance after an event; `why` it is not available, or from where it is."""

    available: bool
    why: str
    sequence: int
    last: int
    state: Any


class StreamPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events of an instance, oldest first."""

    events: tuple[EventShown, ...]
    cursor: int | None


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is kept: which nodes ran, and the labels they set."""

    step: int
    label: str
    at: datetime
    nodes: tuple[str, ...]
    digest: str


class CheckpointList(msgspec.Struct, frozen=True, kw_only=True):
    checkpoints: tuple[CheckpointView, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    before: Any
    after: Any


class CheckpointDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The state after a step, and what the step changed."""

    step: int
    label: str
    at: datetime
    state: Any
    changed: dict[str, Change]
    ran: tuple[str, ...]


class ProjectionView(msgspec.Struct, frozen=True, kw_only=True):
    """Where a projection stands; `passed_over` are events that people let it go on without."""

    name: str
    decider: str
    status: str
    position: int
    behind: int
    lag_seconds: float
    error: str | None
    owner: str | None
    passed_over: int = 0


class ProjectionList(msgspec.Struct, frozen=True, kw_only=True):
    projections: tuple[ProjectionView, ...]


class HoldView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is held back, since when and by whom."""

    scope: str
    name: str
    by: str
    since: datetime


class StatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds, what this process has counted, and what is held back. `store` is its kind."""

    store: str
    holds: tuple[HoldView, ...]
    runs: dict[str, int]
    work: dict[str, int]
    queues: tuple[QueueDepth, ...]
    workers: int
    inbox: int
    inbox_oldest_seconds: float
    dead_events: int
    process: dict[str, Any]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asking, and of what kind of server. `code` if workflows are known here, so that they can be started."""

    role: str
    name: str
    version: str
    store: str
    redacted: bool
    code: bool
    readonly_reason: str | None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers; `ready` says whether its store does too."""

    status: str
