"""`holdfast explain`: in plain words, why a run is not progressing now and what would move it.

Reads committed rows only; nothing here is ever used for a decision. `situation.py` reads, `causes.py` finds what holds
each item of work up, `telling.py` has the words (`functions.py` those of durable functions, `deciders.py` those of
instances of deciders, `graphs.py` those of state graphs), and this module puts them together for the run as a whole.
However many nodes a run has, an explanation stays as short as a person wants it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.projection_operations import PROJECTION_MODEL
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    CANCELLING,
    COMPLETED,
    GAVE_UP,
    LEASED,
    PAUSED,
    READY,
    SKIPPED,
    SLEEP,
    WAIT,
    Run,
    Work,
)
from holdfast.explain import causes as c
from holdfast.explain import deciders, functions, graphs, projections
from holdfast.explain.reason import Fix, Reason, fix
from holdfast.explain.situation import Situation, look
from holdfast.explain.telling import newer_code, tell
from holdfast.explain.words import brief, clock, listed, long_span, nodes, verb
from holdfast.models.machine import discarded_node
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.store.contract import Store

__all__ = ["Explanation", "Fix", "explain"]

MOST_REASONS: Final = 10
MOST_FIXES: Final = 6
REASON_WIDTH: Final = 800
# Told node by node, because each has an error or parents of its own; after this many, by their number.
MOST_ALIKE: Final = 3
ONE_BY_ONE: Final = {
    c.GAVE_UP_FOR_GOOD: ("gave up", "gave up"),
    c.DEAD_LETTER: ("is a dead letter", "are dead letters"),
    c.IS_BLOCKED: ("is blocked", "are blocked"),
    c.ASKS: ("asks a person", "ask people"),
    c.TIMER_SET: ("is set for later", "are set for later"),
}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`summary` says it in one sentence, `reasons` item by item, `fixes` are commands that would help."""

    run: str
    status: str
    summary: str
    reasons: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()

    def __str__(self) -> str:
        lines = [self.summary, *(f"  - {reason}" for reason in self.reasons)]
        for each in self.fixes:
            lines += [f"  {each.purpose}:", f"      {each.command}"]
        return "\n".join(lines)


async def explain(store: Store, run: Run, definitions: RegistryDefinitions) -> Explanation:
    """Why this run is where it is; `definitions` is the code of this process, which knows names and modules."""
    s = await look(store, run, definitions)
    if run.model == PROJECTION_MODEL:
        return await _projection(store, s)
    if run.ended:
        return _ended(s)
    found = _causes(s)
    reasons = _reasons(s, found)
    fixes = list(_pause_fixes(s))
    if _waits_for_code(s):
        reasons.insert(0, newer_code(s))
    reasons += deciders.inbox(s) if s.is_instance else functions.other_events(s)
    reasons += graphs.waiting(s)
    for reason in reasons:
        fixes += reason.fixes
    if run.status == CANCELLING:
        fixes.append(fix("to end it now, without what it still does", "cancel", run.id, "--force"))
    return _explanation(s, _summary(s, found), _not_said(s, reasons), fixes)


async def _projection(store: Store, s: Situation) -> Explanation:
    """One work item that is owned for as long as somebody lives: what matters is how far it is."""
    lag = await projections.behind(store, s)
    reasons = projections.reasons(s, lag)
    waiting = {cause: items for cause, items in _causes(s).items() if cause[0] not in (c.RUNS, c.BACKING_OFF)}
    reasons += [] if s.run.ended else _reasons(s, waiting)
    texts = [reason.text for reason in reasons if reason.text]
    summary = projections.summary(s, lag) + projections.without(await projections.passed_over(store, s.run))
    return _explanation(s, summary, texts, [each for reason in reasons for each in reason.fixes])


def _explanation(s: Situation, summary: str, texts: list[str], fixes: list[Fix]) -> Explanation:
    if len(texts) > MOST_REASONS:
        more = len(texts) - MOST_REASONS + 1
        texts = [*texts[: MOST_REASONS - 1], f"and {more:,} more reasons: `holdfast show {s.run.id}` shows every node"]
    once: dict[str, Fix] = {}
    # What only looks comes after what helps.
    for each in sorted(fixes, key=lambda each: each.command.startswith("holdfast show ")):
        once.setdefault(each.command, each)
    shown = tuple(once.values())[:MOST_FIXES]
    return Explanation(run=s.run.id, status=s.status, summary=summary, reasons=tuple(texts), fixes=shown)


