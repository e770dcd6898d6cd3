"""Names: which definition a stored name means in this process.

A run stores names, never code. Defining an action or a workflow enters it here; a worker claims only
work whose names it finds here, and looks the code up again for every item.

Actions and workflows share one namespace, because an action can be started as a run of its own: its
name is then the run's workflow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import msgspec

from holdfast.core.errors import MissingJob, UnknownWorkflow, UsageError
from holdfast.core.graph import known_names

if TYPE_CHECKING:
    from holdfast.authoring.actions import Action
    from holdfast.authoring.events import Event

__all__ = ["Definition", "Place", "Registered", "Registry", "default_registry", "own_queue", "validated_name"]

LONGEST_NAME = 255

# A program's main module has another name when something else imports the same file.
MAIN_MODULES = frozenset({"__main__", "__mp_main__"})

# Modules that define something of ours, in any registry: one of them may be the main program of another process.
defining_modules: set[str] = set()


class Place(msgspec.Struct, frozen=True):
    """Where something was defined, for people and for telling a reload from a clash."""

    module: str
    qualname: str
    file: str
    line: int

    @classmethod
    def of(cls, thing: Callable[..., object]) -> Place:
        """The place of a function or class, as exactly as Python knows it."""
        code = getattr(inspect.unwrap(thing), "__code__", None)
        if code is not None:
            file, line = code.co_filename, code.co_firstlineno
        else:
            file, line = _place_of_class(thing)
        return cls(thing.__module__, thing.__qualname__, file, line)

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname} ({self.file}:{self.line})"

    def same_definition(self, other: Place) -> bool:
        """True for a module that was reloaded, or a main program that was also imported by its name."""
        if self.qualname != other.qualname:
            return False
        if self.module == other.module:
            return True
        return self.file == other.file and bool(MAIN_MODULES & {self.module, other.module})


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry knows of a definition: its kind, names and place."""

    kind: Literal["action", "workflow"]
    name: str
    aliases: tuple[str, ...]
    place: Place

    @classmethod
    def of(
        cls,
        thing: Callable[..., object],
        kind: Literal["action", "workflow"],
        name: str | None,
        aliases: tuple[str, ...] | list[str] | str,
    ) -> Definition:
        """The definition of a function or class; its own `__name__` unless another name is given (I15)."""
        owner = f"{kind} {thing.__qualname__}"
        if isinstance(aliases, str):
            aliases = (aliases,)
        own = validated_name(thing.__name__ if name is None else name, owner)
        others = tuple(validated_name(alias, f"an alias of {owner}") for alias in aliases)
        if own in others or len(set(others)) < len(others):
            raise UsageError(
                f"{owner} has the name {own!r} and the aliases {others!r}, where one is given twice",
                hint="list each earlier name once in aliases=, and not the current one",
            )
        return cls(kind=kind, name=own, aliases=others, place=Place.of(thing))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


class Registered(Protocol):
    """Anything that can enter a registry: it carries its own Definition."""

    __holdfast__: Definition


