"""The engine's verbs for projections: where each stands, and what operators do about one that stands still.

A projection is a run: whatever works on a run (pause, cancel, retry, explain, dead letters) works on it too. These
verbs take the projection's name, and know of positions and events.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.authoring.projections import PREFIX, Projection
from holdfast.core.codec import decode_error
from holdfast.core.errors import UnknownWorkflow, UsageError
from holdfast.core.graph import known_names
from holdfast.core.ids import instance_id
from holdfast.core.operations import Changed, Operation, PauseRun, ResumeRun, RetryRun, StartRun
from holdfast.core.projection_operations import (
    PROJECTION_MODEL,
    PROJECTION_NODE,
    RebuildProjection,
    SkipEvent,
    sources_in,
    sources_of,
)
from holdfast.core.queries import Attempts, Holds
from holdfast.core.rows import (
    FAILED,
    GATE_OPEN,
    LEASED,
    PENDING,
    READY,
    RUNNING,
    Hold,
    Run,
    Work,
)
from holdfast.engine_parts import EnginePart
from holdfast.start_options import checked_text
from holdfast.store.contract import Conflict, FindRuns

# What decides about projections and what runs them is imported where it is needed: every engine has these verbs, few
# programs have projections, and those that only start runs have no worker either.
if TYPE_CHECKING:
    from holdfast.engine import Engine

LOST_RACES_LIMIT = 8
PAGE = 500
FAR = 2**63 - 1


class ProjectionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where a projection stands."""

    name: str
    run_id: str
    status: str  # running, paused, failed (it stopped at an event), cancelled; pending: nobody has owned it yet
    position: int
    head: int  # how far events may be read now; a projection has nothing above it
    lag_events: int
    lag_seconds: float  # the age of the oldest event that it has not taken
    owner: str | None = None  # the worker that owns it
    attempts: int = 0  # failures in a row, at the event that it stands before
    error: str | None = None
    failed_position: int | None = None
    failed_type: str | None = None
    failed_workflow: str | None = None
    failed_key: str | None = None
    failed_sequence: int | None = None
    held_back_seconds: float = 0.0  # for so long an open transaction has kept newer events from all projections