def _not_said(s: Situation, reasons: list[Reason]) -> list[str]:
    return [reason.text for reason in reasons if not s.says(reason.text.partition(": ")[0])]


def _causes(s: Situation) -> dict[c.Cause, list[Work]]:
    """Everything that holds the run up, with what it holds up, in the order in which it is told."""
    found: dict[c.Cause, list[Work]] = {}
    for item in s.work:
        for cause in c.causes_of(s, item):
            found.setdefault(cause, []).append(item)
    return dict(sorted(found.items(), key=lambda pair: c.ORDER.index(pair[0][0])))


def _reasons(s: Situation, found: dict[c.Cause, list[Work]]) -> list[Reason]:
    reasons: list[Reason] = []
    alike: dict[str, int] = {}
    for cause, items in found.items():
        kind = cause[0]
        if kind in (c.IS_BLOCKED, c.BEHIND) and s.run.status == PAUSED:
            continue  # nothing starts anyway, and what gave up says how many it blocks
        is_said = kind == c.GAVE_UP_FOR_GOOD and s.says(f"node {s.name(items[0].node)} gave up after ")
        alike[kind] = alike.get(kind, 0) + (not is_said)
        if kind not in ONE_BY_ONE or is_said or alike[kind] <= MOST_ALIKE:
            reasons.append(tell(s, cause, items))
    for kind, (one, many) in ONE_BY_ONE.items():
        more = alike.get(kind, 0) - MOST_ALIKE
        if more > 0:
            noun = "" if s.is_instance else " node" if more == 1 else " nodes"
            reasons.append(Reason(f"and {more:,} more{noun} {one if more == 1 else many}"))
    return reasons


# -- the run as a whole


def _summary(s: Situation, found: dict[c.Cause, list[Work]]) -> str:
    if s.run.status == PAUSED:
        return _paused(s)
    if s.run.status == CANCELLING:
        return f"{s.title} is being {_said_once(CANCELLED, _why(s.run))}: it runs its rollbacks and `finally` blocks"
    kinds = {cause[0] for cause in found}
    if _waits_for_code(s) and c.RUNS not in kinds:
        return f"{s.title} waits for newer code of {s.run.workflow}"
    by_itself = kinds <= set(c.BY_ITSELF) and (s.live or c.OWNER_GONE not in kinds) and not _waits_for_code(s)
    ending = ". Nothing needs to be done" if by_itself and found else ""
    if s.is_instance:
        return f"{deciders.summary(s)}{ending}"
    if s.is_function:
        return f"{functions.summary(s)}{ending}"
    if s.is_graph and (stands := graphs.summary(s)) is not None:
        return stands
    for kind, sentence in (
        (c.RUNS, "is running {}"),
        (c.OWNER_GONE, "waits for {}, whose worker is gone"),
    ):
        items = [item for cause, each in found.items() if cause[0] == kind for item in each]
        if items:
            return f"{s.title} {sentence.format(_names(s, items))}{graphs.step_of(s)}{ending}"
    ready = [item for item in s.work if item.status == READY]
    if ready:
        later = min(item.due for item in ready)
        until = f" at {clock(later)}" if later > s.now else ""
        if later > s.now and all(item.kind == WAIT for item in ready) and s.waits:
            return f"{s.title} waits for {_awaited(s)}, or until {clock(later)}"
        if later > s.now and all(item.kind == SLEEP for item in ready):
            return f"{s.title} sleeps until {clock(later)}, at {_names(s, ready)}{ending}"
        return f"{s.title} waits for {_names(s, ready)} to be started{until}{ending}"
    if s.waits:
        return f"{s.title} waits for {_awaited(s)}"
    return f"{s.title} is {s.status}{ending}"


def _awaited(s: Situation) -> str:
    """What its nodes wait for: events, and the ends of runs."""
    events = list(dict.fromkeys(wait.event for wait in s.waits if wait.event))
    runs = list(dict.fromkeys(functions.shown_run(s, wait.ended) for wait in s.waits if wait.ended))
    one_wait = len({wait.address for wait in s.waits if wait.event}) == 1  # then any of them will do
    shown = " or ".join(events) if one_wait and len(events) <= MOST_ALIKE else listed(events)
    parts = [f"event {shown}"] if events else []
    return " and ".join([*parts, *([f"the end of {listed(runs)}"] if runs else [])])


def _names(s: Situation, items: list[Work]) -> str:
    if s.is_instance:
        return listed([s.shown(item) for item in items])
    return nodes([s.name(item.node) for item in items]).removeprefix("node ")


def _waits_for_code(s: Situation) -> bool:
    return s.run.signature is None and s.run.definition is None and s.run.model == "dag"


