"""What a flow waits for besides actions: the first of some events, or a time. And the operations about it.

All that is known about a wait is in the payload of its work item, so an attempt that is made again goes on with it.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.core.function_operations import event_topic
from holdfast.core.operations import Offer, WorkOperation
from holdfast.core.stored import read_stored

__all__ = ["AwaitEvents", "FlowWait", "WaitAnswer", "WakeAhead", "read_wait", "wait_bytes"]


class WaitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The event that came: it belongs to the wait from the transaction on that took it (I50)."""

    event: str
    payload: bytes
    codec: str = "json"
    id: str = ""
    at: int = 0


class FlowWait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a waiting item: which events end it, at which instant it ends without one, and what came."""

    events: tuple[str, ...]
    until: int | None = None
    answer: WaitAnswer | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FlowWait).decode


def wait_bytes(wait: FlowWait) -> bytes:
    """As a work item keeps it."""
    return _encode(wait)


def read_wait(data: bytes | None) -> FlowWait:
    """What a work item keeps."""
    return read_stored(_decode, data or b"{}", "what a flow waits for")


class AwaitEvents(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Take an event that is there already, or wait for one; completes the node if its time has come.

    `refused` says why the event that came can't be taken: it becomes a dead letter, and the wait goes on.
    """

    locked: ClassVar[bool] = True
    may_reach_out: ClassVar[bool] = True  # to whoever waits for the end that this may be
    events: tuple[str, ...]
    refused: str = ""
    offer: Offer | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({event_topic(name) for name in self.events}))

    @property
    def wakes(self) -> tuple[str, ...]:
        return ()

    @property
    def concerns_all(self) -> bool:
        return False


class WakeAhead(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A sleep that was claimed ahead of its time is over as of then: what follows is ready, and begins then.

    Refused if more comes of it than work to be done, which everybody would see before its time.
    """

    may_reach_out: ClassVar[bool] = True  # to whoever waits for the end that this may be, before that is refused
    offer: Offer | None = None
