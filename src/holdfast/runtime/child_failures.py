"""What a parent is told of a child that has no result: the same in a function, in a flow and in a graph."""

from __future__ import annotations

from holdfast.authoring.registry import Registry
from holdfast.core.codec import ErrorRecord, decode_error, encode_error
from holdfast.core.errors import RemoteError, RunCancelled, RunFailed
from holdfast.core.rows import CANCELLED, Run
from holdfast.models.delivery import RunEnd
from holdfast.runtime.exception_classes import known_exception


def child_failure(name: str, end: RunEnd, registry: Registry | None = None) -> RunFailed | RunCancelled:
    """The exception that awaiting the child raises, in a process with these definitions."""
    if end.status == CANCELLED:
        return RunCancelled(f"child run {end.run} of {name} was cancelled", run_id=end.run, by=None)
    record = None if end.error is None else decode_error(end.error)
    home: bool | None = None
    if record is not None and registry is not None:
        home = record.at_home and registry.has_code_of(end.workflow or name)
    cause = None if record is None else record.to_cause(known_exception, at_home=home)
    told, fix = _at_the_bottom(record)
    became = "does not exist" if end.status == "not found" else f"failed: {told}"
    return RunFailed(
        f"child run {end.run} of {name} {became}",
        run_id=end.run,
        workflow=end.workflow or name,
        cause=cause,
        attempts=() if record is None or cause is None else record.attempts(cause, known_exception, at_home=home),
        hint=f"{fix}see `holdfast show {end.run} --traceback`",
    )


def what_it_raised(failure: RunFailed) -> Exception:
    """The exception that ended the child, with a note of where; the failure itself if that was no Exception."""
    cause = failure.cause
    if not isinstance(cause, Exception):
        return failure
    cause.add_note(f"raised in child run {failure.run_id} of {failure.workflow}")
    return cause


def stored_child_failure(child: Run) -> bytes:
    """The same, as an item of a flow or a graph stores it: with the cause as it was recorded, known here or not."""
    end = RunEnd(run=child.id, status=child.status, error=child.error, workflow=child.workflow)
    failure = child_failure(child.workflow, end)
    return encode_error(failure, cause=child.error if isinstance(failure, RunFailed) else None)


def _at_the_bottom(record: ErrorRecord | None) -> tuple[str, str]:
    """What went wrong there, and the fix: of children of children each would otherwise tell all below it again."""
    if record is None:
        return "nothing is known of why", ""
    while record.type == RunFailed.__name__ and record.cause is not None:
        record = record.cause
    if record.type == RunFailed.__name__:  # older versions kept no cause, or there are too many above it
        return record.fact.partition(" failed: ")[2] or record.fact, ""
    return record.fact, f"{record.fix}; " if record.fix and record.type != RemoteError.__name__ else ""
