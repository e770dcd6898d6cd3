"""Decisions that only state graphs know: records, questions to people, forks."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.errors import UnknownNode, UsageError
from holdfast.core.operations import RECORDED as WAS_RECORDED
from holdfast.core.operations import REPEATED, Changed, Operation, Settled, Started
from holdfast.core.queries import OpenWork, RecordedBy, RecordedOf, StateChain
from holdfast.core.rows import (
    BLOCKED,
    PAUSED,
    RECORDED,
    RUNNING,
    RUNS,
    WORK,
    Checkpoint,
    Recorded,
    Run,
    Work,
)
from holdfast.core.state_items import node_of
from holdfast.core.state_operations import INTERRUPT, AnswerPerson, AskPerson, ForkGraph, RecordCall
from holdfast.core.state_outcomes import split
from holdfast.core.view import View
from holdfast.models.lifecycle import Lifecycle
from holdfast.models.machine import (
    FORKED,
    Definitions,
    Handing,
    already_forked,
    existing_run,
    is_draining,
    make_ready,
    record,
)
from holdfast.models.state_code import GRAPH
from holdfast.models.state_graph import GraphMachine, asks_person, code_of_graph
from holdfast.models.state_memory import missing_checkpoint, put_together


class GraphOperations:
    """The machine's own operations, given the kernel's guard of leases."""

    def __init__(self, machine: GraphMachine, lifecycle: Lifecycle, definitions: Definitions) -> None:
        self.machine = machine
        self.lifecycle = lifecycle
        self.definitions = definitions

    def decisions(self) -> dict[type[Operation], object]:
        return {RecordCall: self.record, AskPerson: self.ask, AnswerPerson: self.answer, ForkGraph: self.fork}

    def record(self, view: View, op: RecordCall) -> Settled:
        held = self.lifecycle.lease_of_item(view, op)
        if isinstance(held, Settled):
            return held
        run, work = held
        key = (op.run, op.node, op.recording, op.call)
        if view.may_repeat and view.get(RECORDED, key) is not None:
            return Settled(verdict=REPEATED, run_status=run.status)  # K8
        view.insert(
            RECORDED,
            Recorded(
                run=op.run,
                node=op.node,
                attempt=op.recording,
                call=op.call,
                name=op.name,
                request=op.request,
                request_hash=op.request_hash,
                response=op.response,
                response_hash=op.response_hash,
                error=op.error,
                at=view.now,
                duration=op.duration,
            ),
        )
        if work.losses:  # something new was recorded: what was lost before does not count against it (I6)
            view.put(WORK, replace(work, losses=0))
        return Settled(verdict=WAS_RECORDED, run_status=run.status)

    def ask(self, view: View, op: AskPerson) -> Settled:
        """The item holds no slot while it waits, and the run's other items go on."""
        held = self.lifecycle.lease_of_item(view, op, BLOCKED)
        if isinstance(held, Settled):
            return held
        run, work = held
        question = Recorded(
            run=op.run,
            node=op.node,
            attempt=op.recording,
            call=op.call,
            name=INTERRUPT,
            kind=INTERRUPT,
            request=op.request,
            request_hash=op.request_hash,
            at=view.now,
        )
        view.insert(RECORDED, question)
        view.put(WORK, replace(work, status=BLOCKED, completed=0, worker=None, started=None, losses=0))
        run = record(view, replace(run, active=run.active - 1), "asked a person", node=op.node)
        self.machine.let_in(view, run, self.definitions)
        return Settled(verdict=WAS_RECORDED, run_status=existing_run(view, op.run).status)

    def answer(self, view: View, op: AnswerPerson) -> Changed:
        run = existing_run(view, op.run)
        if op.question is not None and op.node is not None:
            asked = view.get(RECORDED, (op.run, op.node, *op.question))
            if asked is not None and asked.response_hash == op.answer_hash:
                return Changed(changed=False, status=run.status)  # K8, whatever the node asks by now
            if asked is not None and asked.response is not None:
                raise UsageError(
                    f"what {op.node} of run {run.id} asked was answered already", hint="see handle.recorded()"
                )
        asking = [] if run.model != GRAPH or run.ended else self._asking(view, run, op)
        if run.model == GRAPH and not asking and _was_answered(view, run, op):
            return Changed(changed=False, status=run.status)  # K8: this very answer was given before
        if run.model != GRAPH or run.ended:
            what = f"is {run.status}" if run.model == GRAPH else "is no state graph"
            raise UsageError(f"run {run.id} of {run.workflow} {what} and asks nobody", hint="see `holdfast explain`")
        work = _the_one(run, asking, op.node)
        question = _open_question(view, work)
        if question is None:
            return Changed(changed=False, status=run.status)
        view.put(RECORDED, replace(question, response=op.answer, response_hash=op.answer_hash))
        run = record(view, run, "answered", by=op.by, node=work.node)
        status = run.status if run.status == PAUSED else RUNNING
        run = replace(run, status=status)
        work = replace(work, due=view.now, completed=work.required)
        code = self.definitions.state_graph(run.workflow)
        if code is None or run.active < code.max_concurrent:
            run = replace(run, active=run.active + 1)
            work = make_ready(view, run, work, Handing(None))
        view.put(WORK, work)  # else it waits for room (I46)
        view.put(RUNS, run)
        return Changed(changed=True, status=status, nodes=(work.node,))

    def _asking(self, view: View, run: Run, op: AnswerPerson) -> list[Work]:
        """The items that wait for an answer, or the one of them that is meant."""
        asking = [work for work in view.find(OpenWork(run.id)) if asks_person(work)]
        if op.node is None:
            return asking
        try:
            address = self.machine.find(view, run, op.node, self.definitions)
        except UnknownNode:
            if _was_answered(view, run, op):  # and its step is over
                return []
            raise
        return [work for work in asking if work.node == address]

    def fork(self, view: View, op: ForkGraph) -> Started:
        """Time travel: the same frontier, new randomness and idempotency keys, whatever the source became later."""
        if view.get(RUNS, (op.run,)) is not None:
            return Started(run=op.run)  # K8
        source = existing_run(view, op.source)
        if made := already_forked(view, source.workflow, op.key, source=source.id, asked=op.asked):
            return Started(run=made.id, existed=True)
        code = code_of_graph(self.definitions, source)
        chain: list[Checkpoint] = view.find(StateChain(source.id, op.step))
        if not chain or chain[-1].step != op.step:
            if 0 <= op.step <= source.base:
                raise missing_checkpoint(replace(source, base=op.step))
            raise UsageError(
                f"run {source.id} of graph {source.workflow} has no step {op.step}: its latest is {source.base}",
                hint="see handle.checkpoints(), or `holdfast checkpoints`",
            )
        known = put_together(chain, code)
        if not known.frontier:
            raise UsageError(
                f"nothing follows step {op.step} of run {source.id}: it is the last", hint="fork from an earlier step"
            )
        if is_draining(view, source.workflow):
            raise UsageError(
                f"workflow {source.workflow} is being drained and takes no new runs",
                hint=f"fork it after `holdfast drain {source.workflow} --off`",
            )
        run = replace(
            Run(id=op.run, workflow=source.workflow, model=GRAPH),
            key=op.key,
            input=source.input,
            codec=source.codec,
            input_digest=source.input_digest,
            signature=source.signature,
            on_failure=source.on_failure,
            queue=source.queue,
            priority=source.priority,
            tags=source.tags,
            created=view.now,
            updated=view.now,
        )
        view.insert(RUNS, run)
        run = record(view, run, FORKED, by=op.by, source=source.id, step=op.step, asked=op.asked)
        record(view, source, FORKED, by=op.by, into=run.id, step=op.step)
        fields = {**known.fields, **split(op.update)}
        self.machine.begin(view, run, code, op.step, fields, known.frontier, Handing(None))
        return Started(run=run.id)


def _the_one(run: Run, asking: list[Work], node: str | None) -> Work:
    if not asking:
        raise UsageError(
            f"run {run.id} of {run.workflow} asks nobody anything" + (f" in {node}" if node else ""),
            hint=f"`holdfast explain {run.id}` says what it does",
        )
    if len(asking) > 1:
        names = ", ".join(work.node for work in asking)
        raise UsageError(
            f"{len(asking)} nodes of run {run.id} wait for an answer: {names}", hint="say which one: node=…"
        )
    return asking[0]


def _was_answered(view: View, run: Run, op: AnswerPerson) -> bool:
    rows: list[Recorded] = view.find(RecordedOf(run.id))
    answered = [row.node for row in rows if row.kind == INTERRUPT and row.response_hash == op.answer_hash]
    return any(op.node in (None, address, node_of(address)) for address in answered)


def _open_question(view: View, work: Work) -> Recorded | None:
    for row in view.find(RecordedBy(work.run, work.node)):
        question: Recorded = row
        if question.kind == INTERRUPT and question.response is None:
            return question
    return None
