"""`holdfast runs`: which runs there are, newest first."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.failures import note
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import Cell, on_terminal, print_json, print_table, say
from holdfast.cli.start import parse_tags
from holdfast.cli.times import read_past, shown_age, shown_seconds

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.engine import Engine
    from holdfast.listing import RunInfo

STATES_SHOWN = 100
EVENTS_FOLDED = 10_000
NAMED_BY_KEY = ("decider", "projection")  # their ids are made of their keys, and nobody knows them by those
DEAD_LOOKED_AT = 1_000
STATUSES = ("pending", "running", "suspended", "paused", "cancelling", "completed", "failed", "cancelled")


@click.command()
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="Only these (repeatable).")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=parse_tags, help="Only with this tag.")
@click.option(
    "--since", callback=read_past, metavar="TIME", help="Only started since: 2h30m (ago) or 2031-05-01T12:00:00Z."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many to list.")
@click.option("--after", metavar="CURSOR", help="The next page: what `next` of the one before says, or a run.")
@common_options
@pass_options
@asynchronous
async def runs(
    options: Options,
    workflow: str | None,
    statuses: tuple[str, ...],
    tags: dict[str, str],
    since: datetime | None,
    limit: int,
    after: str | None,
) -> None:
    """List runs, newest first.

    Instances of a decider, with --workflow: how many events each has, what is pending of it, and, if its code is
    imported with --app, where it stands.
    """
    async with opened(options) as engine:
        page = await engine.find(workflow=workflow, status=statuses, tags=tags, since=since, limit=limit, after=after)
        instances = await _instances(engine, page)
        stands = await _states(engine, instances) if workflow else {}
        refused = await _refused_inputs(engine) if instances else Counter()
    if options.as_json:
        print_json({"runs": [_document(info, instances.get(info.id), refused) for info in page], "next": page.cursor})
        return
    if not page:
        say("no runs match" if workflow or statuses or tags or since or after else "there are no runs yet")
        return
    now = datetime.now(UTC)
    if workflow and len(instances) == len(page):
        headers = ["INSTANCE", "STATUS", "STATE", "EVENTS", "EFFECTS", "TIMERS", "INBOX", "DEAD", "STARTED"]
        rows = [_instance_row(info, _pending(instances[info.id], refused), stands.get(info.id), now) for info in page]
        for gone in [index for index in (7, 2) if not any(row[index] for row in rows)]:  # no dead letters, no code
            headers, rows = headers[:gone] + headers[gone + 1 :], [row[:gone] + row[gone + 1 :] for row in rows]
    else:
        headers = ["RUN", "WORKFLOW", "MODEL", "KEY", "STATUS", "STARTED", "TOOK"]
        rows = [_row(info, now) for info in page]
        if all(info.model in NAMED_BY_KEY for info in page):  # what they are called says both
            headers, rows = [headers[0], *headers[2:3], *headers[4:]], [[row[0], row[2], *row[4:]] for row in rows]
    for header, cells in (
        ("TAGS", [" ".join(f"{name}={value}" for name, value in info.tags.items()) for info in page]),
        ("REASON", [info.reason or "" for info in page]),
    ):
        if any(cells):  # most runs have neither, and an id is long
            headers.append(header)
            for row, cell in zip(rows, cells, strict=True):
                row.append(cell)
    whole = ("RUN", "INSTANCE", "STATUS", "STATE", "STARTED", "TOOK")
    print_table(headers, rows, whole=whole, cut=("MODEL", "TAGS", "REASON"))
    if page.cursor is not None and on_terminal():
        note(f"there are more: add --after {page.cursor}")


async def _instances(engine: Engine, page: list[RunInfo]) -> dict[str, Run]:
    found = [info.id for info in page if info.model == "decider"]
    return {row.id: row for row in await engine.store.runs(found)} if found else {}


async def _states(engine: Engine, instances: dict[str, Run]) -> dict[str, str]:
    """Where each instance stands, in its author's words. Long streams are not folded for a listing."""
    from holdfast.documents.instance import state_of

    if len(instances) > STATES_SHOWN:
        return {}
    known = [row for row in instances.values() if engine.definitions.decider(row.workflow) is not None]
    return {row.id: (await state_of(engine, row)).status or "?" for row in known if row.base <= EVENTS_FOLDED}


async def _refused_inputs(engine: Engine) -> Counter[str | None]:
    """Inputs that could not be applied and wait for somebody's decision, by instance."""
    from holdfast.core.queries import DeadEvents

    return Counter(event.target for event in await engine.store.rows(DeadEvents(DEAD_LOOKED_AT)))


def _pending(row: Run, refused: Counter[str | None]) -> dict[str, int]:
    """What an instance has to do. One effect at most is active, and the inbox is while it holds something."""
    timers = row.active - (row.remaining > 0) - (row.mailbox > 0)
    return {
        "events": row.base,
        "effects": row.remaining,
        "timers": max(0, timers),
        "inbox": row.mailbox,
        "dead": row.gave_up + refused[row.id],
    }


def _instance_row(info: RunInfo, pending: dict[str, int], stands: str | None, now: datetime) -> list[str]:
    started = shown_age(info.created_at, now) if on_terminal() else f"{info.created_at:%Y-%m-%dT%H:%M:%SZ}"
    return [
        f"{info.workflow}/{info.key}",  # which commands take for RUN, and people remember
        Cell(info.status, info.status),
        stands or "",
        f"{pending['events']:,}",
        *(f"{pending[each]:,}" if pending[each] else "" for each in ("effects", "timers", "inbox")),
        Cell(f"{pending['dead']:,}", "dead") if pending["dead"] else "",
        started,
    ]


def _document(info: RunInfo, instance: Run | None, refused: Counter[str | None]) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.structs.asdict(info)
    # The id as every other command calls it; of an instance of a decider, what is pending of it.
    pending = None if instance is None else _pending(instance, refused)
    return {"run": document.pop("id"), **document, "instance": pending}


def _row(info: RunInfo, now: datetime) -> list[str]:
    took = "" if info.finished_at is None else shown_seconds((info.finished_at - info.created_at).total_seconds())
    return [
        f"{info.workflow}/{info.key}" if info.model in NAMED_BY_KEY else info.id,
        info.workflow,
        info.model,
        info.key or "",
        Cell(info.status, info.status),
        shown_age(info.created_at, now) if on_terminal() else f"{info.created_at:%Y-%m-%dT%H:%M:%SZ}",
        took,
    ]
