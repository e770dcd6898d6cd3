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

Call = tuple[str, str, int]  # run, step, attempt: what the record and the log have in common
PROMPT_SECONDS = 10.0  # a third of the lease: whoever needs longer has waited for it


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as the engine recorded it."""

    order: int
    run: str
    step: str
    number: int
    state: str

    @property
    def call(self) -> Call:
        return (self.run, self.step, self.number)


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known at the end."""

    orders: int
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

    def asked_again(self, lost: Attempt) -> float:
        """When the second worker began what the first had not ended; never, if it did not."""
        again = (
            each.at
            for each in self.events_of("asked", lost.step)
            if each.run == lost.run and each.pid != self.killed_pid
        )
        return min(again, default=float("inf"))

    def went_on_after_seconds(self) -> float:
        """How long after the restart the last of what was cut off was under way again."""
        times = [self.asked_again(each) for each in self.attempts if each.state == "lost"]
        return max(times, default=float("inf")) - self.restarted_at


async def collect_attempts(handles: Mapping[int, hf.Handle[None]]) -> list[Attempt]:
    """Every attempt of every order, from the engine."""
    return [
        Attempt(order=order, run=handle.id, step=execution.node, number=execution.attempt, state=execution.state)
        for order, handle in list(handles.items())  # a copy: orders may come in meanwhile
        for execution in await handle.step_executions()
    ]


def print_executions(console: Console, facts: Facts) -> None:
    """Per step: how often it was executed, and why more than once."""
    console.print("[bold]What ran once, and what ran again[/]")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step")
    for heading in ("results\nrecorded", "effects\noutside", "executions\n"):
        table.add_column(heading, justify="right")
    table.add_column("more because\n")
    for step in (*STEPS, None):
        asked, refused = len(facts.events_of("asked", step)), len(facts.events_of("refused", step))
        lost = _interrupted(facts, step)
        reasons = [f"{refused} refused by the bank"] * (refused > 0) + [f"{lost} cut off by the kill"] * (lost > 0)
        if step is None:
            table.add_section()
        table.add_row(
            step or "together",
            str(facts.attempts_in("completed", step)),
            str(len(facts.events_of("done", step))),
            str(asked) if not reasons else f"[yellow]{asked}[/]",
            ", ".join(reasons) if step else "",
        )
    console.print(table)


def print_interrupted(console: Console, facts: Facts) -> None:
    """What was under way when the worker died, and what became of it."""
    console.print("[bold]What was under way when the worker died[/]")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("order", justify="right")
    for heading in ("step", "how far it had come", "again after", "second time"):
        table.add_column(heading)
    for lost in (each for each in facts.attempts if each.state == "lost"):
        again = [
            each
            for each in facts.events
            if (each.run, each.step) == (lost.run, lost.step) and each.pid != facts.killed_pid
        ]
        recognised = any(each.what == "known" for each in again)
        table.add_row(
            str(lost.order),
            lost.step,
            how_far(facts.events, lost.call),
            f"{facts.asked_again(lost) - facts.killed_at:.2f} s",
            "known by its key" if recognised else "done",
        )
    console.print(table)
    console.print(
        f"All of it was under way again {facts.went_on_after_seconds():.2f} s after the new worker was started. The "
        f"lease of the dead one is good for {facts.lease_seconds:g} s, but a dead process holds no lock on its file, "
        "and that is proof enough to take its work over.",
        highlight=False,
    )


def how_far(events: Sequence[Event], call: Call) -> str:
    """How far a call had come, as the outside world saw it."""
    seen = {each.what for each in events if each.call == call}
    if seen & {"done", "known"}:
        return "done outside, not recorded"
    if "refused" in seen:
        return "refused, not recorded"
    return "asked, not done yet" if "asked" in seen else "not begun"


def verdicts(facts: Facts) -> list[tuple[bool, str]]:
    """Every promise that the demo makes, and whether it was kept."""
    orders, steps = facts.orders, len(STEPS)
    results = Counter((each.order, each.step) for each in facts.attempts if each.state == "completed")
    effects = Counter(each.key for each in facts.events_of("done"))
    asked = Counter(each.call for each in facts.events_of("asked"))
    explained = orders * steps + len(facts.events_of("refused")) + _interrupted(facts)
    went_on = facts.went_on_after_seconds()
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
            f"work went on again {went_on:.1f} s after the restart, not after a lease of {facts.lease_seconds:g} s",
        ),
        (
            facts.repeated_starts == orders and facts.new_runs == 0,
            f"starting all {orders} orders again under the same keys found the same runs and ran nothing",
        ),
        (not facts.complaints, "the engine's doctor has no complaint about the database"),
    ]


def _interrupted(facts: Facts, step: str | None = None) -> int:
    """Executions whose attempt the engine recorded as lost. One that was leased and never began is none."""
    lost = {each.call for each in facts.attempts if each.state == "lost"}
    return sum(1 for each in facts.events_of("asked", step) if each.call in lost)
