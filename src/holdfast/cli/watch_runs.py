"""Everything at a glance: how many runs there are, the newest with what they wait for, queues and workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.cli.output import Cell
from holdfast.cli.times import shown_age, shown_seconds
from holdfast.cli.watch_following import Change
from holdfast.cli.watch_screen import dim, stacked, styled, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from holdfast.documents.backlog import QueueView, WorkerView
    from holdfast.documents.listing import RunCounts, RunView
    from holdfast.engine import Engine

AROUND: Final = 8  # lines of a screen that are no runs
FEWEST: Final = 5
MOST: Final = 100
FOLLOWED: Final = 100
MOST_OPEN: Final = 1_000
SHORT_ID: Final = 18  # of 36: the time to the millisecond and what tells runs of one millisecond apart
WIDE: Final = 120
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
SINCE: Final = re.compile(r",? since \d{4}-\d\d-\d\d [\d:]+ UTC(?: \([^)]*\))?")  # a line has its age already
NOTHING_TO_DO: Final = ". Nothing needs to be done"
NAMED_BY_KEY: Final = ("decider", "projection")


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a database. `waits` says of runs that have not ended where they are."""

    database: str
    now: datetime
    counts: RunCounts
    runs: tuple[RunView, ...]
    waits: dict[str, str]
    queues: tuple[QueueView, ...]
    workers: tuple[WorkerView, ...]
    changed: tuple[Change, ...] = ()

    exit_code = None  # there is always more to come

    def changes(self) -> Sequence[Change]:
        return self.changed

    def screen(self, width: int, height: int) -> RenderableType:
        lines = [_title(self.database, self.now, width), _counted(self.counts), styled("")]
        footer = [*_footer(self.queues, self.workers, width), dim("Ctrl-C leaves; holdfast watch RUN follows one")]
        if not self.runs:
            lines.append(dim("there are no runs yet: `holdfast start` starts one"))
            return stacked(lines, height, footer)
        whole = width >= WIDE
        rows = [self._row(run, whole) for run in self.runs]
        room = max(FEWEST, height - AROUND) if height else len(rows)
        lines += table(["RUN", "WORKFLOW", "STATUS", "AGE", "WHERE IT IS"], rows[:room], width, cut=4)
        return stacked(lines, height, footer)

    def _row(self, run: RunView, whole: bool) -> list[str]:
        name = run.id if whole or run.model in NAMED_BY_KEY else run.id[:SHORT_ID]
        took = ""
        if run.finished_at is not None:
            took = f"took {shown_seconds((run.finished_at - run.created_at).total_seconds())}"
        return [
            name,
            run.workflow if run.key is None or run.model in NAMED_BY_KEY else f"{run.workflow}/{run.key}",
            Cell(run.status, run.status),
            shown_age(run.created_at, self.now).removesuffix(" ago"),
            self.waits.get(run.id) or (f"{took}: {run.reason}" if took and run.reason else took),
        ]


def _title(database: str, now: datetime, width: int) -> Text:
    clock = f"{now:%H:%M:%S} UTC"
    return styled(f"{database[: width - len(clock) - 2]:<{width - len(clock)}}{clock}", style="bold")


def _counted(counts: RunCounts) -> Text:
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ellipsis")
    for status, count in counts.counts.items():
        if count:
            line.append_text(styled(f"{count:,} {status}", status)).append("   ")
    if not line.plain:
        line.append("no runs", style="dim")
    elif counts.more:
        line.append("(counting stopped here)", style="dim")
    return line


