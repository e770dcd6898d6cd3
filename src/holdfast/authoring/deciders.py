"""`hf.Decider`: an event-sourced workflow, written as a class of pure functions.

An instance is a stream of events. Its state is what `evolve` makes of them; an input is answered by `decide`, which
sees that state and returns a Decision; effects are carried out by `handle`. The class holds no data of an instance:
one object of it, made without arguments, serves all of them.

What can be wrong with a class is found when it is created. Types that its author gave as text and that do not exist
yet are read at the first use, and checked then.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from holdfast.authoring.actions import UNSET, Unset
from holdfast.authoring.dag_fields import own_annotations
from holdfast.authoring.decision import Decision
from holdfast.authoring.deduplication import Dedup, idempotency_of
from holdfast.authoring.durations import span_us
from holdfast.authoring.effect_context import EffectContext
from holdfast.authoring.fold_digest import code_digest, described_types
from holdfast.authoring.immutability import is_immutable
from holdfast.authoring.registry import Definition, Registry, default_registry, validated_name
from holdfast.authoring.state_machine import StateInfo, StateMachine, StateMachineDefinition, status_text
from holdfast.authoring.type_parameters import (
    arguments_of_base,
    is_never,
    members_of_union,
    names_around,
    read_names,
    type_variables_in,
)
from holdfast.authoring.upcasting import Upcasters
from holdfast.authoring.variants import Variants
from holdfast.core.errors import UsageError
from holdfast.core.graph import known_names
from holdfast.core.retry import EFFECT_RETRY, Retry

__all__ = ["Decider", "DeciderDefinition", "DeciderOptions"]

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - the letters of the model: state, input, event, effect (F)
E = TypeVar("E")
F = TypeVar("F")

REQUIRED: Final = {
    "workflow_id": "def workflow_id(self, input) -> str",
    "initial": "def initial(self) -> State",
    "evolve": "def evolve(self, state, event) -> State",
    "decide": "def decide(self, now, state, input) -> hf.Decision",
}
SIGNATURES: Final = {
    **REQUIRED,
    "is_terminal": "def is_terminal(self, state) -> bool",
    "handle": "async def handle(self, effect, ctx)",
    "view": "def view(self, state) -> hf.StateInfo",
    "definition": "def definition(self) -> hf.StateMachineDefinition",
}
PURE: Final = (*REQUIRED, "is_terminal", "view", "definition")
PARAMETERS: Final = ("state", "inputs", "events", "effects")
WRITE: Final = "class Order(hf.Decider[OrderState, OrderInput, OrderEvent, OrderEffect]), with Never for no effects"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeciderOptions:
    """What the class keywords say, checked."""

    queue: str = "default"
    retry: Retry = EFFECT_RETRY
    effect_timeout: timedelta | float | None = None
    snapshot_every: int = 100
    dedup: Dedup | None = None
    state_version: int = 1
    command_retention: timedelta | float = field(default=timedelta(days=7))

    @property
    def effect_timeout_us(self) -> int | None:
        return None if self.effect_timeout is None else span_us("effect_timeout", self.effect_timeout)

    @property
    def command_retention_us(self) -> int:
        return span_us("command_retention", self.command_retention)

    def check(self, owner: str) -> None:
        """UsageError that names the class and the keyword."""
        validated_name(self.queue, f"the queue of {owner}")
        if not isinstance(self.retry, Retry):
            raise UsageError(f"{owner} has retry={self.retry!r:.80}", hint="give hf.Retry(attempts=…)")
        if type(self.snapshot_every) is not int or self.snapshot_every < 0:
            raise UsageError(
                f"{owner} has snapshot_every={self.snapshot_every!r:.80}",
                hint="give a number of events, or 0 for no snapshots",
            )
        if type(self.state_version) is not int:
            raise UsageError(f"{owner} has state_version={self.state_version!r:.80}", hint="give a whole number")
        if self.dedup is not None and not isinstance(self.dedup, Dedup):
            raise UsageError(f"{owner} has dedup={self.dedup!r:.80}", hint="give hf.Dedup(last=…, ttl=…), or None")
        try:
            zero = self.effect_timeout_us == 0
            _ = self.command_retention_us
        except UsageError as error:
            raise UsageError(f"{owner}: {error.message}", hint=error.hint) from None
        if zero:
            raise UsageError(f"{owner} has effect_timeout={self.effect_timeout!r}", hint="give a time above 0, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeciderTypes:
    """What the four parameters of the class say."""

    state: object
    inputs: Variants
    events: Variants
    effects: Variants


class DeciderDefinition:
    """What a Decider class says, for the engine: its types, options, upcasts, and the object that serves all."""

    __slots__ = ("_code", "_names", "_object", "_types", "_written", "cls", "options", "registry", "upcasters")

    def __init__(
        self,
        cls: type[Decider[Any, Any, Any, Any]],
        *,
        written: tuple[object, ...],
        names: tuple[dict[str, Any], dict[str, Any]],
        options: DeciderOptions,
        registry: Registry,
        upcasters: Upcasters,
    ) -> None:
        self.cls = cls
        self.options = options
        self.registry = registry
        self.upcasters = upcasters
        self._written = written
        self._names = names
        self._types: DeciderTypes | None = None
        self._object: Decider[Any, Any, Any, Any] | None = None
        self._code: tuple[int, str] = (-1, "")

    @property
    def name(self) -> str:
        return self.cls.__holdfast__.name

    @property
    def types(self) -> DeciderTypes:
        """The types of the class; UsageError if one of them cannot be used, or does not exist."""
        if self._types is None:
            try:
                self._types = self._read_types()
            except NameError as error:
                raise UsageError(
                    f"class {self.cls.__qualname__}: a type among its parameters cannot be read: {error}",
                    hint="define or import what it names at the top level of the module",
                ) from None
            self._names = ({}, {})
        return self._types

    def check_types(self) -> None:
        """UsageError unless the types can be used. Those that name what is not defined yet are left for later."""
        try:
            self._types = self._read_types()
        except NameError:
            return
        self._names = ({}, {})

    def _read_types(self) -> DeciderTypes:
        state, inputs, events, effects = (read_names(each, *self._names) for each in self._written)
        owner = self.cls.__qualname__
        found = DeciderTypes(
            state=state,
            inputs=Variants(owner, "input", inputs),
            events=Variants(owner, "event", events),
            effects=Variants(owner, "effect", effects),
        )
        for variants, what in ((found.inputs, "inputs"), (found.events, "events")):
            if not variants:
                raise UsageError(
                    f"class {owner} has Never for its {what}", hint="only a decider's effects may be Never"
                )
            variants.check()
        found.effects.check()
        if not is_never(effects) and self.cls.handle is Decider.handle:
            raise UsageError(
                f"class {owner} has effects ({found.effects.names}) and no handle",
                hint="write async def handle(self, effect, ctx), or Never as its last type if it has no effects",
            )
        _check_idempotency(found.inputs, owner)
        return found

    @property
    def decider(self) -> Decider[Any, Any, Any, Any]:
        """The one object whose methods are called."""
        if self._object is None:
            self._object = self.cls()
        return self._object

    @property
    def handles_async(self) -> bool:
        """Whether `handle` is an `async def`; a plain one belongs in a thread."""
        return inspect.iscoroutinefunction(self.cls.handle)

    @property
    def has_effects(self) -> bool:
        return bool(self.types.effects)

    @property
    def state_is_immutable(self) -> bool:
        """Whether no code can change a state in place; where it can, a remembered state is not to be shared."""
        return is_immutable(self.types.state)

    @property
    def code(self) -> str:
        """The digest of what folds a state (I38)."""
        if self._code[0] != self.upcasters.generation:
            types = self.types
            states = [kind for kind in members_of_union(types.state) if isinstance(kind, type)]
            events = [variant.kind for variant in types.events.by_name.values()]
            steps = list(self.upcasters.steps())
            parts = [
                str(self.options.state_version),
                *described_types([*states, *events]),
                *(f"{event_type}@{version}" for event_type, version, _ in steps),
            ]
            functions: list[object] = [
                each
                for name in ("initial", "evolve")
                for cls in self.cls.__mro__
                if (each := cls.__dict__.get(name)) is not None and cls is not Decider
            ]
            functions += [step for _, _, step in steps]
            self._code = (self.upcasters.generation, code_digest(functions, [self.cls, *states, *events], parts))
        return self._code[1]

    def machine(self) -> StateMachine:
        """The state machine that the author declares; without a declaration no more than where instances begin."""
        declared: object = self.decider.definition()
        if declared is None:
            begin = self.described(self.decider.initial()).status
            return StateMachine(StateMachineDefinition(states=(begin,), initial=begin), name=self.name)
        if not isinstance(declared, StateMachineDefinition):
            raise UsageError(
                f"definition() of {self.cls.__qualname__} gave a {type(declared).__name__}",
                hint="return hf.StateMachineDefinition(states=…, transitions=…, initial=…, terminals=…)",
            )
        for transition in declared.transitions:
            if transition.input not in self.types.inputs.by_name:
                raise UsageError(
                    f"definition() of {self.cls.__qualname__} has a transition by {transition.input!r}, which is no "
                    "input of it",
                    hint=known_names(str(transition.input), self.types.inputs.by_name),
                )
        return StateMachine(declared, name=self.name)

    def view(self, state: object) -> StateInfo:
        """Where a state stands: the author's view, or its `status`, or the name of its class."""
        info = self.described(state)
        if info.terminal is None:
            info = StateInfo(info.status, info.fields, bool(self.decider.is_terminal(state)))
        return info

    def described(self, state: object) -> StateInfo:
        """What the author's view says, and no more."""
        info: object = self.decider.view(state)
        if isinstance(info, str):
            info = StateInfo(info)
        if not isinstance(info, StateInfo):
            raise UsageError(
                f"view() of {self.cls.__qualname__} gave a {type(info).__name__}", hint="return hf.StateInfo(status=…)"
            )
        return info


