"""The decider machine: fold the stream, decide, and write everything that follows in one transaction.

One function, `apply`, serves every way in which an input arrives: a command, an effect's follow-up, a timer, the inbox.
So an effect and what came of it commit together, and so do a timer and its firing.

The seed's words here: an *instance* is a run; its *outbox* is its work of kind effect, at most one of which is ready
or leased at a time; a *timer* is one work item per key, set anew in place, so the newest always wins.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.authors_line import authors_line
from holdfast.core.codec_label import unlabelled
from holdfast.core.decider_operations import APPLIED, DECIDER, IGNORED, TIMER_CANCELLED
from holdfast.core.errors import DecideFailed, HoldfastError, UnknownNode, UnknownWorkflow, UsageError
from holdfast.core.operations import StartRun
from holdfast.core.queries import Attempts, OpenWork
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    COMPLETED,
    DEAD,
    EFFECT,
    LEASED,
    OBSERVATIONS,
    PAUSED,
    READY,
    RUNS,
    SNAPSHOTS,
    STREAM,
    TIMER,
    WORK,
    Fact,
    Observation,
    Run,
    Snapshot,
    Work,
)
from holdfast.core.view import View
from holdfast.models.decider_code import Decided, DeciderCode, NewEffect, NewEvent, NewTimer
from holdfast.models.delivery import gate_for
from holdfast.models.folding import Folded, Folding, own
from holdfast.models.machine import Definitions, Handing, end_run, make_ready

ACTIVE = frozenset({READY, LEASED})


class Given(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An input on its way to an instance: what it is, where it came from, and how much of it is observed."""

    data: bytes
    codec: str
    cause: str
    type: str = ""
    source: str = "command"
    command: str | None = None
    observe: str = "off"


