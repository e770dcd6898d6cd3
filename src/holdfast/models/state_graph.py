"""The machine of state graphs: when the last item of a step is settled, merge, route, and write the next checkpoint.

Each item of the frontier is an ordinary work item, so retries, time limits, leases and operators are the kernel's. Of a
step's items as many are let in as the graph may run at once; the others stay in the checkpoint that named them. The
transaction that settles the last one holds the checkpoint and the items of the next step.

Of the run's columns `base` is the step, `token` marks the checkpoint, `due` says how many of the step's items
were let in, `remaining` how many have not succeeded yet.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.core.codec import encode_error
from holdfast.core.errors import (
    NoProgress,
    RunError,
    UnknownNode,
    UnknownWorkflow,
    UsageError,
)
from holdfast.core.ids import child_id
from holdfast.core.operations import StartRun
from holdfast.core.queries import Attempts, CheckpointsBetween, OpenWork, RecordedIn, WaitsOf
from holdfast.core.rows import (
    BLOCKED,
    CHECKPOINTS,
    CHILD,
    COMPLETED,
    FAILED,
    GATE_PAUSED,
    GAVE_UP,
    LOST,
    NODE,
    PAUSED,
    READY,
    RECORDED,
    RUNNING,
    RUNS,
    SKIPPED,
    SUSPENDED,
    WORK,
    Checkpoint,
    Run,
    Work,
)
from holdfast.core.state_items import Item, checkpoint_key, state_digest
from holdfast.core.state_outcomes import Fields, decode_outcome, joined
from holdfast.core.state_patch import difference
from holdfast.core.stored import stored_number
from holdfast.core.view import NotLoaded, View
from holdfast.models.machine import Definitions, Handing, end_run, make_ready, record, settle, why
from holdfast.models.state_code import GraphCode
from holdfast.models.state_memory import Known, StateMemory, Totals, frontier_of, mark_of
from holdfast.models.state_routing import Settled, first_items, next_items

PATCHES_LIMIT = 256  # that are put together to read a state
SMALL_STATE_BYTES = 1024  # not worth a patch that has to be put together

PRUNED_TOGETHER = 8  # steps, at least

_encode = msgspec.json.Encoder().encode


class GraphMachine:
    """State graphs."""

    cancels_gracefully = False

    def __init__(self, memory: StateMemory) -> None:
        self.memory = memory

    # -- steps

    def start(self, view: View, run: Run, operation: StartRun, handing: Handing, definitions: Definitions) -> None:
        code = code_of_graph(definitions, run)
        run = replace(run, signature=operation.signature or None)  # so that a check before a deploy knows of a change
        fields = code.initial(run.input, run.codec)
        self.begin(view, run, code, 0, fields, first_items(code), handing, due=operation.due)

    def begin(
        self,
        view: View,
        run: Run,
        code: GraphCode,
        step: int,
        fields: Fields,
        frontier: tuple[Item, ...],
        handing: Handing,
        *,
        due: int = 0,
    ) -> None:
        """A run's first checkpoint, and its first items."""
        run = replace(run, due=0)
        totals = _counted(code, Totals(), frontier)
        run, known = self._write(view, run, code, None, step, fields, frontier, totals, None)
        self._open(view, run, code, known, handing, due)

    def advance(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        code = code_of_graph(definitions, run)
        before = run.updated
        run = replace(run, remaining=run.remaining - 1)
        known = self.memory.known(view, run, code)
        if run.remaining == 0:
            self._close(view, run, code, known, handing, work)
            return
        self._go_on(view, run, code, known, handing, before, _due_after(work))

    def _go_on(
        self,
        view: View,
        run: Run,
        code: GraphCode,
        known: Known,
        handing: Handing,
        before: int | None = None,
        due: int = 0,
    ) -> None:
        """Let the next items in. I46: if none could be for too long, the run is paused where it is."""
        waiting = len(known.frontier) - run.due
        spilled = waiting > code.queue_depth
        if spilled and before is not None and code.backpressure is not None and view.now - before > code.backpressure:
            self._pause_under_pressure(view, run, code, waiting, view.now - before)
            return
        run = _admit(view, run, code, known, handing, due)
        view.put(RUNS, run)
        if run.active == 0:
            self.idle(view, run)

    def _close(
        self, view: View, run: Run, code: GraphCode, known: Known, handing: Handing, last: Work | None = None
    ) -> None:
        """Every item of the step has succeeded or was skipped, `last` just now: what the graph becomes."""
        step = known.step + 1
        try:
            settled, tried = _settled(view, run, code, known, step, last)
            fields = code.merge(known.fields, [(item.node, outcome.fields) for item, outcome in settled])
            frontier = next_items(code, settled, fields)
            if frontier and step >= code.max_steps:
                nodes = ", ".join(sorted({item.node for item in frontier})[:5])
                raise NoProgress(
                    f"run {run.id} of graph {run.workflow} has taken {step} steps, and would go on with {nodes}",
                    hint="a cycle without an end? else give the graph a higher max_steps",
                )
        except (RunError, UsageError) as error:
            # The author's mistake: what the nodes returned is kept, and `retry` merges again with better code (I42).
            end_run(view, replace(run, error=encode_error(error)), FAILED, reason=_shown(error))
            return
        labels = {plan.label for item in known.frontier if (plan := code.nodes.get(item.node)) and plan.label}
        took = max(0, view.now - known.at)
        totals = _counted(code, known.totals, frontier, steps=1, nodes=len(settled), retries=tried, took=took)
        run, after = self._write(view, run, code, known, step, fields, frontier, totals, labels)
        if not frontier:
            end_run(view, replace(run, error=None), COMPLETED, result=code.result(fields))
            return
        self._open(view, run, code, after, handing, 0 if last is None else _due_after(last))

    def _write(
        self,
        view: View,
        run: Run,
        code: GraphCode,
        known: Known | None,
        step: int,
        fields: Fields,
        frontier: tuple[Item, ...],
        totals: Totals,
        labels: set[str] | None,
    ) -> tuple[Run, Known]:
        """The checkpoint of a step; whole, or as what changed since the one before."""
        pruned = _prunes_at(code, step)
        patch = None if known is None or labels or pruned else difference(known.fields, fields)
        if known is not None and patch is not None and not _is_due(known, patch):
            whole, state = False, patch
            sizes = (known.whole_bytes, known.patches + 1, known.patch_bytes + len(patch))
        else:
            whole, state = True, joined(fields)
            sizes = (len(state), 0, 0)
        digest = state_digest(fields)
        key = checkpoint_key(run.id, step, digest, frontier)
        checkpoint = Checkpoint(
            run=run.id,
            step=step,
            whole=whole,
            state=code.seal(state),
            digest=digest,
            frontier=code.seal(_encode(frontier)),
            key=key,
            label="\n" + "\n".join(sorted(labels)) + "\n" if labels else None,
            at=view.now,
            totals=_encode(totals),
        )
        view.insert(CHECKPOINTS, checkpoint)
        if pruned:
            _prune(view, run.id, step, code)
        after = Known(step, fields, digest, frontier, view.now, totals, *sizes, 0 if known is None else run.token)
        if known is not None:  # one step back is enough, should this one come to nothing (I47)
            self.memory.forget(run.id, known.before)
        mark = mark_of(key, view.now)
        self.memory.learn(run.id, mark, after)
        return replace(run, base=step, token=mark, due=0, remaining=len(frontier)), after

    def _open(self, view: View, run: Run, code: GraphCode, known: Known, handing: Handing, due: int = 0) -> None:
        view.put(RUNS, _admit(view, run, code, known, handing, due))

    # -- what goes wrong

    def give_up(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """I42: the step's other items still settle, and are kept; then the run has failed."""
        if run.error is None:  # of a subgraph: its own run says why
            run = replace(run, error=work.error, reason=why(work, work.node))
        code = code_of_graph(definitions, run)
        self._go_on(view, run, code, self.memory.known(view, run, code), handing)

    def let_in(self, view: View, run: Run, definitions: Definitions) -> None:
        """An item gave its place away without being settled."""
        code = code_of_graph(definitions, run)
        self._go_on(view, run, code, self.memory.known(view, run, code), Handing(None))

    def idle(self, view: View, run: Run) -> None:
        """Nothing is ready or running: it waits for people or other runs, or has failed."""
        run = view.run(run.id) or run
        if run.ended or run.status == PAUSED:
            return
        if _asks_people(view, run):
            view.put(RUNS, replace(run, status=SUSPENDED))
        elif not view.find(WaitsOf(run.id)):  # else a subgraph goes on in a run of its own
            settle(view, run)

    def _pause_under_pressure(self, view: View, run: Run, code: GraphCode, waiting: int, blocked: int) -> None:
        reason = (
            f"{waiting} items wait behind a frontier of {code.queue_depth}, and none was let in for "
            f"{blocked / 1e6:.0f} s; resume it when its nodes are quicker, or raise max_concurrent"
        )
        for work in view.find(OpenWork(run.id)):
            if work.status == READY:
                view.put(WORK, replace(work, gate=GATE_PAUSED))
        if run.status != PAUSED:
            run = record(view, run, "paused", by="holdfast", reason=reason)
        view.put(RUNS, replace(run, status=PAUSED, reason=reason))

    # -- what the kernel asks of a machine

    def before_another(self, view: View, run: Run, work: Work, definitions: Definitions) -> Run | None:
        return run

    def tried_again(self, view: View, run: Run, work: Work) -> None:
        """What a lost attempt recorded counts for the one that takes its place; another try records anew."""
        again = view.get(WORK, (work.run, work.node, work.attempt + 1))
        if again is not None:
            first = recording_attempt(work) if work.status == LOST else again.attempt
            view.put(WORK, replace(again, parents=str(first)))

    def refresh(self, view: View, run: Run, definitions: Definitions) -> None:
        """It goes on: with a step whose merge failed, or with items that were not let in."""
        if run.active and definitions.state_graph(run.workflow) is None:
            return  # an operator without the code: whoever settles what is active lets the rest in
        code = code_of_graph(definitions, run)
        known = self.memory.known(view, run, code)
        if run.remaining == 0:
            self._close(view, replace(run, error=None), code, known, Handing(None))
        else:
            self._go_on(view, _hold_back(view, run, code), code, known, Handing(None))

    def cancel(self, view: View, run: Run, definitions: Definitions, by: str) -> None:
        raise NotImplementedError("a graph is cancelled at once")

    def label(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return node

    def position(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return ""

    def find(self, view: View, run: Run, name: str, definitions: Definitions) -> str:
        """An item by its address, or a node of the step that is under way by its name."""
        for node in (name, f"{name}@{run.base + 1}"):
            if view.find(Attempts(run.id, frozenset({node}))):
                return node
        raise UnknownNode(
            f"run {run.id} of graph {run.workflow} has no item {name!r}",
            hint=f"see `holdfast show {run.id}`; items are called NODE@STEP",
        )

    def parents(self, view: View, run: Run, node: str, definitions: Definitions) -> str | None:
        return None

    def below(self, view: View, run: Run, node: str, definitions: Definitions) -> tuple[str, ...]:
        return ()

    def skip_unbegun(self, view: View, run: Run, node: str, definitions: Definitions) -> Work:
        raise UsageError(f"{node} of run {run.id} has not begun", hint="only an item that has begun can be skipped")


def recording_attempt(work: Work) -> int:
    """The attempt under which an item's calls are recorded: that of the first, if those after it were lost."""
    return stored_number(work.parents, f"column parents of {work.node}") if work.parents else work.attempt


def subgraph_run(work: Work) -> str:
    """The id of the run of a subgraph: derived, so that it is started once.

    The item's payload is the attempt that began it anew, where the first one was cancelled.
    """
    return child_id(work.run, f"{work.node}#{work.payload.decode()}" if work.payload else work.node)


def code_of_graph(definitions: Definitions, run: Run) -> GraphCode:
    code = definitions.state_graph(run.workflow)
    if code is None:
        raise UnknownWorkflow(
            f"no state graph is registered as {run.workflow!r} in this process",
            hint="import the module that defines it; whoever completes a node of a graph needs the graph's code",
        )
    return code


def _counted(
    code: GraphCode,
    before: Totals,
    frontier: tuple[Item, ...],
    *,
    steps: int = 0,
    nodes: int = 0,
    retries: int = 0,
    took: int = 0,
) -> Totals:
    """What a run has done, with this step, after which the frontier holds these items."""
    depth = max(0, len(frontier) - code.max_concurrent)
    return Totals(
        steps=before.steps + steps,
        nodes=before.nodes + nodes,
        retries=before.retries + retries,
        blocks=before.blocks + max(0, depth - code.queue_depth),
        deepest=max(before.deepest, min(depth, code.queue_depth)),
        latency=before.latency + took,
        last=took,
    )


def _is_due(known: Known, patch: bytes) -> bool:
    """Whether a whole state is worth its bytes: patches would be as large, or too many."""
    if known.whole_bytes < SMALL_STATE_BYTES and len(patch) >= known.whole_bytes:
        return True
    if known.patches + 1 >= PATCHES_LIMIT:
        return True
    return known.patch_bytes + len(patch) > max(known.whole_bytes, 4 * SMALL_STATE_BYTES)


def _prunes_at(code: GraphCode, step: int) -> bool:
    keep = code.keep_checkpoints
    return keep is not None and step > keep and step % _period(keep) == 0


def _period(keep: int) -> int:
    return max(keep, PRUNED_TOGETHER)


def _prune(view: View, run: str, step: int, code: GraphCode) -> None:
    """The graph's own policy: of what is older only labelled checkpoints stay, which stand for themselves."""
    keep = code.keep_checkpoints or 0
    query = CheckpointsBetween(run, max(0, step - keep - 4 * _period(keep)), step - keep)  # older ones went before
    if view.optimistic:  # checkpoints are not kept with the rows of a run, so that an empty answer says nothing
        raise NotLoaded(query)
    rows: list[Checkpoint] = view.find(query)
    last = max((row.step for row in rows if row.whole), default=0)  # those that are kept are put together from it
    gone = [row for row in rows if row.step < last]
    addresses = frozenset(item.address(row.step + 1) for row in gone for item in frontier_of(row, code))
    for work in view.find(Attempts(run, addresses)):
        view.delete(WORK, work)
    for call in view.find(RecordedIn(run, addresses)):
        view.delete(RECORDED, call)
    for row in gone:
        if row.label is None:
            view.delete(CHECKPOINTS, row)


def _settled(
    view: View, run: Run, code: GraphCode, known: Known, step: int, last: Work | None
) -> tuple[list[Settled], int]:
    """The step's items with what they gave, in merge order; and how many tries too many that took."""
    addresses = [item.address(step) for item in known.frontier]
    if last is not None and len(addresses) == 1 and last.attempt == 1:
        attempts = [last]
    else:
        attempts = view.find(Attempts(run.id, frozenset(addresses)))
    latest = {work.node: work for work in attempts}
    # Not `failures`, which an operator's retry sets back: it is what the budget is counted by (I3).
    retries = sum(work.status in GAVE_UP for work in attempts)
    settled: list[Settled] = []
    for item, address in zip(known.frontier, addresses, strict=True):
        work = latest[address]
        stored = work.result if work.status == COMPLETED else None  # of one that was skipped: nothing
        settled.append((item, decode_outcome(None if stored is None else code.unseal(stored))))
    return settled, retries


def _due_after(work: Work) -> int:
    """When what an item makes room for is due: one that was skipped hands on the time that the run was started for.

    That is in no column of the run. The time of a later attempt is a retry's, and is over with it.
    """
    return work.due if work.status == SKIPPED and work.attempt == 1 else 0


def _admit(view: View, run: Run, code: GraphCode, known: Known, handing: Handing, due: int = 0) -> Run:
    """As many of the step's items as may run at once, in merge order. The caller writes the run."""
    frontier, step = known.frontier, known.step + 1
    active, admitted = run.active, run.due
    left_over = admitted - (len(frontier) - run.remaining) - active - run.gave_up  # let in, and not active any more
    for work in view.find(OpenWork(run.id)) if left_over > 0 and active < code.max_concurrent else ():
        if waits_for_room(work) and active < code.max_concurrent:
            view.put(WORK, make_ready(view, run, work, handing))
            active += 1
    while active < code.max_concurrent and admitted < len(frontier):
        item = frontier[admitted]
        plan = code.nodes.get(item.node)
        work = Work(
            run=run.id,
            node=item.address(step),
            attempt=1,
            workflow=run.workflow,
            kind=CHILD if plan is not None and plan.subgraph else NODE,
            name=f"{run.workflow}.{item.node}",
            completed=1,
            queue=run.queue if plan is None or plan.queue is None else plan.queue,
            priority=run.priority,
            due=max(due, view.now),
            created=view.now,
        )
        view.insert(WORK, make_ready(view, run, work, handing))
        active += 1
        admitted += 1
    status = RUNNING if run.status == SUSPENDED and active else run.status  # what it asked was skipped
    return replace(run, status=status, active=active, due=admitted)


def _hold_back(view: View, run: Run, code: GraphCode) -> Run:
    """An operator asked for more than may run at once (I46): the rest waits for room."""
    surplus = run.active - code.max_concurrent
    for work in reversed(view.find(OpenWork(run.id))) if surplus > 0 else ():
        if surplus > 0 and work.status == READY and work.kind == NODE:
            view.put(WORK, replace(work, status=BLOCKED))
            surplus, run = surplus - 1, replace(run, active=run.active - 1)
    return run


def asks_person(work: Work) -> bool:
    """Whether the item waits for an answer: nothing that it needs is there."""
    return work.status == BLOCKED and work.kind == NODE and work.completed < work.required


def waits_for_room(work: Work) -> bool:
    """Whether the item has all it needs, and as many as may run at once are active."""
    return work.status == BLOCKED and work.kind == NODE and work.completed >= work.required


def _asks_people(view: View, run: Run) -> bool:
    return any(asks_person(work) for work in view.find(OpenWork(run.id)))


def _shown(error: RunError | UsageError) -> str:
    return f"{type(error).__name__}: {error.message}".replace("\0", "\\0")[:500]


__all__ = ["GraphMachine", "asks_person", "code_of_graph", "recording_attempt", "subgraph_run", "waits_for_room"]
