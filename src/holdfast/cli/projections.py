"""`holdfast projections`: where each one stands, and what to do about one that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import FAILED, Failure, note
from holdfast.cli.options import Options, asynchronous, common_options, opened, operator, pass_options
from holdfast.cli.output import Cell, paragraph, print_json, print_table, say
from holdfast.cli.times import shown_seconds

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.projecting import ProjectionInfo

HELD_BACK_SECONDS = 10.0


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def projections(context: click.Context) -> None:
    """List projections; rebuild, pause, resume or retry one, or let it skip an event.

    A projection that cannot take an event is tried again for a while and then stops there; others go on.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_projections)


@projections.command("list")
@common_options
@pass_options
@asynchronous
async def list_projections(options: Options) -> None:
    """Show position, lag and owner of every projection, and where one has stopped."""
    async with opened(options) as engine:
        found = await engine.projections()
    if options.as_json:
        print_json({"projections": found})
        return
    if not found:
        say("there are no projections", "ok")
        return
    print_table(
        ["PROJECTION", "STATE", "POSITION", "BEHIND", "FOR", "OWNER", "STANDS BEFORE"],
        [
            [
                info.name,
                Cell(_state(info), info.status),
                f"{info.position:,}",
                f"{info.lag_events:,}",
                shown_seconds(info.lag_seconds) if info.lag_events else "",
                info.owner or "",
                _stands(info),
            ]
            for info in found
        ],
        whole=("PROJECTION", "OWNER"),
    )
    for info in found:
        if info.status == "failed":
            paragraph(f"{info.name} has stopped: {info.error or 'no error was kept'}", status="failed")
            paragraph(
                f"after a fix: holdfast projections retry {info.name}; or pass over that event: "
                f"holdfast projections skip {info.name}",
                start="    ",
            )
    if found[0].held_back_seconds > HELD_BACK_SECONDS:
        note(
            f"a transaction that has written is open for {shown_seconds(found[0].held_back_seconds)}, and no "
            "projection sees newer events until it ends: `holdfast doctor` names it"
        )


def _state(info: ProjectionInfo) -> str:
    return "backs off" if info.status == "running" and info.attempts and info.owner is None else info.status


def _stands(info: ProjectionInfo) -> str:
    if info.failed_position is None:
        return info.error or ""
    return f"{info.failed_position:,}: {info.failed_type}, event {info.failed_sequence} of {info.failed_key}"


@projections.command("rebuild")
@click.argument("name", metavar="NAME")
@common_options
@pass_options
@asynchronous
async def rebuild(options: Options, name: str) -> None:
    """Empty a projection's tables with its reset hook, and give it every event again. Needs --app."""
    async with opened(options) as engine:
        await engine.rebuild_projection(name, by=operator())
        definition = engine.definitions.projections().get(f"projection:{name}")
        if definition is not None and definition.reset_hook is None:
            note(f"{name} has no @{definition.__name__}.reset, so that its tables were left as they are")
        await _report(options, engine, name, True, f"projection {name} begins with the first event")


@projections.command("pause")
@click.argument("name", metavar="NAME")
@click.option("--reason", default="", metavar="TEXT", help="Why, for its history.")
@common_options
@pass_options
@asynchronous
async def pause(options: Options, name: str, reason: str) -> None:
    """Give a projection no more events until it is resumed."""
    async with opened(options) as engine:
        changed = await engine.pause_projection(name, reason=reason, by=operator())
        info = await _info(engine, name)
        if not changed and info.status != "paused":
            raise Failure(
                f"projection {name} was not paused: it is {info.status}",
                hint=f"`holdfast projections retry {name}` lets one go on that has stopped at an event",
                code=FAILED,
            )
        said = f"projection {name} {'is paused' if changed else 'was paused already'}"
        await _report(options, engine, name, changed, said)


@projections.command("resume")
@click.argument("name", metavar="NAME")
@common_options
@pass_options
@asynchronous
async def resume(options: Options, name: str) -> None:
    """Let a paused projection go on where it stands."""
    async with opened(options) as engine:
        changed = await engine.resume_projection(name, by=operator())
        said = f"projection {name} {'goes on' if changed else 'was not paused'}"
        await _report(options, engine, name, changed, said)


@projections.command("retry")
@click.argument("name", metavar="NAME")
@common_options
@pass_options
@asynchronous
async def retry(options: Options, name: str) -> None:
    """Let a projection that has stopped try its event again, after a fix."""
    async with opened(options) as engine:
        if not await engine.retry_projection(name, by=operator()):
            info = await _info(engine, name)
            raise Failure(
                f"projection {name} has not stopped: it is {info.status}",
                hint="`holdfast projections` shows where each one stands",
                code=FAILED,
            )
        await _report(options, engine, name, True, f"projection {name} tries again")


@projections.command("skip")
@click.argument("name", metavar="NAME")
@click.option("--position", type=click.IntRange(1), metavar="N", help="Only if it stands before this position.")
@common_options
@pass_options
@asynchronous
async def skip(options: Options, name: str, position: int | None) -> None:
    """Let a projection that has stopped pass over its one event, and go on."""
    async with opened(options) as engine:
        at = await engine.skip_projection_event(name, position=position, by=operator())
        await _report(options, engine, name, True, f"projection {name} goes on behind position {at:,}", skipped=at)


async def _info(engine: Engine, name: str) -> ProjectionInfo:
    for info in await engine.projections():
        if info.name == name:
            return info
    raise Failure(f"projection {name} is gone", hint="`holdfast projections` lists those that there are", code=FAILED)


async def _report(options: Options, engine: Engine, name: str, changed: bool, said: str, **more: Any) -> None:
    info = await _info(engine, name)
    if options.as_json:
        print_json({"changed": changed, **more, "projection": info})
    else:
        say(said, info.status)
