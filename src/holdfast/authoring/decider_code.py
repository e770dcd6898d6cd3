"""A decider's class bound to the codecs of an engine: `DeciderCode`, as the machine asks for it.

Rows in, rows out. What an author's code gets is always the decoded form of what is or will be stored, and a new state
is folded from events that were written and read again, so that the first time and every replay agree (I14).
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from holdfast.authoring.deciders import Decider, DeciderDefinition
from holdfast.authoring.decision import Decision, TimerRequest
from holdfast.authoring.deduplication import command_id_of
from holdfast.authoring.durations import instant
from holdfast.authoring.recorded import Recorded, TimerCancelled
from holdfast.authoring.registry import LONGEST_NAME
from holdfast.authoring.state_machine import StateInfo
from holdfast.authoring.type_parameters import members_of_union
from holdfast.authoring.variants import Variant, Variants
from holdfast.core.authors_line import authors_line
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, UNTYPED, Codecs, digest
from holdfast.core.codec_shape import TAG_FIELD, display
from holdfast.core.errors import DecideFailed, PayloadRefused, UsageError
from holdfast.core.rows import Fact
from holdfast.models.decider_code import Decided, NewEffect, NewEvent, NewTimer

__all__ = ["BoundDecider", "RoutedInput", "bound_decider", "refuse_instance"]

LOGGER = logging.getLogger("holdfast.deciders")


class RoutedInput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An input, encoded, with the instance that it is for and the command id that it carries itself."""

    key: str
    type: str
    data: bytes
    codec: str
    command: str | None = None


def bound_decider(
    cls: type[Decider[Any, Any, Any, Any]], codecs: Codecs = DEFAULT_CODECS, limit: int = DEFAULT_LIMIT_BYTES
) -> BoundDecider:
    """The code of a decider for an engine with these codecs and this limit of a payload in bytes."""
    refuse_instance(cls)
    definition: DeciderDefinition | None = getattr(cls, "__decider__", None)
    if definition is None:
        raise UsageError(
            f"{cls!r:.80} is no decider", hint="give a subclass of hf.Decider[State, Input, Event, Effect]"
        )
    return BoundDecider(definition, codecs, limit)


def refuse_instance(decider: object) -> None:
    """UsageError if what was given for a decider is an object of the class, which is an easy thing to write."""
    if isinstance(decider, Decider):
        name = type(decider).__qualname__
        raise UsageError(
            f"an instance of {name} was given, and the class is meant",
            hint=f"give the class itself: {name}, not {name}()",
        )


