"""`holdfast ui`: the page where runs are looked at and operated, over any database."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import on_terminal, print_json

if TYPE_CHECKING:
    from holdfast.engine import Engine


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; others need a token.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="The port; 0 takes one that is free."
)
@click.option(
    "--token-file",
    type=click.Path(),
    metavar="FILE",
    help="A file with the token that people must give; or set HOLDFAST_UI_TOKEN.",
)
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME", help="A name it is reached by (repeatable)."
)
@click.option("--readonly", is_flag=True, help="Look only: everything that changes something is refused.")
@click.option(
    "--redact",
    multiple=True,
    metavar="NAME",
    help="Hide values of fields with this name too, * for any text (repeatable).",
)
@click.option("--open/--no-open", "open_page", default=None, help="Open a browser (default: if this is a terminal).")
@common_options
@pass_options
@asynchronous
async def ui(
    options: Options,
    host: str,
    port: int,
    token_file: str | None,
    allowed_hosts: tuple[str, ...],
    readonly: bool,
    redact: tuple[str, ...],
    open_page: bool | None,
) -> None:
    """Serve the page over the database until stopped, beside whatever works on it.

    No database is created and no schema is changed. Ctrl-C or SIGTERM stops it. Without --app the page shows and
    operates all there is; only starting workflows needs their code.
    """
    from holdfast.cli.logs import show_operations
    from holdfast.core.secret_names import SECRETS
    from holdfast.web import serve
    from holdfast.web.redaction import pattern_of

    def ready(address: str) -> None:
        announce(options, address)
        if on_terminal() if open_page is None else open_page:
            open_browser(address)

    async with opened(options) as engine:
        show_operations()
        await require_tables(engine)
        await serve(
            engine,
            host=host,
            port=port,
            token_file=token_file,
            allowed_hosts=allowed_hosts,
            redact=[*SECRETS, *map(pattern_of, redact)],
            readonly=readonly,
            ready=ready,
            stop=stop_on_signals(),
        )


async def require_tables(engine: Engine) -> None:
    """Refuse a database without tables, or with those of an older version, before anybody looks at a broken page.

    Reading leaves a schema as it is, so what is asked for here are the things that came last.
    """
    from holdfast.core.queries import RecordedOf
    from holdfast.store.contract import ListRuns

    await engine.store.stats()
    await engine.store.list_runs(ListRuns(limit=1))
    await engine.store.rows(RecordedOf(""))


def announce(options: Options, address: str) -> None:
    """The one line that says where the page is; a program reads it as JSON."""
    from holdfast.runtime.stores import redacted

    if options.as_json:
        print_json({"address": address})
    else:
        click.echo(f"{address} shows {redacted(options.database)}; Ctrl-C stops it")


def stop_on_signals() -> asyncio.Event:
    """An event that Ctrl-C and SIGTERM set. A second one ends the process at once."""
    from holdfast.runtime.stop_requests import StopRequests

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    requests = StopRequests(loop.time)

    def asked() -> None:
        if requests.asked() and requests.wishes > 1:
            os._exit(1)  # nothing is being written here: what people asked for was committed before it was answered
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, asked)
    return stop


def open_browser(address: str) -> None:
    """Show the page, where there is a screen. A browser of the terminal would take the terminal from its owner."""
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not has_screen:
        return
    import webbrowser

    # A daemon, because some browsers hold the caller up for as long as they are open.
    threading.Thread(target=webbrowser.open, args=(address,), name="holdfast-browser", daemon=True).start()


__all__ = ["announce", "open_browser", "require_tables", "stop_on_signals", "ui"]
