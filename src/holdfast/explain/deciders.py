"""An instance of a decider in sentences: what it waits for, what it still has to do, and what was given up.

An instance is never stuck by itself: whatever becomes of its effects and timers, it takes its next input. So what is
told here is what is pending, who would do it, and which dead letters wait for somebody's decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.codec import decode_error
from holdfast.core.rows import BLOCKED, COMPLETED, DEAD, EFFECT, LEASED, OPEN_WORK, PAUSED, READY, TIMER, Work
from holdfast.explain.reason import Fix, Reason, fix
from holdfast.explain.situation import Situation, budget, executions, type_of
from holdfast.explain.words import brief, clock, listed, span, verb

REASON_WIDTH = 500


# -- what it waits for


def behind(s: Situation, items: Sequence[Work]) -> Reason:
    """Effects that another one of the same instance holds up."""
    names = [s.shown(item) for item in items]
    first = next((item for item in s.work if item.kind == EFFECT and item.status in (READY, LEASED)), None)
    ahead = "the one before" if first is None else s.shown(first)
    text = f"{listed(names)} {verb(names, 'waits', 'wait')} behind {ahead}: the effects of an instance are carried "
    text += "out one at a time"
    if first is not None and first.status == READY and first.due > s.now:
        text += f", and that one goes on at {clock(first.due)}"
    return Reason(text)


def timer_set(s: Situation, items: Sequence[Work], node: str) -> Reason:
    """A timer whose time has not come."""
    item = items[0]
    ignored = ", which it ignores, as it has ended" if s.run.ended else ""
    when = f"at {clock(item.due)} (in {span(item.due - s.now)})"
    return Reason(f"{s.shown(item)} gives it {type_of(item)} {when}{ignored}")


def inbox(s: Situation) -> list[Reason]:
    """Inputs that wait to be applied, and those that could not be."""
    reasons = []
    if s.run.mailbox:
        count = s.run.mailbox
        waits = "1 input waits" if count == 1 else f"{count:,} inputs wait"
        the_oldest = "" if count == 1 else ", the oldest"
        oldest = "" if s.inbox_since is None else f"{the_oldest} for {span(s.now - s.inbox_since)}"
        paused = "; it is emptied when the instance is resumed" if s.run.status == PAUSED else ""
        reasons.append(Reason(f"{waits} in its inbox{oldest}{paused}"))
    if s.refused:
        last, count = s.refused[-1], len(s.refused)
        told = "1 input of its inbox is a dead letter" if count == 1 else f"{count:,} inputs are dead letters; the last"
        reasons.append(
            Reason(
                f"{told}: {brief(last.reason or 'no reason was kept', REASON_WIDTH)}",
                (
                    fix("to put that input at the end of the inbox again, after a fix", "dead", "replay", last.id),
                    fix("to throw that input away", "dead", "discard", last.id),
                ),
            )
        )
    return reasons


# -- what was given up


def dead(s: Situation, item: Work) -> Reason:
    """An effect, a timer or the inbox itself that was given up."""
    since = "" if item.finished is None else f" since {clock(item.finished)}"
    tries = executions(item)
    after = f", after {tries} attempt{'' if tries == 1 else 's'}" if item.error is not None else ""
    error = None if item.error is None else decode_error(item.error)
    told = "" if error is None else f": {error.type}: {brief(error.message, REASON_WIDTH)}"
    again = "have it tried again" if item.kind == EFFECT else "let it fire again" if item.kind == TIMER else "empty it"
    if item.kind in (EFFECT, TIMER):
        again += f" ({budget(s.definitions, s.run.workflow)})"
    return Reason(
        f"{s.shown(item)} is a dead letter{since}{after}{told}",
        (
            fix(f"to {again}, after a fix", "dead", "replay", s.run.id, item.node),
            fix("to close it for good; the instance goes on without it", "dead", "discard", s.run.id, item.node),
            fix("to see where the error comes from", "show", s.run.id, "--traceback"),
        ),
    )


# -- the instance as a whole


def summary(s: Situation) -> str:
    """Where the instance stands, in one sentence, and a second one if somebody has to decide something."""
    effects = [item for item in s.work if item.kind == EFFECT and item.status in OPEN_WORK]
    running = [item for item in effects if item.status == LEASED]
    if running:
        gone = not any(worker.id == running[0].worker for worker in s.live)
        name = s.shown(running[0])
        return (
            f"{s.title} {f'waits for {name}, whose worker is gone' if gone else f'carries out {name}'}{_to_decide(s)}"
        )
    awaited = [_effect_awaited(s, item) for item in effects if item.status == READY][:1]
    if s.run.mailbox:
        inputs = "1 input" if s.run.mailbox == 1 else f"{s.run.mailbox:,} inputs"
        awaited.append(f"{inputs} of its inbox to be applied")
    timer = _timers_awaited(s)
    if not awaited:
        awaited = ["its next input"]
        timer = f", or for {timer}" if timer else "; nothing else of it is pending"
    else:
        timer = f"; {timer} follows" if timer else ""
    return f"{s.title} waits for {' and for '.join(awaited)}{timer}{_to_decide(s)}"


def _effect_awaited(s: Situation, item: Work) -> str:
    return f"{s.shown(item)} to be carried out" + (f" at {clock(item.due)}" if item.due > s.now else "")


def _timers_awaited(s: Situation) -> str:
    timers = sorted((i for i in s.work if i.kind == TIMER and i.status in OPEN_WORK), key=lambda item: item.due)
    if not timers:
        return ""
    when = f"at {clock(timers[0].due)}" if timers[0].due > s.now else "which is due"
    more = f" and {len(timers) - 1:,} more" if len(timers) > 1 else ""
    return f"{s.shown(timers[0])} {when}{more}"


def _to_decide(s: Situation) -> str:
    count = sum(item.status == DEAD for item in s.work) + len(s.refused)
    if not count:
        return ""
    return ". 1 dead letter waits for a decision" if count == 1 else f". {count:,} dead letters wait for a decision"


def ended(s: Situation) -> str:
    """An instance that has ended. What its last decision asked for still happens (I34)."""
    run = s.run
    at = run.finished or run.updated
    what = "reached its end" if run.status == COMPLETED else f"was {run.status}"
    text = f"{s.title} {what} at {clock(at)}, {span(at - run.created)} after its first input, and ignores further ones"
    left = [item for item in s.work if item.status in OPEN_WORK]
    if left:
        names = [s.shown(item) for item in left if item.status != BLOCKED] or [s.shown(item) for item in left]
        text += f". What it had asked for still happens: {listed(names)} {verb(names, 'is', 'are')} left"
    return text + _to_decide(s)


def resume(s: Situation) -> Fix:
    return fix("to let it go on", "resume", s.run.id)
