"""The outside world of the demo: a bank, a warehouse, a mail service.

It keeps a log of its own, a line per event, beside the engine and unknown to it; at the end the two are compared.
Like every good service it takes an idempotency key and does nothing a second time for a key that it has seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import holdfast as hf

FOLDER_VARIABLE = "DEMO_FOLDER"
PACE_VARIABLE = "DEMO_PACE"

# asked: somebody called. done: it took effect. known: the key was seen before, nothing was done. refused: try again
# later. answered: the answer has arrived at the caller.
What = Literal["asked", "done", "known", "refused", "answered"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log."""

    at: float
    what: What
    run: str
    step: str
    attempt: int
    key: str
    pid: int

    @property
    def call(self) -> tuple[str, str, int]:
        return (self.run, self.step, self.attempt)


class World:
    """What others see of our orders."""

    def __init__(self, folder: Path, pace: float) -> None:
        self._path = folder / "world.jsonl"
        self._pace = pace
        self._done_keys: set[str] | None = None

    async def ask(self, *, seconds: float) -> None:
        """Ask for the effect of the step that is running. Killed halfway, it has happened and nobody knows."""
        self._log("asked")
        await asyncio.sleep(seconds * self._pace / 2)
        self._log("known" if self._take_effect() else "done")
        await asyncio.sleep(seconds * self._pace / 2)
        self._log("answered")

    async def refuse(self, *, seconds: float) -> None:
        """Say no, after a while."""
        self._log("asked")
        await asyncio.sleep(seconds * self._pace)
        self._log("refused")

    def _take_effect(self) -> bool:
        """Whether the effect of this key had happened before."""
        if self._done_keys is None:  # by an earlier process, perhaps
            self._done_keys = {event.key for event in read_log(self._path) if event.what == "done"}
        key = hf.current().idempotency_key
        known = key in self._done_keys
        self._done_keys.add(key)
        return known

    def _log(self, what: What) -> None:
        running = hf.current()
        event = Event(
            at=time.time(),
            what=what,
            run=running.run_id,
            step=running.node.name,
            attempt=running.attempt,
            key=running.idempotency_key,
            pid=os.getpid(),
        )
        # One write in append mode: a kill leaves the whole line or none of it.
        with self._path.open("ab", buffering=0) as log:
            log.write(json.dumps(asdict(event)).encode() + b"\n")


def read_log(path: Path) -> Iterator[Event]:
    """Every event so far, oldest first."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Event(**json.loads(line))


world = World(Path(os.environ.get(FOLDER_VARIABLE, ".")), float(os.environ.get(PACE_VARIABLE, "1")))
