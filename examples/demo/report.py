"""What came of it: the engine's record and the world's log, compared line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from shop import STEPS
from world import Event

import holdfast as hf

PROMPT_SECONDS = 10.0  # a third of the lease: whoever needs longer has waited for it


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as the engine recorded it."""

    order: int
    step: str
    number: int
    state: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known at the end."""

    orders: Mapping[str, int]  # run id -> order number
    statuses: Mapping[str, str]
    attempts: Sequence[Attempt]
    events: Sequence[Event]
    killed_pid: int
    killed_at: float
    restarted_at: float
    repeated_starts: int  # of runs that were there already
    new_runs: int
    complaints: Sequence[str]  # of the engine's doctor
    lease_seconds: float

    def attempts_in(self, state: str, step: str | None = None) -> int:
        return sum(1 for each in self.attempts if each.state == state and step in (None, each.step))

    def events_of(self, what: str, step: str | None = None) -> list[Event]:
        return [each for each in self.events if each.what == what and step in (None, each.step)]

    def first_sign(self) -> float:
        """When the second worker did the first thing."""
        return min((each.at for each in self.events if each.pid != self.killed_pid), default=float("inf"))


async def collect_attempts(handles: Mapping[int, hf.Handle[None]]) -> list[Attempt]:
    """Every attempt of every order, from the engine."""
    return [
        Attempt(order=order, step=execution.node, number=execution.attempt, state=execution.state)
        for order, handle in handles.items()
        for execution in await handle.step_executions()
    ]


def print_executions(console: Console, facts: Facts) -> None:
    """Per step: how often it was executed, and why more than once."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="What ran once, and what ran again", title_justify="left")
    table.add_column("step")
    for heading in ("results\nrecorded", "effects\noutside", "executions"):
        table.add_column(heading, justify="right")
    table.add_column("why more executions than results")
    for step in STEPS:
        asked = len(facts.events_of("asked", step))
        refused, lost = len(facts.events_of("refused", step)), _interrupted(facts, step)
        reasons = [f"{refused} refused by the bank and retried"] * (refused > 0)
        reasons += [f"{lost} cut off when the worker died"] * (lost > 0)
        table.add_row(
            step,
            str(facts.attempts_in("completed", step)),
            str(len(facts.events_of("done", step))),
            str(asked) if not reasons else f"[yellow]{asked}[/]",
            ", ".join(reasons),
        )
    table.add_section()
    table.add_row(
        "together",
        str(facts.attempts_in("completed")),
        str(len(facts.events_of("done"))),
        str(len(facts.events_of("asked"))),
    )
    console.print(table)


def print_interrupted(console: Console, facts: Facts) -> None:
    """What was under way when the worker died, and what became of it."""
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title="What was under way when the worker died", title_justify="left"
    )
    table.add_column("order", justify="right")
    for heading in ("step", "how far it had come", "went on after", "the second time"):
        table.add_column(heading)
    for event in under_way(facts.events, facts.killed_pid):
        again = [each for each in facts.events if each.key == event.key and each.pid != event.pid]
        asked = next((each.at for each in again if each.what == "asked"), None)
        table.add_row(
            str(facts.orders[event.run]),
            event.step,
            how_far(facts.events, event),
            "never" if asked is None else f"{asked - facts.killed_at:.2f} s",
            "recognised by its key, nothing done twice" if any(each.what == "known" for each in again) else "done",
        )
    console.print(table)
    console.print(
        f"The new worker did its first thing {facts.first_sign() - facts.restarted_at:.2f} s after it was started. "
        f"The lease of its predecessor had about {facts.lease_seconds:g} s to go, but a dead process holds no lock "
        "on its file, and that is proof enough to take its work over at once.",
        highlight=False,
    )


def under_way(events: Sequence[Event], pid: int) -> list[Event]:
    """The calls that a process had begun and not ended: its `asked` events."""
    ended = {(each.key, each.attempt) for each in events if each.what in ("answered", "refused")}
    return [
        each
        for each in events
        if each.pid == pid and each.what == "asked" and (each.key, each.attempt) not in ended
    ]


def how_far(events: Sequence[Event], call: Event) -> str:
    if any(each.what == "done" and (each.key, each.attempt) == (call.key, call.attempt) for each in events):
        return "done outside, not recorded"
    return "asked, not done yet"


def verdicts(facts: Facts) -> list[tuple[bool, str]]:
    """Every promise that the demo makes, and whether it was kept."""
    orders, steps = len(facts.orders), len(STEPS)
    results = Counter((each.order, each.step) for each in facts.attempts if each.state == "completed")
    effects = Counter(each.key for each in facts.events_of("done"))
    asked = Counter((each.key, each.attempt) for each in facts.events_of("asked"))
    explained = orders * steps + len(facts.events_of("refused")) + _interrupted(facts)
    went_on = facts.first_sign() - facts.restarted_at
    return [
        (
            len(facts.statuses) == orders and set(facts.statuses.values()) == {"completed"},
            f"all {orders} orders completed",
        ),
        (
            len(results) == orders * steps and set(results.values()) == {1},
            f"each of the {orders * steps} steps has exactly one recorded result",
        ),
        (
            len(effects) == orders * steps and set(effects.values()) == {1},
            "nothing happened twice outside: no card was charged twice, no parcel sent twice",
        ),
        (
            set(asked.values()) == {1} and sum(asked.values()) == explained,
            "each execution beyond the first is explained by a refusal or by the kill",
        ),
        (
            went_on < PROMPT_SECONDS,
            f"work went on {went_on:.1f} s after the restart, without waiting for the lease of {facts.lease_seconds:g} s",
        ),
        (
            facts.repeated_starts == orders and facts.new_runs == 0,
            f"starting all {orders} orders again under the same keys found the same runs and ran nothing",
        ),
        (not facts.complaints, "the engine's doctor has no complaint about the database"),
    ]


def _interrupted(facts: Facts, step: str | None = None) -> int:
    """Executions whose attempt the engine recorded as lost. One that was leased and never began is none."""
    order_of = facts.orders
    lost = {(each.order, each.step, each.number) for each in facts.attempts if each.state == "lost"}
    return sum(1 for each in facts.events_of("asked", step) if (order_of[each.run], each.step, each.attempt) in lost)
