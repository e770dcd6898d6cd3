"""A decider as a state machine for people: what its author declares, what was observed, and drawings of both.

None of this decides anything. A declared machine is an author's claim about `decide`; observed transitions are what
instances really did, as far as inputs are observed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from holdfast.core.errors import UsageError
from holdfast.core.graph import known_names

__all__ = ["StateInfo", "StateMachine", "StateMachineDefinition", "TransitionInfo", "status_text"]

LONGEST_STATUS = 255


@dataclass(frozen=True, slots=True)
class StateInfo:
    """Where an instance stands, in its author's words. `terminal` None: as `is_terminal` says."""

    status: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    terminal: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", status_text(self.status))


@dataclass(frozen=True, slots=True)
class TransitionInfo:
    """From a status, by an input, to a status, with the effects and timers that it starts. Classes may stand for names.

    A transition from None is the first one of an instance.
    """

    from_status: str | None
    input: str | type
    to_status: str
    effects: tuple[str | type, ...] = ()
    timers: tuple[str | type, ...] = ()

    def __post_init__(self) -> None:
        origin = None if self.from_status is None else status_text(self.from_status)
        object.__setattr__(self, "from_status", origin)
        object.__setattr__(self, "to_status", status_text(self.to_status))
        object.__setattr__(self, "input", _name(self.input))
        for attribute in ("effects", "timers"):
            given = getattr(self, attribute)
            several = given if isinstance(given, list | tuple | set | frozenset) else (given,)
            object.__setattr__(self, attribute, tuple(_name(each) for each in several))


@dataclass(frozen=True, slots=True)
class StateMachineDefinition:
    """All states and transitions.

    Without `states` they are those that transitions name; with them, a transition to any other is an error.
    """

    states: tuple[str, ...] = ()
    transitions: tuple[TransitionInfo, ...] = ()
    initial: str | None = None
    terminals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        transitions = tuple(self.transitions)
        terminals = [status_text(each) for each in _several(self.terminals)]
        declared = []
        for state in _several(self.states):
            declared.append(status_text(state.status if isinstance(state, StateInfo) else state))
            if isinstance(state, StateInfo) and state.terminal:
                terminals.append(declared[-1])
        states = dict.fromkeys(declared)
        initial = None if self.initial is None else status_text(self.initial)
        named = [each for one in transitions for each in (one.from_status, one.to_status) if each is not None]
        named += [*([] if initial is None else [initial]), *terminals]
        for state in named:
            if state not in states and declared:
                raise UsageError(
                    f"a state machine names the state {state!r}, which is not among its states",
                    hint=known_names(state, states),
                )
            states.setdefault(state)
        object.__setattr__(self, "states", tuple(states))
        object.__setattr__(self, "transitions", transitions)
        object.__setattr__(self, "initial", initial)
        object.__setattr__(self, "terminals", tuple(dict.fromkeys(terminals)))


class StateMachine:
    """A state machine that can be drawn. `counts` says how often a transition was observed, where that is known."""

    __slots__ = ("counts", "definition", "name")

    def __init__(
        self,
        definition: StateMachineDefinition,
        *,
        name: str = "decider",
        counts: Mapping[tuple[str | None, str, str], int] | None = None,
    ) -> None:
        self.definition = definition
        self.name = name
        self.counts: Mapping[tuple[str | None, str, str], int] = MappingProxyType(dict(counts or {}))

    def __repr__(self) -> str:
        states, transitions = len(self.definition.states), len(self.definition.transitions)
        return f"<StateMachine {self.name} of {states} states and {transitions} transitions>"

    @classmethod
    def observed(
        cls,
        transitions: Iterable[tuple[str | None, str, str, int]],
        *,
        name: str = "decider",
        initial: str | None = None,
        terminals: Iterable[str] = (),
    ) -> StateMachine:
        """The machine that observations show: rows of status before, input, status after, and how often."""
        counts: dict[tuple[str | None, str, str], int] = {}
        for before, given, after, count in transitions:
            key = (None if before is None else status_text(before), _name(given), status_text(after))
            counts[key] = counts.get(key, 0) + count
        seen = tuple(TransitionInfo(*key) for key in counts)
        states = {state for one in seen for state in (one.from_status, one.to_status)}
        definition = StateMachineDefinition(
            transitions=seen,
            initial=initial if initial in states else None,
            terminals=tuple(state for state in terminals if state in states),
        )
        return cls(definition, name=name, counts=counts)

    def mermaid(self) -> str:
        """The machine as a Mermaid state diagram."""
        number = {state: f"s{position}" for position, state in enumerate(self.definition.states)}
        lines = ["stateDiagram-v2"]
        lines += [f'    state "{_for_mermaid(state)}" as {number[state]}' for state in self.definition.states]
        if self.definition.initial is not None:
            lines.append(f"    [*] --> {number[self.definition.initial]}")
        for one in self.definition.transitions:
            origin = "[*]" if one.from_status is None else number[one.from_status]
            lines.append(f"    {origin} --> {number[one.to_status]} : {_for_mermaid(self._label(one))}")
        lines += [f"    {number[state]} --> [*]" for state in self.definition.terminals]
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """The machine in Graphviz's language."""
        lines = [f"digraph {_for_dot(self.name)} {{", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
        starts = [one for one in self.definition.transitions if one.from_status is None]
        if self.definition.initial is not None or starts:
            lines.append('    "" [shape=point];')
        for state in self.definition.states:
            look = " [peripheries=2]" if state in self.definition.terminals else ""
            lines.append(f"    {_for_dot(state)}{look};")
        if self.definition.initial is not None:
            lines.append(f'    "" -> {_for_dot(self.definition.initial)};')
        for one in self.definition.transitions:
            origin = _for_dot(one.from_status or "")
            lines.append(f"    {origin} -> {_for_dot(one.to_status)} [label={_for_dot(self._label(one))}];")
        return "\n".join([*lines, "}"]) + "\n"

    def _label(self, one: TransitionInfo) -> str:
        label = str(one.input)
        if one.effects:
            label += f" / {', '.join(map(str, one.effects))}"
        if one.timers:
            label += f" [timers {', '.join(map(str, one.timers))}]"
        count = self.counts.get((one.from_status, str(one.input), one.to_status))
        return label if count is None else f"{label} ({count:,})"


def status_text(status: object) -> str:
    """A status as text: of an enum its value, if that is a text, else its name."""
    if isinstance(status, enum.Enum):
        status = status.value if isinstance(status.value, str) else status.name
    text = status if isinstance(status, str) else str(status)
    return text[:LONGEST_STATUS]


def _name(thing: object) -> str:
    return thing.__name__ if isinstance(thing, type) else str(thing)


def _several(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str | enum.Enum | StateInfo) else tuple(given)


def _for_mermaid(text: str) -> str:
    """As an entity whatever Mermaid takes for syntax: a status may hold any character."""
    return "".join(
        each if each.isalnum() or each in " _-./(),[]" else " " if not each.isprintable() else f"#{ord(each)};"
        for each in text
    )


def _for_dot(text: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text)
    escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