def _footer(queues: Sequence[QueueView], workers: Sequence[WorkerView], width: int) -> list[Text]:
    held = "; ".join(_queue(queue) for queue in queues) or "nothing waits"
    live = [worker for worker in workers if worker.alive]
    gone = len(workers) - len(live)
    told = [f"{worker.host} {worker.pid}: {worker.running:,} of {worker.concurrency:,}" for worker in live]
    busy = "; ".join(told) or "none is running"
    lines = [styled(f"queues   {held}"), styled(f"workers  {busy}", None if live else "warning")]
    if gone:
        lines.append(styled(f"         {gone} with a lease that ran out", "lost"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _queue(queue: QueueView) -> str:
    parts = [f"{queue.ready:,} ready"] if queue.ready else []
    parts += [f"{queue.leased:,} running"] if queue.leased else []
    parts += [f"{queue.delayed:,} later"] if queue.delayed else []
    if queue.ready:
        parts.append(f"oldest {shown_seconds(queue.oldest_ready_seconds)}")
    if not queue.workers:
        parts.append("no worker")
    return f"{queue.name}: {', '.join(parts) or 'empty'}"


class RunsLooker:
    """Looks at the newest runs, and on at those it has seen open: they may be far down the list when they end."""

    def __init__(self, engine: Engine, database: str) -> None:
        self._engine = engine
        self._database = database
        self._seen: dict[str, tuple[str, str | None]] = {}

    async def look(self, height: int) -> Overview:
        from holdfast.documents.backlog import queues_of, workers_of
        from holdfast.documents.listing import counts_of_runs, page_of_runs
        from holdfast.store.contract import ListRuns

        engine = self._engine
        limit = min(MOST, max(FEWEST, height - AROUND)) if height else FOLLOWED
        page = await page_of_runs(engine, ListRuns(limit=limit))
        changed = () if height else await self._changes(page.runs)
        waits = {run.id: await self._where(run) for run in page.runs if run.status not in ENDED} if height else {}
        return Overview(
            database=self._database,
            now=datetime.now(UTC),
            counts=await counts_of_runs(engine, ListRuns()),
            runs=page.runs,
            waits=waits,
            queues=(await queues_of(engine)).queues,
            workers=(await workers_of(engine)).workers,
            changed=changed,
        )

    async def _where(self, run: RunView) -> str:
        """What `holdfast explain` says of it, without what the line says already."""
        from holdfast.core.errors import HoldfastError

        try:
            told = await self._engine.get(run.id).explain()
        except HoldfastError:  # pruned in between, or damaged: the others are to be seen all the same
            return ""
        text = told.summary.removeprefix(f"run {run.id} of {run.workflow} ").removeprefix(f"is {run.status}: ")
        if told.reasons and not text.endswith(NOTHING_TO_DO):
            text = f"{text}; {told.reasons[0]}"
        return SINCE.sub("", text).removesuffix(NOTHING_TO_DO)

    async def _changes(self, newest: Sequence[RunView]) -> tuple[Change, ...]:
        from holdfast.documents.listing import run_view

        listed = {run.id for run in newest}
        still_open = [run for run, (status, _) in self._seen.items() if status not in ENDED and run not in listed]
        others = [run_view(row) for row in await self._engine.store.runs(still_open[:MOST_OPEN])]
        changes = []
        for run in (*others, *reversed(newest)):
            if self._seen.get(run.id) == (run.status, run.reason):
                continue
            self._seen[run.id] = (run.status, run.reason)
            changes.append(await self._change(run))
        listed |= {run.id for run in others if run.status not in ENDED}
        self._seen = {run: seen for run, seen in self._seen.items() if run in listed}
        return tuple(changes)

    async def _change(self, run: RunView) -> Change:
        name = f"{run.workflow}/{run.key}" if run.key is not None else run.workflow
        where = run.reason or ("" if run.status in (*ENDED, "pending", "running") else await self._where(run))
        facts = {"run": run.id, "workflow": run.workflow, "key": run.key, "status": run.status, "reason": run.reason}
        known = name if run.model in NAMED_BY_KEY else f"{run.id}  {name}"
        text = f"{known}  {run.status}" + (f": {where}" if where else "")
        return Change(at=datetime.now(UTC), text=text, facts=facts)


__all__ = ["RunsLooker"]
