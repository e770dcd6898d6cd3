"""What the demo shows while it runs: bars on a terminal, a line now and then on a pipe."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

LINE_EVERY_SECONDS = 2.0


class Display(Protocol):
    """Where the story is told."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, text: str) -> None:
        """Tell that something happened."""

    def show(self, recorded: Mapping[str, int]) -> None:
        """Show how many orders have each step recorded."""


def make_display(console: Console, steps: tuple[str, ...], orders: int) -> Display:
    """Bars for people who watch, lines for a file or a pipe."""
    return Bars(console, steps, orders) if console.is_terminal else Lines(console, orders)


class Bars:
    """A bar per step, below what was said."""

    def __init__(self, console: Console, steps: tuple[str, ...], orders: int) -> None:
        self._started = time.monotonic()
        self._console = console
        self._progress = Progress(
            TextColumn("    {task.description:<14}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            console=console,
            refresh_per_second=10,
        )
        self._tasks = {step: self._progress.add_task(step, total=orders) for step in steps}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        self._console.print(_stamped(self._started, text), highlight=False)

    def show(self, recorded: Mapping[str, int]) -> None:
        for step, task in self._tasks.items():
            self._progress.update(task, completed=recorded.get(step, 0))


class Lines:
    """One line every two seconds."""

    def __init__(self, console: Console, orders: int) -> None:
        self._started = time.monotonic()
        self._last = 0.0
        self._console = console
        self._orders = orders

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, text: str) -> None:
        self._console.print(_stamped(self._started, text), highlight=False, soft_wrap=True)

    def show(self, recorded: Mapping[str, int]) -> None:
        now = time.monotonic()
        if now - self._last < LINE_EVERY_SECONDS:
            return
        self._last = now
        self.say("[dim]" + "  ".join(f"{step} {count}/{self._orders}" for step, count in recorded.items()) + "[/]")


def _stamped(started: float, text: str) -> str:
    return f"[dim]{time.monotonic() - started:5.1f} s[/]  {text}"
