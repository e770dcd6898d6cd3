"""The flow machine: what `plan_completion` says, written as rows, in the transaction that settles the node.

A run follows the version of its graph that it was started with (I24). Its work items are the frontier nodes under their
addresses; the values between them are rows of the inbox; everything else happens in memory while the plan is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.codec import decode_error, encode_error
from holdfast.core.codec_failure import ErrorRecord, encode_record
from holdfast.core.errors import (
    HoldfastError,
    MissingJob,
    NoProgress,
    PayloadRefused,
    PayloadTooLarge,
    ReadinessOverflow,
    UnknownNode,
    UnknownWorkflow,
    UsageError,
)
from holdfast.core.flow_addresses import parse_address
from holdfast.core.flow_graph import FlowGraph
from holdfast.core.flow_values import raised
from holdfast.core.flow_waits import FlowWait, read_wait, wait_bytes
from holdfast.core.operations import StartRun
from holdfast.core.queries import Attempts, OpenWork, ValuesFor, WaitsOf
from holdfast.core.rows import (
    BARRIER,
    BLOCKED,
    CANCELLED,
    CHILD,
    COMPLETED,
    DEAD,
    FAILED,
    GATE_OPEN,
    GATE_PAUSED,
    GAVE_UP,
    NO_SLOT,
    NODE,
    PAUSED,
    PENDING,
    READY,
    RUNNING,
    RUNS,
    SETTLE,
    SKIPPED,
    SLEEP,
    SUSPENDED,
    VALUES,
    WAIT,
    WORK,
    Run,
    Value,
    Work,
)
from holdfast.core.view import View
from holdfast.models.delivery import gate_for, wait_no_more
from holdfast.models.flow_again import blame, leave_to_others, origin_of, reopened
from holdfast.models.flow_code import FLOW, FlowCode, NewCall
from holdfast.models.flow_plan import (
    Completion,
    CompletionPlan,
    InboxWrite,
    InstanceCompletion,
    ReadinessIncrement,
    analyse_subgraph,
    plan_completion,
    plan_start,
)
from holdfast.models.flow_release import release_rows
from holdfast.models.flow_waits import suspended_if_only_waiting
from holdfast.models.machine import TAKEN, Definitions, Handing, end_run, in_a_sentence, make_ready, record, was_taken

OUTPUT = "output"
KINDS = {"action": NODE, "child": CHILD, "timer": SLEEP, "wait": WAIT, "barrier": BARRIER, "output": OUTPUT}


class FlowMachine:
    """Compiled flows."""

    cancels_gracefully = False

    def start(self, view: View, run: Run, operation: StartRun, handing: Handing, definitions: Definitions) -> None:
        run = replace(run, signature=operation.signature or None)
        code = code_of_flow(definitions, run)
        plan = self._plan(view, run, None, code)
        stored = _encoded(run, plan, code)
        if stored.refused is not None:
            raise stored.refused  # to who starts it
        self._apply(view, run, stored, code, handing)

    def advance(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        if work.kind == SETTLE and work.status != COMPLETED:
            raise UsageError(
                f"{work.node} of run {run.id} is computed by the flow itself and cannot be skipped",
                hint=f"`holdfast retry {run.id}` computes it again, with the code that is deployed now",
            )
        self._go_on(view, run, work, code_of_flow(definitions, run), handing)

    def give_up(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """I21: a failure goes where the flow's handlers say; one that none of them takes ends the run."""
        if work.status == DEAD and _failure(work).type == MissingJob.__name__:
            _wait_for_code(view, run)
            return
        self._go_on(view, run, work, code_of_flow(definitions, run), handing)

    def _go_on(self, view: View, run: Run, work: Work, code: FlowCode, handing: Handing) -> None:
        """Plan what follows from a completion, and write it."""
        origin = origin_of(view, run, work)
        try:
            stored = self._stored(view, run, work, origin, code)
        except MissingJob:
            if work.kind == SETTLE:
                raise
            view.put(RUNS, leave_to_others(view, run, work))  # nothing else has been written yet
            return
        plan = stored.plan
        if work.kind == WAIT:
            wait_no_more(view, run.id, work.node)
        if origin is not None and origin.status in GAVE_UP:
            end = plan.instance_completion
            unhandled = end is not None and end.status == "failed" and end.node_id == origin.node
            if unhandled and was_taken(origin):  # it was left to whoever has the code
                view.put(WORK, replace(origin, parents=None))
                run = replace(run, gave_up=run.gave_up + 1)
            elif not unhandled and not was_taken(origin):
                # A handler or a barrier takes it: nothing is left that anybody could blame, try again, or bring back.
                view.put(
                    WORK, replace(origin, parents=TAKEN, status=FAILED if origin.status == DEAD else origin.status)
                )
                run = replace(run, gave_up=run.gave_up - 1, error=None, reason=None)
        self._apply(view, run, stored, code, handing)

    def _stored(self, view: View, run: Run, work: Work, origin: Work | None, code: FlowCode) -> _Stored:
        """What follows from a completion, as it is stored. The completion stands, whatever cannot be stored of that.

        That is an error of the flow's own code, which a handler may take; of a result none would know in plain Python.
        """
        refused: dict[str, HoldfastError] = {}
        while True:
            stored = _encoded(run, self._plan(view, run, origin, code, refused), code)
            if stored.refused is None:
                return stored
            if work.status == SKIPPED:
                raise stored.refused  # to who skipped it: it is not done, and something else may be
            if stored.ends or stored.at in refused:
                return stored
            refused[stored.at] = stored.refused

    def _plan(
        self, view: View, run: Run, origin: Work | None, code: FlowCode, refused: Mapping[str, HoldfastError] = {}
    ) -> CompletionPlan:
        graph = code.graph
        if origin is None:
            return plan_start(graph, code.arguments(run.input, run.codec), code.environment)
        if origin.status in GAVE_UP:
            completion = Completion(node_id=origin.node, failure=_failure(origin))
        elif origin.node in refused:  # what it gave can't be kept for a barrier
            completion = Completion(node_id=origin.node, failure=raised(refused[origin.node]).record)
        else:
            value = None
            if origin.kind in (NODE, CHILD) and origin.status == COMPLETED:
                value = code.value_of(origin.name, origin.result)
            elif origin.kind == WAIT and origin.status == COMPLETED:
                value = code.outcome_of(read_wait(origin.result))
            completion = Completion(node_id=origin.node, value=value)
        if not view.optimistic:  # nothing is read beforehand where nothing is loaded
            analysis = analyse_subgraph(graph, completion.node_id)
            reads = [read for read in analysis.inbox_reads if not read.is_sequence]
            view.expect(VALUES, [(run.id, read.target, read.variable, NO_SLOT) for read in reads])
        return plan_completion(graph, completion, _Inbox(view, run.id, code), code.environment, refused=refused)

    # -- a plan becomes rows

    def _apply(self, view: View, run: Run, stored: _Stored, code: FlowCode, handing: Handing) -> None:
        plan = stored.plan
        handing.logged += plan.log_lines
        if run.status == SUSPENDED:  # what it waited for has come
            run = replace(run, status=RUNNING)
        for release in plan.released:
            run = release_rows(view, run, plan.completed_node_id, release, code)
        for value in stored.values:
            view.insert(VALUES, value)
        if not view.optimistic:  # all at once: a spread has very many
            view.expect(WORK, [(run.id, each.node_id, 1) for each in plan.readiness_increments])
        begun = 0
        for each in plan.readiness_increments:
            begun += _count(view, run, each, stored.calls, handing)
        if begun:
            run = replace(run, active=run.active + begun)
        if plan.instance_completion is not None:
            _end(view, run, plan, plan.instance_completion, stored.result, code)
            return
        if run.active and _may_only_wait(plan, code.graph):
            run = suspended_if_only_waiting(view, run)
        view.put(RUNS, run)
        if run.active == 0:
            self.idle(view, run)

    # -- what the kernel asks of a machine

    def before_another(self, view: View, run: Run, work: Work, definitions: Definitions) -> Run | None:
        return run

    def tried_again(self, view: View, run: Run, work: Work) -> None:
        """Nothing more follows from it."""

    def idle(self, view: View, run: Run) -> None:
        """I17: a run that nothing can move fails and says so; it never stalls."""
        run = view.run(run.id) or run
        if run.ended or run.gave_up:  # what gave up waits for a person
            return
        if view.find(WaitsOf(run.id)):
            if run.status in (PENDING, RUNNING):
                view.put(RUNS, replace(run, status=SUSPENDED))
            return
        blocked = [work.node for work in view.find(OpenWork(run.id)) if work.status == BLOCKED]
        error = NoProgress(f"run {run.id} of flow {run.workflow} has not returned and nothing is left to do: {blocked}")
        end_run(view, replace(run, error=encode_error(error)), FAILED, reason=error.message)

    def refresh(self, view: View, run: Run, definitions: Definitions) -> None:
        """It follows the graph that it was started with. One that waits is suspended again."""
        if run.status in (PENDING, RUNNING) and (run.active or view.find(WaitsOf(run.id))):
            view.put(RUNS, suspended_if_only_waiting(view, run))

    def cancel(self, view: View, run: Run, definitions: Definitions, by: str) -> None:
        raise NotImplementedError("a flow is cancelled at once")

    def label(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return node

    def position(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return ""

    def find(self, view: View, run: Run, name: str, definitions: Definitions) -> str:
        if view.find(Attempts(run.id, frozenset({name}))):
            return name
        raise UnknownNode(
            f"run {run.id} of flow {run.workflow} has no node {name!r} under way or done",
            hint=f"see `holdfast show {run.id}`; nodes of loops are called like charge@2.0",
        )

    def parents(self, view: View, run: Run, node: str, definitions: Definitions) -> str | None:
        return None

    def below(self, view: View, run: Run, node: str, definitions: Definitions) -> tuple[str, ...]:
        return ()

    def skip_unbegun(self, view: View, run: Run, node: str, definitions: Definitions) -> Work:
        raise UsageError(f"{node} of run {run.id} has not been reached", hint="only a node that gave up can be skipped")


class _Inbox(msgspec.Struct, frozen=True):
    """The inbox of a run in a View. What is not loaded says so, and the plan is made again."""

    _view: View
    _run: str
    _code: FlowCode

    def read(self, target: str, variable: str, index: int | None) -> Any:
        slot = NO_SLOT if index is None else index
        row = self._view.get(VALUES, (self._run, target, variable, slot))
        if row is None:
            raise KeyError(variable)
        return self._code.load(row.value)

    def gathered(self, target: str, variable: str) -> list[Any]:
        rows: list[Value] = self._view.find(ValuesFor(self._run, target, variable))
        return [self._code.load(row.value) for row in rows]


def code_of_flow(definitions: Definitions, run: Run) -> FlowCode:
    code = definitions.flow(run.workflow, run.signature or "")
    if code is None:
        raise UnknownWorkflow(
            f"no flow is registered as {run.workflow!r} in this process",
            hint="import the module that defines it; whoever completes a node of a flow needs the flow's code",
        )
    return code


def _wait_for_code(view: View, run: Run) -> None:
    """What the run's graph names is missing where it was settled: no failure of the flow, so it may be resumed."""
    for work in view.find(OpenWork(run.id)):
        if work.status == READY:
            view.put(WORK, replace(work, gate=GATE_PAUSED))
    if run.status != PAUSED:
        run = record(view, run, "paused", by="holdfast", reason=run.reason)
    view.put(RUNS, replace(run, status=PAUSED))


def _value(run: str, write: InboxWrite, code: FlowCode) -> Value:
    slot = NO_SLOT if write.index is None else write.index
    return Value(
        run, write.target, write.variable, slot, code.store(write.value, write.variable, write.target), write.source
    )


def _failure(work: Work) -> ErrorRecord:
    return decode_error(work.error or encode_error(RuntimeError(f"{work.node} was given up")))


class _Stored(msgspec.Struct):
    """A plan with all that it stores, encoded before anything is written."""

    plan: CompletionPlan
    calls: dict[str, NewCall] = {}
    values: list[Value] = []
    result: bytes | None = None
    refused: HoldfastError | None = None  # some of it cannot be stored, and the plan is to fail the run
    at: str = ""  # for which node that was
    ends: bool = False  # it is the result


def _encoded(run: Run, plan: CompletionPlan, code: FlowCode) -> _Stored:
    """MissingJob if this worker lacks what is called."""
    stored, end = _Stored(plan), plan.instance_completion
    at = plan.readiness_increments[0].node_id if plan.readiness_increments else plan.completed_node_id
    try:
        for write in plan.inbox_writes:
            stored.values.append(_value(run.id, write, code))
        for each in plan.readiness_increments:
            call = each.call
            if call is not None and each.category in ("action", "child"):
                at = each.node_id
                stored.calls[at] = code.call(call.name or "", call.args, call.kwargs, call.options)
        if end is not None and end.status == "completed":
            at = end.node_id
            stored.result = code.result(end.result)
    except (PayloadRefused, PayloadTooLarge) as refused:
        return _Stored(_failed(plan, at, refused, code.graph), refused=refused, at=at, ends=end is not None)
    return stored


def _failed(plan: CompletionPlan, node: str, error: HoldfastError, graph: FlowGraph) -> CompletionPlan:
    """The completion stands, and the run fails at the node."""
    known = graph.by_id.get(parse_address(node).node)
    place = "" if known is None else f"  flow {graph.name}, line {known.line}\n"
    end = InstanceCompletion("failed", node, failure=raised(error, place).record)
    return replace(plan, inbox_writes=(), readiness_increments=(), released=(), instance_completion=end)


def _may_only_wait(plan: CompletionPlan, graph: FlowGraph) -> bool:
    """Whether the run may be waiting for times and events alone, after this plan."""
    if not plan.readiness_increments or plan.readiness_increments[0].category in ("action", "child", "output"):
        return False  # as nearly always
    if plan.readiness_increments[0].category == "barrier" and not graph.barriers_of_waits:
        return False  # an element of a spread
    reached = {each.category for each in plan.readiness_increments}
    if "timer" in reached:
        return reached <= {"timer", "barrier"}
    if reached != {"barrier"}:
        return False
    return any(parse_address(each.node_id).node in graph.barriers_of_waits for each in plan.readiness_increments)


def _count(view: View, run: Run, each: ReadinessIncrement, calls: Mapping[str, NewCall], handing: Handing) -> int:
    """I17: one predecessor more. The first makes the item, the last makes it ready. How many are active by that."""
    key = (run.id, each.node_id, 1)
    work = view.probe(WORK, key) if each.required_count is not None else view.get(WORK, key)
    if work is None:
        work = _new_item(view, run, each, calls.get(each.node_id))
        if work.status == BLOCKED:
            view.insert(WORK, work)
            return 0
        if work.kind == OUTPUT:  # reached, and nobody has to do anything about it
            view.insert(WORK, replace(work, status=COMPLETED, gate=GATE_OPEN, started=view.now, finished=view.now))
            return 0
        view.insert(WORK, handing.lease(view, work))
        return 1
    completed = work.completed + each.increment
    if completed > work.required:
        again = reopened(view, run, each.node_id, handing)
        if again is None:
            raise ReadinessOverflow(
                f"node {each.node_id} of run {run.id} was reached {completed} times and requires {work.required}"
            )
        return again.active - run.active
    work = replace(work, completed=completed)
    if completed < work.required:
        view.put(WORK, work)
        return 0
    view.put(WORK, make_ready(view, run, replace(work, due=max(work.due, view.now)), handing))
    return 1


def _new_item(view: View, run: Run, each: ReadinessIncrement, call: NewCall | None) -> Work:
    """The item of a node that is reached for the first time: ready, or blocked if more has to come."""
    now = view.now
    due = run.due if run.due > now else now  # not before the time that the run was started for, whatever is skipped
    if call is None:
        call, due = _own_call(run, each, due)
    required = 1 if each.required_count is None else each.required_count
    is_ready = each.increment >= required
    return Work(
        run.id,
        each.node_id,
        1,
        run.workflow,
        KINDS[each.category],
        call.name,
        READY if is_ready else BLOCKED,
        required,
        each.increment,  # by name from here on: with more of them Python would make a dict for the call
        queue=call.queue or run.queue,
        priority=run.priority,
        gate=gate_for(run, due, now) if is_ready else GATE_OPEN,
        due=due,
        timeout=call.timeout,
        policy=call.policy,
        payload=call.payload,
        codec=call.codec,
        created=now,
    )


def _own_call(run: Run, each: ReadinessIncrement, due: int) -> tuple[NewCall, int]:
    """What a node's item says of it that calls nothing, and when it is due."""
    payload = None
    if each.call is not None and each.category == "timer":
        (seconds,) = each.call.args
        due += int(float(seconds) * 1_000_000)
    elif each.call is not None and each.category == "wait":
        events, seconds = each.call.args
        until = None if seconds is None else due + int(float(seconds) * 1_000_000)
        payload = wait_bytes(FlowWait(events=tuple(events), until=until))
    return NewCall(name=run.workflow, payload=payload, codec="json"), due


def _end(
    view: View, run: Run, plan: CompletionPlan, end: InstanceCompletion, result: bytes | None, code: FlowCode
) -> None:
    """The run is over; parallel branches that nobody waits for are not."""
    if run.active:
        for work in view.find(OpenWork(run.id)):
            view.put(WORK, replace(work, status=CANCELLED, token=work.token + 1, finished=view.now))
        run = replace(run, active=0)
    if end.status == "completed":
        end_run(view, run, COMPLETED, result=result)
        return
    failure = end.failure
    run = blame(view, run, code.graph, end.node_id, plan.completed_node_id, failure)
    error = encode_record(failure) if failure is not None else None
    reason = f"{end.node_id}: " if failure is None else in_a_sentence(f"{end.node_id}: ", failure)
    end_run(view, replace(run, error=error), FAILED, reason=reason)


__all__ = ["FLOW", "FlowMachine", "code_of_flow"]
