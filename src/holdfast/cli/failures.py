"""How a command ends: the exit codes, and an error as two lines that a person can act on."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import Final

import click

from holdfast.cli.output import is_terminal, printable

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
UNAVAILABLE: Final = 4
INTERRUPTED: Final = 130

CODES: Final = (
    (OK, "done"),
    (FAILED, "the operation was refused or failed, or the run did"),
    (USAGE, "the command line is wrong, or a module could not be imported"),
    (NOT_FOUND, "there is no such run, node, module, file or database"),
    (UNAVAILABLE, "the database cannot be reached or used"),
    (INTERRUPTED, "interrupted with Ctrl-C"),
)


# What the engine advises in Python, as a person at a shell would do it.
SHELL_WORDS: Final = (
    ('pass if_exists="restart"', "give --restart"),
    ('if_exists="restart"', "--restart"),
    ("; result(wait_paused=True) waits for that", ""),
    ("import the module that defines it", "say --app with the module that defines it"),
    ("export it again", "`holdfast export` it again"),
)


class Failure(Exception):
    """Ends a command with a message, a way out, and an exit code."""

    def __init__(self, message: str, *, hint: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.hint = in_shell_words(hint)
        self.code = code


def in_shell_words(hint: str) -> str:
    """A hint of the engine's with the options of the command line in place of Python's."""
    for python, shell in SHELL_WORDS:
        hint = hint.replace(python, shell)
    return hint


def failure_of(error: BaseException) -> Failure:
    """Any exception as a Failure: what happened, what to do, and the code that scripts see."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return Failure("interrupted", hint="nothing that was recorded is lost", code=INTERRUPTED)
    return _of_engine(error) or _unexpected(error)


def _of_click(error: click.ClickException) -> Failure:
    message = error.format_message()
    command = "holdfast" if not isinstance(error, click.UsageError) or error.ctx is None else error.ctx.command_path
    hint = f"`{command} --help` shows how it is used"
    # click puts its guess into the message; ours is the hint's business.
    message, found, guess = message.partition("Did you mean ")
    if found:
        message = message.rstrip(" (")
        hint = f"did you mean {guess.rstrip('?)')}? {hint}"
    return Failure(_uncapitalised(message.rstrip(".")), hint=hint, code=error.exit_code)


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def _of_engine(error: BaseException) -> Failure | None:
    # Imported here: a command line that is wrong is refused without loading the engine.
    from holdfast.core.errors import HoldfastError, StoreError, UnknownNode, UnknownWorkflow, UsageError

    if not isinstance(error, HoldfastError):
        return None
    if isinstance(error, UnknownWorkflow | UnknownNode):
        code = NOT_FOUND
    elif isinstance(error, StoreError):
        code = UNAVAILABLE
    elif isinstance(error, UsageError):
        code = USAGE
    else:
        code = FAILED
    return Failure(error.message, hint=error.hint, code=code)


def _unexpected(error: BaseException) -> Failure:
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    return Failure(f"unexpected {text}", hint="repeat the command with --debug to see where it comes from", code=FAILED)


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print an exception for people on stderr, and for programs on stdout if they asked for JSON; the exit code."""
    failure = failure_of(error)
    if debug and not isinstance(error, click.ClickException):
        traceback.print_exception(error)
    line("error", " ".join(failure.message.split()), "red")  # one line, whatever an error of user code holds
    line("hint", failure.hint, "cyan")
    if as_json:
        document = {"error": {"message": failure.message, "hint": failure.hint, "exit_code": failure.code}}
        with contextlib.suppress(OSError):  # a full disk may be what went wrong, and was told above
            click.echo(json.dumps(document, ensure_ascii=False))
    return failure.code


def note(text: str) -> None:
    """A remark for the person at the terminal, kept out of what a program reads."""
    line("note", text, "yellow")


def line(label: str, text: str, colour: str) -> None:
    """One labelled line on stderr, coloured on a terminal only."""
    shown = f"{label}:"
    if is_terminal(sys.stderr) and not os.environ.get("NO_COLOR"):
        shown = click.style(shown, fg=colour, bold=True)
    click.echo(f"{shown} {printable(text)}", err=True)
