"""Handlers about all runs together: dead letters, queues, workers, timers, projections, definitions, the server."""

from __future__ import annotations

from holdfast import __version__
from holdfast.core.projection_operations import sources_of
from holdfast.core.stored import moment
from holdfast.documents.backlog import QueueList, WorkerList, queues_of, workers_of
from holdfast.documents.dead_letters import LetterPage, page_of_letters
from holdfast.documents.definitions import DefinitionDetail, DefinitionList, definition_of, definitions_of
from holdfast.documents.timers import TimerPage, page_of_timers
from holdfast.explain.projections import passed_over
from holdfast.start_options import checked_text
from holdfast.web.answers import Done, HoldView, Me, ProjectionList, ProjectionView, StatsAnswer
from holdfast.web.calls import Call


async def list_dead(call: Call) -> LetterPage:
    return await page_of_letters(call.engine, limit=call.query.limit, cursor=call.query.cursor)


async def replay_dead(call: Call) -> Done:
    _name_letter(call)
    changed = await call.engine.replay_dead(call.body.id, call.body.node, by=call.by)
    return Done(done=changed, message="it is tried again" if changed else "there is nothing to replay")


async def discard_dead(call: Call) -> Done:
    _name_letter(call)
    changed = await call.engine.discard_dead(call.body.id, call.body.node, by=call.by)
    return Done(done=changed, message="it is closed for good" if changed else "there is nothing to discard")


def _name_letter(call: Call) -> None:
    call.targets["id"] = call.body.id
    if call.body.node is not None:
        call.targets["node"] = call.body.node


async def list_queues(call: Call) -> QueueList:
    return await queues_of(call.engine)


async def list_workers(call: Call) -> WorkerList:
    return await workers_of(call.engine)


async def list_timers(call: Call) -> TimerPage:
    return await page_of_timers(call.engine, limit=call.query.limit, cursor=call.query.cursor)


async def list_projections(call: Call) -> ProjectionList:
    infos = await call.engine.projections()
    runs = {run.id: run for run in await call.engine.store.runs([info.run_id for info in infos])}
    known = call.engine.definitions.projections()
    shown = []
    for info in infos:
        run = runs.get(info.run_id)
        code = None if run is None else known.get(run.workflow)
        sources = code.sources if code is not None else () if run is None else sources_of(run)
        shown.append(
            ProjectionView(
                name=info.name,
                decider=", ".join(sorted(sources)),
                status=info.status,
                position=info.position,
                behind=info.lag_events,
                lag_seconds=info.lag_seconds,
                error=info.error,
                owner=info.owner,
                passed_over=0 if run is None else await passed_over(call.engine.store, run),
            )
        )
    return ProjectionList(projections=tuple(shown))


async def pause_projection(call: Call) -> Done:
    changed = await call.engine.pause_projection(call.path["name"], reason=call.body.reason, by=call.by)
    return Done(done=changed, message="it gets no more events" if changed else "it was paused, or does not run")


async def resume_projection(call: Call) -> Done:
    changed = await call.engine.resume_projection(call.path["name"], by=call.by)
    return Done(done=changed, message="it goes on" if changed else "it was not paused")


async def retry_projection(call: Call) -> Done:
    changed = await call.engine.retry_projection(call.path["name"], by=call.by)
    return Done(done=changed, message="it tries the event again" if changed else "it has not stopped")


async def rebuild_projection(call: Call) -> Done:
    await call.engine.rebuild_projection(call.path["name"], by=call.by)
    return Done(done=True, message="it begins with the first event")


async def skip_projection_event(call: Call) -> Done:
    at = await call.engine.skip_projection_event(call.path["name"], position=call.body.position, by=call.by)
    call.targets["position"] = at
    return Done(done=True, message=f"the event at position {at:,} is passed over")


async def list_definitions(call: Call) -> DefinitionList:
    return await definitions_of(call.engine)


async def show_definition(call: Call) -> DefinitionDetail:
    return await definition_of(call.engine, checked_text(call.path["name"], "a workflow"))


async def set_maintenance(call: Call) -> Done:
    body = call.body
    scopes = {"workflow": body.workflow, "queue": body.queue}
    named = {scope: name for scope, name in scopes.items() if name is not None}
    call.targets.update(on=body.on, **(named or {"of": "everything"}))
    await call.engine.maintenance(body.on, workflow=body.workflow, queue=body.queue, by=call.by)
    return Done(done=True, message="nothing is claimed there any more" if body.on else "work goes on there")


async def show_stats(call: Call) -> StatsAnswer:
    stats = await call.engine.stats()
    holds = await call.engine.holds()
    return StatsAnswer(
        store=call.engine.store.kind,
        holds=tuple(HoldView(scope=hold.scope, name=hold.name, by=hold.by, since=moment(hold.since)) for hold in holds),
        runs=stats.store.runs,
        work=stats.store.work,
        queues=stats.store.queues,
        workers=stats.store.workers,
        inbox=stats.store.inbox,
        inbox_oldest_seconds=stats.store.inbox_oldest_seconds,
        dead_events=stats.store.dead_events,
        process=stats.process,
    )


async def show_me(call: Call) -> Me:
    return Me(
        role=call.caller.role.word,
        name=call.caller.name,
        version=__version__,
        store=call.engine.store.kind,
        redacted=call.redaction.is_active,
        code=bool(call.engine.registry.known_workflows()),
        readonly_reason=call.readonly_reason,
    )