class Decider(Generic[S, I, E, F]):
    """Base of deciders. Its four parameters are the types of state, inputs, events and effects (`Never` for none).

    Class options: `name` and `aliases` say how it is stored, `queue` where its work is done, `retry` and
    `effect_timeout` how effects and timers are tried, `snapshot_every` after how many events its state is kept
    (0: never), `state_version` that `evolve` has changed in a way its code does not show, `dedup` when equal inputs are
    one, `command_retention` how long command ids are remembered, `registry` where it is registered. A subclass
    inherits all but the names.
    """

    __holdfast__: ClassVar[Definition]
    __decider__: ClassVar[DeciderDefinition]

    def __class_getitem__(cls, types: Any) -> Any:
        given = types if isinstance(types, tuple) else (types,)
        if cls is Decider and len(given) != len(PARAMETERS):
            raise UsageError(
                f"hf.Decider was given {len(given)} types, and takes {len(PARAMETERS)}: {', '.join(PARAMETERS)}",
                hint=f"write {WRITE}",
            )
        return super().__class_getitem__(types)  # type: ignore[misc]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] | list[str] = (),
        queue: str | Unset = UNSET,
        retry: Retry | Unset = UNSET,
        effect_timeout: timedelta | float | Unset | None = UNSET,
        snapshot_every: int | Unset = UNSET,
        dedup: Dedup | Unset | None = UNSET,
        state_version: int | Unset = UNSET,
        command_retention: timedelta | float | Unset = UNSET,
        registry: Registry | None = None,
        **unknown: Any,
    ) -> None:
        super().__init_subclass__()
        given = {
            "queue": queue, "retry": retry, "effect_timeout": effect_timeout, "snapshot_every": snapshot_every,
            "dedup": dedup, "state_version": state_version, "command_retention": command_retention,
        }  # fmt: skip
        owner = f"class {cls.__qualname__}"
        for option in unknown:
            raise UsageError(
                f"{owner} has no class option {option!r}",
                hint=known_names(option, ("name", "aliases", *given, "registry")),
            )
        written = arguments_of_base(cls, Decider)
        if written is None or len(written) != len(PARAMETERS):
            raise UsageError(f"{owner} does not say its types", hint=f"write {WRITE}")
        inherited = getattr(cls, "__decider__", None)
        changed = {option: value for option, value in given.items() if value is not UNSET}
        if type_variables_in(written):
            # A base for others: it has no types yet, so nothing of it can be executed and its name stays free.
            if changed or name is not None or aliases:
                raise UsageError(
                    f"{owner} leaves types open and has class options", hint="give the options to its subclasses"
                )
            return
        base = DeciderOptions() if inherited is None else inherited.options
        # Not replace(): slots and inheritance are fine with it, a type checker is not.
        options = DeciderOptions(**{each: changed.get(each, getattr(base, each)) for each in given})
        options.check(owner)
        if registry is None:
            registry = default_registry if inherited is None else inherited.registry
        _check_methods(cls)
        cls.__holdfast__ = Definition.of(cls, "workflow", name, aliases)
        cls.__decider__ = DeciderDefinition(
            cls,
            written=written,
            names=names_around(cls),
            options=options,
            registry=registry,
            upcasters=Upcasters(None if inherited is None else inherited.upcasters),
        )
        cls.__decider__.check_types()
        registry.add(cls)

    # -- what an author writes

    def workflow_id(self, input: I) -> str:
        """Which instance an input is for."""
        raise NotImplementedError

    def initial(self) -> S:
        """The state before any event."""
        raise NotImplementedError

    def evolve(self, state: S, event: E) -> S:
        """The state after an event. Nothing else is called when a stream is read again (I35)."""
        raise NotImplementedError

    def decide(self, now: datetime, state: S, input: I) -> Decision[E, F, I]:
        """What follows from an input, at least one event. `now` is the only clock; it is aware and in UTC."""
        raise NotImplementedError

    def is_terminal(self, state: S) -> bool:
        """Whether an instance in this state has ended: inputs are then accepted and ignored."""
        return False

    def handle(self, effect: F, ctx: EffectContext) -> Awaitable[I | None] | I | None:
        """Carry out an effect, at least once; the input that it returns is executed as the effect is settled."""
        raise NotImplementedError

    def view(self, state: S) -> StateInfo:
        """The state for people. By default its attribute `status`, or else the name of its class."""
        status = getattr(state, "status", None)
        return StateInfo(type(state).__name__ if status is None or callable(status) else status_text(status))

    def definition(self) -> StateMachineDefinition | None:
        """The state machine that this decider is meant to be, for drawings; None if it is not declared."""
        return None

    @classmethod
    def state_machine(cls) -> StateMachine:
        """The declared state machine, to be drawn with .mermaid() and .dot()."""
        definition: DeciderDefinition | None = getattr(cls, "__decider__", None)
        if definition is None:
            raise UsageError(f"{cls.__qualname__} is no decider yet: its types are open", hint=f"write {WRITE}")
        return definition.machine()


