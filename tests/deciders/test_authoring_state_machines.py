"""State machines for people: declared, observed, drawn."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Never

import pytest

import holdfast as hf
from holdfast.authoring.decider_code import bound_decider
from tests.deciders.authoring_world import Create, Order, OrderState, Poke, Poked, Poking, Status


def test_a_declared_machine_is_drawn_as_mermaid_and_dot() -> None:
    machine = Order.state_machine()
    assert machine.definition.states == ("new", "open", "paid", "cancelled", "shipped")
    mermaid = machine.mermaid()
    assert mermaid.startswith("stateDiagram-v2\n")
    assert '    state "new" as s0\n' in mermaid
    assert "    [*] --> s0\n" in mermaid
    assert "    s0 --> s1 : Create / SendEmail [timers payment]\n" in mermaid
    assert mermaid.endswith("    s4 --> [*]\n    s3 --> [*]\n")
    dot = machine.dot()
    assert dot.startswith('digraph "order" {\n')
    assert '"new" -> "open" [label="Create / SendEmail [timers payment]"];' in dot
    assert '"shipped" [peripheries=2];' in dot
    assert '"" -> "new";' in dot


def test_an_observed_machine_has_counts_and_begins_where_instances_did() -> None:
    rows = [(None, "Create", "open", 1_200), ("open", "Pay", "paid", 3), ("open", "Pay", "paid", 2)]
    machine = hf.StateMachine.observed(rows, name="order", terminals=("paid", "never seen"))
    assert machine.counts == {(None, "Create", "open"): 1_200, ("open", "Pay", "paid"): 5}
    assert "    [*] --> s0 : Create (1,200)\n" in machine.mermaid()
    assert "    s0 --> s1 : Pay (5)\n" in machine.mermaid()
    assert '"" -> "open" [label="Create (1,200)"];' in machine.dot()
    assert machine.definition.terminals == ("paid",)


HOSTILE = 'a"b;c:d-->e<script>\n{x}\\'


def test_labels_cannot_break_out_of_a_drawing() -> None:
    """A status may be any text of the author's, or of whoever wrote the data it comes from."""
    machine = hf.StateMachine.observed([(HOSTILE, HOSTILE, HOSTILE, 1)], name=HOSTILE)
    lines = machine.mermaid().splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r'    state "[^"<>;:]*(#\d+;[^"<>;:]*)*" as s0', lines[1])
    assert not re.search(r'["<>{}\\]', lines[2].split(" : ", 1)[1])
    quoted = re.sub(r'"(?:[^"\\]|\\.)*"', "Q", machine.dot())
    assert "Q -> Q [label=Q];" in quoted
    assert '"' not in quoted


def test_a_decider_without_a_declaration_shows_where_instances_begin() -> None:
    assert Poking.state_machine().definition == hf.StateMachineDefinition(states=("int",), initial="int")


def test_a_definition_with_unknown_states_or_inputs_is_refused() -> None:
    with pytest.raises(hf.UsageError, match="'opne'"):
        hf.StateMachineDefinition(states=("new", "open"), transitions=(hf.TransitionInfo("new", "Create", "opne"),))
    with pytest.raises(hf.UsageError, match="'done'"):
        hf.StateMachineDefinition(states=("new",), terminals=("done",))

    class Misdrawn(Poking, registry=hf.Registry()):
        def definition(self) -> hf.StateMachineDefinition:
            return hf.StateMachineDefinition(transitions=(hf.TransitionInfo("a", Create, "b"),))

    with pytest.raises(hf.UsageError, match="Create"):
        Misdrawn.state_machine()


def test_states_may_be_infos_enums_and_say_themselves_that_they_are_terminal() -> None:
    definition = hf.StateMachineDefinition(
        states=(Status.NEW, hf.StateInfo("done", terminal=True)),  # type: ignore[arg-type]
        initial=Status.NEW,  # type: ignore[arg-type]
    )
    assert definition == hf.StateMachineDefinition(states=("new", "done"), initial="new", terminals=("done",))


class Level(enum.Enum):
    LOW = 1


@dataclass
class Plain:
    n: int = 0


@dataclass
class Levelled:
    status: Level = Level.LOW


@pytest.mark.parametrize(
    ("state", "status"), [(Plain(), "Plain"), (Levelled(), "LOW"), (OrderState(Status.PAID), "paid"), (5, "int")]
)
def test_without_a_view_the_status_is_the_states_own_or_the_name_of_its_class(state: Any, status: str) -> None:
    assert bound_decider(Poking).view(state).status == status


class Viewed(hf.Decider[int, Poke, Poked, Never], registry=hf.Registry()):
    def workflow_id(self, input: Poke) -> str:
        return input.id

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Poked) -> int:
        return state + 1

    def decide(self, now: datetime, state: int, input: Poke) -> hf.Decision[Poked, Never, Poke]:
        return hf.Decision.event(Poked(1))

    def is_terminal(self, state: int) -> bool:
        return state == 2

    def view(self, state: int) -> hf.StateInfo:
        return hf.StateInfo(status=["none", "one", "two"][state], fields={"n": state})


def test_a_view_is_the_authors_and_knows_whether_the_instance_has_ended() -> None:
    code = bound_decider(Viewed)
    assert code.view(1) == hf.StateInfo("one", {"n": 1}, terminal=False)
    assert code.view(2) == hf.StateInfo("two", {"n": 2}, terminal=True)
    assert code.status(0) == "none"


def test_a_view_that_raises_does_not_stop_a_decision() -> None:
    """It is for people: a mistake in it is told in its place."""
    assert bound_decider(Viewed).status(9) == "unknown: view raised IndexError"
    with pytest.raises(IndexError):
        bound_decider(Viewed).view(9)