class DeciderMachine:
    """Event-sourced deciders."""

    cancels_gracefully = False

    def __init__(self, folding: Folding) -> None:
        self.folding = folding
        self.observe = "off"  # what is observed of inputs that come from effects and timers: the engine's setting

    # -- an input

    def apply(self, view: View, run: Run, given: Given, handing: Handing, code: DeciderCode) -> str:
        """Give an instance an input. I33: observation, events, effects, cancelled timers, new timers, in this order."""
        if run.ended:
            self.observed(view, run, given, code, IGNORED)
            return IGNORED
        folded = self.folding.state(view, run, code)
        decided = self._decide(view, run, folded, given, code)
        status = code.status(folded.state) if given.observe != "off" else None
        run = self.observed(
            view, run, given, code, APPLIED, before=status, after=code.status(decided.state) if status else None
        )
        first = run.base + 1
        last = _append_all(view, run, decided.events, given.cause)
        run = replace(run, token=run.token + 1, base=last.sequence)
        if decided.effects:
            run = self._ask_for(view, run, decided.effects, first, handing)
        for key in decided.cancels:
            run, last = _cancel_timer(view, run, key, given.cause, last)
        for number, timer in enumerate(decided.timers):
            run = _set_timer(view, run, timer, f"{first}.{number}", handing)
        kept = folded.kept
        if code.snapshot_every and _is_due(run.base, first - 1, kept, code.snapshot_every):
            _keep_state(view, run, decided.state, code)
            kept = run.base
        self.folding.note(run, last, Folded(decided.state, run.base, run.created, folded.code, kept))
        if code.is_terminal(decided.state):  # I34: asked of the state after the new events
            _end(view, run)
        else:
            view.put(RUNS, run)
        return APPLIED

    def _decide(self, view: View, run: Run, folded: Folded, given: Given, code: DeciderCode) -> Decided:
        try:
            return code.decide(view.now, own(folded.state, code), given.data, given.codec)
        except UsageError as error:
            code.decode_input(given.data, given.codec)  # raises where not the decision, but the input is at fault
            raise DecideFailed(
                f"{_undecided(run, given, code)}: {error.message}{authors_line(error)}", hint=error.hint
            ) from error
        except (HoldfastError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a SystemExit is no reason for the program to end
            raise DecideFailed(
                f"{_undecided(run, given, code)}: {type(error).__name__}: {error}{authors_line(error)}",
                hint=f"repair decide or evolve of {run.workflow}; nothing was written, and the instance is as it was",
            ) from error

    def observed(
        self,
        view: View,
        run: Run,
        given: Given,
        code: DeciderCode,
        outcome: str,
        *,
        before: str | None = None,
        after: str | None = None,
    ) -> Run:
        """Write down that an input came, if that is wanted. The run as it is then."""
        if given.observe == "off":
            return run
        number = run.entries + 1
        view.insert(
            OBSERVATIONS,
            Observation(
                run=run.id,
                number=number,
                workflow=run.workflow,
                at=view.now,
                type=given.type or code.input_type(given.data, given.codec),
                payload=given.data if given.observe == "payload" else None,
                codec=given.codec,
                source=given.source,
                command=given.command,
                outcome=outcome,
                before=before,
                after=after,
            ),
        )
        run = replace(run, entries=number)
        view.put(RUNS, run)
        return run

    # -- effects: one at a time

    def _ask_for(self, view: View, run: Run, effects: tuple[NewEffect, ...], first: int, handing: Handing) -> Run:
        waiting = run.remaining
        for number, effect in enumerate(effects):
            work = Work(
                run=run.id,
                node=f"effect/{first}.{number}",
                attempt=1,
                workflow=run.workflow,
                kind=EFFECT,
                name=f"{run.workflow}.{effect.type}",
                completed=1,
                queue=effect.queue or run.queue,
                priority=run.priority,
                due=view.now,
                timeout=effect.timeout,
                payload=effect.data,
                codec=effect.codec,
                created=view.now,
            )
            if waiting + number == 0:
                work = make_ready(view, run, work, handing)
            view.insert(WORK, work)
        run = replace(run, remaining=waiting + len(effects), active=run.active + (waiting == 0))
        return self.next_effect(view, run, handing) if waiting else run

    def next_effect(self, view: View, run: Run, handing: Handing) -> Run:
        """Of the open effects the one that is due first is next, and one at a time. The caller writes the run."""
        effects = [work for work in view.find(OpenWork(run.id)) if work.kind == EFFECT]
        if not effects:
            return run
        chosen = _first_due(effects, view.now)
        for work in effects:
            if work.status == READY and work is not chosen:
                view.put(WORK, replace(work, status=BLOCKED))
                run = replace(run, active=run.active - 1)
        if chosen.status == BLOCKED:
            view.put(WORK, make_ready(view, run, chosen, handing))
            run = replace(run, active=run.active + 1)
        return run

    # -- what the kernel asks of a machine

    def start(self, view: View, run: Run, operation: StartRun, handing: Handing, definitions: Definitions) -> None:
        raise UsageError(
            f"{run.workflow} is a decider, whose instances begin with their first input",
            hint=f"use engine.execute({run.workflow}, …)",
        )

    def advance(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """An effect or a timer is settled: its input follows in the same transaction."""
        if work.kind == EFFECT:
            run = replace(run, remaining=run.remaining - 1)
        view.put(RUNS, run)
        if work.status == COMPLETED and work.result is not None:
            follows = unlabelled(work.result)
            given = Given(
                data=follows.data, codec=follows.codec, cause=work.node, source=work.kind, observe=self.observe
            )
            self.apply(view, run, given, handing, code_of(definitions, run.workflow))
        run = _known(view, run)
        if work.kind == EFFECT and run.remaining:
            view.put(RUNS, self.next_effect(view, run, handing))

    def give_up(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """A dead letter. The instance goes on: its author models what must follow as an input."""
        if work.status != DEAD:
            view.put(WORK, replace(work, status=DEAD))
        if work.kind == EFFECT:
            run = replace(run, remaining=run.remaining - 1)
            if run.remaining:
                run = self.next_effect(view, run, handing)
        view.put(RUNS, run)

    def before_another(self, view: View, run: Run, work: Work, definitions: Definitions) -> Run | None:
        return run

    def tried_again(self, view: View, run: Run, work: Work) -> None:
        """Another attempt was made ready: of several effects, one that is due now goes before one that waits."""
        if work.kind == EFFECT and run.remaining > 1:
            view.put(RUNS, self.next_effect(view, run, Handing(None)))

    def idle(self, view: View, run: Run) -> None:
        """An instance that nothing moves waits for its next input."""

    def refresh(self, view: View, run: Run, definitions: Definitions) -> None:
        """It was paused, and goes on."""

    def cancel(self, view: View, run: Run, definitions: Definitions, by: str) -> None:
        raise NotImplementedError("an instance is cancelled at once")

    def label(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return node

    def position(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return ""

    def find(self, view: View, run: Run, name: str, definitions: Definitions) -> str:
        if view.find(Attempts(run.id, frozenset({name}))):
            return name
        raise UnknownNode(
            f"{run.workflow} {run.key!r} has no effect or timer {name!r}",
            hint=f"see `holdfast show {run.id}`; effects are called effect/SEQUENCE.NUMBER, timers timer/KEY",
        )

    def parents(self, view: View, run: Run, node: str, definitions: Definitions) -> str | None:
        return None

    def below(self, view: View, run: Run, node: str, definitions: Definitions) -> tuple[str, ...]:
        return ()

    def skip_unbegun(self, view: View, run: Run, node: str, definitions: Definitions) -> Work:
        raise UsageError(
            f"{node} of run {run.id} cannot be skipped", hint="`holdfast dead discard` closes a dead letter"
        )


def _undecided(run: Run, given: Given, code: DeciderCode) -> str:
    what = given.type or code.input_type(given.data, given.codec)
    return f"{run.workflow} {run.key!r} could not decide on {what}"


def code_of(definitions: Definitions, workflow: str) -> DeciderCode:
    code = definitions.decider(workflow)
    if code is None:
        raise UnknownWorkflow(
            f"no decider is registered as {workflow!r} in this process",
            hint="import the module that defines it; whoever executes an input needs the decider's code",
        )
    return code


def _end(view: View, run: Run) -> None:
    """The instance has ended. If it was paused, nobody can resume it now: what it asked for is let go."""
    ended = end_run(view, run, COMPLETED)
    for work in view.find(OpenWork(run.id)) if run.status == PAUSED else ():
        if work.status == READY:
            view.put(WORK, replace(work, gate=gate_for(ended, work.due, view.now)))


def _known(view: View, run: Run) -> Run:
    return view.run(run.id) or run


def _first_due(effects: list[Work], now: int) -> Work:
    """One that runs goes on; else the one that is due first, and of all that are due now the one asked for first."""
    for work in effects:  # there may be very many behind it, and each input comes here
        if work.status == LEASED:
            return work
    soonest = max(now, min([work.due for work in effects]))
    return min([work for work in effects if work.due <= soonest], key=_asked_in)


def _asked_in(work: Work) -> tuple[int, int]:
    sequence, _, number = work.node.removeprefix("effect/").partition(".")
    return int(sequence), int(number)


def _append_all(view: View, run: Run, events: tuple[NewEvent, ...], cause: str) -> Fact:
    """The last of them; the caller writes the run."""
    last: Fact | None = None
    for sequence, event in enumerate(events, run.base + 1):
        last = _append(view, run, sequence, event.type, event.version, event.data, event.codec, cause)
    if last is None:
        raise DecideFailed(  # I35
            f"{run.workflow} {run.key!r} decided without an event",
            hint="every decision is a fact: return hf.Decision.event(…), also for an input that is turned down",
        )
    return last


def _append(view: View, run: Run, sequence: int, kind: str, version: int, data: bytes, codec: str, cause: str) -> Fact:
    fact = Fact(
        run=run.id,
        sequence=sequence,
        workflow=run.workflow,
        key=run.key or "",
        type=kind,
        version=version,
        at=view.now,
        data=data,
        codec=codec,
        system=kind == TIMER_CANCELLED and version == 0,
        cause=cause,
    )
    view.insert(STREAM, fact)
    return fact


def _cancel_timer(view: View, run: Run, key: str, cause: str, last: Fact) -> tuple[Run, Fact]:
    """The timer will not fire, and the stream says so (I33); one that is not set leaves no trace."""
    work = view.get(WORK, (run.id, timer_node(key), 1))
    if work is None or work.status not in (READY, LEASED, DEAD):
        return run, last
    view.put(WORK, replace(work, status=CANCELLED, token=work.token + 1, worker=None, finished=view.now))
    told = msgspec.json.encode({"key": key})
    fact = _append(view, run, run.base + 1, TIMER_CANCELLED, 0, told, "json", cause)
    run = replace(
        run,
        base=fact.sequence,
        active=run.active - (work.status in ACTIVE),
        gave_up=run.gave_up - (work.status == DEAD),
    )
    return run, fact


def _set_timer(view: View, run: Run, timer: NewTimer, number: str, handing: Handing) -> Run:
    node = timer_node(timer.key) if timer.key is not None else f"timer/#{number}"
    before = view.probe(WORK, (run.id, node, 1))
    fresh = Work(
        run=run.id,
        node=node,
        attempt=1,
        workflow=run.workflow,
        kind=TIMER,
        name=f"{run.workflow}:{timer.type}",
        status=READY,
        completed=1,
        token=0 if before is None else before.token + 1,  # I3: tokens never restart, so an earlier lease is stale
        queue=run.queue,
        priority=run.priority,
        gate=gate_for(run, timer.due, view.now),
        due=timer.due,
        payload=timer.data,
        codec=timer.codec,
        created=view.now,
    )
    if before is None:
        view.insert(WORK, fresh)
        return replace(run, active=run.active + 1)
    view.put(WORK, replace(fresh, created=before.created))
    return replace(
        run,
        active=run.active + (before.status not in ACTIVE),
        gave_up=run.gave_up - (before.status == DEAD),
    )


def timer_node(key: str) -> str:
    """Where the timer of a key is. A key that begins as the address of one without a key does gets one more #."""
    return f"timer/#{key}" if key.startswith("#") else f"timer/{key}"


def timer_key(node: str) -> str | None:
    """The key of the timer at a node, or None for one without."""
    key = node.removeprefix("timer/")
    return key[1:] if key.startswith("##") else None if key.startswith("#") else key


def _is_due(length: int, before: int, kept: int, every: int) -> bool:
    """At every multiple that is passed; and at once where a snapshot is missing, so that nobody folds it all again."""
    return length // every > before // every or length - kept >= 2 * every


def _keep_state(view: View, run: Run, state: Any, code: DeciderCode) -> None:
    stored = code.store_state(state)
    if stored is not None:
        data, codec = stored
        row = Snapshot(run=run.id, sequence=run.base, state=data, codec=codec, code=code.code, at=view.now)
        view.insert(SNAPSHOTS, row)  # instead of the one before, if there is one


__all__ = ["DECIDER", "DeciderMachine", "Given", "code_of", "timer_key", "timer_node"]
