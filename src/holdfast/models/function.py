"""The function machine: one turn, one order of entries, and waits with exactly one winner.

A function's run has one work item, its turn. Ready: somebody may drive the function. Leased: a worker does. Blocked,
or ready but not yet due: it waits, and costs nothing but rows. What comes in from outside (an event, the end of
another run, a call that went through the work table, a cancel) is written as an entry of the history under the run's
lock, with the waits that it ends, and makes the turn ready; so there is no moment at which an event is neither
queued nor delivered, and none at which a run waits for what has come (I50).
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.errors import UnknownNode, UsageError
from holdfast.core.function_operations import CANCEL, FAILURE, RESULT, TURN, Entry
from holdfast.core.operations import StartRun
from holdfast.core.queries import Attempts, OpenWork
from holdfast.core.rows import (
    BLOCKED,
    CALL,
    CANCELLED,
    CANCELLING,
    COMPLETED,
    DEAD,
    FAILED,
    GATE_DUE,
    READY,
    RUNNING,
    RUNS,
    SUSPENDED,
    WORK,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.delivery import append, close, deliver, end_calls, turn_of, wake
from holdfast.models.machine import Definitions, Handing, end_run, make_ready, record


class FunctionMachine:
    """Durable functions."""

    cancels_gracefully = True

    def start(self, view: View, run: Run, operation: StartRun, handing: Handing, definitions: Definitions) -> None:
        turn = Work(
            run=run.id,
            node=TURN,
            attempt=1,
            workflow=run.workflow,
            kind=TURN,
            name=run.workflow,
            completed=1,
            queue=run.queue,
            priority=run.priority,
            due=max(operation.due, view.now),
            created=view.now,
        )
        view.insert(WORK, make_ready(view, run, turn, handing))
        view.put(RUNS, replace(run, active=1, signature=operation.signature or None))

    def advance(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        """The function returned, or one of its calls that went through the work table did."""
        if work.kind == CALL:
            deliver(view, run, _call_entry(work, RESULT, work.result))
            return
        status = CANCELLED if run.status == CANCELLING else COMPLETED
        if status == CANCELLED:
            self._end(view, run, CANCELLED, reason=run.reason)
        else:
            self._end(view, run, COMPLETED, result=work.result)

    def give_up(self, view: View, run: Run, work: Work, handing: Handing, definitions: Definitions) -> None:
        if work.kind == CALL:  # the function is told, and may handle it: its run has not failed
            if work.status == DEAD:  # it has had its answer, so it is no letter that waits for one
                view.put(WORK, replace(work, status=FAILED))
            run = replace(run, gave_up=run.gave_up - 1)
            deliver(view, run, _call_entry(work, FAILURE, work.error))
            return
        if run.status == CANCELLING:
            self._end(view, run, CANCELLED, reason=run.reason)
        else:
            self._end(view, run, FAILED, reason=run.reason)

    def cancel(self, view: View, run: Run, definitions: Definitions, by: str) -> None:
        """I10: waits and queued calls go; the turn is ready once more, for rollbacks and `finally` blocks."""
        turn = turn_of(view, run)
        if run.started is None and turn is not None and turn.status == READY:  # its code has not begun: nothing to undo
            end_run(view, record(view, run, "cancel requested", by=by), CANCELLED, reason=f"cancelled by {by}")
            return
        run = end_calls(view, close(view, run, None), None)
        run = replace(run, status=CANCELLING, token=run.token + 1, reason=f"cancelled by {by}")
        run = append(view, run, Entry(address="", kind=CANCEL, name=by))
        wake(view, run, fence=True)

    def _end(
        self, view: View, run: Run, status: str, *, result: bytes | None = None, reason: str | None = None
    ) -> None:
        run = close(view, run, None)
        for work in view.find(OpenWork(run.id)) if run.active else ():  # calls that nobody waits for any more
            view.put(WORK, replace(work, status=CANCELLED, token=work.token + 1, finished=view.now))
        end_run(view, replace(run, active=0), status, result=result, reason=reason)

    # -- what operators ask for

    def before_another(self, view: View, run: Run, work: Work, definitions: Definitions) -> Run | None:
        return run

    def tried_again(self, view: View, run: Run, work: Work) -> None:
        """Nothing more follows from it."""

    def idle(self, view: View, run: Run) -> None:
        """A function that waits is woken by what it waits for."""

    def refresh(self, view: View, run: Run, definitions: Definitions) -> None:
        """Whoever takes the turn replays with the code it has. One that waits is suspended again."""
        turn = turn_of(view, run)
        waits = turn is not None and (turn.status == BLOCKED or (turn.status == READY and turn.gate == GATE_DUE))
        if waits and run.status == RUNNING:
            view.put(RUNS, replace(run, status=SUSPENDED))

    def label(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return run.workflow if node == TURN else node

    def position(self, view: View, run: Run, node: str, definitions: Definitions) -> str:
        return ""

    def find(self, view: View, run: Run, name: str, definitions: Definitions) -> str:
        node = TURN if name == run.workflow else name
        attempts: list[Work] = view.find(Attempts(run.id, frozenset({node})))
        if attempts and attempts[-1].kind == CALL:
            raise UsageError(
                f"{attempts[-1].name} ({node}) of run {run.id} is a call of {run.workflow}, which alone decides what "
                "becomes of it",
                hint=f"if {run.workflow} failed because of it, `holdfast retry {run.id}` makes the call again",
            )
        if not attempts:
            raise UnknownNode(
                f"run {run.id} of {run.workflow} has no call {name!r} in the work table",
                hint=f"see `holdfast show {run.id}`; the function itself is {run.workflow!r}",
            )
        return node

    def parents(self, view: View, run: Run, node: str, definitions: Definitions) -> str | None:
        return None

    def below(self, view: View, run: Run, node: str, definitions: Definitions) -> tuple[str, ...]:
        return ()

    def skip_unbegun(self, view: View, run: Run, node: str, definitions: Definitions) -> Work:
        raise UsageError(f"{node} of run {run.id} cannot be skipped", hint="a function has no nodes to skip")


def _call_entry(work: Work, kind: str, value: bytes | None) -> Entry:
    """What became of a call that went through the work table; its row kept what was asked for."""
    address = work.node.rpartition("|")[2]  # a function that went on as another call counts its calls anew
    return Entry(address=address, kind=kind, name=work.name, digest=work.parents or "", value=value, codec=work.codec)