class Registry:
    """Definitions by name and alias. `Registry()` is empty and shares nothing with the process-wide one."""

    def __init__(self) -> None:
        self._actions: dict[str, Registered] = {}
        self._workflows: dict[str, Registered] = {}
        self._events: dict[str, Event[Any]] = {}
        self.version = 0  # grows with every definition, so that what is derived from the names can be kept

    def __repr__(self) -> str:
        return f"<Registry of {len(self._actions)} action names and {len(self._workflows)} workflow names>"

    @property
    def actions(self) -> Mapping[str, Action[..., Any]]:
        """Actions by name and by alias, read-only."""
        return cast("Mapping[str, Action[..., Any]]", MappingProxyType(self._actions))

    @property
    def workflows(self) -> Mapping[str, Registered]:
        """Workflows by name and by alias, read-only."""
        return MappingProxyType(self._workflows)

    @property
    def events(self) -> Mapping[str, Event[Any]]:
        """Events that were defined with hf.event, by name, read-only."""
        return MappingProxyType(self._events)

    def add(self, thing: Registered) -> None:
        """Enter a definition under its name and aliases.

        A name that is taken is an error, unless the earlier holder is the same module and qualified
        name: then this is a reload and replaces it, together with its old aliases.
        """
        definition = thing.__holdfast__
        replaced: list[Registered] = []
        for name in definition.names:
            holder = self._holder(name)
            if holder is None:
                continue
            if not holder.__holdfast__.place.same_definition(definition.place):
                raise UsageError(
                    f"the name {name!r} is defined twice: by {holder.__holdfast__.kind} {holder.__holdfast__.place} "
                    f"and by {definition.kind} {definition.place}",
                    hint="give one of them another name=, or keep them apart with registry=hf.Registry()",
                )
            replaced.append(holder)
        for earlier in replaced:
            self._remove(earlier)
        table = self._actions if definition.kind == "action" else self._workflows
        for name in definition.names:
            table[name] = thing
        defining_modules.add(definition.place.module)
        self.version += 1

    def add_event(self, event: Event[Any]) -> None:
        """Enter an event. The same definition again is welcome; another type or setting under its name is an error."""
        earlier = self._events.get(event.name)
        if earlier is not None and not earlier.defines_the_same(event):
            raise UsageError(
                f"event {event.name!r} is defined twice: as {earlier.described} and as {event.described}",
                hint="define it once and import it, give one of them another name, or keep them apart with "
                "registry=hf.Registry()",
            )
        self._events[event.name] = event

    def action(self, name: str) -> Action[..., Any]:
        """The action under this name or alias; MissingJob with the nearest names otherwise."""
        found = self._actions.get(name)
        if found is None:
            raise MissingJob(
                f"no action is registered as {name!r} in this process",
                hint=f"import the module that defines it, or add {name!r} to the aliases= of the action that "
                f"replaced it; {known_names(name, self._actions)}",
            )
        return cast("Action[..., Any]", found)

    def workflow(self, name: str) -> Registered:
        """The workflow under this name or alias; UnknownWorkflow with the nearest names otherwise."""
        found = self._workflows.get(name)
        if found is None:
            raise self._unknown(name)
        return found

    def startable(self, name: str) -> Registered:
        """The workflow, or else the action, under this name or alias; UnknownWorkflow otherwise."""
        found = self._holder(name)
        if found is None:
            raise self._unknown(name)
        return found

    def names_of(self, name: str) -> tuple[str, ...]:
        """The name that a definition has now and those it had before; of any other text, that alone."""
        found = self._holder(name)
        return (name,) if found is None or found.__holdfast__.name != name else found.__holdfast__.names

    def known_workflows(self) -> frozenset[str]:
        """Every workflow name whose runs a worker with this registry can go on with, actions included."""
        return frozenset(self._workflows) | frozenset(self._actions)

    def has_code_of(self, workflow: str) -> bool:
        """Whether it is one of `known_workflows`."""
        return workflow in self._workflows or workflow in self._actions

    def known_actions(self) -> frozenset[str]:
        """Every action name that a worker with this registry can run."""
        return frozenset(self._actions)

    def _holder(self, name: str) -> Registered | None:
        found = self._workflows.get(name)
        return self._actions.get(name) if found is None else found

    def _remove(self, thing: Registered) -> None:
        for table in (self._actions, self._workflows):
            for name in thing.__holdfast__.names:
                if table.get(name) is thing:
                    del table[name]

    def _unknown(self, name: str) -> UnknownWorkflow:
        return UnknownWorkflow(
            f"no workflow is registered as {name!r} in this process",
            hint=f"import the module that defines it, or add {name!r} to the aliases= of the workflow that "
            f"replaced it; {known_names(name, self.known_workflows())}",
        )


default_registry = Registry()


def validated_name(name: object, owner: str) -> str:
    """The name if it can be stored and shown everywhere: 1 to 255 printable characters."""
    fix = f"choose a text of 1 to {LONGEST_NAME} printable characters"
    if not isinstance(name, str):
        raise UsageError(f"the name {name!r} of {owner} is a {type(name).__name__}", hint=fix)
    if not name or name.isspace():
        raise UsageError(f"the name {name!r} of {owner} is empty", hint=fix)
    if len(name) > LONGEST_NAME:
        raise UsageError(f"the name {name[:40]!r}… of {owner} has {len(name)} characters", hint=fix)
    if not name.isprintable():
        odd = next(character for character in name if not character.isprintable())
        raise UsageError(f"the name {name!r} of {owner} holds the unprintable character {odd!r}", hint=fix)
    return name


def own_queue(queue: str | None) -> str | None:
    """The queue that a definition has of its own; None for the default one, which draws no child from its parent's."""
    return None if queue == "default" else queue


def _place_of_class(thing: Callable[..., object]) -> tuple[str, int]:
    """File and line of a class. Python keeps none before 3.13, so any of its functions has to do."""
    line = getattr(thing, "__firstlineno__", 0)
    for member in vars(thing).values():
        code = getattr(getattr(member, "__wrapped__", member), "__code__", None)
        if code is not None:
            return code.co_filename, line or code.co_firstlineno
    module = inspect.getmodule(thing)
    return getattr(module, "__file__", None) or "unknown file", line
