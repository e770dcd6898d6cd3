"""`holdfast runs`: which runs there are, newest first."""

from __future__ import annotations

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
    from holdfast.listing import RunInfo

STATUSES = ("pending", "running", "suspended", "paused", "cancelling", "completed", "failed", "cancelled")


@click.command()
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="Only these (repeatable).")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=parse_tags, help="Only with this tag.")
@click.option(
    "--since", callback=read_past, metavar="TIME", help="Only started since: 2h30m (ago) or 2031-05-01T12:00:00Z."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many to list.")
@click.option("--after", metavar="RUN", help="Go on after this run: the next page.")
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
    """List runs, newest first."""
    async with opened(options) as engine:
        page = await engine.find(workflow=workflow, status=statuses, tags=tags, since=since, limit=limit, after=after)
    if options.as_json:
        print_json({"runs": [_document(info) for info in page], "next": page.cursor})
        return
    if not page:
        say("no runs match" if workflow or statuses or tags or since or after else "there are no runs yet")
        return
    now = datetime.now(UTC)
    headers = ["RUN", "WORKFLOW", "MODEL", "KEY", "STATUS", "STARTED", "TOOK"]
    rows = [_row(info, now) for info in page]
    for header, cells in (
        ("TAGS", [" ".join(f"{name}={value}" for name, value in info.tags.items()) for info in page]),
        ("REASON", [info.reason or "" for info in page]),
    ):
        if any(cells):  # most runs have neither, and an id is long
            headers.append(header)
            for row, cell in zip(rows, cells, strict=True):
                row.append(cell)
    print_table(headers, rows, whole=("RUN", "STATUS", "STARTED", "TOOK"), cut=("TAGS", "REASON"))
    if page.cursor is not None and on_terminal():
        note(f"there may be more: add --after {page.cursor}")


def _document(info: RunInfo) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.structs.asdict(info)
    return {"run": document.pop("id"), **document}  # as every other command calls it


def _row(info: RunInfo, now: datetime) -> list[str]:
    took = "" if info.finished_at is None else shown_seconds((info.finished_at - info.created_at).total_seconds())
    return [
        info.id,
        info.workflow,
        info.model,
        info.key or "",
        Cell(info.status, info.status),
        shown_age(info.created_at, now) if on_terminal() else f"{info.created_at:%Y-%m-%dT%H:%M:%SZ}",
        took,
    ]
