"""What requests may carry: the parameters of addresses, and bodies. The OpenAPI document is made of these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

LARGEST: Final = 2**53  # what every client can count to

Text = Annotated[str, Meta(min_length=1, max_length=255)]
Long = Annotated[str, Meta(min_length=1, max_length=2_000)]
Instant = Annotated[datetime, Meta(tz=True)]
Sequence = Annotated[int, Meta(ge=0, le=LARGEST)]
PageSize = Annotated[int, Meta(ge=1, le=500)]
StatusName = Literal["pending", "running", "suspended", "paused", "cancelling", "completed", "failed", "cancelled"]
ModelName = Literal["function", "dag", "flow", "graph", "decider", "projection"]
TagText = Annotated[str, Meta(min_length=3, max_length=520, pattern="^[^:]+:.+$")]


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request carries. A name that is not known is refused: it would be a filter that does nothing."""


class Filter(Form, frozen=True, kw_only=True):
    """Which runs are meant; `tag` is written name:value.

    `q` begins an id or a workflow's name, or is anywhere in a key if it has three characters; spaces are like dashes.
    """

    workflow: Text | None = None
    status: list[StatusName] = []
    model: ModelName | None = None
    tag: Annotated[list[TagText], Meta(max_length=20)] = []
    q: Text | None = None
    queue: Text | None = None
    since: Instant | None = None
    until: Instant | None = None


class ListQuery(Filter, frozen=True, kw_only=True):
    limit: PageSize = 50
    cursor: Text | None = None


class PageQuery(Form, frozen=True, kw_only=True):
    limit: PageSize = 100
    cursor: Long | None = None


class NodesQuery(Form, frozen=True, kw_only=True):
    node: Long | None = None
    state: Text | None = None
    after: Long | None = None
    limit: PageSize = 500


class GraphQuery(Form, frozen=True, kw_only=True):
    group: Long | None = None
    all: bool = False


class TimelineQuery(Form, frozen=True, kw_only=True):
    after: Long | None = None
    limit: Annotated[int, Meta(ge=1, le=5_000)] = 1_000


class HistoryQuery(Form, frozen=True, kw_only=True):
    after: Sequence = 0
    limit: PageSize = 200


class StateQuery(Form, frozen=True, kw_only=True):
    sequence: Sequence | None = None


class LiveQuery(Form, frozen=True, kw_only=True):
    run: Text | None = None


class StartBody(Form, frozen=True, kw_only=True):
    """A start by name. `kwargs` are the fields of a Dag, the state of a state graph, or keywords."""

    workflow: Text
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    key: Text | None = None
    queue: Text | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    tags: dict[str, str] | None = None
    at: Instant | None = None
    paused: bool = False
    if_exists: Literal["same", "restart"] = "same"


class NoBody(Form, frozen=True, kw_only=True):
    """Nothing needs to be said: an empty object, or no body at all."""


class CancelBody(Form, frozen=True, kw_only=True):
    """`force` does not wait for what is running, and is for admins."""

    force: bool = False


class PauseBody(Form, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=255)] = ""


class NodeBody(Form, frozen=True, kw_only=True):
    node: Long


class ForkBody(Form, frozen=True, kw_only=True):
    """Of a DAG `from_node`; of a state graph `step` or `label`, and fields to `update`."""

    from_node: Long | None = None
    step: Sequence | None = None
    label: Text | None = None
    update: dict[str, Any] | None = None
    key: Text | None = None


class AnswerBody(Form, frozen=True, kw_only=True):
    """The answer to a question; `node` if several ask."""

    answer: Any
    node: Long | None = None


class SendBody(Form, frozen=True, kw_only=True):
    """The same `message_id` applies once; the header Idempotency-Key says the same."""

    value: Any = None
    message_id: Text | None = None


class BroadcastBody(Form, frozen=True, kw_only=True):
    """To whoever has waited longest, or to all who wait."""

    value: Any = None
    to_all: bool = False
    message_id: Text | None = None


class ExecuteBody(Form, frozen=True, kw_only=True):
    """`input` has "type", the name of the input's class, and its fields."""

    input: dict[str, Any]


class BulkBody(Form, frozen=True, kw_only=True):
    """Either these runs, or those that match."""

    action: Literal["cancel", "pause", "resume", "retry"]
    ids: Annotated[list[Text], Meta(max_length=1_000)] | None = None
    filter: Filter | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000


class LetterBody(Form, frozen=True, kw_only=True):
    """Of work, the run and the node; of an event, its id alone."""

    id: Long
    node: Long | None = None


class HoldBody(Form, frozen=True, kw_only=True):
    """Claim nothing while on: of a workflow, of a queue, or at all."""

    on: bool
    workflow: Text | None = None
    queue: Text | None = None


class SkipEventBody(Form, frozen=True, kw_only=True):
    """`position` guards against skipping another event than the one that was looked at."""

    position: Sequence | None = None


class SessionBody(Form, frozen=True, kw_only=True):
    token: Annotated[str, Meta(min_length=1, max_length=1_000)]
