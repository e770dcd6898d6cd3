"""What a command prints: a table, a few named facts, or one JSON document.

Tables are drawn by rich on a terminal, where colours and widths matter, and as plain aligned text
everywhere else: nothing is cut, wrapped or coloured in a pipe. What the database holds was written by
others, so control characters in it are shown and never sent to the terminal.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

GAP: Final = 2
LEAST_WIDTH: Final = 16
NARROWEST: Final = 40
STYLES: Final = {
    "completed": "green",
    "ok": "green",
    "running": "cyan",
    "leased": "cyan",
    "ready": "cyan",
    "paused": "yellow",
    "suspended": "yellow",
    "blocked": "yellow",
    "cancelling": "yellow",
    "warning": "yellow",
    "failed": "red",
    "timed_out": "red",
    "dead": "red",
    "lost": "red",
    "error": "red",
    "pending": "dim",
    "skipped": "dim",
    "cancelled": "dim",
}


SHOWN_STATES: Final = {"leased": "running", "timed_out": "timed out"}


def shown_state(state: str) -> str:
    """A state in the words of people; JSON keeps the stored one."""
    return SHOWN_STATES.get(state, state)


class Cell(str):
    """A text of a table with a status that gives it its colour."""

    status: str

    def __new__(cls, text: str, status: str) -> Cell:
        made = super().__new__(cls, text)
        made.status = status
        return made


def on_terminal() -> bool:
    """Whether stdout is a person's terminal."""
    return is_terminal(sys.stdout)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sees this. Of one that was closed (`>&-`) Python makes None, and nothing is shown there."""
    return stream is not None and stream.isatty()


def console(*, stderr: bool = False) -> Console:
    """Rich's console; it honours NO_COLOR and TERM by itself."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_json(document: object) -> None:
    """One document: on one line for programs, indented for a person who looks."""
    import msgspec

    plain = msgspec.to_builtins(document)
    click.echo(json.dumps(plain, ensure_ascii=False, indent=2 if on_terminal() else None))


def printable(text: str) -> str:
    """The text with line breaks kept and every other control character made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "replace").decode() for c in text)


def one_line(text: str, limit: int = 0) -> str:
    """The text on one line, cut with an ellipsis if there is a limit."""
    flat = printable(" ".join(text.split()))
    return f"{flat[: limit - 3]}..." if limit and len(flat) > limit else flat


def say(text: str, status: str | None = None) -> None:
    """A sentence on stdout, coloured by a status on a terminal."""
    text = printable(text)
    if on_terminal() and status in STYLES:
        console().print(text, style=STYLES[status], soft_wrap=True)
    else:
        click.echo(text)


def paragraph(text: str, *, start: str = "", status: str | None = None) -> None:
    """A text that begins with `start`, wrapped between words on a terminal and left whole in a pipe.

    An id or a path is never broken: people copy it.
    """
    text = printable(text)
    if not on_terminal():
        say(start + text, status)
        return
    lines = textwrap.wrap(
        text,
        max(NARROWEST, console().width),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
    say("\n".join(lines), status)


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Sequence[str] = (), cut: Sequence[str] = ()
) -> None:
    """Aligned columns. On a terminal, `whole` ones are never wrapped, because people copy them, and `cut` ones end
    with an ellipsis where the line ends."""
    shown = [[_cleaned(cell) for cell in row] for row in rows]
    if on_terminal():
        _rich_table(headers, shown, whole, cut)
        return
    widths = [max(len(cell) for cell in column) for column in zip(headers, *shown, strict=True)]
    for row in (headers, *shown):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cleaned(cell: str) -> str:
    flat = one_line(cell)
    return Cell(flat, cell.status) if isinstance(cell, Cell) else flat


def _rich_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str], cut: Sequence[str]
) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    terminal = console()
    natural = [max(cell_len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    widths = _fitted(headers, natural, cut, terminal.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for index, width in widths.items():
        header = headers[index]
        # Rich would rather cut an id than wrap its neighbour, so the least width has to be said.
        fixed = header in whole or header in cut
        table.add_column(header, no_wrap=fixed, overflow="fold", min_width=width if fixed else None)
    for row in rows:
        texts = []
        for index, width in widths.items():
            text = Text(row[index], style=STYLES.get(getattr(row[index], "status", ""), ""))
            if headers[index] in cut:
                text.truncate(width, overflow="ellipsis")
            texts.append(text)
        table.add_row(*texts)
    terminal.print(table)


def _fitted(headers: Sequence[str], natural: Sequence[int], cut: Sequence[str], room: int) -> dict[int, int]:
    """Widths by column. A column that may be cut gets what the others leave, or is left out if that is too little."""
    left = room - sum(width + GAP for header, width in zip(headers, natural, strict=True) if header not in cut)
    widths: dict[int, int] = {}
    for index, (header, width) in enumerate(zip(headers, natural, strict=True)):
        if header not in cut:
            widths[index] = width
        elif left >= min(width, LEAST_WIDTH):
            widths[index] = min(width, left)
            left -= widths[index] + GAP
    return widths


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Named values, one a line, their names in one column."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        label = f"{name.ljust(width)}  "
        lines = printable(value).splitlines() or [""]
        status = getattr(value, "status", None)
        for number, text in enumerate(lines):
            start = label if number == 0 else " " * len(label)
            if on_terminal():
                from rich.text import Text

                console().print(Text.assemble((start, "dim"), (text, STYLES.get(status or "", ""))), soft_wrap=True)
            else:
                click.echo(start + text)


def print_heading(text: str, *, first: bool = False) -> None:
    """The name of a part, with an empty line before it unless it is the first."""
    if not first:
        click.echo()
    if on_terminal() and not os.environ.get("NO_COLOR"):
        text = click.style(text, bold=True)
    click.echo(text)


class Progress(Protocol):
    """Something a person watches while a command works."""

    def advance_to(self, done: int) -> None: ...


class _Silent:
    def advance_to(self, done: int) -> None:
        """Nobody watches."""


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Progress]:
    """A bar on stderr if that is a terminal; without a total, a count that grows."""
    if not is_terminal(sys.stderr):
        yield _Silent()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    count: Any = MofNCompleteColumn() if total is not None else TextColumn("{task.completed:,}")
    with Bar(TextColumn(title), BarColumn(), count, TimeElapsedColumn(), console=console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)

        class Shown:
            def advance_to(self, done: int) -> None:
                bar.update(task, completed=done)

        yield Shown()
