"""Handlers that do something to runs. Each says who it was, so that the run's history can."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.authoring.events import as_event
from holdfast.core.codec import UNTYPED
from holdfast.core.errors import HoldfastError, PayloadRefused
from holdfast.core.function_operations import Delivered, Queued, Sent, TargetEnded
from holdfast.core.rows import Run
from holdfast.deciding import code_for
from holdfast.documents.payloads import fitted
from holdfast.explain.unfit import not_a
from holdfast.handle import Handle
from holdfast.web.access import Role
from holdfast.web.answers import Accepted, BulkAnswer, BulkFailure, Done, ForkedAnswer, SentAnswer
from holdfast.web.calls import Call
from holdfast.web.questions import BulkBody
from holdfast.web.reading import asked_runs
from holdfast.web.refusals import Refused


async def cancel_run(call: Call) -> Done:
    if call.body.force:
        call.require(Role.ADMIN, "a forced cancel")
    handle = await _handle(call)
    changed = await handle.cancel(force=call.body.force, by=call.by)
    return Done(done=changed, message="it is being cancelled" if changed else "it had ended before")


async def pause_run(call: Call) -> Done:
    changed = await (await _handle(call)).pause(by=call.by, reason=call.body.reason)
    return Done(done=changed, message="nothing more of it is started" if changed else "it was paused, or has ended")


async def resume_run(call: Call) -> Done:
    changed = await (await _handle(call)).resume(by=call.by)
    return Done(done=changed, message="it goes on" if changed else "it was not paused")


async def retry_run(call: Call) -> Done:
    nodes = await (await _handle(call)).retry(by=call.by)
    return Done(done=True, message=f"a new attempt for {', '.join(nodes[:5]) or 'it'}{_more(len(nodes) - 5)}")


async def reattempt_node(call: Call) -> Done:
    call.targets["node"] = call.body.node
    await (await _handle(call)).reattempt(call.body.node, by=call.by)
    return Done(done=True, message=f"a new attempt for {call.body.node}")


async def skip_node(call: Call) -> Done:
    call.targets["node"] = call.body.node
    await (await _handle(call)).skip(call.body.node, by=call.by)
    return Done(done=True, message=f"{call.body.node} is skipped")


async def fork_run(call: Call) -> ForkedAnswer:
    from holdfast.graph_reading import update_from_json

    run, body = await call.run(), call.body
    forked = await call.engine.fork(
        run.id,
        from_node=body.from_node,
        step=body.step,
        label=body.label,
        update=update_from_json(call.engine, run, body.update),
        key=body.key or call.key,
        by=call.by,
    )
    call.targets["run"] = forked.id
    return ForkedAnswer(id=forked.id)


async def answer_question(call: Call) -> Done:
    changed = await (await _handle(call)).resume_with(call.body.answer, node=call.body.node, by=call.by)
    return Done(done=changed, message="it goes on with this answer" if changed else "it was given this answer before")


async def send_event(call: Call) -> SentAnswer:
    run = await call.run()
    value = _payload(call, call.path["name"])
    sent = await call.engine.send(call.path["name"], value, to=run.id, id=call.body.message_id or call.key)
    return _sent(sent, call.path["name"])


async def broadcast_event(call: Call) -> SentAnswer:
    value = _payload(call, call.path["name"])
    sent = await call.engine.broadcast(
        call.path["name"], value, to_all=call.body.to_all, id=call.body.message_id or call.key
    )
    return _sent(sent, call.path["name"])


def _payload(call: Call, name: str) -> Any:
    """What was sent as JSON, as the event's type has it, where that is known here."""
    event = as_event("send", name, call.engine.registry)
    if event.type is UNTYPED:
        return call.body.value
    return fitted(call.body.value, event.type, subject="This")


async def execute_input(call: Call) -> Accepted:
    try:
        await call.engine.execute_dynamic(call.path["name"], call.body.input, command_id=call.key)
    except PayloadRefused as refused:
        if not isinstance(refused.__cause__, msgspec.ValidationError):
            raise
        message = not_a(str(call.body.input.get("type")), str(refused.__cause__))
        raise PayloadRefused(message, hint=refused.hint) from refused.__cause__
    routed = code_for(call.engine, call.path["name"]).route_mapping(call.body.input)
    call.targets.update(instance=routed.key, input=routed.type)
    return Accepted()


async def operate_in_bulk(call: Call) -> BulkAnswer:
    """One after the other: each is a decision of its own, and one that refuses stops no other."""
    body: BulkBody = call.body
    if (body.ids is None) == (body.filter is None):
        raise Refused(400, "UsageError", "give either ids or a filter", 'such as {"filter": {"status": ["failed"]}}')
    ids, more = await _meant(call, body)
    done, skipped, failed = list[str](), 0, []
    for run in ids:
        try:
            if await _operate(call, body.action, call.engine.get(run)):
                done.append(run)
            else:
                skipped += 1
        except HoldfastError as error:
            failed.append(BulkFailure(id=run, message=error.message))
    call.targets.update(action=body.action, runs=",".join(done) or "none")
    return BulkAnswer(done=len(done), skipped=skipped, failed=tuple(failed), more=more)


async def _meant(call: Call, body: BulkBody) -> tuple[list[str], bool]:
    if body.ids is not None:
        ids = list(dict.fromkeys(body.ids))
        return ids[: body.limit], len(ids) > body.limit
    rows = await call.engine.store.list_runs(asked_runs(body.filter, limit=body.limit + 1))  # type: ignore[arg-type]
    return [row.id for row in rows[: body.limit]], len(rows) > body.limit


async def _operate(call: Call, action: str, handle: Handle[Any]) -> bool:
    match action:
        case "cancel":
            return await handle.cancel(by=call.by)
        case "pause":
            return await handle.pause(by=call.by)
        case "resume":
            return await handle.resume(by=call.by)
        case _:
            row: Run = await handle._row()
            return bool(row.gave_up or row.status == "failed") and bool(await handle.retry(by=call.by))


async def _handle(call: Call) -> Handle[Any]:
    return await call.engine.get(call.path["id"])


def _sent(sent: Sent, name: str) -> SentAnswer:
    match sent:
        case Delivered():
            told = f"delivered to {len(sent.runs)} runs" if len(sent.runs) > 1 else "delivered"
            return SentAnswer(done=True, message=f"event {name} was {told}", outcome="delivered")
        case Queued():
            return SentAnswer(done=True, message=f"nobody waits for event {name} yet, so it is kept", outcome="queued")
        case TargetEnded():
            told = f"the run is {sent.status} and takes no more events"
            return SentAnswer(done=False, message=told, outcome="target_ended")
        case _:
            raise Refused(404, "UnknownWorkflow", "there is no such run", "GET runs lists those that there are")


def _more(count: int) -> str:
    return f" and {count:,} more" if count > 0 else ""
