"""`holdfast prune`, `stats`, `migrate` and `doctor`: the database as a whole."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.failures import FAILED, OK
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import Cell, print_facts, print_heading, print_json, print_table, progress, say, shown_state
from holdfast.cli.times import read_age, shown_seconds
from holdfast.documents.times import moment_of

if TYPE_CHECKING:
    from holdfast.store.contract import StoreStats, WorkerRow


@click.command()
@click.option(
    "--older-than", callback=read_age, required=True, metavar="AGE", help="How long ago they ended: 30d, 12h, 1w."
)
@common_options
@pass_options
@asynchronous
async def prune(options: Options, older_than: timedelta) -> None:
    """Delete runs that ended long ago, in small batches."""
    async with opened(options) as engine:
        with progress("pruning", None) as bar:
            count = await engine.prune(older_than_seconds=older_than.total_seconds(), on_batch=bar.advance_to)
    if options.as_json:
        print_json({"pruned": count})
    else:
        say(f"{count} run{'' if count == 1 else 's'} deleted")


@click.command()
@common_options
@pass_options
@asynchronous
async def stats(options: Options) -> None:
    """Count runs, work, inputs that wait and dead events, and list queues and workers."""
    async with opened(options) as engine:
        counted = (await engine.stats()).store
        now = engine.store.now()
        workers = await engine.workers()
    if options.as_json:
        print_json(
            {
                "runs": counted.runs,
                "work": counted.work,
                "queues": counted.queues,
                "workers": [_worker(row, now) for row in workers],
                "inbox": {"inputs": counted.inbox, "oldest_seconds": counted.inbox_oldest_seconds},
                "dead_events": counted.dead_events,
            }
        )
        return
    _print_stats(counted, workers, now)


def _worker(row: WorkerRow, now: int) -> dict[str, object]:
    return {
        "id": row.id,
        "host": row.host,
        "pid": row.pid,
        "queues": row.queues,
        "concurrency": row.concurrency,
        "started_at": moment_of(row.started),
        "lease_until": moment_of(row.lease_until),
        "live": row.lease_until >= now,
    }


def _print_stats(counted: StoreStats, workers: list[WorkerRow], now: int) -> None:
    for title, counts in (("runs", counted.runs), ("work", counted.work)):
        shown = [(status, count) for status, count in sorted(counts.items()) if count]
        print_heading(title, first=title == "runs")
        if shown:
            print_facts([(shown_state(status), Cell(f"{count:,}", status)) for status, count in shown])
        else:
            say("none")
    print_heading("queues")
    if counted.queues:
        print_table(
            ["QUEUE", "READY", "DELAYED", "RUNNING", "OLDEST WAITS"],
            [
                [
                    queue.queue,
                    f"{queue.ready:,}",
                    f"{queue.delayed:,}",
                    f"{queue.leased:,}",
                    shown_seconds(queue.oldest_seconds) if queue.ready else "",
                ]
                for queue in counted.queues
            ],
        )
    else:
        say("nothing waits")
    if counted.inbox:
        print_heading("inboxes of deciders")
        inputs = "1 input waits" if counted.inbox == 1 else f"{counted.inbox:,} inputs wait"
        print_facts(
            [("inbox", f"{inputs} to be applied, the oldest for {shown_seconds(counted.inbox_oldest_seconds)}")]
        )
    if counted.dead_events:
        print_heading("events")
        print_facts([("dead", Cell(f"{counted.dead_events:,}", "dead"))])
    print_heading("workers")
    if workers:
        print_table(
            ["WORKER", "HOST", "PID", "QUEUES", "SLOTS", "STATE"],
            [
                [
                    row.id,
                    row.host,
                    str(row.pid),
                    ", ".join(row.queues),
                    str(row.concurrency),
                    Cell("live", "ok") if row.lease_until >= now else Cell("lease ran out", "lost"),
                ]
                for row in workers
            ],
            whole=("WORKER",),
        )
    else:
        say("none is running")


@click.command()
@common_options
@pass_options
@asynchronous
async def migrate(options: Options) -> None:
    """Create the database or bring its schema up to date."""
    from holdfast.core.settings import make_settings
    from holdfast.runtime.stores import open_store, redacted
    from holdfast.runtime.system import real_system

    # Not through the engine: it migrates too, but does not say what it did.
    settings = make_settings({}, os.environ)
    store = open_store(options.database, real_system(), timeout_seconds=settings.store_timeout_seconds)
    try:
        await store.open()
        ran = await store.migrate()
    finally:
        await store.close()
    if options.as_json:
        print_json({"database": redacted(options.database), "applied": ran})
    elif ran:
        say(f"{redacted(options.database)}: applied {', '.join(ran)}", "ok")
    else:
        say(f"{redacted(options.database)} is up to date", "ok")


@click.command()
@common_options
@pass_options
@asynchronous
async def doctor(options: Options) -> int:
    """Check that the database is healthy; exit code 1 if it is not."""
    async with opened(options) as engine:
        findings = await engine.doctor()
    broken = any(finding.severity == "error" for finding in findings)
    if options.as_json:
        print_json({"healthy": not broken, "findings": findings})
    else:
        for finding in findings:
            say(f"{finding.severity.ljust(7)}  {finding.subject}: {finding.message}", finding.severity)
        errors = sum(finding.severity == "error" for finding in findings)
        say("the database is healthy" if not broken else f"{errors} error{'' if errors == 1 else 's'} found")
    return FAILED if broken else OK
