"""Handlers that look at runs."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import UsageError
from holdfast.documents.checkpoints import steps_of
from holdfast.documents.detail import RunDetail, detail_of_run
from holdfast.documents.graph_view import GraphView, view_of_run
from holdfast.documents.history import HistoryPage, page_of_history
from holdfast.documents.instance import DECIDER, state_of, stream_pages
from holdfast.documents.listing import RunCounts, RunPage, counts_of_runs, page_of_runs
from holdfast.documents.nodes import NodePage, page_of_nodes
from holdfast.documents.state_graph import GRAPH
from holdfast.documents.timeline import Timeline, timeline_of
from holdfast.listing import place_of
from holdfast.start_options import checked_text, microseconds
from holdfast.store.listing import SearchRuns
from holdfast.web.answers import Change, CheckpointDetail, CheckpointList, CheckpointView, StateView, StreamPage
from holdfast.web.calls import Call
from holdfast.web.questions import Filter
from holdfast.web.refusals import Refused


def asked_runs(wanted: Filter, *, limit: int = 50, cursor: str | None = None) -> SearchRuns:
    """What the store is asked, from what an address or a body says."""
    tags = dict(tag.split(":", 1) for tag in wanted.tag)
    for name, value in tags.items():
        checked_text(name, "a tag's name")
        checked_text(value, f"the value of tag {name}")
    return SearchRuns(
        workflow=None if wanted.workflow is None else checked_text(wanted.workflow, "workflow"),
        model=wanted.model,
        status=tuple(dict.fromkeys(wanted.status)),
        tags=tuple(sorted(tags.items())),
        search=None if wanted.q is None else checked_text(wanted.q, "q"),
        queue=None if wanted.queue is None else checked_text(wanted.queue, "queue"),
        since=None if wanted.since is None else microseconds(wanted.since),
        until=None if wanted.until is None else microseconds(wanted.until),
        limit=limit,
        after=None if cursor is None else place_of(checked_text(cursor, "cursor")),
    )


async def list_runs(call: Call) -> RunPage:
    return await page_of_runs(call.engine, asked_runs(call.query, limit=call.query.limit, cursor=call.query.cursor))


async def count_runs(call: Call) -> RunCounts:
    return await counts_of_runs(call.engine, asked_runs(call.query))


async def show_run(call: Call) -> RunDetail:
    return await detail_of_run(call.engine, await call.run())


async def list_nodes(call: Call) -> NodePage:
    query = call.query
    return await page_of_nodes(
        call.engine, await call.run(), node=query.node, state=query.state, after=query.after, limit=query.limit
    )


async def show_graph(call: Call) -> GraphView:
    return await view_of_run(call.engine, await call.run(), group=call.query.group, every=call.query.all)


async def show_timeline(call: Call) -> Timeline:
    return await timeline_of(call.engine, await call.run(), after=call.query.after, limit=call.query.limit)


async def list_history(call: Call) -> HistoryPage:
    return await page_of_history(
        call.engine,
        await call.run(),
        after=call.query.after,
        limit=call.query.limit,
        hide=call.redaction.shown,
    )


async def show_state(call: Call) -> StateView:
    run = await call.run()
    if run.model != DECIDER:
        why = "only instances of deciders are folded; a state graph has checkpoints"
        return StateView(available=False, why=why, sequence=0, last=run.base, state=None)
    at = None if call.query.sequence is None else min(call.query.sequence, run.base)
    shown = await state_of(call.engine, run, at)
    available = shown.source is not None
    return StateView(
        available=available,
        why=shown.trouble or "",
        sequence=(shown.sequence or 0) if available else at or 0,
        last=run.base,
        state=shown.state if available else None,
    )


async def list_events(call: Call) -> StreamPage:
    run, limit = await call.run(), call.query.limit
    events: list[Any] = []
    if run.model == DECIDER:
        async for page in stream_pages(call.engine, run, call.query.after, limit + 1):
            events += page
    shown = events[:limit]
    return StreamPage(events=tuple(shown), cursor=shown[-1].sequence if len(events) > limit else None)


async def list_checkpoints(call: Call) -> CheckpointList:
    run = await call.run()
    steps = await steps_of(call.engine, run) if run.model == GRAPH else []
    return CheckpointList(
        checkpoints=tuple(
            CheckpointView(
                step=step["step"],
                label=", ".join(step["labels"]),
                at=step["at"],
                nodes=tuple(step["ran"]),
                digest=step["state_digest"],
            )
            for step in steps
        )
    )


async def show_checkpoint(call: Call) -> CheckpointDetail:
    run, number = await call.run(), _step(call.path["step"])
    handle = call.engine.get(run.id)
    try:
        found = await handle.checkpoint(step=number)
    except UsageError as error:
        raise Refused(404, "UnknownStep", error.message, error.hint) from error
    ran: tuple[str, ...] = ()
    before: dict[str, Any] = {}
    if number > 0:
        try:
            earlier = (await handle.checkpoint(step=number - 1)).document()
            before, ran = earlier["state"], tuple(item["node_id"] for item in earlier["frontier"])
        except UsageError:
            before = {}  # pruned, so that all of it is new
    state: dict[str, Any] = found.document()["state"]
    changed = {
        name: Change(before=before.get(name), after=state.get(name))
        for name in {**before, **state}
        if before.get(name) != state.get(name) or (name in before) != (name in state)
    }
    return CheckpointDetail(
        step=number,
        label=", ".join(found.labels),
        at=found.timestamp,
        state=state,
        changed=changed,
        ran=ran,
    )


def _step(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise Refused(404, "UnknownStep", f"there is no step {text!r:.40}", "steps are numbers from 0 on")
    return int(text)
