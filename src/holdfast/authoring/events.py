"""`hf.event`: a name that runs wait for and senders send to, with the type of what is sent.

An event is defined at module level, where senders and waiters import it from. The registry holds it by name, so that
a plain name means the same type wherever the definition has been imported.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from types import CodeType, FrameType
from typing import Any, Final, Generic, Literal, TypeVar, cast, get_args, overload

from holdfast.authoring.conditions import Condition, Received, WaitParts
from holdfast.authoring.durations import span_us
from holdfast.authoring.registry import MAIN_MODULES, Place, Registry, default_registry, validated_name
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, MAX_INT, UNTYPED, Codecs, Encoded, digest
from holdfast.core.codec_shape import display, shape_of
from holdfast.core.errors import UsageError
from holdfast.core.graph import known_names

__all__ = ["Event", "OnTargetEnd", "as_event", "event"]

T = TypeVar("T")

OnTargetEnd = Literal["discard", "broadcast", "dead"]
TARGET_END_CHOICES: Final = get_args(OnTargetEnd)


@dataclass(frozen=True, slots=True, eq=False)
class Event(Condition[Received[T]], Generic[T]):
    """A typed event. `hf.wait_for(event)` gives `Received[T]`; combine it with `|`."""

    name: str
    type: Any
    expires: timedelta | None
    on_target_end: OnTargetEnd
    place: Place | None  # None: a plain name that nobody has defined
    code: CodeType | None = None  # that defined it: a module which is reloaded has another one

    def __repr__(self) -> str:
        return f"<event {self.name}{'' if self.type is UNTYPED else f' of {display(self.type)}'}>"

    @property
    def expires_us(self) -> int | None:
        """How long it is kept while nobody waits, in microseconds; None: for ever."""
        return None if self.expires is None else self.expires // timedelta(microseconds=1)

    @property
    def described(self) -> str:
        """Its type and settings, for the error about two definitions that differ."""
        type_name = "any JSON" if self.type is UNTYPED else display(self.type)
        return f"{type_name}, expires={self.expires}, on_target_end={self.on_target_end!r}, by {self.place}"

    def defines_the_same(self, other: Event[Any]) -> bool:
        """Whether another definition means this event, or is the same line after a reload."""
        same_settings = (self.expires, self.on_target_end) == (other.expires, other.on_target_end)
        if same_settings and _same_type(self.type, other.type):
            return True
        if self.place is None or other.place is None:
            return False
        same_line = self.place.same_definition(other.place) and self.place.line == other.place.line
        return same_line and self.code is not other.code  # the same code has two definitions, if only in one line

    def add_to(self, parts: WaitParts) -> None:
        parts.add_event(self.name, self)

    def encode(self, payload: object, *, limit: int = DEFAULT_LIMIT_BYTES, codecs: Codecs = DEFAULT_CODECS) -> Encoded:
        """The payload as it is stored; PayloadRefused unless it is of the event's type and comes back equal."""
        return codecs.encode(payload, self.type, where=self._where, limit=limit)

    def decode(self, data: bytes, codec: str | None = None, *, codecs: Codecs = DEFAULT_CODECS) -> T:
        """The payload as the waiter receives it; PayloadRefused if what was sent has another type."""
        return cast(T, codecs.decode(data, self.type, where=self._where, codec=codec))

    def check(self, payload: object) -> None:
        """PayloadRefused unless this can be sent, whatever its size: the limit is the engine's."""
        self.encode(payload, limit=MAX_INT)

    def digest(self, payload: object) -> str:
        """Equal for equal payloads, in every process."""
        return digest(DEFAULT_CODECS.canonical(payload, self.type, where=self._where))

    @property
    def _where(self) -> str:
        return f"the payload of event {self.name}"


@overload
def event(
    name: str, /, *, expires: timedelta | None = ..., on_target_end: OnTargetEnd = ..., registry: Registry | None = ...
) -> Event[Any]: ...
@overload
def event(
    name: str,
    type: type[T],
    /,
    *,
    expires: timedelta | None = ...,
    on_target_end: OnTargetEnd = ...,
    registry: Registry | None = ...,
) -> Event[T]: ...
@overload
def event(
    name: str,
    type: None,
    /,
    *,
    expires: timedelta | None = ...,
    on_target_end: OnTargetEnd = ...,
    registry: Registry | None = ...,
) -> Event[None]: ...
@overload
def event(
    name: str,
    type: object,
    /,
    *,
    expires: timedelta | None = ...,
    on_target_end: OnTargetEnd = ...,
    registry: Registry | None = ...,
) -> Event[Any]: ...
def event(
    name: str,
    type: Any = UNTYPED,
    /,
    *,
    expires: timedelta | None = None,
    on_target_end: OnTargetEnd = "discard",
    registry: Registry | None = None,
) -> Event[Any]:
    """Define an event and the type of its payload; without a type the payload is any JSON.

    `expires`: how long one is kept while nobody waits for it. `on_target_end`: what becomes of one that was sent to a
    run which ended without taking it: "discard" it, "broadcast" it to others, or keep it as a "dead" letter.
    """
    owner = f"event {name!r:.80}"
    validated_name(name, "an event")
    shape_of(type, f"the payload of event {name}")  # refused here, and not when the first one is sent
    if expires is not None:
        if not isinstance(expires, timedelta):
            raise UsageError(
                f"expires={expires!r:.80} of {owner} is a {expires.__class__.__name__}", hint="give a timedelta or None"
            )
        if span_us(f"expires= of {owner}", expires) == 0:
            raise UsageError(f"expires= of {owner} is no time at all", hint="give a longer timedelta, or None")
    if on_target_end not in TARGET_END_CHOICES:
        raise UsageError(
            f"on_target_end={on_target_end!r:.80} of {owner} is unknown",
            hint=known_names(str(on_target_end), TARGET_END_CHOICES),
        )
    frame = sys._getframe(1)
    made: Event[Any] = Event(name, type, expires, on_target_end, _place_of(name, frame), frame.f_code)
    (default_registry if registry is None else registry).add_event(made)
    return made


def as_event(what: str, thing: object, registry: Registry) -> Event[Any]:
    """The event that is meant by itself or by its name; a name that nobody has defined takes any JSON."""
    if isinstance(thing, Event):
        return thing
    if isinstance(thing, str):
        found = registry.events.get(thing)
        if found is not None:
            return found
        return Event(validated_name(thing, f"the event in {what}"), UNTYPED, None, "discard", None)
    raise UsageError(
        f"{what} was given {thing!r:.80}, a {type(thing).__name__}, which is no event",
        hint='define one with hf.event("name", Type) at module level and pass that, or pass its name',
    )


def _same_type(one: object, other: object) -> bool:
    """A class that was reloaded, or imported once more as the main program, is another object of the same name."""
    if one == other:
        return True
    if not isinstance(one, type) or not isinstance(other, type) or one.__qualname__ != other.__qualname__:
        return False
    return one.__module__ == other.__module__ or bool(MAIN_MODULES & {one.__module__, other.__module__})


def _place_of(name: str, frame: FrameType) -> Place:
    # An assignment has no qualified name that could be known, so the event's own name stands for it.
    return Place(str(frame.f_globals.get("__name__")), name, frame.f_code.co_filename, frame.f_lineno)
