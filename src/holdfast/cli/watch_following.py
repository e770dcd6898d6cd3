"""Looking again and again: at most four times a second, less often where looking is expensive, until it is enough.

The same looks are painted three ways: as a screen for a person, as a line a change where there is no terminal, and as
a JSON document a change for programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import click
import msgspec

from holdfast.cli.failures import note
from holdfast.cli.output import console, on_terminal, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

T = TypeVar("T")
LOOK_SECONDS: Final = 0.25
RESTS: Final = 4  # so many times as long as a look took is waited for the next: people look, they do not load


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it was: when, in words, and for programs."""

    at: datetime
    text: str
    facts: dict[str, Any]


class Look(Protocol):
    """What was seen once."""

    @property
    def exit_code(self) -> int | None:
        """How the command ends now, or None if it goes on."""

    def screen(self, width: int, height: int) -> RenderableType:
        """All of it, in so much room."""

    def changes(self) -> Sequence[Change]:
        """What is not as it was at the look before; at the first one, everything."""


class Looker(Protocol):
    """Something that can be looked at; it remembers what it has seen."""

    async def look(self, height: int) -> Look: ...


class Painter(AbstractContextManager["Painter"], Protocol):
    """Where looks go."""

    def paint(self, look: Look) -> None: ...

    def trouble(self, text: str) -> None: ...

    def height(self) -> int: ...


async def follow(looker: Looker, *, as_json: bool) -> int | None:
    """Look and paint until a look says how it ends, or until Ctrl-C or SIGTERM, for which there is None."""
    from holdfast.core.errors import StoreUnavailable

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    said = ""
    with _painter(as_json) as painter:
        while True:
            began = time.monotonic()
            try:
                look = await _unless(stop, looker.look(painter.height()))
            except StoreUnavailable as error:  # it may come back, and then there is more to see
                if error.message != said:
                    painter.trouble(f"{error.message}; trying again")
                said = error.message
            else:
                said = ""
                if look is None:
                    return None
                painter.paint(look)
                if look.exit_code is not None:
                    return look.exit_code
            rest = max(LOOK_SECONDS, RESTS * (time.monotonic() - began))
            await _unless(stop, asyncio.sleep(rest))
            if stop.is_set():
                return None


async def _unless(stop: asyncio.Event, doing: Coroutine[Any, Any, T]) -> T | None:
    """What this gives, or None as soon as somebody wants to leave."""
    task, stopped = asyncio.ensure_future(doing), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        stopped.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


def _painter(as_json: bool) -> Painter:
    if as_json:
        return _JsonLines()
    return _Screen(console()) if on_terminal() and not console().is_dumb_terminal else _Lines()


class _Lines:
    """A line a change: for pipes, logs, and terminals that cannot go back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Everything was said."""

    def height(self) -> int:
        return 0

    def paint(self, look: Look) -> None:
        for change in look.changes():
            click.echo(f"{change.at:%H:%M:%S}  {printable(change.text.replace(chr(10), ' '))}")

    def trouble(self, text: str) -> None:
        note(text)


class _JsonLines(_Lines):
    def paint(self, look: Look) -> None:
        for change in look.changes():
            click.echo(json.dumps(msgspec.to_builtins({"at": change.at, **change.facts}), ensure_ascii=False))


class _Screen:
    """The whole terminal while it lasts; what was seen last stays below what the terminal held before."""

    def __init__(self, terminal: Console) -> None:
        from rich.live import Live

        self._terminal = terminal
        self._last: Look | None = None
        self._live = Live(console=terminal, screen=True, auto_refresh=False, redirect_stdout=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()
        if self._last is not None and error is None:
            self._terminal.print(self._last.screen(self._terminal.width, 0))

    def height(self) -> int:
        return self._terminal.height

    def paint(self, look: Look) -> None:
        self._last = look
        self._live.update(look.screen(self._terminal.width, self._terminal.height), refresh=True)

    def trouble(self, text: str) -> None:
        from rich.console import Group
        from rich.text import Text

        width, height = self._terminal.width, self._terminal.height - 1
        seen = Text("") if self._last is None else self._last.screen(width, height)
        self._live.update(Group(seen, Text(printable(text), style="yellow", no_wrap=True)), refresh=True)


__all__ = ["Change", "Look", "Looker", "follow"]
