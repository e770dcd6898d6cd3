"""Options that every command takes, and the engine that a command opens with them.

They may stand before the command's name or after it. Reading never creates: a command that is not
meant to make a database refuses one that is not there, and leaves an old schema as it is.
"""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from holdfast.cli.failures import FAILED, NOT_FOUND, Failure

if TYPE_CHECKING:
    from holdfast.engine import Engine

P = ParamSpec("P")
T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


class Options:
    """What was said with the common options, wherever on the line it was said."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.as_json = False
        self.app: tuple[str, ...] = ()
        self.debug = False

    @property
    def database(self) -> str:
        """The URL that counts: the option, the environment, or the file of the current directory."""
        from holdfast.runtime.stores import DEFAULT_URL

        return self.url or os.environ.get("HOLDFAST_URL") or DEFAULT_URL

    def modules(self) -> tuple[str, ...]:
        """The modules to import: --app, or the names in HOLDFAST_APP."""
        return self.app or tuple(os.environ.get("HOLDFAST_APP", "").replace(",", " ").split())


pass_options = click.make_pass_decorator(Options, ensure=True)


def common_options(command: Command) -> Command:
    """Give a command --url, --app, --json and --debug."""
    for option in reversed(
        (
            click.option("--url", metavar="URL", **_kept("url"), help="The database: sqlite:///file or postgresql://…"),
            click.option(
                "--app", metavar="MODULE", multiple=True, **_kept("app"), help="Import this module first (repeatable)."
            ),
            click.option("--json", is_flag=True, **_kept("as_json"), help="One JSON document on stdout."),
            click.option("--debug", is_flag=True, **_kept("debug"), help="Show the traceback of an error."),
        )
    ):
        command = option(command)
    return command


def _kept(name: str) -> dict[str, Any]:
    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        # An option that is absent after the command must not undo the one given before it.
        if value:
            setattr(ctx.ensure_object(Options), name, value)

    # Eager: --json decides how an error in the rest of the line is reported.
    return {"expose_value": False, "callback": keep, "is_eager": True}


def asynchronous(command: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A command that is written as a coroutine."""

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return asyncio.run(command(*args, **kwargs))

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    # click leaves the parameters that decorators below collected on the function itself.
    vars(run).update(vars(command))
    return run


@asynccontextmanager
async def opened(options: Options, *, create: bool = False) -> AsyncIterator[Engine]:
    """The engine on the chosen database. Without `create`, no database and no schema is made (or changed)."""
    from holdfast.cli.logs import show_warnings
    from holdfast.core.errors import UnknownNode, UnknownWorkflow, UsageError
    from holdfast.engine import Engine

    show_warnings()
    load_app(options)
    if not create:
        require_database(options.database)
    engine = Engine(options.database)
    await engine.open(migrate=create)
    try:
        yield engine
    except (UnknownWorkflow, UnknownNode):
        raise
    except UsageError as error:
        # The line was understood and the database said no: a script must be able to tell that from a typing error.
        raise Failure(error.message, hint=error.hint, code=FAILED) from error
    finally:
        await engine.close()


def load_app(options: Options) -> None:
    """Import what --app names, so that workflows can be looked up, and what HOLDFAST_CODEC names."""
    module, colon, _ = os.environ.get("HOLDFAST_CODEC", "").partition(":")
    modules = [*options.modules(), *([module] if colon else [])]
    if modules:
        from holdfast.cli.loading import load_modules

        load_modules(modules)


def require_database(url: str) -> None:
    """Refuse a SQLite file that is not there: opening it would create it."""
    from holdfast.runtime.stores import sqlite_path

    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise Failure(
            f"there is no database {path}",
            hint="give --url or set HOLDFAST_URL; `holdfast migrate`, `holdfast start` and `holdfast worker` create it",
            code=NOT_FOUND,
        )


def operator() -> str:
    """Who is typing, for the run's history."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may have a user without a name
        return "an operator"
