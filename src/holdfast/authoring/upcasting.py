"""`@hf.upcast`: old events in the form that the code of today knows.

Events are never rewritten. Each is stored with the version of its type that the code had; what a newer version needs
is made of the old form whenever the event is read, one version at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.authoring.registry import Place, validated_name
from holdfast.core.codec_shape import TAG_FIELD
from holdfast.core.errors import PayloadRefused, UsageError

if TYPE_CHECKING:
    from holdfast.authoring.deciders import Decider

__all__ = ["Upcaster", "Upcasters", "upcast"]

LONGEST_CHAIN: Final = 1_000

Plain = dict[str, Any]
Upcaster = Callable[[Plain], Plain]
Fn = TypeVar("Fn", bound=Upcaster)


class Upcasters:
    """The steps of one decider, by event type and version; those of the class it is derived from count too."""

    __slots__ = ("_inherited", "_steps", "_versions", "changes")

    def __init__(self, inherited: Upcasters | None = None) -> None:
        self._inherited = inherited
        self._steps: dict[tuple[str, int], Upcaster] = {}
        self._versions: dict[str, int] = {}
        self.changes = 0  # how often a step was added, so that what is derived from them can be kept

    def add(self, decider: str, event_type: str, version: int, step: Upcaster) -> None:
        """Enter a step; a second one from the same version is an error, unless it is a reload."""
        earlier = self._steps.get((event_type, version))
        if earlier is not None and not _is_reload(Place.of(earlier), Place.of(step)):
            raise UsageError(
                f"{decider} has two upcasts of {event_type} from version {version}: {Place.of(earlier)} and "
                f"{Place.of(step)}",
                hint="a version is left in one way: raise from_version of the newer one",
            )
        self._steps[event_type, version] = step
        self._versions[event_type] = max(version + 1, self._versions.get(event_type, 1))
        self.changes += 1

    def current(self, event_type: str) -> int:
        """The version that new events of a type are stored with: one above the highest that is upcast, or 1."""
        own = self._versions.get(event_type, 1)
        return own if self._inherited is None else max(own, self._inherited.current(event_type))

    @property
    def generation(self) -> int:
        """Grows with every step that is added, here or in a class above."""
        return self.changes + (0 if self._inherited is None else self._inherited.generation)

    def steps(self) -> Iterator[tuple[str, int, Upcaster]]:
        """All steps in a fixed order, for digests."""
        if self._inherited is not None:
            yield from self._inherited.steps()
        for (event_type, version), step in sorted(self._steps.items(), key=lambda item: item[0]):
            yield event_type, version, step

    def _step(self, event_type: str, version: int) -> Upcaster | None:
        own = self._steps.get((event_type, version))
        return own if own is not None or self._inherited is None else self._inherited._step(event_type, version)

    def upcast(self, event_type: str, version: int, plain: Plain, *, decider: str, where: str) -> Plain:
        """The event in its present form, "type" included; PayloadRefused names the version that has no step.

        A step may give another type: the event then goes on as version 1 of that, since it was renamed when that
        was new.
        """
        for _ in range(LONGEST_CHAIN):
            current = self.current(event_type)
            if version == current:
                return plain
            if version > current:
                raise PayloadRefused(
                    f"{where} has version {version} of {event_type}, and this code knows versions up to {current}",
                    hint=f"newer code wrote it: deploy that, or add @hf.upcast({decider}, {event_type!r}, "
                    f"from_version={version - 1}) if an upcast was lost",
                )
            step = self._step(event_type, version)
            if step is None:
                raise PayloadRefused(
                    f"{where} has version {version} of {event_type}, which is at version {current} now, and no upcast "
                    f"leads from version {version}",
                    hint=f"add @hf.upcast({decider}, {event_type!r}, from_version={version})",
                )
            plain = _checked(step, plain, event_type, version, where)
            new_type = plain[TAG_FIELD]
            event_type, version = (event_type, version + 1) if new_type == event_type else (new_type, 1)
        raise PayloadRefused(
            f"{where}: its upcasts go round in a circle", hint=f"see where upcasts of {decider} change {TAG_FIELD!r}"
        )


def _is_reload(earlier: Place, later: Place) -> bool:
    """Functions that are called `_` or nothing at all share their name by habit, and are told apart by their lines."""
    nameless = later.qualname.rpartition(".")[2] in ("_", "<lambda>")
    return earlier.same_definition(later) and (not nameless or earlier.line == later.line)


def _checked(step: Upcaster, plain: Plain, event_type: str, version: int, where: str) -> Plain:
    who = f"the upcast of {event_type} from version {version} ({Place.of(step)})"
    try:
        made: object = step(plain)
    except Exception as trouble:
        raise PayloadRefused(
            f"{where}: {who} raised {type(trouble).__name__}: {trouble}",
            hint="repair the upcast; the event is as it was",
        ) from trouble
    if not isinstance(made, dict):
        raise PayloadRefused(
            f"{where}: {who} gave a {type(made).__name__}", hint="return the event as a dict, changed or new"
        )
    named: object = made.setdefault(TAG_FIELD, event_type)
    if not isinstance(named, str):
        raise PayloadRefused(
            f"{where}: {who} gave the {TAG_FIELD} {named!r:.80}", hint="give the name of an event type"
        )
    return made


def upcast(
    decider: type[Decider[Any, Any, Any, Any]], event_type: str | type, *, from_version: int
) -> Callable[[Fn], Fn]:
    """Read events of a type that were stored at `from_version` as the version after it.

    The function gets the event as a dict, "type" included, and gives it back changed; with another "type" the event
    was renamed. New events are stored at the version after the highest that is upcast.
    """
    definition = getattr(decider, "__decider__", None)
    if definition is None:
        raise UsageError(
            f"hf.upcast was given {decider!r:.80}, which is no decider",
            hint='give the class: @hf.upcast(Order, "Created", from_version=1)',
        )
    name = event_type.__name__ if isinstance(event_type, type) else event_type
    validated_name(name, f"an event type in hf.upcast of {definition.name}")
    if type(from_version) is not int or from_version < 1:
        raise UsageError(
            f"hf.upcast({definition.name}, {name!r}, from_version={from_version!r})", hint="versions count from 1"
        )

    def decorate(step: Fn) -> Fn:
        if not inspect.isroutine(step):
            raise UsageError(
                f"@hf.upcast({definition.name}, {name!r}) was given {step!r:.80}",
                hint="decorate a function that takes a dict and gives one",
            )
        definition.upcasters.add(definition.name, name, from_version, step)
        return step

    return decorate
