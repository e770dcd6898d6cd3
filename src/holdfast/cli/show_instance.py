"""An instance of a decider as lines of a terminal: where it stands, what happened last, what is pending."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.failures import note
from holdfast.cli.output import Cell, one_line, print_heading, print_table, say, shown_state
from holdfast.cli.times import shown_distance, shown_moment

if TYPE_CHECKING:
    from holdfast.documents.instance import EffectShown, EventShown, InstanceShown, StateShown, TimerShown

DATA_WIDTH: Final = 200
STATE_WIDTH: Final = 2000
OBSERVED_SHOWN: Final = 10


def state_facts(state: StateShown, length: int) -> list[tuple[str, str]]:
    """Where the instance stands, in its author's words if the code is here."""
    facts: list[tuple[str, str]] = []
    if state.source == "code":
        ended = ", terminal" if state.terminal else ""
        facts.append(("state", Cell(f"{state.status}{ended}", "completed" if state.terminal else "running")))
        facts += [(f"  {name}", text(value, STATE_WIDTH)) for name, value in state.fields.items()]
        if not state.fields:
            facts.append(("", text(state.state, STATE_WIDTH)))
    elif state.source == "snapshot":
        since = length - (state.sequence or 0)
        later = "" if not since else f" ({since:,} event{'' if since == 1 else 's'} ago)"
        facts.append(("snapshot", f"{text(state.state, STATE_WIDTH)} after event {state.sequence}{later}"))
    return facts


def print_instance(shown: InstanceShown, traceback: bool) -> None:
    """Everything about an instance but its facts and its history."""
    if shown.state.trouble is not None:
        note(shown.state.trouble)
    now = datetime.now(UTC)
    if shown.events:
        part = "" if len(shown.events) == shown.sequence else f" (the last {len(shown.events)} of {shown.sequence:,})"
        print_heading(f"events{part}")
        print_events(shown.events)
    _print_effects(shown.effects, now)
    _print_timers(shown.timers, now)
    _print_inbox(shown, now)
    _print_observed(shown)
    if traceback:
        _print_tracebacks([*shown.effects, *shown.timers])


def print_events(events: Sequence[EventShown]) -> None:
    """Events in the order of the stream; what the engine itself recorded is dim."""
    rows = []
    for each in events:
        name = each.type if each.version <= 1 else f"{each.type} (version {each.version})"
        rows.append(
            [
                str(each.sequence),
                f"{each.at:%Y-%m-%d %H:%M:%S}",
                Cell(name, "skipped") if each.system else name,
                text(each.data),
                shown_cause(each.cause),
            ]
        )
    print_table(["#", "AT (UTC)", "EVENT", "DATA", "FROM"], rows, whole=("#", "EVENT"), cut=("DATA",))


def shown_cause(cause: str) -> str:
    """Where an input came from: an effect or timer by its name, the inbox, or a caller, whose own id says little."""
    if cause.startswith(("effect/", "timer/")):
        return cause
    return "inbox" if ":input:" in cause else "command"


def text(value: Any, width: int = DATA_WIDTH) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), width)


def _print_effects(effects: Sequence[EffectShown], now: datetime) -> None:
    if not effects:
        return
    print_heading("effects")
    rows = []
    for each in effects:
        state = shown_state(each.state) + (f" behind {each.behind}" if each.behind else "")
        due = shown_distance(each.due_at, now) if each.state == "ready" and each.due_at > now else ""
        rows.append(
            [each.id, each.type, Cell(state, each.state), str(each.attempt), due, text(each.data), _trouble(each)]
        )
    _print_pending(["EFFECT", "TYPE", "STATE", "ATTEMPT", "DUE", "DATA", "LAST ERROR"], rows)


def _print_timers(timers: Sequence[TimerShown], now: datetime) -> None:
    if not timers:
        return
    print_heading("timers")
    rows = []
    for each in timers:
        due = shown_moment(each.due_at, now) if each.state in ("ready", "leased") else ""
        state = "set" if each.state == "ready" else shown_state(each.state)
        # A timer is one row, which counts its failures; the attempt is the last one, or the next one of a live timer.
        attempt = str(each.failures + (each.state != "dead")) if each.failures else ""
        rows.append([each.id, each.type, Cell(state, each.state), attempt, due, text(each.data), _trouble(each)])
    _print_pending(["TIMER", "GIVES", "STATE", "ATTEMPT", "DUE", "DATA", "LAST ERROR"], rows)


def _print_pending(headers: list[str], rows: list[list[str]]) -> None:
    """Without the columns that are empty, as those of errors mostly are."""
    kept = [index for index in range(len(headers)) if any(row[index] for row in rows)]
    print_table(
        [headers[index] for index in kept],
        [[row[index] for index in kept] for row in rows],
        whole=("EFFECT", "TIMER", "DUE"),
        cut=("DATA",),
    )


def _trouble(item: EffectShown | TimerShown) -> str:
    if item.error is None:
        return ""
    return Cell(f"{item.error['type']}: {item.error['message']}", "dead" if item.state == "dead" else "warning")


def _print_inbox(shown: InstanceShown, now: datetime) -> None:
    if shown.inbox:
        inputs = "1 input" if shown.inbox == 1 else f"{shown.inbox:,} inputs"
        oldest = "queued" if shown.inbox == 1 else "the oldest queued"
        oldest = f", {oldest} {shown_distance(shown.inputs[0].at, now)}" if shown.inputs else ""
        print_heading(f"inbox ({inputs}{oldest})")
        print_table(
            ["QUEUED (UTC)", "INPUT", "DATA"],
            [[f"{each.at:%Y-%m-%d %H:%M:%S}", each.type, text(each.data)] for each in shown.inputs],
            whole=("INPUT",),
            cut=("DATA",),
        )
        if shown.inbox > len(shown.inputs):
            say(f"and {shown.inbox - len(shown.inputs):,} more")
    if shown.dead_inputs:
        print_heading("inputs that could not be applied")
        for each in shown.dead_inputs:
            say(f"{each.type} {text(each.data)}: {one_line(each.reason or 'no reason was kept')}", "dead")
            say(f"    holdfast dead replay {each.id}")


def _print_observed(shown: InstanceShown) -> None:
    observed = shown.observations[-OBSERVED_SHOWN:]
    if not observed:
        return
    part = "" if len(observed) == len(shown.observations) else f" (the last {len(observed)})"
    print_heading(f"observed inputs{part}")
    rows = []
    for each in observed:
        way = "" if each.after is None else f"{each.before} -> {each.after}" if each.before else each.after
        source = f"{each.source} {each.command_id}" if each.command_id else each.source
        payload = "" if each.payload is None else text(each.payload)
        rows.append([f"{each.at:%Y-%m-%d %H:%M:%S}", each.type, payload, source, each.outcome, way])
    kept = [0, 1, *([2] if any(row[2] for row in rows) else []), 3, 4, 5]
    headers = ["AT (UTC)", "INPUT", "DATA", "FROM", "OUTCOME", "STATE"]
    print_table([headers[i] for i in kept], [[row[i] for i in kept] for row in rows], whole=("INPUT",), cut=("DATA",))


def _print_tracebacks(items: Sequence[EffectShown | TimerShown]) -> None:
    for each in items:
        if each.error is not None:
            print_heading(f"traceback of {each.type} ({each.id})")
            say(each.error["traceback"].rstrip() or f"{each.error['type']}: {each.error['message']}")