class BoundDecider:
    """Implements `models.decider_code.DeciderCode`, and what callers and workers need beside it."""

    def __init__(self, definition: DeciderDefinition, codecs: Codecs, limit: int) -> None:
        types, options = definition.types, definition.options
        self.definition = definition
        self.name = definition.name
        self.queue = options.queue
        self.snapshot_every = options.snapshot_every
        self.command_retention = options.command_retention_us
        self.window = None if options.dedup is None else options.dedup.window
        self.retry = options.retry
        self._decider = definition.decider
        self._codecs = codecs
        self._limit = limit
        self._inputs, self._events, self._effects = types.inputs, types.events, types.effects
        self._state = types.state
        self._effect_timeout = options.effect_timeout_us
        self._none_is_a_state = any(
            member in (None, type(None), Any, object) for member in members_of_union(types.state)
        )
        self._state_kinds = _plain_classes(types.state)
        self.state_is_immutable = definition.state_is_immutable
        self._warned = False

    def __repr__(self) -> str:
        return f"<code of decider {self.name}>"

    @property
    def code(self) -> str:
        return self.definition.code

    # -- folding

    def initial(self) -> Any:
        return self._folded(self._decider.initial(), "initial")

    def evolve(self, state: Any, fact: Fact) -> Any:
        event = self.event_of(fact)
        try:
            return self._folded(self._decider.evolve(state, event), fact.type)
        except Exception as error:
            error.add_note(f"while folding {_place(fact)}")
            raise

    def event_of(self, fact: Fact) -> Any:
        """A stored event as the code of today has it; PayloadRefused names type, key, sequence and field (I37)."""
        upcasters = self.definition.upcasters
        if fact.version == upcasters.current(fact.type) and fact.type in self._events.by_name:
            try:
                return self._events.read_quickly(fact.type, fact.data, self._codecs, fact.codec)
            except Exception:  # noqa: S110 - read again below, where the message is made
                pass
        where, decider = _place(fact), self.definition.cls.__qualname__
        if fact.version == upcasters.current(fact.type):
            return self._events.read(fact.data, self._codecs, fact.codec, where, self._hint_for(fact), fact.version)
        plain = self._codecs.decode(fact.data, UNTYPED, where=where, codec=fact.codec)
        if type(plain) is not dict:
            raise PayloadRefused(f"{where} is no object", hint="the row was changed by hand: restore it")
        plain = upcasters.upcast(fact.type, fact.version, plain, decider=decider, where=where)
        hint = f"repair the upcasts of {fact.type}: what they give is no event as the code has it now"
        return self._events.from_plain(plain, where, hint)

    def _hint_for(self, fact: Fact) -> str:
        """What to do about an event that does not fit its class: a field it does not know was probably renamed."""
        variant = self._events.by_name.get(fact.type)
        step = f"@hf.upcast({self.definition.cls.__qualname__}, {fact.type!r}, from_version={fact.version})"
        plain: dict[str, Any] = {}
        with contextlib.suppress(Exception):  # what is wrong with it is told by whoever reads it
            plain.update(cast("dict[str, Any]", self._codecs.decode(fact.data, UNTYPED, where="", codec=fact.codec)))
        unread = [] if variant is None else variant.unread(plain)
        if variant is None or not unread:
            return f"give what is missing a default, or add {step}"
        missing = [name for name in variant.fields or () if name not in plain]  # the first is the one that is told
        new = missing[0] if missing else "NEW_NAME"
        return (
            f"add {step}, if {unread[0]!r} was renamed with: "
            f"def renamed(event): event[{new!r}] = event.pop({unread[0]!r}); return event"
        )

    def unread_fields(self, fact: Fact) -> list[str]:
        """What a stored event holds, after its upcasts, that its class has no field for: lost to this code, silently.

        The event itself must be one that can be read.
        """
        upcasters, where = self.definition.upcasters, _place(fact)
        stored = cast("dict[str, Any]", self._codecs.decode(fact.data, UNTYPED, where=where, codec=fact.codec))
        decider = self.definition.cls.__qualname__
        plain = upcasters.upcast(fact.type, fact.version, stored, decider=decider, where=where)
        return self._events.by_name[plain[TAG_FIELD]].unread(plain)

    def recorded(self, fact: Fact) -> Recorded[Any]:
        """A stored event as readers get it."""
        event = TimerCancelled(key=_cancelled_key(fact)) if fact.system else self.event_of(fact)
        return Recorded(
            workflow=fact.workflow,
            workflow_id=fact.key,
            sequence=fact.sequence,
            type=fact.type if fact.system else self._name_of(event, fact),
            event=event,
            at=instant(fact.at),
            position=fact.position,
            version=fact.version,
            system=bool(fact.system),
            cause=fact.cause,
        )

    def _name_of(self, event: object, fact: Fact) -> str:
        variant = self._events.of(event)  # an upcast may have renamed it
        return fact.type if variant is None else variant.name

    def _folded(self, state: Any, after: str) -> Any:
        if state is None and not self._none_is_a_state:
            method, what = ("initial", "") if after == "initial" else ("evolve", f" for event {after}")
            raise DecideFailed(
                f"{method} of {self.name} returned None{what}, where a {display(self._state)} is due",
                hint=f"return the state from every path of {method}, also for an event that changes nothing",
            )
        if inspect.iscoroutine(state):
            state.close()
            raise DecideFailed(f"the state of {self.name} is a coroutine", hint="evolve and initial are plain def")
        if self._state_kinds is not None and not isinstance(state, self._state_kinds):
            method, what = ("initial", "") if after == "initial" else ("evolve", f" for event {after}")
            raise DecideFailed(
                f"{method} of {self.name} returned {state!r:.80}, a {type(state).__name__}{what}, where a "
                f"{display(self._state)} is due",
                hint=f"return the state from every path of {method}, or correct the first type of the class",
            )
        return state

    # -- deciding

    def decide(self, now: int, state: Any, data: bytes, codec: str) -> Decided:
        given = self.decode_input(data, codec)
        # A copy: what decide does to a state that can be changed is in no event, so no replay would know of it.
        shown = state if self.state_is_immutable else copy.deepcopy(state)
        decision: object = self._decider.decide(instant(now), shown, given)
        if not isinstance(decision, Decision):
            raise self._wrong(
                given, f"returned {decision!r:.80}, a {type(decision).__name__}", "return hf.Decision.event(…)"
            )
        if not decision.events:
            raise self._wrong(
                given,
                "returned a decision without an event",
                "an input always leaves an event, also one that is refused: hf.Decision.event(PaymentRefused(…))",
            )
        events = []
        for event in decision.events:
            variant = self._member(self._events, event, given)
            data, decoded = self._events.written(event, variant, self._codecs, self._limit)
            events.append(self._new_event(data, variant))
            state = self._folded(self._decider.evolve(state, decoded), variant.name)
        return Decided(
            events=tuple(events),
            state=state,
            effects=tuple(self._new_effect(effect, given) for effect in decision.effects),
            cancels=decision.cancelled_timers,
            timers=tuple(self._new_timer(timer, given, now) for timer in decision.timers),
        )

    def _new_event(self, data: bytes, variant: Variant) -> NewEvent:
        return NewEvent(
            type=variant.name,
            data=data,
            codec=self._codecs.default.tag,
            version=self.definition.upcasters.current(variant.name),
        )

    def encode_event(self, event: object) -> NewEvent:
        """An event as a decision would record it, for tests; UsageError if it is none of this decider's."""
        variant = self._events.of(event)
        if variant is None:
            raise UsageError(
                f"{event!r:.80}, a {type(event).__name__}, is no event of {self.name} (known: {self._events.names})",
                hint="give an instance of one of these",
            )
        return self._new_event(self._events.write(event, variant, self._codecs, self._limit), variant)

    def decode_event(self, event: NewEvent) -> Any:
        """An event that a decision recorded, as it will read."""
        return self._events.read(event.data, self._codecs, event.codec)

    def _new_effect(self, effect: object, given: object) -> NewEffect:
        variant = self._member(self._effects, effect, given)
        return NewEffect(
            type=variant.name,
            data=self._effects.write(effect, variant, self._codecs, self._limit),
            codec=self._codecs.default.tag,
            timeout=self._effect_timeout,
        )

    def _new_timer(self, timer: TimerRequest[Any], given: object, now: int) -> NewTimer:
        variant = self._member(self._inputs, timer.input, given, "the timer input")
        ours, theirs = self._lenient_key(given), self._lenient_key(timer.input)
        if ours is not None and theirs is not None and ours != theirs:
            raise self._wrong(
                given,
                f"of instance {ours!r} set a timer for instance {theirs!r}",
                "a timer gives its input to the instance that set it; let an effect call engine.execute for another",
            )
        return NewTimer(
            type=variant.name,
            data=self._inputs.write(timer.input, variant, self._codecs, self._limit),
            codec=self._codecs.default.tag,
            due=timer.due_us(now),
            key=timer.key,
        )

    def _member(self, variants: Variants, value: object, given: object, what: str = "") -> Variant:
        variant = variants.of(value)
        if variant is not None:
            return variant
        role = variants.role
        if isinstance(value, type):
            raise self._wrong(
                given,
                f"returned the class {value.__name__} as {what or f'the {role}'}, where an instance is due",
                f"make one: {value.__name__}(…)",
            )
        told = f"returned as {what or f'the {role}'} a {type(value).__name__}"
        if isinstance(value, list | tuple):
            more = {"event": "hf.Decision.event(a, b), or .with_events([a, b])", "effect": ".with_effects([a, b])"}
            hint = f"give them one by one: {more.get(role, 'one timer for each')}"
        elif not variants:
            hint = f"it has Never for its {role}s: name {type(value).__name__} there"
        else:
            hint = f"give an instance of one of these, or add {type(value).__name__} to the {role} types"
        raise self._wrong(given, f"{told}, which is no {role} of it (known: {variants.names})", hint)

    def _wrong(self, given: object, what: str, hint: str) -> DecideFailed:
        return DecideFailed(f"decide of {self.name}, for input {type(given).__name__}, {what}", hint=hint)

    # -- about a state

    def is_terminal(self, state: Any) -> bool:
        try:
            return bool(self._decider.is_terminal(state))
        except Exception as error:
            raise DecideFailed(
                f"is_terminal of {self.name} raised {type(error).__name__}: {error}{authors_line(error)}",
                hint="repair is_terminal: it is asked of every new state, also of the first one",
            ) from error

    def view(self, state: Any) -> StateInfo:
        """Where the instance stands, with the fields that its author shows; raises what the author's view raises."""
        return self.definition.view(state)

    def status(self, state: Any) -> str:
        try:
            return self.definition.described(state).status
        except Exception as error:
            # For people only: a view that fails must not undo a decision that is right.
            return f"unknown: view raised {type(error).__name__}"

    def store_state(self, state: Any) -> tuple[bytes, str] | None:
        try:
            encoded = self._codecs.encode(state, self._state, where=f"the state of {self.name}", limit=self._limit)
        except UsageError as error:
            if not self._warned:
                self._warned = True
                LOGGER.warning(
                    "no snapshots of %s are made, and long streams are folded from their beginning: %s",
                    self.name,
                    error,
                )
            return None
        return encoded.data, encoded.codec

    def load_state(self, data: bytes, codec: str) -> Any:
        return self._codecs.decode(data, self._state, where=f"a snapshot of {self.name}", codec=codec)

    # -- inputs

    def route(self, value: object) -> RoutedInput:
        """An input on its way in; UsageError if it is none of this decider's, PayloadRefused if it cannot be stored."""
        variant = self._input(value, f"{self.name} was given")
        data, decoded = self._inputs.written(value, variant, self._codecs, self._limit)
        return RoutedInput(
            key=self.key_of(decoded),
            type=variant.name,
            data=data,
            codec=self._codecs.default.tag,
            command=command_id_of(variant.name, decoded),
        )

    def route_mapping(self, given: object) -> RoutedInput:
        """The same for an untyped caller, whose mapping has "type" and the fields."""
        return self.route(self._inputs.from_mapping(given))

    def key_of(self, value: object) -> str:
        """The instance that an input is for; UsageError unless `workflow_id` gives a key that can be stored."""
        try:
            key: object = self._decider.workflow_id(value)
        except Exception as error:
            raise DecideFailed(
                f"workflow_id of {self.name} raised, for input {type(value).__name__}, {type(error).__name__}: "
                f"{error}{authors_line(error)}",
                hint="repair workflow_id: it names the instance of every input that comes from outside",
            ) from error
        problem = None
        if not isinstance(key, str):
            problem = f"{key!r:.80}, a {type(key).__name__}"
        elif not key:
            problem = "an empty text"
        elif len(key) > LONGEST_NAME or len(key.encode("utf-8", "surrogatepass")) > LONGEST_NAME:
            problem = f"{key[:40]!r}… with {len(key):,} characters"
        elif not key.isprintable():
            problem = f"{key!r}, which has characters that cannot be printed"
        if problem is not None:
            raise UsageError(
                f"workflow_id of {self.name} gave {problem}, for {type(value).__name__}",
                hint=f"return a text of 1 to {LONGEST_NAME} printable characters (bytes in UTF-8)",
            )
        return str(key)

    def _lenient_key(self, value: object) -> str | None:
        """The instance that an input names, or None if it names none: one that stays with its instance need not."""
        try:
            key: object = self._decider.workflow_id(value)
        except Exception:
            return None
        return key if isinstance(key, str) else None

    def input_type(self, data: bytes, codec: str) -> str:
        return self._inputs.tag(data, self._codecs, codec)

    def command_of(self, data: bytes, codec: str) -> str | None:
        return command_id_of(self.input_type(data, codec), self.decode_input(data, codec))

    def content(self, data: bytes, codec: str) -> str:
        where = f"an input of {self.name}"
        plain = self._codecs.decode(data, UNTYPED, where=where, codec=codec)
        return digest(self._codecs.canonical(plain, where=where))[:32]

    def decode_input(self, data: bytes, codec: str) -> Any:
        return self._inputs.read(data, self._codecs, codec)

    # -- effects

    def decode_effect(self, data: bytes, codec: str) -> Any:
        """A stored effect, to be given to `handle`; PayloadRefused if it cannot be read."""
        return self._effects.read(data, self._codecs, codec)

    def returned_input(self, value: object, key: str, effect: str) -> tuple[bytes, str] | None:
        """What `handle` returned for an effect of the instance `key`, encoded; UsageError for a foreign input."""
        if value is None:
            return None
        variant = self._input(value, f"handle of {self.name} returned, for effect {effect},")
        theirs = self._lenient_key(value)
        if theirs is not None and theirs != key:
            raise UsageError(
                f"handle of {self.name} {key!r} returned, for effect {effect}, a {variant.name} of instance {theirs!r}",
                hint="what it returns goes to its own instance; call engine.execute in it for another",
            )
        return self._inputs.write(value, variant, self._codecs, self._limit), self._codecs.default.tag

    def _input(self, value: object, who: str) -> Variant:
        variant = self._inputs.of(value)
        if variant is not None:
            return variant
        if isinstance(value, type):
            what, hint = f"the class {value.__name__}", f"give an instance: {value.__name__}(…)"
        else:
            what = f"a {type(value).__name__}"  # and not its value, which may be a secret
            hint = "give an instance of one of these"
            if isinstance(value, Mapping):
                hint += '; a mapping with "type" goes to engine.execute_dynamic'
        raise UsageError(f"{who} {what}, which is no input of it (known: {self._inputs.names})", hint=hint)


def _plain_classes(annotation: object) -> tuple[type, ...] | None:
    """The classes that a state may be of, where that can be told by looking at it once; None for anything else."""
    kinds: list[type] = []
    for member in members_of_union(annotation):
        kind = type(None) if member is None else member
        if not isinstance(kind, type) or kind is Any:
            return None
        kinds += (float, int) if kind is float else (kind,)
    try:
        isinstance(None, tuple(kinds))
    except TypeError:  # a protocol, a typed dict
        return None
    return tuple(kinds)


def _place(fact: Fact) -> str:
    version = "" if fact.version == 1 else f" (version {fact.version})"
    return f"event {fact.type}{version} of {fact.workflow} {fact.key!r}, sequence {fact.sequence},"


def _cancelled_key(fact: Fact) -> str:
    try:
        return str(msgspec.json.decode(fact.data)["key"])
    except Exception:
        return ""