def _check_methods(cls: type[Decider[Any, Any, Any, Any]]) -> None:
    owner = f"class {cls.__qualname__}"
    missing = [name for name in REQUIRED if getattr(cls, name) is getattr(Decider, name)]
    if missing:
        raise UsageError(
            f"{owner} has no {' and no '.join(missing)}", hint="; ".join(f"write {REQUIRED[name]}" for name in missing)
        )
    for name in (*PURE, "handle"):
        method = getattr(cls, name)
        if not callable(method):
            raise UsageError(f"{name} of {owner} is a {type(method).__name__}", hint=f"make {name} a method")
        is_generator = inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)
        if is_generator or (name != "handle" and inspect.iscoroutinefunction(method)):
            raise UsageError(
                f"{name} of {owner} is {'a generator' if is_generator else 'an async def'}",
                hint=f"make {name} a plain def that returns its result; what has to be awaited belongs in handle"
                if name != "handle"
                else "return the input that follows, or None",
            )
        _check_parameters(cls, name)
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise UsageError(
            f"{owner} cannot be made without arguments: {error}",
            hint="one object serves all instances: leave __init__ out, or give its parameters defaults",
        ) from None
    except ValueError:  # no signature to look at
        return


def _check_parameters(cls: type[Decider[Any, Any, Any, Any]], name: str) -> None:
    """A method that takes too few or too many arguments would fail with the first input, in production."""
    written = SIGNATURES[name]
    method = inspect.getattr_static(cls, name)
    wanted = written[written.index("(") + 1 : written.index(")")].split(", ")
    if isinstance(method, staticmethod | classmethod):
        method, wanted = getattr(cls, name), wanted[1:]
    if not inspect.isroutine(method):
        return
    try:
        # What a decorator hands on is its own affair, so what it wraps is not looked at.
        signature = inspect.signature(method, follow_wrapped=False)
    except (TypeError, ValueError):  # no signature to look at
        return
    try:
        signature.bind(*wanted)
    except TypeError:
        given = ", ".join(each for each in wanted if each != "self") or "none"
        raise UsageError(
            f"{name} of class {cls.__qualname__} does not take the arguments that it will be given: {given}",
            hint=f"write {written}",
        ) from None


def _check_idempotency(inputs: Variants, owner: str) -> None:
    """A misspelt field in `@hf.idempotent` would mean that an input is applied twice."""
    for variant in inputs.by_name.values():
        key = idempotency_of(variant.kind)
        if isinstance(key, str) and not _has_attribute(variant.kind, key):
            raise UsageError(
                f'class {owner}: @hf.idempotent(key="{key}") names a field that its input {variant.name} does not have',
                hint=known_names(key, _attributes(variant.kind)),
            )


def _attributes(kind: type) -> list[str]:
    names: dict[str, None] = {}
    for base in kind.__mro__:
        names.update(dict.fromkeys(own_annotations(base)))
    names.update(dict.fromkeys(cast("Any", getattr(kind, "model_fields", ()))))
    return list(names)


def _has_attribute(kind: type, name: str) -> bool:
    return hasattr(kind, name) or name in _attributes(kind)