class Projecting(EnginePart):
    """What an engine can do with projections. A base of `Engine`, kept apart for its subject."""

    async def projections(self) -> list[ProjectionInfo]:
        """Every projection that this database or this process knows: position, lag, owner, and what is wrong."""
        engine = self._engine
        known = engine.definitions.projections()
        runs = {run.workflow: run for run in await _runs(engine)}
        head = await engine.store.stream_bound()
        held_back = await engine.store.horizon_age()
        infos = [await _info(engine, run, known.get(run.workflow), head, held_back) for run in runs.values()]
        for projection in {id(each): each for each in known.values()}.values():
            if not any(name in runs for name in projection.__holdfast__.names):  # no worker has begun it yet
                run = _not_begun(projection)
                infos.append(await _info(engine, run, projection, head, held_back))
        return sorted(infos, key=lambda info: info.name)

    async def rebuild_projection(self, projection: Projection[Any] | str, /, *, by: str = "an operator") -> None:
        """Empty the projection's tables with its reset hook and begin with the first event, in one transaction.

        Whoever owns it now is refused from that moment on. Without a reset hook only the position goes back, which
        suits handlers that do not mind an event for the second time.
        """
        from holdfast.runtime.projection_owner import NoTransaction

        engine = self._engine
        found = await _find(engine, projection)
        if isinstance(projection, str):
            definition = engine.definitions.projections().get(found.workflow)
        else:
            definition = projection
        if definition is None:
            raise UnknownWorkflow(
                f"projection {found.key} is not defined in this process, so its reset hook is not known",
                hint="import the module that defines it: `holdfast --app MODULE projections rebuild NAME`",
            )
        await _create(engine, definition, found)
        wish = RebuildProjection(run=found.id, by=checked_text(by, "by"))
        hook = definition.reset_hook
        if engine.store.kind == "memory":
            if hook is not None:
                await hook(NoTransaction(definition.name))
            await engine.coordinator.submit(wish)
            return
        for lost_races in range(1, LOST_RACES_LIMIT + 1):
            try:
                async with engine.store.transaction(user=True) as tx:
                    # First: what its owner commits from here on is refused, and what it has committed the hook sees.
                    await tx.lock_runs([found.id])
                    if hook is not None:
                        await hook(tx.user)
                    _, committed = await engine.coordinator.apply_in(tx, wish)
                committed()
                return
            except Conflict:  # its owner committed a batch at the same moment
                if lost_races == LOST_RACES_LIMIT:
                    raise
                await asyncio.sleep(0.001 * 2**lost_races)

    async def pause_projection(
        self, projection: Projection[Any] | str, /, *, reason: str = "", by: str = "an operator"
    ) -> bool:
        """Give it no more events until it is resumed. False if it is paused already, or does not run."""
        return await _wish(self._engine, projection, lambda run: PauseRun(run=run, reason=reason, by=by))

    async def resume_projection(self, projection: Projection[Any] | str, /, *, by: str = "an operator") -> bool:
        """Let a paused one go on where it stands. False if it is not paused."""
        return await _wish(self._engine, projection, lambda run: ResumeRun(run=run, by=by))

    async def retry_projection(self, projection: Projection[Any] | str, /, *, by: str = "an operator") -> bool:
        """Try the event again at which it stopped. False if it has not stopped."""
        return await _wish(self._engine, projection, lambda run: RetryRun(run=run, by=by))

    async def skip_projection_event(
        self, projection: Projection[Any] | str, /, *, position: int | None = None, by: str = "an operator"
    ) -> int:
        """Pass over the one event at which it stopped: its position. `position` guards against skipping another."""
        from holdfast.models.projection import failed_place

        engine = self._engine
        run = await _find(engine, projection)
        work = await _work(engine, run)
        place = None if work is None else failed_place(work)
        at = await _next_position(engine, run) if place is None else place.position
        if at is None or work is None or (position is not None and position != at):
            stands = "it has taken every event" if at is None else f"it stands before position {at}"
            raise UsageError(
                f"projection {run.key} has no event {'' if position is None else f'at position {position} '}to skip: "
                f"{stands}",
                hint="`holdfast projections` shows where each one stands",
            )
        await engine.coordinator.submit(SkipEvent(run=run.id, position=at, by=checked_text(by, "by")))
        return at


async def behind(engine: Engine) -> list[str]:
    """Projections that have events before them and somebody who takes them now: what `settle` waits for."""
    known = engine.definitions.projections()
    if not known or not engine.local_workers:
        return []
    from holdfast.runtime.projection_events import read_facts

    served = {queue for worker in engine.local_workers for queue in worker.queues}
    runs = {run.workflow: run for run in await _runs(engine)}
    holds: list[Hold] = await engine.store.rows(Holds())
    names = []
    for projection in {id(each): each for each in known.values()}.values():
        run = next((runs[name] for name in projection.__holdfast__.names if name in runs), _not_begun(projection))
        if run.status not in (PENDING, RUNNING) or _is_held(holds, run):
            continue
        work = await _work(engine, run)
        waits = work is None or (work.status == READY and work.gate == GATE_OPEN)
        if not ((waits and run.queue in served) or (work is not None and work.status == LEASED)):
            continue  # it backs off, or nobody here would take it
        if await read_facts(engine.store, projection.sources, run.base, FAR, 1):
            names.append(projection.name)
    return names


async def _runs(engine: Engine) -> list[Run]:
    found: list[Run] = []
    after: str | None = None
    while True:
        page = await engine.store.find(FindRuns(model=PROJECTION_MODEL, limit=PAGE, after=after))
        found += page
        if len(page) < PAGE:
            return found
        after = page[-1].id


