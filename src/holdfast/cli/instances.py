"""`holdfast state` and `holdfast stream`: an instance's state at any point, and its events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.deciders import find_instance
from holdfast.cli.failures import FAILED, USAGE, Failure, note
from holdfast.cli.options import Options, asynchronous, common_options, load_app, opened, pass_options
from holdfast.cli.output import on_terminal, print_facts, print_json, say

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.documents.instance import EventShown
    from holdfast.engine import Engine

LOOK_SECONDS: Final = 0.5


@click.command()
@click.argument("target", metavar="DECIDER|RUN")
@click.argument("key", metavar="[ID]", required=False)
@click.option(
    "--at", type=click.IntRange(0), metavar="SEQUENCE", help="After this event, not now; 0 is before the first."
)
@common_options
@pass_options
@asynchronous
async def state(options: Options, target: str, key: str | None, at: int | None) -> None:
    """Show the state of an instance, now or after any event.

    DECIDER and ID, as `holdfast state order 17`, or RUN, as order/17. The decider's code makes the state of the
    events, so it has to be imported (--app); without it the last snapshot is shown, if there is one.
    """
    from holdfast.cli.show_instance import state_facts
    from holdfast.documents.instance import state_of

    load_app(options)
    async with opened(options) as engine:
        row = await find_instance(engine, target, key)
        if at is not None and at > row.base:
            raise Failure(
                f"{row.workflow}/{row.key} has no event {at}: it has {row.base:,} so far",
                hint=f"give --at 0 to {row.base}, or leave it out",
                code=USAGE,
            )
        shown = await state_of(engine, row, at)
    if shown.source is None:
        raise Failure(
            f"the state of {row.workflow}/{row.key} cannot be shown: {shown.trouble}",
            hint=f"`holdfast stream {row.workflow} {row.key}` shows its events as they are stored",
            code=FAILED,
        )
    if options.as_json:
        print_json(
            {"run": row.id, "workflow": row.workflow, "workflow_id": row.key, "length": row.base, **_keys(shown)}
        )
        return
    if shown.trouble is not None:
        note(shown.trouble)
    length = row.base if at is None else at
    facts = [("instance", f"{row.workflow}/{row.key}"), *state_facts(shown, length)]
    if shown.source == "code" and shown.fields:
        from holdfast.cli.show_instance import STATE_WIDTH, text

        facts.append(("", text(shown.state, STATE_WIDTH)))
    if shown.source == "code":
        facts.append(("after", f"event {shown.sequence:,} of {row.base:,}"))
    print_facts(facts)


def _keys(shown: object) -> dict[str, object]:
    import msgspec

    return msgspec.structs.asdict(shown)  # type: ignore[arg-type]


@click.command()
@click.argument("target", metavar="DECIDER|RUN")
@click.argument("key", metavar="[ID]", required=False)
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQUENCE", help="Only events after this one.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
@click.option("--follow", is_flag=True, help="Wait for further events until the instance ends, or Ctrl-C.")
@common_options
@pass_options
@asynchronous
async def stream(options: Options, target: str, key: str | None, after: int, limit: int | None, follow: bool) -> None:
    """List the events of an instance, as they are stored.

    DECIDER and ID, as `holdfast stream order 17`, or RUN, as order/17. No code is needed. With --json and --follow,
    one document a line.
    """
    if follow and limit is not None:
        raise Failure("--follow and --limit are both given", hint="give one of them", code=USAGE)
    load_app(options)
    async with opened(options) as engine:
        row = await find_instance(engine, target, key)
        if follow:
            await _follow(options, engine, row, after)
            return
        from holdfast.documents.instance import stream_pages

        events = [event async for page in stream_pages(engine, row, after, limit) for event in page]
    if options.as_json:
        print_json(
            {"run": row.id, "workflow": row.workflow, "workflow_id": row.key, "length": row.base, "events": events}
        )
    elif not events:
        say(f"{row.workflow}/{row.key} has no events{f' after {after}' if after else ' yet'}")
    else:
        from holdfast.cli.show_instance import print_events

        print_events(events)


async def _follow(options: Options, engine: Engine, row: Run, after: int) -> None:
    from holdfast.documents.instance import stream_pages

    while True:
        (now,) = await engine.store.runs([row.id]) or [row]  # before the events, so that the last ones are not missed
        async for page in stream_pages(engine, row, after):
            for event in page:
                _print_one(options, event)
            after = page[-1].sequence
        if now.ended:
            if on_terminal():
                note(f"{row.workflow}/{row.key} has ended ({now.status})")
            return
        await asyncio.sleep(LOOK_SECONDS)


def _print_one(options: Options, event: EventShown) -> None:
    if options.as_json:
        import json

        import msgspec

        click.echo(json.dumps(msgspec.to_builtins(event), ensure_ascii=False))
        return
    from holdfast.cli.show_instance import shown_cause, text

    told = f"{event.type}  {text(event.data)}  {shown_cause(event.cause)}"
    say(f"{event.sequence:>6}  {event.at:%Y-%m-%d %H:%M:%S}  {told}")


__all__ = ["state", "stream"]
