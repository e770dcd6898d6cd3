"""The decider model in one page: fold the stream, decide, and write everything that follows in one operation.

One function, `_apply`, serves all three ways an input arrives: a command, an effect's follow-up, a timer.
So the follow-up commits with the effect that caused it, and a timer's input with the timer's removal.

Left out: codecs and typed inputs, retries of effects and timers, observations, snapshots (the stream is
folded from its start), projections, the inbox for inputs without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from msgspec.structs import replace

from holdfast.core.errors import RunError
from holdfast.core.operations import RECORDED, REPEATED, ClaimWork, RunOperation, WorkOperation
from holdfast.core.rows import COMPLETED, HISTORY, RUNNING, RUNS, WORK, History, Run, Table
from holdfast.core.view import Query, View
from holdfast.models.machine import record
from tests.sketches.kernel import INPUTS, TIMERS, Decisions, Input, Timer, claim, held, ready_item

IGNORED, OVER = "ignored", "over"
TIMER_CANCELLED = "timer cancelled"  # a record for people; never folded (I33)


class EntriesOf(Query, frozen=True, gc=False):
    """A run's stream. Covered by the run's version, so the fast path reads it from memory."""

    table: ClassVar[Table[Any]] = HISTORY
    run: str

    @property
    def of_run(self) -> str | None:
        return self.run

    def matches(self, row: History) -> bool:
        return row.run == self.run


class Decision(NamedTuple):
    """What an author's `decide` returns."""

    events: tuple[str, ...]
    effects: tuple[str, ...] = ()
    cancels: tuple[str, ...] = ()
    timers: tuple[tuple[str, int, str], ...] = ()  # key, microseconds from now, input


class Execute(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """An input from outside. The run's id is derived from (workflow, key), so the first input can name it too."""

    input: str
    command: str


class SettleEffect(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """An effect's handler returned, perhaps with an input. Identity: the token of its lease."""

    follow_up: str | None = None


class FireTimer(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A timer was found to be due, without a lock. Identity: its generation."""

    key: str
    generation: int


class DeciderSketch:
    """Decisions for one decider: fold with `evolve` from `initial`, decide, and ask whether the state is the last."""

    def __init__(
        self,
        initial: Any,
        evolve: Callable[[Any, str], Any],
        decide: Callable[[Any, str], Decision],
        is_terminal: Callable[[Any], bool],
    ) -> None:
        self.initial, self.evolve, self.decide, self.is_terminal = initial, evolve, decide, is_terminal

    def decisions(self) -> Decisions:
        return {Execute: self.execute, ClaimWork: claim, SettleEffect: self.settle, FireTimer: self.fire}

    def execute(self, view: View, op: Execute) -> str:
        run = view.probe(RUNS, (op.run,))
        if run is None:
            run = Run(op.run, "sketch", "decider", status=RUNNING)
            view.insert(RUNS, run)
        if view.probe(INPUTS, (op.run, op.command)) is not None:
            return REPEATED
        view.insert(INPUTS, Input(op.run, op.command))
        return self._apply(view, run, op.input)

    def settle(self, view: View, op: SettleEffect) -> str:
        lease = held(view, op, after_end=True)  # I34: what the last decision asked for still happens
        if isinstance(lease, str):
            return lease
        run, work = lease
        view.put(WORK, replace(work, status=COMPLETED, finished=view.now))
        if op.follow_up is not None:
            self._apply(view, run, op.follow_up)
        return RECORDED

    def fire(self, view: View, op: FireTimer) -> str:
        run, timer = view.run(op.run), view.get(TIMERS, (op.run, op.key))
        if run is None or timer is None or timer.generation != op.generation or timer.due > view.now:
            return OVER
        view.delete(TIMERS, timer)  # before the decision, so that one that sets the key again has the last word
        return self._apply(view, run, timer.input)

    def _apply(self, view: View, run: Run, given: str) -> str:
        state = self.initial
        for entry in view.find(EntriesOf(run.id)):
            if entry.kind != TIMER_CANCELLED:
                state = self.evolve(state, entry.kind)
        if self.is_terminal(state):
            return IGNORED
        decision = self.decide(state, given)
        if not decision.events:
            raise RunError(f"run {run.id}: the decision on {given!r} has no event", hint="return at least one event")
        for event in decision.events:
            run, state = record(view, run, event), self.evolve(state, event)
        for number, effect in enumerate(decision.effects):
            view.insert(WORK, ready_item(run.id, f"effect/{run.entries}.{number}", effect))
        for key in decision.cancels:
            timer = view.get(TIMERS, (run.id, key))
            if timer is not None:
                view.delete(TIMERS, timer)
                run = record(view, run, TIMER_CANCELLED, key=key)
        for key, delay, later in decision.timers:
            # The stream only grows, so its length is a generation that even a removed timer's successor never repeats.
            timer = Timer(run.id, key, run.entries, view.now + delay, later)
            if view.probe(TIMERS, (run.id, key)) is None:
                view.insert(TIMERS, timer)
            else:
                view.put(TIMERS, timer)
        if self.is_terminal(state):
            view.put(RUNS, replace(run, status=COMPLETED, finished=view.now))
        return RECORDED
