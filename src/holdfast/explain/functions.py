"""A function in sentences: what it waits for, who runs its code, and what to do when that does not fit its history.

Its run has one item of work, its turn. A turn that nobody can take yet is *parked*: the function waits for events, for
other runs, for calls in the work table or for a time, and whatever comes first makes the turn ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from holdfast.core.codec import decode_error
from holdfast.core.codec_shape import display
from holdfast.core.function_operations import CANCEL, TURN, entry_of
from holdfast.core.rows import BLOCKED, CALL, CANCELLING, LEASED, OPEN_WORK, READY, SUSPENDED, WAIT, Work
from holdfast.explain.reason import Fix, Reason, fix
from holdfast.explain.situation import MODULE, Awaited, Situation
from holdfast.explain.unfit import plain_refusal
from holdfast.explain.words import brief, clock, listed, span
from holdfast.models.delivery import ENTRY_CODEC

MOST_EVENTS: Final = 3
LONG_US: Final = 60_000_000
NOT_AS_RECORDED: Final = "NonDeterminism"


# -- what it waits for


def waits(s: Situation, items: Sequence[Work], address: str) -> Reason:
    """One wait: of a function, or of a node of a DAG that depends on other runs."""
    rows = [wait for wait in s.waits if wait.address == address]
    if not rows:  # of a flow, for a time alone
        return Reason(f"node {s.name(address)} waits until {clock(items[0].due)}")
    since = min(wait.since for wait in rows)
    item = items[0]
    subject = "it" if item.kind == TURN else f"node {s.name(item.node)}"
    code = f", at {rows[0].name}" if rows[0].name.startswith("wait_for(") else ""
    awaited = [*(f"event {wait.event}" for wait in rows if wait.event), *_runs_awaited(s, rows)]
    if item.kind == WAIT and item.status == READY:
        awaited.append(f"{clock(item.due)} (in {span(item.due - s.now)})")
    text = f"{subject} waits since {clock(since)} ({span(s.now - since)}) for {_any_of(awaited)}{code}"
    sends = [_send(s, wait.event) for wait in rows if wait.event]
    looks = [_look(s, wait.ended) for wait in rows if wait.ended]
    return Reason(text, (*sends[:MOST_EVENTS], *looks[:MOST_EVENTS]))


def _runs_awaited(s: Situation, rows: Sequence[Awaited]) -> list[str]:
    return [f"the end of {shown_run(s, wait.ended)}" for wait in rows if wait.ended]


def shown_run(s: Situation, run: str) -> str:
    """Another run, with what is known of it."""
    other = s.others.get(run)
    if other is None:
        return f"run {run}, which is not in this database"
    child = "its child " if other.parent == s.run.id else ""
    return f"{child}run {run} of {other.workflow} ({other.status})"


def _any_of(things: Sequence[str]) -> str:
    if len(things) <= 1:
        return "".join(things)
    return f"{', '.join(things[:-1])} or {things[-1]}" if len(things) <= MOST_EVENTS else f"any of {listed(things)}"


def _send(s: Situation, event: str) -> Fix:
    known = s.definitions.registry.events.get(event)
    to = ("--to", s.run.id, *s.app())
    if known is None:
        carries = "PAYLOAD is what the event carries, as JSON or text; without it, null"
    elif known.type in (None, type(None)):
        return fix(f"to wake it with event {event}", "send", event, *to)
    else:
        carries = f"PAYLOAD is {display(known.type)}, as JSON" if known.place is not None else "PAYLOAD is JSON or text"
    return fix(f"to wake it with event {event} ({carries})", "send", event, "PAYLOAD", *to)


def _look(s: Situation, run: str) -> Fix:
    return fix(f"to see what run {run} waits for", "explain", run)


def sleeps(s: Situation, items: Sequence[Work]) -> Reason:
    due = items[0].due
    others = " if nothing else comes first" if s.waits or _open_calls(s) else ""
    return Reason(f"a time that it waits for comes at {clock(due)} (in {span(due - s.now)}): it goes on then{others}")


def waits_for_nothing(s: Situation, items: Sequence[Work]) -> Reason:
    return Reason(
        "it waits, and nothing is stored that could wake it, which should not be",
        (
            fix("to check the database", "doctor"),
            fix("to end it", "cancel", s.run.id),
        ),
    )


def other_events(s: Situation) -> list[Reason]:
    """What was sent to it and does not help: events that it does not wait for, and those that it could not read."""
    reasons = []
    if s.mailbox:
        kept = [f"{name} ({count:,})" if count > 1 else name for name, count in Counter(s.mailbox).most_common()]
        reasons.append(Reason(f"events that it does not wait for now are kept for it: {listed(kept)}"))
    if s.refused:
        last = s.refused[-1]
        count = len(s.refused)
        told = "1 event that was sent to it is a dead letter" if count == 1 else f"{count:,} events are dead letters"
        reasons.append(
            Reason(
                f"{told}; the last, {last.name}: {brief(plain_refusal(last.reason or ''))}",
                (
                    fix("to see events that could not be taken", "dead", "list"),
                    fix("to bring that event to it once more, after a fix", "dead", "replay", last.id),
                ),
            )
        )
    return reasons


# -- who runs its code


def runs(s: Situation, worker: str, item: Work) -> Reason:
    """Somebody runs the function's code, and the calls that it makes in that process."""
    since = item.started or item.created
    ending = "; what it does now are its rollbacks and `finally` blocks" if s.run.status == CANCELLING else ""
    text = f"its code runs since {clock(since)} ({span(s.now - since)}) on {worker}; {_recorded(s)}{ending}"
    quiet = s.now - max(since, s.last.at if s.last is not None else 0)
    if quiet >= LONG_US:
        text += (
            f". Nothing was recorded for {span(quiet)}: an action takes long, or code blocks the loop, and the log "
            "of that worker then names the line"
        )
    return Reason(text)


