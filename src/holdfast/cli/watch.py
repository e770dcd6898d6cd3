"""`holdfast watch`: the terminal as a live view of everything, or of one run until it ends."""

from __future__ import annotations

import click

from holdfast.cli.failures import INTERRUPTED, OK
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--stay", is_flag=True, help="With RUN: go on watching while it is paused.")
@common_options
@pass_options
@asynchronous
async def watch(options: Options, run: str | None, stay: bool) -> int:
    """Watch all runs, or RUN until it ends, in the terminal.

    All: how many there are, the newest with what they wait for, queues and workers. RUN: why it is where it is, nodes,
    waits, history; the exit code is 0 if it completes, and 1 if it fails, is cancelled or is paused. Where there is no
    terminal, one line a change; with --json, one document a line. Ctrl-C leaves.
    """
    return await watched(options, run, stay=stay)


async def watched(options: Options, run: str | None, *, stay: bool = False) -> int:
    """Follow until it is over or somebody leaves; the exit code."""
    from holdfast.cli.explaining import for_this_database
    from holdfast.cli.finding import find_run
    from holdfast.cli.watch_following import follow
    from holdfast.runtime.stores import redacted

    async with opened(options) as engine:
        if run is None:
            from holdfast.cli.watch_runs import RunsLooker

            await follow(RunsLooker(engine, redacted(options.database)), as_json=options.as_json)
            return OK  # it has no other end than that somebody leaves
        from holdfast.cli.watch_run import RunLooker

        row = await find_run(engine, run)
        looker = RunLooker(engine, row, stay=stay, adapt=lambda told: for_this_database(told, options))
        code = await follow(looker, as_json=options.as_json)
    return INTERRUPTED if code is None else code


__all__ = ["watch", "watched"]
