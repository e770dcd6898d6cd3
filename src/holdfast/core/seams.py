"""What the engine takes from the outside world, as values that are passed in.

Nothing below `runtime` reads a clock, draws a random number or makes an id by itself. The simulation
replaces these four; the real ones live in `holdfast.runtime.system`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall time in integer microseconds, and a monotonic second counter for measuring spans."""

    def now_us(self) -> int: ...

    def monotonic(self) -> float: ...


class Ids(Protocol):
    """New identities, ordered by time where order helps (UUIDv7)."""

    def new(self) -> str: ...


class Randomness(Protocol):
    """Jitter for polls and back-off. Never used for anything that must repeat."""

    def random(self) -> float: ...


class StatementExecutor(Protocol):
    """Where a blocking store runs its statements: on the spot, or on its one writer thread."""

    async def run(self, call: Callable[[], T]) -> T: ...

    def close(self) -> None: ...