def _recorded(s: Situation) -> str:
    last = s.last
    if last is None or last.codec != ENTRY_CODEC:
        return "it has recorded nothing yet"
    entry = entry_of(last.data)
    name = f" {'by' if entry.kind == CANCEL else 'of'} {entry.name}" if entry.name else ""
    return f"the last entry of its history is the {entry.kind}{name} at {clock(last.at)}"


# -- why it failed


def failed(s: Situation, item: Work) -> Reason:
    error = None if item.error is None else decode_error(item.error)
    text = item.status if error is None else f"{error.type}: {brief(error.message)}"
    if error is not None and error.type == NOT_AS_RECORDED:
        module = s.module_for()
        which = f" (MODULE is the one that defines {s.run.workflow})" if module == MODULE else ""
        return Reason(
            text,
            (
                fix(
                    "to go on, after the deploy was rolled back, or the code keeps its old path for old runs with "
                    "hf.patched(…)",
                    "retry",
                    s.run.id,
                ),
                fix(
                    f"to try code against its history before that; nothing is started or changed{which}",
                    "replay",
                    s.run.id,
                    "--app",
                    module,
                ),
                fix("to see its history", "show", s.run.id),
            ),
        )
    return Reason(
        text,
        (
            fix("to go on where it stopped, after a fix", "retry", s.run.id),
            fix("to see where the error comes from", "show", s.run.id, "--traceback"),
        ),
    )


# -- the run as a whole


def summary(s: Situation) -> str:
    """Where the function stands, in one sentence."""
    turn = next((item for item in s.work if item.kind == TURN), None)
    if turn is None:
        return f"{s.title} is {s.status}"
    if turn.status == LEASED:
        gone = not any(worker.id == turn.worker for worker in s.live)
        return f"{s.title} {'waits for its code to be taken over: its worker is gone' if gone else 'is running'}"
    if not s.is_parked(turn):
        later = f" at {clock(turn.due)}" if turn.due > s.now else ""
        return f"{s.title} waits for a worker to {'go on with it' if s.run.started else 'start it'}{later}"
    due = "" if turn.status == BLOCKED else clock(turn.due)
    waited = [*(f"event {wait.event}" for wait in s.waits if wait.event), *_runs_awaited(s, s.waits)]
    if not due and len({wait.address for wait in s.waits}) == 1:
        waited = [_any_of(waited)]  # of one wait: whatever comes first
    awaited = [*(f"call {s.shown(item)}" for item in _open_calls(s)), *waited]
    if not awaited:
        return f"{s.title} {f'sleeps until {due}' if due else f'is {SUSPENDED}'}"
    return f"{s.title} waits for {listed(awaited)}" + (f", or for {due} to come" if due else "")


def _open_calls(s: Situation) -> list[Work]:
    return [item for item in s.work if item.kind == CALL and item.status in OPEN_WORK]
