"""`holdfast worker`: import modules and run what they define until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import click

from holdfast.cli.failures import USAGE, Failure
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options

LAST_CHANCE_SECONDS = 1.0


@click.command()
@click.argument("modules", nargs=-1, metavar="MODULE...")
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Serve this queue (repeatable; default: default)."
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=100, show_default=True, help="How many items run at the same time."
)
@click.option("--json-logs", is_flag=True, help="Log JSON lines with run, workflow, node, attempt and worker.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log.",
)
@common_options
@pass_options
@asynchronous
async def worker(
    options: Options,
    modules: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    json_logs: bool,
    log_level: str,
) -> None:
    """Run the workflows of MODULE until stopped.

    Every module is imported before any work is claimed; if one fails, no worker starts. The database is
    created if it is not there. Ctrl-C or SIGTERM: finish what is running, then stop; a second time: stop
    at once and give the work back.
    """
    from holdfast.cli.loading import load_modules
    from holdfast.cli.logs import log_to_stderr
    from holdfast.runtime.garbage import collect_less_often

    names = (*modules, *options.modules())
    if not names:
        raise Failure(
            "no module is named",
            hint="name those that define your workflows: holdfast worker app.workflows",
            code=USAGE,
        )
    log_to_stderr(log_level, as_json=json_logs or options.as_json)
    load_modules(names)
    refuse_nothing_to_do(names)
    collect_less_often()
    async with opened(options, create=True) as engine:
        _announce(options.database, engine.definitions.known_workflows())
        if "HOLDFAST_FAILPOINT" in os.environ:  # crash on purpose: for those who test what happens then
            from holdfast.runtime.killswitch import install_from_environment

            install_from_environment(os.environ)
        await engine.run_worker(queues=queues or ("default",), concurrency=concurrency, handle_signals=True)
    log = logging.getLogger("holdfast.cli")
    log.info("stopped")
    if deaf := await those_who_do_not_stop():
        # Their work was given back. Python would wait for them for ever, and so would whoever deploys.
        log.warning("left behind what ignores that it was asked to stop: %d", len(deaf))
        logging.shutdown()
        os._exit(0)


async def those_who_do_not_stop() -> set[asyncio.Task[Any]]:
    """Tasks of this loop that ignore a cancel."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    return (await asyncio.wait(left, timeout=LAST_CHANCE_SECONDS))[1] if left else set()


def refuse_nothing_to_do(names: tuple[str, ...]) -> None:
    """Refuse modules that define nothing: whoever named them expects something to happen."""
    from holdfast.authoring.registry import default_registry

    if not default_registry.known_workflows():
        raise Failure(
            f"{', '.join(names)} {'defines' if len(names) == 1 else 'define'} no workflow and no action, "
            "so a worker would do nothing",
            hint="decorate functions with @hf.action or subclass hf.Dag, in the modules named or in what they import",
            code=USAGE,
        )


def _announce(url: str, workflows: tuple[str, ...]) -> None:
    from holdfast.runtime.stores import redacted

    logging.getLogger("holdfast.cli").info(
        "%s: runs %s; Ctrl-C stops it when what is running has finished", redacted(url), ", ".join(workflows)
    )
