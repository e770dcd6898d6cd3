"""Each cause in a sentence, with what a person can do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.core.codec import decode_error
from holdfast.core.function_operations import TURN
from holdfast.core.rows import ACTION_ENOUGH, EFFECT, PAUSED, SATISFIED, TIMER, Work
from holdfast.explain import causes as c
from holdfast.explain import deciders, flows, functions, graphs
from holdfast.explain.reason import Fix, Reason, fix
from holdfast.explain.situation import MODULE, Situation, type_of
from holdfast.explain.words import brief, clock, command, listed, nodes, span, verb
from holdfast.models.dag_items import is_alone, version_name
from holdfast.models.machine import tried
from holdfast.store.contract import WorkerRow

DEFAULT_QUEUE: Final = "default"
DEAD_WIDTH: Final = 800  # the message of a dead letter holds the ways out
SHOWN_STATES: Final = {"leased": "running", "timed_out": "timed out", "ready": "not started yet"}


def tell(s: Situation, cause: c.Cause, items: Sequence[Work]) -> Reason:
    """The items that this holds up, in one sentence."""
    kind, *details = cause
    return _TELL[kind](s, items, *details)


# -- what is running


def _runs(s: Situation, items: Sequence[Work], worker: str) -> Reason:
    names = _names(s, items)
    owner = next(each for each in s.workers if each.id == worker)
    if any(item.kind == TURN for item in items):  # the one of its run; calls on the same worker are its doing too
        holds = f"{_shown(owner)}, which holds the lease until {clock(owner.lease_until)} and renews it while it lives"
        return functions.runs(s, holds, next(item for item in items if item.kind == TURN))
    since = min(item.started or item.created for item in items)
    which = "" if len(items) > 1 else f" (attempt {items[0].attempt})"
    if s.is_instance and which:
        which = f", attempt {_attempt(items[0])},"
    return Reason(
        f"{_subject(s, items)}{which} {verb(names, 'is', 'are')} running since {clock(since)} ({span(s.now - since)}), "
        f"{_deadline(items)}, on {_shown(owner)}, which holds the lease until {clock(owner.lease_until)} and renews it "
        "while it lives"
    )


def _deadline(items: Sequence[Work]) -> str:
    ends = [(item.started or item.created) + item.timeout for item in items if item.timeout is not None]
    if not ends:
        return "without a timeout"
    return f"with a timeout at {clock(min(ends))}" if len(items) == 1 else f"the first timeout at {clock(min(ends))}"


def _owner_gone(s: Situation, items: Sequence[Work], worker: str) -> Reason:
    names = _names(s, items)
    owner = next((each for each in s.workers if each.id == worker), None)
    if owner is None:
        what = f"worker {worker}, which is gone"
    elif owner.lease_until == 0:  # its lock is free, which proves it
        what = f"{_shown(owner)}, which has died, so that its lease ran out with it"
    else:
        what = f"{_shown(owner)}, which was last heard of at {clock(owner.seen)}; its lease ran out at "
        what += clock(owner.lease_until)
    text = f"{_subject(s, items)} {verb(names, 'was', 'were')} running on {what}"
    if s.live:
        return Reason(f"{text}: a live worker takes {verb(names, 'it', 'them')} over within seconds")
    fixes = (fix(_start_worker(s, items[0]), *_worker(s, items[0])),)
    return Reason(f"{text}, and no worker is running to take {verb(names, 'it', 'them')} over", fixes)


# -- what waits for its time


def _backing_off(s: Situation, items: Sequence[Work], kind: str, message: str) -> Reason:
    names, first = _names(s, items), min(items, key=lambda item: item.due)
    until = f"until {clock(first.due)} (in {span(first.due - s.now)})"
    when = f"{until} before attempt {_attempt(first)}" if len(items) == 1 else f"the first {until}"
    return Reason(
        f"{_subject(s, items)} {verb(names, 'is', 'are')} backing off {when}, after {kind}: {message}; "
        f"{verb(names, 'it is', 'they are')} tried again then without anybody's help",
        (fix("to see where the error comes from", "show", s.run.id, "--traceback"),),
    )


def _asked_again(s: Situation, items: Sequence[Work]) -> Reason:
    first = min(item.due for item in items)
    which = f"attempt {items[0].attempt} is" if len(items) == 1 else "the first is"
    return Reason(
        f"{_subject(s, items)} asked to be run again later: {which} due at {clock(first)} (in {span(first - s.now)})"
    )


def _due_later(s: Situation, items: Sequence[Work]) -> Reason:
    names, first = _names(s, items), min(item.due for item in items)
    return Reason(
        f"{_subject(s, items)} {verb(names, 'is', 'are')} due at {clock(first)} (in {span(first - s.now)}), "
        "as the run was started for that time, and then "
        f"{verb(names, 'starts', 'start')} without anybody's help"
    )


# -- what waits for a worker


def _held(s: Situation, items: Sequence[Work], scope: str, name: str) -> Reason:
    hold = next(each for each in s.holds if (each.scope, each.name) == (scope, name))
    what = "everything" if scope == "all" else f"{scope} {name}"
    option = () if scope == "all" else (f"--{scope}", name)
    return Reason(
        f"{_ready(s, items)}, but {what} is in maintenance since {clock(hold.since)} (by {hold.by}): nothing of it is "
        "started",
        (fix("to end the maintenance", "maintenance", "off", *option),),
    )


def _no_worker(s: Situation, items: Sequence[Work], queue: str) -> Reason:
    lapsed = [worker for worker in s.workers if worker.lease_until < s.now]
    more = "" if not lapsed else f" (the last one heard of was {_shown(max(lapsed, key=lambda worker: worker.seen))})"
    return Reason(
        f"{_ready(s, items)}, and no worker is running{more}",
        (fix(_start_worker(s, items[0]), *_worker(s, items[0])),),
    )


def _no_queue(s: Situation, items: Sequence[Work], queue: str) -> Reason:
    served = sorted({each for worker in s.live for each in worker.queues})
    return Reason(
        f"{_ready(s, items)}, but no worker serves queue {queue!r} (live workers serve: {listed(served, 8)})",
        (fix(f"to start a worker of queue {queue!r}{_with_module(s, items[0])}", *_worker(s, items[0])),),
    )


def _unknown_step(s: Situation, items: Sequence[Work], queue: str) -> Reason:
    item = items[0]
    wanted = [each.name for each in items]
    other = [worker for worker in s.live if queue in worker.queues and item.workflow in worker.workflows]
    text = f"{_ready(s, items)}, but no live worker of queue {queue!r} knows {listed(wanted)}"
    fixes = [fix(_start_worker(s, item), *_worker(s, item))]
    if s.is_instance and other:
        text += f"; {_workers(other)} {'has' if len(other) == 1 else 'have'} other code of {item.workflow}"
        kept = listed([type_of(each) for each in items if each.kind in (EFFECT, TIMER)])
        if kept:  # nobody is asked to start what runs: it is the code that lacks something
            back = f"to bring {kept} back into the code of {item.workflow}, under that very name, and start its worker"
            fixes = [fix(back + _with_module(s, item), *_worker(s, item))]
    elif item.name != item.workflow and not s.is_function:  # a step, and not an action on its own
        if other:
            text += f"; {_workers(other)} {'has' if len(other) == 1 else 'have'} {item.workflow} without it: other code"
        fixes.append(fix(f"to go on without {s.name(item.node)}", "skip", s.run.id, s.name(item.node), *s.app()))
    return Reason(text, tuple(fixes))


def _unknown_job(s: Situation, items: Sequence[Work], queue: str, action: str) -> Reason:
    """The job of a stored graph: no deploy changes the graph, so there are three ways out and one must be chosen."""
    file = f"{s.run.workflow}.json" if s.run.workflow.isidentifier() else "dag.json"
    edit = " && ".join(
        (
            command("export", s.run.id, "-o", file),
            f"${{EDITOR:-vi}} {file}",
            command("import", s.run.id, file, "--app", MODULE),
        )
    )
    bring_back = f"either bring {action} back, or give its successor aliases=[{action!r}], and start a worker"
    return Reason(
        f"{_ready(s, items)}, but no live worker of queue {queue!r} knows the action {action!r}, and the graph of this "
        "run is stored, so that no deploy changes it",
        (
            fix(bring_back + _with_module(s, items[0]), *_worker(s, items[0])),
            fix("or give this run up, and start another", "cancel", s.run.id),
            Fix("or let its graph name another job (MODULE is the one that defines that)", edit),
        ),
    )


def _no_slot(s: Situation, items: Sequence[Work], queue: str) -> Reason:
    names = _names(s, items)
    able = [worker for worker in s.live if any(worker.knows(item) for item in items)]
    slots, taken = sum(worker.concurrency for worker in able), sum(s.taken.get(worker.id, 0) for worker in able)
    text = (
        f"{_ready(s, items)}, and {verb(names, 'waits', 'wait')} for a free slot: {taken:,} of {slots:,} "
        f"{'slot' if slots == 1 else 'slots'} of {_workers(able)} {'is' if taken == 1 else 'are'} taken"
    )
    losses = max(item.losses for item in items)
    if losses > 1:
        text += f" (a worker has died {losses} times in a row while running it)"
    if taken < slots:
        return Reason(f"{text}, so that {verb(names, 'it', 'the first of them')} should begin at any moment")
    return Reason(
        f"{text}; {verb(names, 'it begins', 'they begin')} as slots become free",
        (fix(f"to have it sooner, start another worker{_with_module(s, items[0])}", *_worker(s, items[0])),),
    )


# -- what waits for other nodes, or for nobody


def _blocked(s: Situation, items: Sequence[Work], node: str) -> Reason:
    item = items[0]
    text = f"node {s.name(node)} is blocked ({item.completed} of {item.required}) since {clock(item.created)}"
    if s.run.model == "flow":
        return Reason(f"{text}{flows.awaited(s, item)}")
    if s.graph is None or node not in s.graph.by_id:
        return Reason(f"{text}; which nodes it waits for is in the code of {s.run.workflow}: add --app with its module")
    waits = []
    for parent in s.graph.by_id[node].depends_on:
        row = s.parents.get(parent)
        if row is None or row.status not in SATISFIED:
            state = "not reached yet" if row is None else SHOWN_STATES.get(row.status, row.status)
            waits.append(f"{s.name(parent)} ({state})")
    return Reason(f"{text}: it waits for {listed(waits)}" if waits else text)


def _gave_up(s: Situation, items: Sequence[Work], node: str) -> Reason:
    if items[0].kind == TURN:
        return functions.failed(s, items[0])
    return Reason(gave_up_text(s, items[0]), gave_up_fixes(s, items[0]))


def gave_up_text(s: Situation, item: Work) -> str:
    """What gave up, after which error, on which path, and what it holds up."""
    error = None if item.error is None else decode_error(item.error)
    told = f" ({item.status})" if error is None else f": {error.type}: {brief(error.message)}"
    return f"node {s.name(item.node)} gave up after {tried(item)}{told}{_place(s, item.node)}"


def gave_up_fixes(s: Situation, item: Work) -> tuple[Fix, ...]:
    """What can be done about a node that gave up: the verb depends on what has become of its run."""
    name = s.name(item.node)
    again = "to run what gave up again, after a fix"
    if s.run.status == PAUSED:
        first = fix(again, "resume", s.run.id)
    elif s.run.ended:
        first = fix(again, "retry", s.run.id)
    else:
        first = fix(f"to run {name} again, after a fix", "reattempt", s.run.id, name)
    skip = fix(f"to go on without {name}", "skip", s.run.id, name, *s.app())
    show = fix("to see where the error comes from", "show", s.run.id, "--traceback")
    # A single action has nothing that could go on without it.
    return (first, show) if is_alone(s.run, item) else (first, skip, show)


def _dead(s: Situation, items: Sequence[Work], node: str) -> Reason:
    item, name = items[0], s.name(node)
    if s.is_instance:
        return deciders.dead(s, item)
    since = "" if item.finished is None else f" since {clock(item.finished)}"
    message = "" if item.error is None else decode_error(item.error).message
    error = "" if not message or s.says(message[:40]) else f": {brief(message, DEAD_WIDTH)}"
    return Reason(
        f"{_subject(s, items)} is a dead letter{since}{error}",
        (
            fix(f"to run {name} again, after a fix", "dead", "replay", s.run.id, name),
            fix("to close it for good, which fails the run", "dead", "discard", s.run.id, name),
        ),
    )


def _place(s: Situation, node: str) -> str:
    if s.graph is None or node not in s.graph.by_id:
        return ""
    path = [s.name(each) for each in s.graph.path_from_entry(node)]
    below = len(s.graph.descendants(node))
    where = f" (path {' > '.join(path if len(path) <= 6 else [*path[:2], '…', *path[-2:]])})" if len(path) > 1 else ""
    return where + (f"; {below:,} node{'' if below == 1 else 's'} blocked by it" if below else "")


def newer_code(s: Situation) -> Reason:
    """I31: only code that was deployed later than what shaped the run may say what follows."""
    workflow = s.run.workflow
    seen = f" that was first seen at {clock(s.run.adopted)}, or later code" if s.run.adopted else " of now"
    prefix = version_name(workflow, "")
    served = [
        f"version {name.removeprefix(prefix)} ({worker.host} pid {worker.pid})"
        for worker in s.live
        for name in worker.actions
        if name.startswith(prefix)
    ]
    live = f"Live workers have {listed(served)}" if served else f"No live worker has any code of {workflow}"
    module = s.module_for()
    which = f" (MODULE is the one that defines {workflow})" if module == MODULE else ""
    return Reason(
        f"what follows is not decided yet: its last node was settled by a process with older code of {workflow}, or "
        f"without any. It takes a worker with the code{seen}; such a worker finds this run within a minute. {live}",
        (fix(f"to start a worker with the newest code of {workflow}{which}", "worker", module),),
    )


# -- words


def _names(s: Situation, items: Sequence[Work]) -> list[str]:
    return [s.shown(item) for item in items]


def _subject(s: Situation, items: Sequence[Work]) -> str:
    names = _names(s, items)
    if s.is_instance:
        return listed(names)
    if not s.is_function:
        return nodes(names)
    kind = "function" if items[0].kind == TURN else "call"
    return f"{kind} {names[0]}" if len(names) == 1 else f"{len(names):,} calls ({listed(names)})"


def _ready(s: Situation, items: Sequence[Work]) -> str:
    # A function that is asleep has the same trouble as its calls, later.
    items = [item for item in items if not s.is_parked(item)]
    if s.is_instance:  # what is due later has a line of its own
        later, items = items, [item for item in items if item.due <= s.now]
        if not items:
            names = _names(s, later)
            return f"{listed(names)} {verb(names, 'needs', 'need')} a worker when the time comes"
    if not items:
        return "whatever it waits for, somebody has to go on with it then"
    names = _names(s, items)
    since = min(item.due for item in items)
    if since > s.now:
        return f"{_subject(s, items)} {verb(names, 'is', 'are')} due at {clock(since)} (in {span(since - s.now)})"
    return f"{_subject(s, items)} {verb(names, 'is', 'are')} ready since {clock(since)}"


def _attempt(item: Work) -> int:
    """Which attempt it is; a timer is one row, which counts its failures."""
    return item.failures + 1 if item.kind == TIMER else item.attempt


def _shown(worker: WorkerRow) -> str:
    return f"worker {worker.id} (host {worker.host}, pid {worker.pid})"


def _workers(workers: Sequence[WorkerRow]) -> str:
    if len(workers) == 1:
        return _shown(workers[0])
    return f"{len(workers)} workers ({listed([f'{worker.host} pid {worker.pid}' for worker in workers])})"


def _worker(s: Situation, item: Work) -> tuple[str, ...]:
    queue = () if item.queue == DEFAULT_QUEUE else ("--queue", item.queue)
    return ("worker", s.module_for(item), *queue)


def _start_worker(s: Situation, item: Work) -> str:
    return f"to start a worker{_with_module(s, item)}"


def _with_module(s: Situation, item: Work) -> str:
    if s.module_for(item) != MODULE:
        return ""
    return f" (MODULE is the one that defines {item.name if item.kind in ACTION_ENOUGH else item.workflow})"


_TELL: Final[Mapping[str, Callable[..., Reason]]] = {
    c.GAVE_UP_FOR_GOOD: _gave_up,
    c.DEAD_LETTER: _dead,
    c.HELD: _held,
    c.NO_WORKER: _no_worker,
    c.NO_QUEUE: _no_queue,
    c.UNKNOWN_STEP: _unknown_step,
    c.UNKNOWN_JOB: _unknown_job,
    c.OWNER_GONE: _owner_gone,
    c.NO_SLOT: _no_slot,
    c.BACKING_OFF: _backing_off,
    c.ASKED_AGAIN: _asked_again,
    c.DUE_LATER: _due_later,
    c.RUNS: _runs,
    c.IS_BLOCKED: _blocked,
    c.ASKS: graphs.asks,
    c.WAITS: functions.waits,
    c.SLEEPS: functions.sleeps,
    c.NODE_SLEEPS: flows.sleeps,
    c.WAITS_FOR_NOTHING: functions.waits_for_nothing,
    c.BEHIND: deciders.behind,
    c.TIMER_SET: deciders.timer_set,
}
