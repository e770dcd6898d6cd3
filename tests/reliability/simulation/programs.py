"""What a seed runs: programs of all models, made by dice. Each drives its runs as a client does, and checks them."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Protocol

import holdfast as hf
from tests.reliability.simulation.actions import Job
from tests.reliability.simulation.ledger import must

if TYPE_CHECKING:
    from tests.reliability.simulation.world import World


class Program(Protocol):
    """One client's business."""

    name: str

    async def drive(self) -> None:
        """Start what is to run, and do to it what is to be done; returns when all of that is acknowledged."""

    async def check(self, engine: hf.Engine) -> None:
        """At the end: everything is as promised, or `Broken` says what is not."""

    async def open_runs(self, engine: hf.Engine) -> list[str]:
        """Runs that have not come to where they must."""


class Basis:
    """What programs have in common: a name, dice of their own, and labels that nobody else uses."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"{type(self).__name__.lower()}{number}"
        self.dice = random.Random(f"{world.seed} {self.name}")
        self._labels = 0
        self.runs: dict[str, str] = {}  # ids by key, of what was acknowledged

    def label(self) -> str:
        self._labels += 1
        return f"{self.name}.{self._labels}"

    def job(self, *, fails: int | None = None) -> Job:
        takes = self.dice.choice((0.0, 0.0, 0.05, 0.4, 1.5))
        failing = self.dice.choice((0, 0, 0, 0, 1, 2)) if fails is None else fails
        return Job(label=self.label(), takes=takes, fails=failing)

    async def start(self, workflow: Any, *args: Any, key: str | None = None) -> str:
        """Start under a key, which makes it harmless to ask again."""
        key = key or self.name

        async def call(engine: hf.Engine) -> str:
            return (await engine.start(workflow, *args, key=key)).id

        run = await self.world.ask(call)
        if key in self.runs:
            must(self.runs[key] == run, "I12", f"key {key} belongs to {self.runs[key]}, and a repeated start got {run}")
        self.runs[key] = run
        return run

    async def pause_a_while(self, most: float) -> None:
        await asyncio.sleep(self.dice.random() * most)

    async def open_runs(self, engine: hf.Engine) -> list[str]:
        rows = await engine.store.runs(sorted(self.runs.values()))
        must(len(rows) == len(self.runs), "G1", f"{self.name} was told of {self.runs}, and only {rows} exist")
        return [row.id for row in rows if not row.ended]