def _paused(s: Situation) -> str:
    since = clock(s.paused_at)
    goes_on = [item for item in s.work if item.status == LEASED]
    still = f". {_names(s, goes_on)} still {verb(goes_on, 'runs', 'run')} to the end" if goes_on else ""
    return (
        f"{s.title} is {_said_once(PAUSED, _why(s.run))} (since {since}). Nothing of it starts until it is resumed"
        f"{_or_skipped(s)}{', but inputs are applied' if s.is_instance else ''}{still}"
    )


def _or_skipped(s: Situation) -> str:
    """A run that paused itself goes on without the node that gave up as well."""
    gave_up = any(item.status in GAVE_UP for item in s.work) and s.graph is not None and len(s.graph) > 1
    return ", or until what gave up is skipped" if gave_up and s.paused_by_itself else ""


def _pause_fixes(s: Situation) -> tuple[Fix, ...]:
    if s.run.status != PAUSED:
        return ()
    if s.is_instance:
        return (deciders.resume(s),)
    if any(item.status in GAVE_UP for item in s.work):
        return ()  # the node that gave up says it better
    by_itself = s.is_function or s.is_graph
    if not s.waits and not by_itself and not any(item.status in (READY, LEASED) for item in s.work):
        stuck = [s.name(item.node) for item in s.work if item.status == BLOCKED]
        skips = [fix(f"to go on without {name}", "skip", s.run.id, name, *s.app()) for name in stuck[:MOST_ALIKE]]
        return (*skips, fix("to see every node", "show", s.run.id), fix("to give it up", "cancel", s.run.id))
    by_node = (s.run.reason or "").startswith("paused by node ")
    purpose = "to let it go on: the node that paused it runs again" if by_node else "to let it go on"
    return (fix(purpose, "resume", s.run.id, *(s.app() if s.is_graph else ())),)


def _why(run: Run) -> str:
    return brief(run.reason or "", REASON_WIDTH)


def _said_once(what: str, reason: str) -> str:
    """`paused: lunch`, but `paused by ada` and not `paused: paused by ada`."""
    if not reason:
        return what
    return reason if reason.startswith(f"{what} ") else f"{what}: {reason}"


def _ended(s: Situation) -> Explanation:
    run = s.run
    at = run.finished or run.updated
    when = f"at {clock(at)}"
    if s.is_instance:
        reasons = [*_reasons(s, _causes(s)), *deciders.inbox(s)]
        fixes = [each for reason in reasons for each in reason.fixes]
        return _explanation(s, deciders.ended(s), [reason.text for reason in reasons], fixes)
    if run.status == COMPLETED:
        took = f", {long_span(at - run.created)} after it was started"
        summary = f"{s.title} completed {when}{took}: there is nothing left to do{_without(s)}"
        return _explanation(s, summary, [], [])
    if run.status == CANCELLED:
        summary = f"{s.title} was {_said_once(CANCELLED, _why(run))}, {when}. It never changes again"
        return _explanation(s, summary, [], list(graphs.ways_on(s) if s.is_graph else _fork(s)))
    found = {cause: items for cause, items in _causes(s).items() if cause[0] in (c.GAVE_UP_FOR_GOOD, c.DEAD_LETTER)}
    reasons = [*_reasons(s, found), *(graphs.failed_step(s) if s.is_graph else ())]
    fixes = [each for reason in reasons for each in reason.fixes]
    discarded = None if run.gave_up else discarded_node(run.reason)
    if discarded is not None:
        fixes.append(fix("to try after all what was discarded", "reattempt", run.id, discarded))
    return _explanation(s, f"{s.title} failed {when}: {_why(run)}", _not_said(s, reasons), fixes)


def _without(s: Situation) -> str:
    """Nodes that were skipped: the run is completed, and they have done nothing."""
    names = [s.name(item.node) for item in s.work if item.status == SKIPPED]
    if s.run.model != "dag" or not names:
        return ""
    return f". {'1 node was' if len(names) == 1 else f'{len(names):,} nodes were'} skipped: {listed(names)}"


def _fork(s: Situation) -> tuple[Fix, ...]:
    """A cancelled run is over, but what it had done can be shared with a new one."""
    left = next((item for item in s.work if item.status == CANCELLED), None)
    if left is None or s.graph is None or len(s.graph) == 1 or left.node not in s.graph.by_id:
        return ()
    purpose = "to go on in a new run that shares what this one had completed"
    return (fix(purpose, "fork", s.run.id, "--from", s.name(left.node), *s.app()),)
