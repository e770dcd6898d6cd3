"""Events from outside a run: what `engine.send` and `engine.broadcast` were told, as operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.authoring.registry import Registry
from holdfast.core.codec import Codecs
from holdfast.core.function_operations import BroadcastEvent, SendEvent
from holdfast.start_options import Identified, checked_text

if TYPE_CHECKING:
    from holdfast.authoring.events import Event


def send_operation(
    event: Event[Any] | str,
    payload: Any,
    *,
    to: str | Identified,
    identity: str,
    registry: Registry,
    codecs: Codecs,
    limit: int,
) -> SendEvent:
    """The send as data; PayloadRefused if the payload does not have the event's type."""
    from holdfast.authoring.events import as_event  # for those who have events

    made = as_event("engine.send", event, registry)
    encoded = made.encode(payload, limit=limit, codecs=codecs)
    return SendEvent(
        run=checked_text(to if isinstance(to, str) else getattr(to, "id", to), "to"),
        event=checked_text(identity, "id"),
        name=made.name,
        payload=encoded.data,
        codec=encoded.codec,
        expires=made.expires_us,
        on_target_end=made.on_target_end,
    )


def broadcast_operation(
    event: Event[Any] | str,
    payload: Any,
    *,
    to_all: bool,
    identity: str,
    registry: Registry,
    codecs: Codecs,
    limit: int,
) -> BroadcastEvent:
    from holdfast.authoring.events import as_event  # for those who have events

    made = as_event("engine.broadcast", event, registry)
    encoded = made.encode(payload, limit=limit, codecs=codecs)
    return BroadcastEvent(
        event=checked_text(identity, "id"),
        name=made.name,
        payload=encoded.data,
        codec=encoded.codec,
        expires=made.expires_us,
        to_all=to_all,
    )
