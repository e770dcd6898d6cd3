"""The engine's verbs for operators: look after runs, hold work back, clean up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast import dead_letters
from holdfast.core.errors import UsageError
from holdfast.core.operations import ForkRun, SetHold, Started
from holdfast.core.queries import Holds
from holdfast.core.rows import Hold
from holdfast.dead_letters import DeadLetter
from holdfast.engine_parts import EnginePart
from holdfast.handle import Handle
from holdfast.start_options import Identified, checked_node, checked_run, checked_text
from holdfast.store.contract import Finding, FindRuns, StoreStats, WorkerRow

if TYPE_CHECKING:
    from holdfast.checking import Checked
    from holdfast.graph_diff import RunDiff
    from holdfast.graph_replay import ReplayReport

PRUNE_BATCH = 200


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds, and what this process has counted since it opened the engine."""

    store: StoreStats
    process: dict[str, Any]


class Operating(EnginePart):
    """What operators ask of an engine. A base of `Engine`, kept apart for its subject."""

    async def fork(
        self,
        run: str | Identified,
        *,
        from_node: str | None = None,
        step: int | None = None,
        label: str | None = None,
        update: Mapping[str, Any] | None = None,
        key: str | None = None,
        by: str = "an operator",
    ) -> Handle[Any]:
        """A new run that shares what was done, or the one that this very fork has made under `key` before.

        The run it is taken from stays as it is. A key that belongs to another run is a `KeyConflict`.

        Of a DAG: every completed node except `from_node` and whatever depends on it (I29). Of a state graph: all up to
        the checkpoint of `step` or `label` (the latest, if neither is given), with the fields in `update` set anew.
        """
        source = checked_run(run)
        if from_node is None:
            if update is not None and not isinstance(update, Mapping):
                raise UsageError(
                    f"fork was given update={update!r:.80}, a {type(update).__name__}",
                    hint='give the fields that are to change: update={"name": "Ada"}',
                )
            return await self._fork_graph(source, step, label, update or {}, key, by)
        if step is not None or label is not None or update is not None:
            raise UsageError(
                "from_node= is for DAGs, and step=, label=, update= for state graphs", hint="give one or the others"
            )
        await self._engine.get(source).load_graph()  # a large graph is not read inside the decision
        forked: Started = await self._engine.coordinator.submit(
            ForkRun(
                run=self._engine.system.ids.new(),
                source=source,
                from_node=checked_node(from_node, "from_node"),
                key=None if key is None else checked_text(key, "key"),
                by=checked_text(by, "by"),
            )
        )
        return Handle(self._engine, forked.run, key)

    async def replay(
        self, run: str | Identified, *, mode: Literal["strict", "lenient", "live"] = "strict"
    ) -> ReplayReport[Any]:
        """Run a state graph's recorded run again, without touching the outside world; `ReplayMismatch` if it differs.

        `lenient` reports every difference instead; `live` makes the recorded calls again and reports other answers.
        """
        from holdfast.graph_replay import replay

        source = checked_run(run)
        return await replay(self._engine, await self._engine.get(source)._row(), mode)

    async def diff(self, first: str | Identified, second: str | Identified) -> RunDiff:
        """Two runs of state graphs compared, state by state: the first step that differs, and every field with both."""
        from holdfast.graph_diff import diff

        rows = []
        for run in (first, second):
            known = checked_run(run)
            rows.append(await self._engine.get(known)._row())
        return await diff(self._engine, rows[0], rows[1])

    async def _fork_graph(
        self, source: str, step: int | None, label: str | None, update: Mapping[str, Any], key: str | None, by: str
    ) -> Handle[Any]:
        from holdfast.core.state_operations import ForkGraph
        from holdfast.core.state_outcomes import joined
        from holdfast.graph_reading import code_of_run, refuse_pruned, step_at

        row = await self._engine.get(source)._row()
        if row.model == "dag":
            raise UsageError(f"run {source} of {row.workflow} is a DAG", hint="say from which node: from_node=…")
        code = code_of_run(self._engine, row)
        fields = code.encode_part(update, f"the update of run {source}")
        at = await step_at(self._engine, row, step=step, label=label)
        await refuse_pruned(self._engine, row, at)
        named = "" if step is not None else "the latest" if label is None else f"label {label}"
        forked: Started = await self._engine.coordinator.submit(
            ForkGraph(
                run=self._engine.system.ids.new(),
                source=source,
                step=at,
                named=named,
                update=joined(fields),
                key=None if key is None else checked_text(key, "key"),
                by=checked_text(by, "by"),
            )
        )
        return Handle(self._engine, forked.run, key)

    async def check(self, workflows: list[str] | None = None) -> list[Checked]:
        """Before a deploy: every open run against the code of this process. Nothing is started or written."""
        from holdfast.checking import check_runs  # it replays functions, which is heavy

        return [checked async for checked in check_runs(self._engine, workflows)]

    async def stats(self) -> EngineStats:
        snapshot = getattr(self._engine.metrics, "snapshot", dict)
        return EngineStats(store=await self._engine.store.stats(), process=snapshot())

    async def workers(self) -> list[WorkerRow]:
        return await self._engine.store.workers()

    async def maintenance(
        self, on: bool, *, workflow: str | None = None, queue: str | None = None, by: str = "an operator"
    ) -> None:
        """Claim nothing (of a workflow, of a queue, or at all) while on; everything is still accepted."""
        if workflow is not None and queue is not None:
            raise UsageError("maintenance takes a workflow or a queue, not both", hint="call it twice")
        scope = "workflow" if workflow is not None else "queue" if queue is not None else "all"
        name = "" if scope == "all" else checked_text(workflow if queue is None else queue, scope)
        await self._engine.coordinator.submit(SetHold(scope=scope, name=name, on=on, by=checked_text(by, "by")))
        if not on:
            for worker in self._engine.local_workers:
                worker.wake()

    async def drain(self, workflow: str, *, on: bool = True, by: str = "an operator") -> int:
        """Accept no new runs of a workflow while on; how many of its runs have not ended yet."""
        await self._engine.coordinator.submit(
            SetHold(scope="drain", name=checked_text(workflow, "workflow"), on=on, by=checked_text(by, "by"))
        )
        return await self._engine.open_runs(workflow)

    async def open_runs(self, workflow: str) -> int:
        """How many runs of a workflow have not ended yet."""
        count, after = 0, None
        statuses = ("pending", "running", "suspended", "paused", "cancelling")
        while True:
            rows = await self._engine.store.find(FindRuns(workflow=workflow, status=statuses, limit=1000, after=after))
            count += len(rows)
            if len(rows) < 1000:
                return count
            after = rows[-1].id

    async def holds(self) -> list[Hold]:
        """What is in maintenance or being drained."""
        return await self._engine.store.rows(Holds())

    async def dead(self, limit: int = 100) -> list[DeadLetter]:
        """Dead letters, oldest first: work that could not be run, and events that nobody could take."""
        return await dead_letters.list_dead(self._engine, limit)

    async def replay_dead(self, id: str, node: str | None = None, *, by: str = "an operator") -> bool:
        """Give a dead node of a run a new attempt, or bring a dead event (its id alone) to whoever waits for it.

        False if there is nothing to replay.
        """
        return await dead_letters.replay(self._engine, id, node, by)

    async def discard_dead(self, id: str, node: str | None = None, *, by: str = "an operator") -> bool:
        """Close a dead letter for good: the run of a dead node fails, a dead event (its id alone) is gone."""
        return await dead_letters.discard(self._engine, id, node, by)

    async def prune(self, *, older_than_seconds: float, on_batch: Callable[[int], None] | None = None) -> int:
        """Delete runs that ended longer ago than this, in small batches; how many."""
        if not 0 <= older_than_seconds < 1e12:  # NaN is neither
            raise UsageError(f"older_than_seconds is {older_than_seconds}", hint="give an age of 0 or more seconds")
        before = self._engine.store.now() - int(older_than_seconds * 1e6)
        total = 0
        while True:
            count = await self._engine.store.prune(before, PRUNE_BATCH)
            total += count
            if on_batch is not None:
                on_batch(total)
            if count < PRUNE_BATCH:
                return total
            await asyncio.sleep(0)  # let others commit in between

    async def doctor(self) -> list[Finding]:
        """Whether the store is healthy."""
        return await self._engine.store.doctor()
