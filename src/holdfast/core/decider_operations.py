"""Operations of deciders: an input is executed, queued, or taken from the inbox.

An effect and a timer are settled with `CompleteWork` like any other work: the result is the input that follows, and
it is applied in the same decision, so there is no moment between an effect's end and what came of it.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.core.operations import Handed, Offer, RunOperation, WorkOperation

DECIDER = "decider"  # the model
INBOX_NODE = "inbox"
INPUT_EVENT = "input"  # the name of events that are inputs waiting in an inbox
TIMER_CANCELLED = "TimerCancelled"

APPLIED, IGNORED, DUPLICATE = "applied", "ignored", "duplicate"


class InputGiven(RunOperation, frozen=True, kw_only=True, gc=False):
    """An input for the instance `key` of `workflow`. Its run's id is derived from both, so the first can name it."""

    may_reach_out: ClassVar[bool] = True  # to whoever waits for the end that this may be
    workflow: str
    key: str
    data: bytes
    codec: str = "json"
    input_type: str = ""
    command: str | None = None
    tags: str = "{}"


class ExecuteInput(InputGiven, frozen=True, kw_only=True, gc=False, tag=True):
    """Fold, decide, append, enqueue and schedule, all at once. Identity: the command id (K8), or this submission's."""

    id: str  # of this submission: an answer that was lost does not make the input apply twice
    observe: str = "off"  # or type, payload
    offer: Offer | None = None


class EnqueueInput(InputGiven, frozen=True, kw_only=True, gc=False, tag=True):
    """Keep an input until a worker applies it, in the order of arrival. Identity: `id`."""

    id: str
    observe: str = "off"


class DrainInbox(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Apply what waits in the inbox, oldest first, at most `limit`."""

    may_reach_out: ClassVar[bool] = True
    limit: int = 100
    observe: str = "off"
    offer: Offer | None = None


class RefuseInput(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """The oldest input of the inbox cannot be decided: a dead letter, and the next one's turn."""

    reason: str
    event: str  # the id of its row


class ForgetSnapshot(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Delete the stored state of an instance (I38)."""

    locked: ClassVar[bool] = True


class Executed(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """What became of an input: applied, ignored (the instance has ended) or a duplicate."""

    verdict: str
    run_status: str = ""
    sequence: int = 0  # the length of the stream now
    differs: bool = False  # a duplicate whose command id came with other data the first time
    handed: tuple[Handed, ...] = ()
