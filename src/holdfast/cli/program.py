"""The program itself: which commands there are, how help shows them, and how errors leave it."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import click

from holdfast.cli.failures import CODES, OK, USAGE, report
from holdfast.cli.options import Options, common_options

# Every command and its home, in the order in which help shows them.
SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Run": {
        "dev": "holdfast.cli.dev",
        "worker": "holdfast.cli.work",
        "start": "holdfast.cli.start",
        "execute": "holdfast.cli.inputs",
    },
    "Look": {
        "ui": "holdfast.cli.ui",
        "runs": "holdfast.cli.runs",
        "show": "holdfast.cli.show",
        "watch": "holdfast.cli.watch",
        "explain": "holdfast.cli.explaining",
        "state": "holdfast.cli.instances",
        "stream": "holdfast.cli.instances",
        "graph": "holdfast.cli.drawing",
        "query": "holdfast.cli.replaying",
        "checkpoints": "holdfast.cli.checkpoints",
        "diff": "holdfast.cli.comparing",
        "verify": "holdfast.cli.graphs",
    },
    "Send events": {"send": "holdfast.cli.events", "broadcast": "holdfast.cli.events"},
    "Try code": {"check": "holdfast.cli.checks", "replay": "holdfast.cli.replaying"},
    "Operate on a run": {
        "cancel": "holdfast.cli.operate",
        "pause": "holdfast.cli.operate",
        "resume": "holdfast.cli.operate",
        "retry": "holdfast.cli.operate",
        "reattempt": "holdfast.cli.operate",
        "skip": "holdfast.cli.operate",
        "fork": "holdfast.cli.graphs",
        "dead": "holdfast.cli.dead",
        "projections": "holdfast.cli.projections",
    },
    "Change a run's graph": {
        "freeze": "holdfast.cli.graphs",
        "export": "holdfast.cli.graphs",
        "import": "holdfast.cli.graphs",
    },
    "Operate on everything": {
        "maintenance": "holdfast.cli.holds",
        "drain": "holdfast.cli.holds",
        "prune": "holdfast.cli.database",
        "stats": "holdfast.cli.database",
        "migrate": "holdfast.cli.database",
        "doctor": "holdfast.cli.database",
    },
}
SHORT_HELP: Final = 100
# Python has taken the name of this one.
ATTRIBUTES: Final = {"import": "import_dag"}
HOMES: Final = {name: home for commands in SECTIONS.values() for name, home in commands.items()}


class Program(click.Group):
    """A group that loads a command when it is asked for, and whose errors are two lines and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _loaded(cmd_name) if cmd_name in HOMES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in HOMES:
            near = difflib.get_close_matches(args[0], HOMES, n=3, cutoff=0.5)
            guess = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{guess}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, HOMES))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), _loaded(name).get_short_help_str(SHORT_HELP)) for name in names]
                )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(f"{code:>3}", meaning) for code, meaning in CODES])
        super().format_epilog(ctx, formatter)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command and exit with its code, whatever happens in it."""
        # Made here and not by click, because it has to outlive the context when an error is reported.
        options: Options = extra.setdefault("obj", Options())
        words = sys.argv[1:] if args is None else list(args)
        # Looked for here as well: a line that cannot be parsed never gets as far as its options.
        options.as_json = "--json" in words[: words.index("--") if "--" in words else None]
        try:
            _check_text(words)
            done = super().main(args, prog_name or "holdfast", complete_var, False, **extra)
        except click.exceptions.NoArgsIsHelpError as wanted:
            click.echo(wanted.format_message())
            sys.exit(USAGE)
        except (Exception, KeyboardInterrupt) as error:
            sys.exit(report(error, as_json=options.as_json, debug=options.debug))
        sys.exit(done if isinstance(done, int) else OK)


def _check_text(words: list[str]) -> None:
    """Bytes that are no UTF-8 reach us as half characters, which can be neither stored nor printed."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"the argument {ascii(word)[:80]} is not valid UTF-8") from None


def _loaded(name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(HOMES[name]), ATTRIBUTES.get(name, name))
    return command


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from holdfast import __version__

        click.echo(f"holdfast {__version__}")
        ctx.exit()


@click.group(
    "holdfast",
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="RUN is a run's id, the beginning of one if no other begins so, or WORKFLOW/KEY.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
@common_options
def program() -> None:
    """Holdfast runs workflows that survive: start them, look at them, and operate on them.

    The database is the one that --url or HOLDFAST_URL names, else holdfast.db in the current directory.
    """
