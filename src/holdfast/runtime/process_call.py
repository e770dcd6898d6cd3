"""A call that is carried out in a process of its own: what is sent there, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core import quoting
from holdfast.core.codec import DEFAULT_CODECS, MAX_INT, Codecs
from holdfast.core.ids import idempotency_key
from holdfast.runtime.invocation import NO_RESULT, Invocation
from holdfast.runtime.processes import ProcessSlots, instance_told

if TYPE_CHECKING:
    from holdfast.authoring.actions import Action
    from holdfast.runtime.attempt import Attempt


async def call_in_process(
    slots: ProcessSlots,
    attempt: Attempt,
    invocation: Invocation,
    action: Action[..., Any],
    *,
    worker: str,
    codecs: Codecs,
    limit: int,
) -> bytes:
    """The encoded result; what the action used is added to the attempt's meter, whatever comes of it."""
    work, fn = attempt.work, action.fn
    call, codec = invocation.arguments
    if codec not in DEFAULT_CODECS:
        # A codec of the user's own, and perhaps its key, stays here: between the processes it is plain JSON.
        args, kwargs = action.call.decode_call(call, codec, codecs=codecs)
        call, codec = action.call.encode_call(args, kwargs, limit=MAX_INT), action.call.tag
    same = codecs.default.tag == action.call.tag

    def used(cpu_seconds: float, returned: str | None) -> None:
        attempt.meter.cpu_seconds += cpu_seconds
        if codecs.default.tag in DEFAULT_CODECS:  # no repr in the clear beside a result that is encrypted
            attempt.meter.returned = returned

    result = await slots.run(
        f"{fn.__module__}:{fn.__qualname__}",
        call,
        codec,
        {
            "run_id": work.run,
            "workflow_name": work.workflow,
            "node": invocation.name,
            "node_id": work.node,
            "attempt": work.attempt,
            "idempotency_key": idempotency_key(work.workflow, work.run, work.node),
            "worker": worker,
            "payload_limit_bytes": limit if same else MAX_INT,
            "may_quote": quoting.is_allowed(),
            "instance": instance_told(invocation.instance),
        },
        earlier=work.error,
        on_note=attempt.notes.append,
        on_used=used,
    )
    if invocation.encode is None:
        return NO_RESULT
    return result if same else invocation.encoded(action.call.decode_result(result))
