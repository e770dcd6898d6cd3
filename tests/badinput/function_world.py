"""Workflows and events to be refused, each in a registry of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import holdfast as hf
from tests.badinput.checks import DEADLINE_SECONDS


@dataclass
class Approval:
    by: str


class World:
    """A registry with a typed event, an action, and a workflow that waits for the event for a day."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.may_end = asyncio.Event()
        self.calls: list[str] = []
        self.foreign: asyncio.Future[None] | None = None
        self.opened = self.engine("memory://")  # until a test opens another
        approved = self.approved = hf.event("approved", Approval, registry=self.registry)

        @hf.action(registry=self.registry)
        async def call(name: str) -> str:
            self.calls.append(name)
            return name

        @hf.action(registry=self.registry)
        async def hold() -> None:
            await self.may_end.wait()

        @hf.workflow(registry=self.registry)
        async def waits() -> str:
            match await hf.wait_for(approved | hf.after(days=1)):
                case hf.Received(value=value, id=id):
                    return f"{value.by}, {id}"
                case hf.TimeReached():
                    return "too late"

        self.call, self.hold, self.waits = call, hold, waits

    def engine(self, url: str, **settings: Any) -> hf.Engine:
        return hf.Engine(url, registry=self.registry, **{"poll_seconds": 0.05, **settings})

    def stranger(self, engine: hf.Engine) -> hf.Engine:
        """Another process as far as it matters: on the same store, without these definitions."""
        store = engine.store if engine.store.kind == "memory" else None
        return hf.Engine(engine.url, registry=hf.Registry(), store=store)


async def failure_of(engine: hf.Engine, workflow: Any, *args: Any) -> hf.RunFailed:
    """How the run of this workflow fails."""
    with pytest.raises(hf.RunFailed) as failed:
        await engine.run(workflow, *args, timeout=DEADLINE_SECONDS)
    return failed.value


def line_of(function: Any, offset: int) -> str:
    """How an error names a line of this function, counted from its first."""
    code = function.fn.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset} in {code.co_name}"
