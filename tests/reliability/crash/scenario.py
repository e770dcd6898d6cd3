"""What a scenario is: code to run, a client that tells it what to do, and what must have come of it at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import holdfast as hf
from tests.reliability.crash import ledger

if TYPE_CHECKING:
    from tests.reliability.crash.oracle import Rows

T = TypeVar("T")
PATIENCE = 2
DEADLINE_SECONDS = 30.0
SETTINGS: dict[str, Any] = {
    # A lease that nobody outlives: whoever goes on has proof of a death, and did not wait for the lease.
    "lease_seconds": 60.0,
    "poll_seconds": 0.03,
    "sweep_seconds": 0.03,
    "shutdown_seconds": 5.0,
    "unknown_after_seconds": 600.0,
}


class Scene:
    """What the client of a scenario has in its hands: an open engine, and the ledger."""

    def __init__(self, engine: hf.Engine) -> None:
        self.engine = engine
        self.kind = engine.store.kind
        self.ledger = ledger.current()

    def ack(self, what: str, *facts: Any) -> None:
        """The engine has acknowledged something to us: from here on no crash may undo it."""
        self.ledger.write("ack", what, *facts)

    async def start(self, workflow: Any, *args: Any, key: str, **options: Any) -> Any:
        """Start a run, or find the one that an earlier life started."""
        handle: Any = await self.engine.start(workflow, *args, key=key, **options)
        self.ack("start", key, handle.id)
        return handle

    async def fork(self, run: Any, *, key: str, **what: Any) -> Any:
        """Fork a run, or find the fork that an earlier life made."""
        handle: Any = await self.patiently(lambda: self.engine.fork(run, key=key, **what))  # asks before it acts
        self.ack("start", key, handle.id)
        return handle

    async def ends(self, handle: Any) -> str:
        """Wait for the end of a run, whatever it is."""
        row = await self.engine.watch.wait(handle.id, lambda row: row.ended, DEADLINE_SECONDS)
        return str(row.status)

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """For questions: whoever asks a server that is just dying is told so, and asks again.

        Not for what changes something: that the engine itself sees through.
        """
        for _ in range(PATIENCE):
            with contextlib.suppress(hf.StoreUnavailable):
                return await ask()
        return await ask()

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                with contextlib.suppress(hf.StoreUnavailable):
                    found = condition()
                    if isinstance(found, Awaitable):
                        found = await found
                    if found:
                        return
                await asyncio.sleep(0.005)


Times: TypeAlias = int | tuple[int, int]
"""How often something happens when nobody dies: a number, or at least and at most."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One line of the table."""

    name: str
    registry: hf.Registry
    play: Callable[[Scene], Awaitable[None]]
    """What the client does. Each life does all of it again, as a client does that was told nothing."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """By key: what the run returns, or how it ends if that is not `completed`."""
    does: Mapping[str, Times] = field(default_factory=dict)
    """By label: how often it is done. A death may repeat what was under way, and nothing else."""
    order: tuple[tuple[str, str], ...] = ()
    """Of each pair the second begins when the first is done."""
    check: Callable[[Rows, list[ledger.Line]], None] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_worker: bool = True
    """Else the client starts workers itself."""
    blank: bool = False
    """The database has no tables yet."""
    concurrency: int = 10


def ended(status: str) -> tuple[str, str]:
    """For `results`: a run that ends in another way than completed."""
    return ("ends", status)


def placeholders(kind: str, count: int) -> str:
    """Of a statement of the user's own: each database has its own way to write them."""
    return ", ".join("?" if kind == "sqlite" else f"${number + 1}" for number in range(count))