async def _info(
    engine: Engine, run: Run, projection: Projection[Any] | None, head: int, held_back: float
) -> ProjectionInfo:
    from holdfast.models.projection import failed_place

    work = await _work(engine, run)
    place = None if work is None else failed_place(work)
    error = None if work is None or work.error is None else decode_error(work.error)
    sources = sources_of(run) if projection is None else projection.sources
    lags = [await engine.store.stream_lag(source, run.base) for source in sources]
    oldest = min((lag.oldest_at for lag in lags if lag.oldest_at is not None), default=None)
    return ProjectionInfo(
        name=run.key or run.workflow.removeprefix(PREFIX),
        run_id=run.id,
        status=RUNNING if run.status == PENDING and work is not None and work.status == LEASED else run.status,
        position=run.base,
        head=head,
        lag_events=sum(lag.events for lag in lags),
        lag_seconds=0.0 if oldest is None else max(0.0, (engine.store.now() - oldest) / 1e6),
        owner=work.worker if work is not None and work.status == LEASED else None,
        attempts=0 if work is None else work.failures,
        error=run.reason if run.status == FAILED else None if error is None else f"{error.type}: {error.message}",
        failed_position=None if place is None else place.position,
        failed_type=None if place is None else place.type,
        failed_workflow=None if place is None else place.workflow,
        failed_key=None if place is None else place.key,
        failed_sequence=None if place is None else place.sequence,
        held_back_seconds=held_back,
    )


async def _work(engine: Engine, run: Run) -> Work | None:
    rows: list[Work] = await engine.store.rows(Attempts(run.id, frozenset({PROJECTION_NODE})))
    return rows[-1] if rows else None


async def _next_position(engine: Engine, run: Run) -> int | None:
    """The position of the first event that it has not taken, if there is one."""
    from holdfast.runtime.projection_events import read_facts

    definition = engine.definitions.projections().get(run.workflow)
    sources = sources_of(run) if definition is None else definition.sources
    facts = await read_facts(engine.store, sources, run.base, FAR, 1)
    return facts[0].position if facts else None


async def _find(engine: Engine, projection: Projection[Any] | str) -> Run:
    """The run of a projection, by its name or its definition; UnknownWorkflow otherwise."""
    from holdfast.runtime.projection_runner import run_ids

    known = engine.definitions.projections()
    if isinstance(projection, str):
        name = checked_text(projection, "a projection").removeprefix(PREFIX)
        definition = known.get(PREFIX + name)
        ids = [instance_id(PREFIX + name, name)]
    elif isinstance(projection, Projection):
        definition, name, ids = projection, projection.name, []
    else:
        raise UsageError(f"{projection!r:.80} is no projection", hint="give what @hf.projection made, or its name")
    ids += [] if definition is None else list(run_ids(definition).values())
    found = {run.id: run for run in await engine.store.runs(ids)}
    for run in ids:
        if run in found:
            return found[run]
    if definition is not None:
        return _not_begun(definition)
    names = {run.key or "" for run in await _runs(engine)} | {each.name for each in known.values()}
    raise UnknownWorkflow(
        f"there is no projection {name!r} in this database, and none is defined in this process",
        hint=f"`holdfast projections` lists those that there are; {known_names(name, names)}",
    )


def _not_begun(projection: Projection[Any]) -> Run:
    """The run that a projection will have as soon as a worker knows it."""
    return Run(
        id=instance_id(projection.workflow, projection.name),
        workflow=projection.workflow,
        model=PROJECTION_MODEL,
        key=projection.name,
        input=sources_in(projection.sources),
        queue=projection.queue,
    )


async def _create(engine: Engine, projection: Projection[Any], run: Run) -> None:
    """See that the projection's run exists; an operator may come before the first worker."""
    if await engine.store.runs([run.id]):
        return
    await engine.coordinator.submit(
        StartRun(
            run=run.id,
            workflow=run.workflow,
            model=PROJECTION_MODEL,
            key=run.key,
            input=run.input,
            queue=projection.queue,
        )
    )


async def _wish(engine: Engine, projection: Projection[Any] | str, operation: Any) -> bool:
    run = await _find(engine, projection)
    definition = engine.definitions.projections().get(run.workflow)
    if definition is not None:
        await _create(engine, definition, run)
    wish: Operation = operation(run.id)
    changed: Changed = await engine.coordinator.submit(wish)
    return changed.changed


def _is_held(holds: list[Hold], run: Run) -> bool:
    names = {"all": "", "workflow": run.workflow, "queue": run.queue}
    return any(names.get(hold.scope) == hold.name for hold in holds)


__all__ = ["Projecting", "ProjectionInfo", "behind"]
