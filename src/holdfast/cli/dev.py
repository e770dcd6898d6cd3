"""`holdfast dev`: a worker and the page together, started again whenever the code changes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from holdfast.cli.failures import USAGE, Failure, line
from holdfast.cli.options import Options, asynchronous, common_options, pass_options
from holdfast.cli.output import on_terminal, print_json

LABELS = {"failed": ("error", "red"), "ended": ("note", "yellow")}


@click.command()
@click.argument("modules", nargs=-1, metavar="MODULE...")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8787,
    show_default=True,
    help="The page's port; 0 takes one that is free.",
)
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Serve this queue (repeatable; default: default)."
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=100, show_default=True, help="How many items run at the same time."
)
@click.option("--postgres", is_flag=True, help="Start a PostgreSQL for it, with its data in .holdfast/postgres.")
@click.option("--reload/--no-reload", default=True, help="Start again when a file of the code changes (default).")
@click.option("--open/--no-open", "open_page", default=None, help="Open a browser (default: if this is a terminal).")
@click.option("--child", "pipes", hidden=True, metavar="REPORTS,ALIVE", help="It is the child with these pipes.")
@click.option("--postmaster", hidden=True, type=click.Path(path_type=Path), help="Of the supervisor's PostgreSQL.")
@common_options
@pass_options
@asynchronous
async def dev(
    options: Options,
    modules: tuple[str, ...],
    port: int,
    queues: tuple[str, ...],
    concurrency: int,
    postgres: bool,
    reload: bool,
    open_page: bool | None,
    pipes: str | None,
    postmaster: Path | None,
) -> int | None:
    """Work on MODULE: a worker, the page, and a new start at every change.

    The database is created if it is not there. A change of a file that was imported from below the current directory
    stops the worker and starts it with the new code; what was running is taken up again. A module that does not import
    is waited for. Ctrl-C ends all of it.
    """
    names = tuple(dict.fromkeys((*modules, *options.modules())))
    if not names:
        raise Failure(
            "no module is named", hint="name those that define your workflows: holdfast dev app.workflows", code=USAGE
        )
    if pipes is not None:
        return await _child(options, names, pipes, port, queues, concurrency, postmaster)
    if postgres and options.url:
        raise Failure("--postgres and --url are both given", hint="give one of them", code=USAGE)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # before there is anything to leave behind
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with ExitStack() as stack:
        if postgres:
            from holdfast.cli.dev_postgres import own_postgres

            server = stack.enter_context(own_postgres(Path.cwd()))
            options.url = server.dsn()
            postmaster = server.data_directory / "postmaster.pid"
            line(
                "dev", f"PostgreSQL is up, for other terminals: export HOLDFAST_URL={shlex.quote(options.url)}", "cyan"
            )
        command = _child_line(options, names, queues, concurrency, postmaster)
        await _supervise(options, command, port, reload, open_page, stop)
    return None


async def _child(
    options: Options,
    names: tuple[str, ...],
    pipes: str,
    port: int,
    queues: tuple[str, ...],
    concurrency: int,
    postmaster: Path | None,
) -> int:
    from holdfast.cli.dev_child import run_child

    reports, alive = map(int, pipes.split(","))
    return await run_child(
        options,
        names,
        (reports, alive),
        port=port,
        queues=queues or ("default",),
        concurrency=concurrency,
        postmaster=postmaster,
    )


def _child_line(
    options: Options, names: tuple[str, ...], queues: tuple[str, ...], concurrency: int, postmaster: Path | None
) -> Callable[[tuple[int, int], int], list[str]]:
    """How a child is started: this command again, with the pipes that lead to us."""
    from holdfast.cli.dev_supervisor import child_command

    # Not on the line: a URL may hold a password, and everybody on the machine can read a command line.
    os.environ["HOLDFAST_URL"] = options.database
    words = [f"--{flag}" for flag, given in (("json", options.as_json), ("debug", options.debug)) if given]
    words += ["--concurrency", str(concurrency), *(word for queue in queues for word in ("--queue", queue))]
    words += [] if postmaster is None else ["--postmaster", str(postmaster)]

    def line_of(pipes: tuple[int, int], port: int) -> list[str]:
        return child_command("dev", "--child", f"{pipes[0]},{pipes[1]}", "--port", str(port), *words, "--", *names)

    return line_of


async def _supervise(
    options: Options,
    command: Callable[[tuple[int, int], int], list[str]],
    port: int,
    reload: bool,
    open_page: bool | None,
    stop: asyncio.Event,
) -> None:
    from holdfast.cli.dev_supervisor import Supervisor
    from holdfast.cli.ui import announce, open_browser

    def ready(address: str) -> None:
        announce(options, address)
        if on_terminal() if open_page is None else open_page:
            open_browser(address)

    def say(event: str, sentence: str, **facts: Any) -> None:
        label, colour = LABELS.get(event, ("dev", "cyan"))
        line(label, " ".join(sentence.split()), colour)
        if "hint" in facts:
            line("hint", facts["hint"], "cyan")
        if options.as_json:
            print_json({event: {"message": sentence, **facts}})

    await Supervisor(command, port=port, reload=reload, say=say, ready=ready, stop=stop).run()
